"""The five manifest rules (ADR-0002), and what of them stops a server from starting.

| rule                | what it finds                                        | severity |
|---------------------|------------------------------------------------------|----------|
| code-without-policy | a live tool that has no row, or another pack's       | fatal    |
| policy-without-code | a row that has no live tool                          | warning  |
| contract-drift      | the built contract differs from the committed one    | drift    |
| tier1-without-adr   | an authoritative tool without an accepted ADR        | fatal    |
| tier2-claims-l0     | an experimental tool that declares binding outcomes  | fatal    |
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from toolgate.errors import StartRefused
from toolgate.model.envelope import L0_ONLY_CODES
from toolgate.model.offers import offered
from toolgate.policy import contract as contracts
from toolgate.policy import schemadiff

if TYPE_CHECKING:
    from toolgate.model.tool import Pack, Tool
    from toolgate.policy.adr import Adr
    from toolgate.policy.contract import Contract
    from toolgate.policy.manifest import Manifest, ManifestRow

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


class Breach(Struct, frozen=True):
    rule: str
    subject: str
    """The tool or pack it is about."""
    text: str
    fix: str

    @property
    def severity(self) -> Severity:
        return RULES[self.rule]

    def as_json(self) -> dict[str, str]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "subject": self.subject,
            "text": self.text,
            "fix": self.fix,
        }


def judge(packs: Sequence[Pack], manifest: Manifest, adrs: Mapping[str, Adr], lock: Contract | None) -> list[Breach]:
    """All five rules, in the order of the table; without a lock (it is about to be built) the third finds nothing."""
    tools = [tool for pack in packs for tool in offered(pack)]
    live = [(tool, manifest.rows[tool.name]) for tool in tools if tool.name in manifest.rows]
    breaches = list(_code_without_policy(packs, manifest))
    breaches += _policy_without_code(tools, manifest, lock)
    if lock is not None:
        breaches += _contract_drift(packs, manifest, adrs, lock)
    for tool, row in live:
        breaches += _tier1_without_adr(row, adrs)
        breaches += _tier2_claims_l0(tool, row, manifest)
    return breaches


def check_start(packs: Sequence[Pack], manifest: Manifest, adrs: Mapping[str, Adr], lock: Contract) -> list[str]:
    """May a server with these packs start under this policy? Answers the warnings to show.

    Raises: StartRefused: names every tool that stands in the way, and the fix.
    """
    breaches = judge(packs, manifest, adrs, lock)
    refused = [breach for breach in breaches if breach.severity != "warning"]
    if refused:
        fixes = dict.fromkeys(breach.fix for breach in refused)
        raise StartRefused(" ".join(breach.text for breach in refused) + "\n" + " ".join(fixes))
    warnings = []
    intended = [breach.subject for breach in breaches]
    if intended:
        warnings.append(f"pre-declared in the manifest, with no tool yet: {', '.join(intended)}")
    demoted = sorted(manifest.demoted & {tool.name for pack in packs for tool in offered(pack)})
    if demoted:
        warnings.append(f"held to experimental here, so that what they decide is advice: {', '.join(demoted)}")
    return warnings


def _code_without_policy(packs: Iterable[Pack], manifest: Manifest) -> Iterator[Breach]:
    for pack in packs:
        for tool in offered(pack):
            row = manifest.rows.get(tool.name)
            if row is None and tool.foreign is not None:
                continue  # pinned and not given to anyone: not served
            if row is None and tool.name not in manifest.withdrawn:
                fault = "has no row in the policy manifest."
                fix = "Add a row to mcp-tools.policy.json, or disable the pack."
            elif row is not None and row.pack not in (None, pack.name):
                fault = f"comes from pack {pack.name}, and its row is for pack {row.pack}."
                fix = "Rename the tool."
            else:
                continue
            yield Breach("code-without-policy", tool.name, f"{tool.name} {fault}", fix)


def _policy_without_code(tools: Iterable[Tool], manifest: Manifest, lock: Contract | None) -> Iterator[Breach]:
    # A row of a pack that is only not enabled here is known to the lock: that is not a declaration of intent.
    known = {tool.name for tool in tools} | {entry["name"] for entry in (lock or {}).get("tools", ())}
    for name in sorted(manifest.rows.keys() - known):
        yield Breach(
            "policy-without-code",
            name,
            f"{name} is pre-declared: a row without a tool.",
            "Build the tool, or remove the row.",
        )


def _contract_drift(
    packs: Sequence[Pack], manifest: Manifest, adrs: Mapping[str, Adr], lock: Contract
) -> Iterator[Breach]:
    """Only enabled packs are compared; announcements are not, because they promise nothing about today."""
    live = contracts.tool_entries(packs, manifest)
    names = {pack.name for pack in packs}
    locked = [tool for tool in lock["tools"] if tool["pack"] in names]
    bound = {tool.get("x-adr") for tool in locked}
    records = [adr for adr in lock["adrs"] if adr["id"] in bound]
    for name, fault in _differences(locked, live, "name"):
        yield Breach(
            "contract-drift",
            name,
            f"The contract of {name} differs from the lock ({fault}).",
            "Look at `toolgate contract diff`, then run `toolgate contract build`.",
        )
    for name, fault in _differences(records, contracts.adr_entries(live, adrs), "id"):
        yield Breach(
            "contract-drift",
            name,
            f"{name} is not the record the contract was built with ({fault}).",
            "Look at `toolgate contract diff`, then run `toolgate contract build`.",
        )


def _differences(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], key: str
) -> Iterator[tuple[str, str]]:
    """Which entries differ, and in which fields. Digests are left out: they follow from the rest."""
    before, after = {item[key]: item for item in old}, {item[key]: item for item in new}
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield name, "not in the lock"
        elif name not in after:
            yield name, "only in the lock"
        else:
            was, now = before[name], after[name]
            changed = [each for each in sorted((was.keys() | now.keys()) - {"digest"}) if not _same(was, now, each)]
            if changed:
                yield name, ", ".join(changed)


def _same(was: Mapping[str, Any], now: Mapping[str, Any], key: str) -> bool:
    return key in was and key in now and schemadiff.same(was[key], now[key])


def _tier1_without_adr(row: ManifestRow, adrs: Mapping[str, Adr]) -> Iterator[Breach]:
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
    yield Breach(
        "tier1-without-adr",
        row.name,
        f"{row.name} is authoritative and {fault}.",
        "Have an ADR accepted for it, or hold it experimental.",
    )


def _tier2_claims_l0(tool: Tool, row: ManifestRow, manifest: Manifest) -> Iterator[Breach]:
    if row.tier != "experimental":
        return
    claims = [f'its hint says "{word}"' for word in _CLAIMS if word in _folded(row.hint)]
    if row.name not in manifest.demoted:
        claims += [f"it declares {code}" for code in sorted(L0_ONLY_CODES & set(tool.error_codes))]
        claims += ["it declares the decision block"] * ("block" in tool.decisions)
    if claims:
        yield Breach(
            "tier2-claims-l0",
            row.name,
            f"{row.name} is experimental, and {', '.join(claims)}.",
            "Only an authoritative tool may bind: take the claim out.",
        )


def _folded(text: str) -> str:
    """Letters as a reader sees them: compatibility forms folded, invisible characters gone, case ignored."""
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf").casefold()
