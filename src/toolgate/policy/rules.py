"""The five manifest rules (document 001), and what of them stops a server from starting.

| rule                | what it finds                                        | severity |
|---------------------|------------------------------------------------------|----------|
| code-without-policy | a live tool that has no row                          | fatal    |
| policy-without-code | a row that has no live tool                          | warning  |
| contract-drift      | the built contract differs from the committed one    | drift    |
| tier1-without-adr   | an authoritative tool without an accepted ADR        | fatal    |
| tier2-claims-l0     | an experimental tool that declares binding outcomes  | fatal    |
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from toolgate.errors import StartRefused
from toolgate.model.envelope import L0_ONLY_CODES
from toolgate.policy import contract as contracts

if TYPE_CHECKING:
    from toolgate.model.tool import Pack, Tool
    from toolgate.policy.adr import Adr
    from toolgate.policy.contract import Contract
    from toolgate.policy.manifest import Manifest, Row

Severity = Literal["fatal", "drift", "warning"]

RULES: Final[Mapping[str, Severity]] = {
    "code-without-policy": "fatal",
    "policy-without-code": "warning",
    "contract-drift": "drift",
    "tier1-without-adr": "fatal",
    "tier2-claims-l0": "fatal",
}

_CLAIMS: Final = ("block", *sorted(code.lower() for code in L0_ONLY_CODES))
"""Words that no hint of an experimental tool may hold, in whatever letters."""


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    subject: str
    """The tool or pack it is about."""
    text: str

    @property
    def severity(self) -> Severity:
        return RULES[self.rule]

    def as_json(self) -> dict[str, str]:
        return {"rule": self.rule, "severity": self.severity, "subject": self.subject, "text": self.text}


def judge(packs: Sequence[Pack], manifest: Manifest, adrs: Mapping[str, Adr], lock: Contract | None) -> list[Finding]:
    """All five rules, in the order of the table; without a lock (it is about to be built) the third finds nothing."""
    tools = [tool for pack in packs for tool in pack.tools]
    live = [(tool, manifest.rows[tool.name]) for tool in tools if tool.name in manifest.rows]
    findings = list(_code_without_policy(tools, manifest))
    findings += _policy_without_code(tools, manifest, lock)
    if lock is not None:
        findings += _contract_drift(packs, manifest, adrs, lock)
    for tool, row in live:
        findings += _tier1_without_adr(row, adrs)
        findings += _tier2_claims_l0(tool, row, manifest)
    return findings


def check_start(packs: Sequence[Pack], manifest: Manifest, adrs: Mapping[str, Adr], lock: Contract) -> list[str]:
    """May a server with these packs start under this policy? Answers the warnings to show.

    Raises: StartRefused: names every tool that stands in the way, and the fix.
    """
    findings = judge(packs, manifest, adrs, lock)
    refused = [finding.text for finding in findings if finding.severity != "warning"]
    if refused:
        raise StartRefused("\n".join(refused))
    demoted = sorted(manifest.demoted & {tool.name for pack in packs for tool in pack.tools})
    return [finding.text for finding in findings] + [
        f"{name} is held to experimental here: what it decides is clamped to advice." for name in demoted
    ]


def _code_without_policy(tools: Iterable[Tool], manifest: Manifest) -> Iterator[Finding]:
    for tool in tools:
        if tool.name not in manifest.rows and tool.name not in manifest.withdrawn:
            yield Finding(
                "code-without-policy",
                tool.name,
                f"{tool.name} has no row in the policy manifest. Add one to mcp-tools.policy.json, or disable its pack.",
            )


def _policy_without_code(tools: Iterable[Tool], manifest: Manifest, lock: Contract | None) -> Iterator[Finding]:
    # A row of a pack that is only not enabled here is known to the lock: that is no declaration of intent.
    known = {tool.name for tool in tools} | {entry["name"] for entry in (lock or {}).get("tools", ())}
    for name in sorted(manifest.rows.keys() - known):
        yield Finding("policy-without-code", name, f"{name} is pre-declared: it has a row and no tool yet.")


def _contract_drift(
    packs: Sequence[Pack], manifest: Manifest, adrs: Mapping[str, Adr], lock: Contract
) -> Iterator[Finding]:
    """Only enabled packs are compared; the announcements are not, because they promise nothing about today."""
    live = contracts.build(packs, manifest, adrs)
    locked = contracts.part(lock, [pack.name for pack in packs])
    for name, old, new in _pairs(locked["tools"], live["tools"], "name"):
        fault = _difference(old, new)
        if fault:
            yield Finding(
                "contract-drift",
                name,
                f"the contract of {name} differs from the lock ({fault}). "
                "Look at `toolgate contract diff`, then run `toolgate contract build`.",
            )
    for adr, old, new in _pairs(locked["adrs"], live["adrs"], "id"):
        fault = _difference(old, new)
        if fault:
            yield Finding(
                "contract-drift",
                adr,
                f"{adr} is not the record the contract was built with ({fault}). Run `toolgate contract build`.",
            )


def _pairs(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], key: str
) -> Iterator[tuple[str, Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    before, after = {item[key]: item for item in old}, {item[key]: item for item in new}
    for name in sorted(before.keys() | after.keys()):
        yield name, before.get(name), after.get(name)


def _difference(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if old is None:
        return "not in the lock"
    if new is None:
        return "only in the lock"
    # A digest follows from the rest; an edited one alone is still a lock that was not built.
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key, _ABSENT) != new.get(key, _ABSENT))
    return ", ".join([key for key in changed if key != "digest"] or changed)


_ABSENT: Final = object()


def _tier1_without_adr(row: Row, adrs: Mapping[str, Adr]) -> Iterator[Finding]:
    if row.tier != "authoritative":
        return
    if row.adr is None:
        fault = "names no ADR"
    elif row.adr not in adrs:
        fault = f"names {row.adr}, which does not exist"
    elif not adrs[row.adr].accepted:
        fault = f"names {row.adr}, whose status is {adrs[row.adr].status}"
    else:
        return
    yield Finding(
        "tier1-without-adr",
        row.name,
        f"{row.name} is authoritative and {fault}. Have an ADR accepted for it, or hold it experimental.",
    )


def _tier2_claims_l0(tool: Tool, row: Row, manifest: Manifest) -> Iterator[Finding]:
    if row.tier != "experimental":
        return
    claims = [f'hint says "{word}"' for word in _CLAIMS if word in _folded(row.hint)]
    if row.name not in manifest.demoted:
        claims += [f"declares {code}" for code in sorted(L0_ONLY_CODES & set(tool.error_codes))]
        claims += ["declares decision block"] * ("block" in tool.decisions)
    if claims:
        yield Finding(
            "tier2-claims-l0",
            row.name,
            f"{row.name} is experimental and its {', '.join(claims)}. Only an authoritative tool may bind: "
            "take the claim out.",
        )


def _folded(text: str) -> str:
    """Letters as a reader sees them: compatibility forms folded, invisible characters gone, case ignored."""
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf").casefold()
