"""What a change of the contract means for those who call: breaking, widening (compatible, grants or takes more) or text.

Names, arguments, roles, codes and the fields of an answer are what callers rely on. Whatever this file does not know is
breaking. A breaking change must have been announced in the contract that it breaks, for at least two weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.policy.schemadiff import Difference, Kind, same, schema_changes

if TYPE_CHECKING:
    from toolgate.policy.contract import Contract

NOTICE: Final = timedelta(days=14)
"""How long callers must have been able to read an announcement before the change is made."""
_ORDER: Final[Mapping[Kind, int]] = {"breaking": 0, "widening": 1, "text-only": 2}
_POWER: Final = ("read", "write", "crypto", "network")


class ContractChange(Struct, frozen=True):
    kind: Kind
    tool: str
    what: str
    """The part that changed; a deprecation entry names it with the same word."""
    text: str

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "tool": self.tool, "what": self.what, "text": self.text}


def compare(old: Contract, new: Contract) -> list[ContractChange]:
    """Every difference between two contracts, the gravest first."""
    before = {tool["name"]: tool for tool in old["tools"]}
    after = {tool["name"]: tool for tool in new["tools"]}
    changes: list[ContractChange] = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            changes.append(ContractChange("breaking", name, "tool", "the tool is gone"))
        elif name not in before:
            changes.append(ContractChange("widening", name, "tool", "the tool is new"))
        else:
            changes += _tool_changes(name, before[name], after[name])
    changes += _record_changes(old["adrs"], new["adrs"])
    changes += _announcements(old["deprecations"], new["deprecations"])
    return sorted(changes, key=lambda change: (_ORDER[change.kind], change.tool, change.what, change.text))


def unannounced(changes: Sequence[ContractChange], old: Contract, today: date) -> list[ContractChange]:
    """Breaking changes without an entry old enough in the contract they break; an entry for `tool` covers all of it."""
    ripe = {(entry["tool"], entry["what"]) for entry in old["deprecations"] if _ripe(entry["announced"], today)}
    return [
        change
        for change in changes
        if change.kind == "breaking" and not {(change.tool, change.what), (change.tool, "tool")} & ripe
    ]


def _ripe(announced: str, today: date) -> bool:
    try:
        return date.fromisoformat(announced) + NOTICE <= today
    except ValueError:
        return False


def _tool_changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[ContractChange]:
    old, new = {**_ABSENT, **old}, {**_ABSENT, **new}
    for key in sorted((old.keys() | new.keys()) - {"digest"}):
        judge = _FIELDS.get(key)
        if judge is None or key not in old or key not in new:
            yield ContractChange("breaking", name, key, f"{key} is not comparable")
        elif not same(old[key], new[key]):
            for kind, what, text in judge(old[key], new[key]):
                yield ContractChange(kind, name, what, text)


_Judge = Callable[[Any, Any], Iterator[Difference]]


def _words(what: str, kind: Kind) -> _Judge:
    def judge(before: Any, after: Any) -> Iterator[Difference]:
        yield kind, what, f"{what}: {before!r} became {after!r}" if kind != "text-only" else f"{what} reads differently"

    return judge


def _members(what: str) -> _Judge:
    """A set that callers rely on: whatever leaves it breaks someone, whatever enters it widens."""

    def judge(before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
        for gone in sorted(set(before) - set(after)):
            yield "breaking", f"{what}:{gone}", f"{what} {gone} is gone"
        for come in sorted(set(after) - set(before)):
            yield "widening", f"{what}:{come}", f"{what} {come} is new"

    return judge


def _argument_roles(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Iterator[Difference]:
    """A role list on one argument restricts it: the list itself appearing breaks, and so does a role leaving it."""
    for name in sorted(before.keys() | after.keys()):
        what, was, now = f"argument-roles:{name}", set(before.get(name, ())), set(after.get(name, ()))
        if name not in before:
            yield "breaking", what, f"{name} is now held by {', '.join(sorted(now))} only"
        elif name not in after:
            yield "widening", what, f"{name} is no longer held by some roles only"
        elif was - now:
            yield "breaking", what, f"{name} is no longer held by {', '.join(sorted(was - now))}"
        elif now - was:
            yield "widening", what, f"{name} is now also held by {', '.join(sorted(now - was))}"


def _tier(before: str, after: str) -> Iterator[Difference]:
    yield "widening" if after == "authoritative" else "breaking", "tier", f"{before} became {after}"


def _deadline(before: float, after: float) -> Iterator[Difference]:
    yield "breaking" if after < before else "widening", "deadline", f"{before:g} s became {after:g} s"


def _effect(before: str, after: str) -> Iterator[Difference]:
    grows = _POWER.index(after) > _POWER.index(before)
    yield "widening", "effect", f"{before} became {after}" + (": it may touch more than was reviewed" if grows else "")


def _annotations(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """No call fails by another hint, but clients ask people, or repeat a call, by it: a change is to be reviewed."""
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was != now:
            kind: Kind = "text-only" if name == "title" else "widening"
            yield kind, f"annotation:{name}", f"{name}: {was!r} became {now!r}"


def _asks(before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
    """A client that cannot answer a new question gets no answer either."""
    for gone in sorted(set(before) - set(after)):
        yield "widening", f"asks:{gone}", f"it no longer asks for {gone}"
    for come in sorted(set(after) - set(before)):
        yield "breaking", f"asks:{come}", f"it asks its client for {come} now"


def _rules(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """What refuses calls: whatever is new or different may refuse what was let through."""
    was, now = {rule["name"]: rule for rule in before}, {rule["name"]: rule for rule in after}
    for name in sorted(was.keys() - now.keys()):
        yield "widening", f"rule:{name}", f"rule {name} is gone"
    for name in sorted(now):
        if was.get(name) != now[name]:
            yield "breaking", f"rule:{name}", f"rule {name} is {'different' if name in was else 'new'}"


def _role_bases(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    """Roles that come or go are told as roles; one that is made of another may do other things than it could."""
    for role in sorted(before.keys() & after.keys()):
        if before[role] != after[role]:
            yield (
                "breaking",
                f"role-base:{role}",
                f"role {role} was made of {before[role]} and is made of {after[role]}",
            )


_ABSENT: Final[Mapping[str, Any]] = {"asks": (), "rules": (), "roleBases": {}}
"""What an entry says that does not say it."""
_FIELDS: Final[Mapping[str, _Judge]] = {
    "name": _words("name", "breaking"),
    "id": _words("id", "breaking"),
    "pack": _words("pack", "widening"),
    "description": _words("description", "text-only"),
    "annotations": _annotations,
    "x-visibilityHint": _words("hint", "text-only"),
    "x-tier": _tier,
    "x-adr": _words("adr", "widening"),
    "roles": _members("role"),
    "roleBases": _role_bases,
    "argumentRoles": _argument_roles,
    "effect": _effect,
    "deadlineSeconds": _deadline,
    "errorCodes": _members("code"),
    "decisions": _members("decision"),
    "asks": _asks,
    "rules": _rules,
    "uri": _words("uri", "breaking"),
    "inputSchema": lambda before, after: schema_changes(before, after, side="argument"),
    "outputSchema": lambda before, after: schema_changes(before, after, side="result"),
}


def _record_changes(old: Sequence[Mapping[str, str]], new: Sequence[Mapping[str, str]]) -> Iterator[ContractChange]:
    before, after = {adr["id"]: adr for adr in old}, {adr["id"]: adr for adr in new}
    for adr in sorted(before.keys() | after.keys()):
        was, now = before.get(adr), after.get(adr)
        if was is None or now is None:
            yield ContractChange(
                "text-only", adr, "adr", "binds a tool now" if was is None else "binds no tool any more"
            )
        elif was["status"] != now["status"]:
            kind: Kind = "breaking" if was["status"] == "accepted" else "widening"
            yield ContractChange(kind, adr, "status", f"{was['status']} became {now['status']}")
        elif was != now:
            yield ContractChange("text-only", adr, "text", "the record reads differently")


def _announcements(old: Sequence[Mapping[str, str]], new: Sequence[Mapping[str, str]]) -> Iterator[ContractChange]:
    for entry in new:
        if entry not in old:
            yield ContractChange(
                "text-only", entry["tool"], "deprecation", f"{entry['what']} is announced: {entry['text']}"
            )
    for entry in old:
        if entry not in new:
            yield ContractChange("text-only", entry["tool"], "deprecation", f"{entry['what']} is no longer announced")
