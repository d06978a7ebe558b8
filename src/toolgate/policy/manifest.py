"""The policy manifest: for each tool its tier, its ADR, its hint and its roles. Code cannot say any of these about itself.

The packaged manifest is the default. A deployment's own replaces it wholly but may only narrow it (`narrow`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import jsonschema_rs
from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import StartRefused
from toolgate.kit.conditions.approval import ANSWERER
from toolgate.kit.conditions.rules import RuleKind, RuleText
from toolgate.model import strictjson
from toolgate.model.call import CALLING_ROLES, ROLES, Caller

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from toolgate.model.call import Tier
    from toolgate.policy.adr import Adr

MANIFEST_FILE: Final = "mcp-tools.policy.json"
SCHEMA_FILE: Final = "policy-schema.json"
LOCK_FILE: Final = "mcp-contract.json"
FILES: Final = (MANIFEST_FILE, SCHEMA_FILE, LOCK_FILE)
"""What a policy directory holds. `toolgate init` copies all three."""
MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""As many rows as the schema allows (forty upstreams of a hundred tools each), with long hints."""
MAX_FAULTS: Final = 20
"""Faults told at once: enough to mend a file in one go, few enough to read."""


class ManifestRow(Struct, frozen=True):
    """What the manifest says about one tool."""

    name: str
    tier: Tier
    adr: str | None
    hint: str
    roles: frozenset[str]
    pack: str | None = None
    """Where the tool must come from; None leaves it open, for a tool that is only known to a deployment."""
    effect: Literal["read"] | None = None
    """For an adopted tool: a person says that a call changes nothing."""
    asks: frozenset[str] = frozenset()
    """What it may ask of a client in the middle of a call."""
    rules: tuple[RuleText, ...] = ()
    """What is refused although the role holds the tool."""
    examples: tuple[Example, ...] = ()

    def as_decided(self) -> dict[str, Any]:
        """What calls are decided by, as JSON: all but the examples, which only test it."""
        return {
            "tier": self.tier,
            "adr": self.adr,
            "hint": self.hint,
            "roles": sorted(self.roles),
            "pack": self.pack,
            "effect": self.effect,
            "asks": sorted(self.asks),
            "rules": [rule.as_json() for rule in self.rules],
        }

    def is_held_by(self, caller: Caller) -> bool:
        """By its role, and within its key's scopes."""
        return caller.role in self.roles and (caller.bounds is None or caller.bounds.covers(self.name))


class Example(Struct, frozen=True):
    """A call, and how the policy is meant to decide about it. `toolgate policy test` judges it."""

    given: Mapping[str, Any]
    """args, caller, environment, now: what is left out is empty, the row's first role, local, and now."""
    expect: str
    rule: str | None = None


class Deprecation(Struct, frozen=True):
    """A breaking change announced ahead: which part of which tool, and since when callers could know."""

    tool: str
    what: str
    announced: date
    text: str

    def as_json(self) -> dict[str, str]:
        return {"tool": self.tool, "what": self.what, "announced": self.announced.isoformat(), "text": self.text}


class Manifest(Struct, frozen=True):
    version: str
    rows: Mapping[str, ManifestRow]
    """By tool name. A tool that is not here is denied."""
    deprecations: tuple[Deprecation, ...] = ()
    withdrawn: frozenset[str] = frozenset()
    """Tools of the default that a deployment left out: not served, and not orphans."""
    demoted: frozenset[str] = frozenset()
    """Tools that a deployment holds to a lower tier than they were written for: the floor clamps what they say."""
    source: str = MANIFEST_FILE
    """Where it was read."""
    roles: Mapping[str, str] = {}
    """Roles of the deployment: name -> the built-in role that it was made of."""
    answering: frozenset[str] = frozenset()
    """Those of them that may answer requests for approval."""

    @property
    def answerers(self) -> frozenset[str]:
        return self.answering | {ANSWERER}

    def base_of(self, role: str) -> str:
        return self.roles.get(role, role)

    def bases(self, row: ManifestRow) -> dict[str, str]:
        """Of the custom roles that hold this tool."""
        return {role: self.roles[role] for role in sorted(row.roles & self.roles.keys())}

    def as_decided(self) -> dict[str, Any]:
        """What calls are decided by, as JSON: no matter how the file is laid out, what it announces, and where it was read."""
        answering = {"answering": sorted(self.answering)} if self.answering else {}
        rows = {name: row.as_decided() for name, row in self.rows.items()}
        return {"roles": dict(self.roles), "tools": rows, **answering}

    @property
    def calling_roles(self) -> tuple[str, ...]:
        """Every role that a row may name."""
        return (*CALLING_ROLES, *sorted(self.roles))


def default_file(name: str) -> Traversable:
    """A file of the packaged policy directory."""
    return files("toolgate.policy") / "default" / name


def load_manifest(path: Path | None) -> Manifest:
    """Read a manifest file; None reads the packaged one. Raises: StartRefused: names the file, the row and the fix."""
    place = path or default_file(MANIFEST_FILE)
    found = read_json(place, max_bytes=MAX_MANIFEST_BYTES)
    manifest = parse_manifest(found, str(path or MANIFEST_FILE))
    return _with_lines(manifest, place) if any(row.rules for row in manifest.rows.values()) else manifest


def _with_lines(manifest: Manifest, place: Path | Traversable) -> Manifest:
    """Each rule with the line on which its name stands, for faults."""
    text = place.read_text(encoding="utf-8")
    rows = {
        name: replace(row, rules=tuple(replace(rule, line=_line_of(text, name, rule.name)) for rule in row.rules))
        for name, row in manifest.rows.items()
    }
    return replace(manifest, rows=rows)


def _line_of(text: str, row: str, rule: str | None = None) -> int:
    """Of a row, or of a rule in it. 0: not where one would look."""
    found = re.search(rf'"name"\s*:\s*"{re.escape(row)}"', text)
    if found and rule is not None:
        found = re.compile(rf'"name"\s*:\s*"{re.escape(rule)}"').search(text, found.end())
    return text.count("\n", 0, found.start()) + 1 if found else 0


def read_json(source: Path | Traversable, *, max_bytes: int = strictjson.MAX_BYTES) -> Any:
    """Raises: StartRefused: the file is missing, unreadable, too large or not strict JSON."""
    try:
        with source.open("rb") as file:
            data = file.read(max_bytes + 1)
        return strictjson.loads(data, max_bytes=max_bytes, max_values=None)
    except OSError as fault:
        raise StartRefused(
            f"{source} cannot be read ({fault.strerror or type(fault).__name__}).\nPut the file there, or name another place."
        ) from None
    except strictjson.JsonFault as fault:
        raise StartRefused(f"{source} is refused: {fault}.\nMend the file.") from None


@cache
def _validator() -> jsonschema_rs.Draft202012Validator:
    schema = strictjson.loads(default_file(SCHEMA_FILE).read_bytes())
    return jsonschema_rs.Draft202012Validator(schema)


def parse_manifest(content: Any, source: str) -> Manifest:
    """Judge a manifest that was read; `source` names it in faults. Raises: StartRefused."""
    faults = [
        _fault(error, content) for _, error in zip(range(MAX_FAULTS), _validator().iter_errors(content), strict=False)
    ]
    if faults:
        raise StartRefused(f"{source} does not fit {SCHEMA_FILE}: " + "; ".join(faults) + ".\nMend these places.")
    roles = _custom_roles(content.get("roles", ()), source)
    answering = frozenset(item["name"] for item in content.get("roles", ()) if item.get("answers"))
    rows: dict[str, ManifestRow] = {}
    for item in content["tools"]:
        row = _row(item)
        if row.name in rows:
            raise StartRefused(f"{source} has two rows for {row.name}.\nKeep one.")
        if len({rule.name for rule in row.rules}) != len(row.rules):
            raise StartRefused(f"{source}: row {row.name} has two rules of one name.\nRename one.")
        _check_known(row, roles, source)
        _check_answered(row, answering | {ANSWERER}, source)
        rows[row.name] = row
    deprecations = tuple(_deprecation(item, source) for item in content.get("deprecations", ()))
    return Manifest(content["version"], rows, deprecations, source=source, roles=roles, answering=answering)


def _custom_roles(items: Iterable[Mapping[str, str]], source: str) -> dict[str, str]:
    """Raises: StartRefused: a name is taken."""
    roles: dict[str, str] = {}
    for item in items:
        name = item["name"]
        if name in ROLES or name in roles:
            whose = "is Toolgate's own" if name in ROLES else "is declared twice"
            raise StartRefused(f"{_place(source, name)}: role {name} {whose}.\nGive it another name.")
        roles[name] = item["base"]
    return roles


def _check_known(row: ManifestRow, roles: Mapping[str, str], source: str) -> None:
    """Raises: StartRefused: a row names a role that is nowhere declared."""
    unknown = sorted(row.roles.difference(CALLING_ROLES, roles))
    if not unknown:
        return
    place, name = _place(source, row.name), unknown[0]
    if name in ROLES:
        raise StartRefused(f"{place}: row {row.name}: {name} calls no tool.\nRemove the role.")
    raise StartRefused(
        f"{place}: row {row.name}: there is no role {name}.\n"
        f'Use {", ".join([*CALLING_ROLES, *sorted(roles)])}, or declare it: "roles": [{{"name": "{name}", "base": "builder"}}].'
    )


def _check_answered(row: ManifestRow, answerers: frozenset[str], source: str) -> None:
    """Raises: StartRefused: a rule waits for a role that may not answer."""
    for rule in row.rules:
        unknown = sorted(set(rule.answered_by) - answerers)
        if unknown:
            raise StartRefused(
                f"{_place(source, row.name)}: row {row.name}, rule {rule.name}: {unknown[0]} may not answer requests.\n"
                f"Use {', '.join(sorted(answerers))}, or declare it: "
                f'"roles": [{{"name": "{unknown[0]}", "base": "builder", "answers": true}}].'
            )


def _place(source: str, name: str) -> str:
    """`FILE, line N`, where the file says this name; without the line where it cannot be found."""
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return source
    line = _line_of(text, name)
    return f"{source}, line {line}" if line else source


def _row(item: Mapping[str, Any]) -> ManifestRow:
    return ManifestRow(
        name=item["name"],
        tier=item["x-tier"],
        adr=item.get("x-adr"),
        hint=item["x-visibilityHint"],
        roles=frozenset(item["x-roles"]),
        pack=item.get("x-pack"),
        effect=item.get("x-effect"),
        asks=frozenset(item.get("x-asks", ())),
        rules=tuple(_rule(each) for each in item.get("x-rules", ())),
        examples=tuple(Example(each["given"], each["expect"], each.get("rule")) for each in item.get("x-examples", ())),
    )


def _rule(item: Mapping[str, Any]) -> RuleText:
    kind: RuleKind = "deny" if "deny" in item else "require-approval"
    answered_by = tuple(sorted(item.get("answered-by", ())))
    return RuleText(item["name"], kind, item[kind], item.get("text", ""), item.get("approvers", 1), answered_by)


def _deprecation(item: Mapping[str, str], source: str) -> Deprecation:
    try:
        announced = date.fromisoformat(item["announced"])
    except ValueError:
        raise StartRefused(
            f"{source}: the deprecation of {item['tool']} was announced on no real day.\nWrite a day like 2026-11-15."
        ) from None
    return Deprecation(item["tool"], item["what"], announced, item["text"])


def _fault(error: jsonschema_rs.ValidationError, content: Any) -> str:
    """`row dummy_experimental: x-tier: "gold" is not one of ...`: the row by name, because nobody counts rows."""
    path = list(error.instance_path)
    place = "/".join(str(part) for part in path)
    if path[:1] == ["tools"] and len(path) > 1:
        item = content["tools"][path[1]]
        name = item.get("name") if isinstance(item, dict) else None
        row = name if isinstance(name, str) else str(path[1])
        place = ": ".join([f"row {row[:64]}", *(str(part) for part in path[2:3])])
    fix = _FIXES.get(error.message, "")
    return f"{place or 'the manifest'}: {error.message[:200]}{fix}"


_FIXES: Final = {
    '"x-roles" is a required property': ' (name who may call the tool, such as ["committer", "admin"]: what is absent denies)'
}
"""What to write where a row of another server's manifest lacks it."""


def narrow(default: Manifest, own: Manifest, own_adrs: Mapping[str, Adr] | None = None) -> Manifest:
    """A deployment's own manifest in place of the default, if it asks for nothing more.

    It may leave rows out, take roles away and lower a tier. A role of its own may stand where the default has that role's
    base. Rows for tools that the default does not know (a stranger's pack) are experimental, unless they name an ADR that is
    accepted in the deployment's own directory (`own_adrs`).

    Raises: StartRefused: names the row that asks for more.
    """
    for row in own.rows.values():
        base = default.rows.get(row.name)
        if base is None:
            _check_new(row, default, own_adrs or {})
        else:
            _check_narrower(base, row, own)
    demoted = {name for name, row in own.rows.items() if name in default.rows and row.tier != default.rows[name].tier}
    withdrawn = default.rows.keys() - own.rows.keys()
    own = replace(own, rows={name: _as_answered(default.rows.get(name), row) for name, row in own.rows.items()})
    return replace(own, withdrawn=frozenset(withdrawn), demoted=frozenset(demoted))


def _check_narrower(base: ManifestRow, row: ManifestRow, own: Manifest) -> None:
    if row.effect is not None:
        raise StartRefused(f"row {row.name}: x-effect is for tools of upstreams; this one's code says it.\nRemove it.")
    if row.tier == "authoritative" and base.tier != "authoritative":
        raise StartRefused(
            f"row {row.name}: the packaged policy holds it experimental.\nA deployment may only lower a tier."
        )
    _check_roles(base, row, own)
    if row.asks - base.asks:
        raise StartRefused(f"row {row.name}: x-asks allows more than the packaged policy.\nRemove what it adds.")
    there = {rule.name: rule.as_json() for rule in row.rules}
    missing = [rule.name for rule in base.rules if there.get(rule.name) != rule.as_json()]
    if missing:
        raise StartRefused(
            f"row {row.name}: the packaged rule {', '.join(missing)} is missing or different.\n"
            "A deployment may add rules, and must keep those of the packaged policy."
        )
    if row.pack != base.pack:
        raise StartRefused(f'row {row.name}: its tool comes from pack {base.pack}.\nWrite "x-pack": "{base.pack}".')
    if row.adr is not None and row.adr != base.adr:
        raise StartRefused(
            f"row {row.name}: the packaged policy binds it to {base.adr or 'no ADR'}, not {row.adr}.\nName that one, or none."
        )


def _as_answered(base: ManifestRow | None, row: ManifestRow) -> ManifestRow:
    """A packaged rule that names no roles was written for one answerer: no role of the deployment counts there."""
    packaged = {rule.name for rule in base.rules if not rule.answered_by} if base is not None else set()
    asked = packaged & {rule.name for rule in row.rules if rule.kind == "require-approval"}
    if not asked:
        return row
    rules = (replace(rule, answered_by=(ANSWERER,)) if rule.name in asked else rule for rule in row.rules)
    return replace(row, rules=tuple(rules))


def _check_roles(base: ManifestRow, row: ManifestRow, own: Manifest) -> None:
    """Raises: StartRefused: somebody would hold the tool who does not by the packaged policy."""
    added = sorted(role for role in row.roles if own.base_of(role) not in base.roles)
    if added:
        raise StartRefused(
            f"{_place(own.source, row.name)}: row {row.name}: {_with_bases(added, own)} does not hold it by the packaged "
            "policy.\nRemove the role."
        )
    by_role = [rule.name for rule in base.rules if "caller.role" in rule.when]
    custom = sorted(row.roles & own.roles.keys())
    if custom and by_role:
        raise StartRefused(
            f"{_place(own.source, row.name)}: row {row.name}: the packaged rule {by_role[0]} goes by the caller's role, and "
            f"does not know {custom[0]}.\nRemove the role."
        )


def _with_bases(names: Iterable[str], own: Manifest) -> str:
    """`builder, releaser (made of committer)`."""
    return ", ".join(f"{name} (made of {own.roles[name]})" if name in own.roles else name for name in names)


def _check_new(row: ManifestRow, default: Manifest, own_adrs: Mapping[str, Adr]) -> None:
    """A tool of a stranger's pack: advisory, or backed by a document of the deployment itself."""
    if row.adr is not None and row.adr in {base.adr for base in default.rows.values()}:
        raise StartRefused(
            f"row {row.name}: {row.adr} belongs to the packaged policy.\nWrite an ADR under another number."
        )
    if row.tier == "experimental":
        return
    adr = own_adrs.get(row.adr) if row.adr else None
    if adr is None or not adr.accepted:
        state = "names no ADR" if row.adr is None else f"{row.adr} is {adr.status if adr else 'missing'}"
        raise StartRefused(
            f"row {row.name}: a new tool binds only by an accepted ADR of this deployment, and here {state}.\n"
            "Hold it experimental, or accept the ADR first."
        )
