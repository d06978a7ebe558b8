"""How a policy decides about one call, step by step as a server would, and about calls that are on record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from toolgate.errors import Ending, Refusal
from toolgate.gate.admit import permit_arguments
from toolgate.gate.validate import ToolIO, bundle_of
from toolgate.kit.conditions.rules import Subject, Unjudged
from toolgate.model import strictjson
from toolgate.model.call import Caller
from toolgate.model.clock import from_rfc3339
from toolgate.model.offers import offered
from toolgate.policy.conditions import compile_rules
from toolgate.policy.roles import with_custom_roles

if TYPE_CHECKING:
    from toolgate.kit.conditions.rules import CallRule, CallRules
    from toolgate.model.tool import Pack, Tool
    from toolgate.policy.manifest import Manifest, ManifestRow

_CUT: Final = re.compile(r"\.\.\. \([0-9]+ characters\)\Z")
"""How the log ends a value that was too long to keep."""
_BY_POLICY: Final = frozenset({Ending.UNKNOWN_TOOL, Ending.INSUFFICIENT_ROLE, Ending.RULE_DENIED})
_BEFORE_POLICY: Final = frozenset({Ending.STOPPED, Ending.TOO_MANY, Ending.TOO_FAST, Ending.BAD_ARGUMENTS})
"""Ends of calls whose arguments no rule has seen: they did not run, whatever a rule says."""
_Decision = Literal["refused", "asked", "granted", "declined", "passed", "ended"]
"""By the policy; a person was asked, said yes, said no; nobody had to be; it ended before that."""


class Judged(Struct, frozen=True):
    ending: Ending
    rule: str | None = None
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"verdict": self.ending, "rule": self.rule, "reason": self.reason}


class Replayed(Struct, frozen=True):
    """What a proposed policy would have done with a call on record."""

    kind: str
    """same, would_refuse, would_let_through or cannot_tell."""
    caller: str
    role: str
    tool: str
    why: str

    def as_json(self) -> dict[str, str]:
        return {"caller": self.caller, "role": self.role, "tool": self.tool, "why": self.why}


class Judge:
    """A policy over packs. Raises: StartRefused: a rule is wrong."""

    def __init__(self, packs: Iterable[Pack], manifest: Manifest) -> None:
        packs = tuple(packs)
        self.rows: Mapping[str, ManifestRow] = manifest.rows
        self.tools: Mapping[str, Tool] = {
            tool.name: with_custom_roles(tool, manifest.roles) for pack in packs for tool in offered(pack)
        }
        self.rules: Mapping[str, CallRules] = compile_rules(packs, manifest)
        self._names = {tool.canonical_id: tool.name for tool in self.tools.values()}
        self._io: dict[str, ToolIO] = {}

    def call(self, name: str, caller: Caller, arguments: Any, environment: str, now: float) -> Judged:
        """As the road does: role, scopes, schema, roles of arguments, rules."""
        row, tool = self.rows.get(name), self.tools.get(name)
        if row is None or tool is None:
            return Judged(Ending.UNKNOWN_TOOL, reason="no such tool, or no row for it")
        if caller.role not in row.roles:
            return Judged(Ending.INSUFFICIENT_ROLE, reason=f"{caller.role} does not hold {name}")
        if caller.bounds is not None and not caller.bounds.covers(tool.row or name):
            return Judged(Ending.INSUFFICIENT_ROLE, reason=f"the scopes of its key do not cover {name}")
        io = self._io.get(name) or self._io.setdefault(name, bundle_of(tool))
        if isinstance(arguments, dict):
            arguments = io.optional.without_nulls(arguments)
        if not io.input.is_valid(arguments):
            return Judged(Ending.BAD_ARGUMENTS, reason=io.input.explain(arguments)[0].text)
        try:
            permit_arguments(caller, tool, arguments)
        except Refusal as refusal:
            return Judged(refusal.ending, reason=refusal.text)
        return self._by_rules(tool, _subject(tool, caller, arguments, environment, now))

    def _by_rules(self, tool: Tool, subject: Subject) -> Judged:
        rules = self.rules.get(tool.name)
        try:
            rule = rules.deciding(subject) if rules is not None else None
        except Unjudged as unjudged:
            return Judged(Ending.RULE_DENIED, unjudged.rule.source.name, f"it cannot be judged ({unjudged.reason})")
        if rule is None:
            return Judged(Ending.OK)
        ending = Ending.RULE_DENIED if rule.source.kind == "deny" else Ending.APPROVAL_REQUIRED
        return Judged(ending, rule.source.name, rule.source.text)

    def replay(self, record: Mapping[str, Any]) -> Replayed | None:
        """None: not a call that a policy decides about."""
        caller, tool_id = record.get("caller"), (record.get("metadata") or {}).get("toolId")
        if record.get("event") != "outcome" or caller is None or tool_id is None:
            return None
        name = self._names.get(tool_id, tool_id)
        before = _decided(record)
        now, why = self._proposed(name, record, judges_rules=before != "ended")
        return Replayed(_compared(before, now), caller["id"], caller["role"], name, why)

    def _proposed(self, name: str, record: Mapping[str, Any], *, judges_rules: bool) -> tuple[_Decision | None, str]:
        """What it would decide, and why; None: the record does not hold what decides."""
        row, tool = self.rows.get(name), self.tools.get(name)
        role = record["caller"]["role"]
        if row is None or tool is None:
            return "refused", "no row"
        if role not in row.roles:
            return "refused", f"{role} does not hold it"
        if "keyScopes" in record:
            return "refused", "the scopes of its key do not cover it"  # whatever the policy says
        if not judges_rules or name not in self.rules:
            return "passed", "its role holds it"
        return _ruled(self.rules[name], tool, record)


def _ruled(rules: CallRules, tool: Tool, record: Mapping[str, Any]) -> tuple[_Decision | None, str]:
    missing: list[str] = []
    asking: CallRule | None = None
    for rule in rules.all:
        lacking = sorted(_lacking(rule, record))
        if lacking:
            missing.append(f"rule {rule.source.name}: the record does not hold {', '.join(lacking)}")
        elif _holds(rule, tool, record):
            if rule.source.kind == "deny":
                return "refused", f"rule {rule.source.name}"
            asking = asking or rule
    if missing:
        return None, "; ".join(missing)
    return ("asked", f"rule {asking.source.name} asks a person") if asking else ("passed", "no rule refuses it")


def _decided(record: Mapping[str, Any]) -> _Decision:
    """What became of it then."""
    happening = (record.get("error") or {}).get("happening")
    if happening == Ending.APPROVAL_REQUIRED:
        return "asked"
    if happening == Ending.RULE_DENIED and "approval" in record:
        return "declined"
    if happening in _BY_POLICY:
        return "refused"
    if happening in _BEFORE_POLICY:
        return "ended"
    return "granted" if "approval" in record else "passed"


def _compared(before: _Decision, now: _Decision | None) -> str:
    """A call that a person would be asked about, and was not, may have been approved or refused: that is on no record."""
    if now is None:
        return "cannot_tell"
    if now == "refused":
        return "same" if before in ("refused", "declined") else "would_refuse"
    if now == "asked":
        return "same" if before in ("asked", "granted", "declined") else "cannot_tell"
    return "would_let_through" if before in ("refused", "asked", "declined") else "same"


def _holds(rule: CallRule, tool: Tool, record: Mapping[str, Any]) -> bool:
    found = record["caller"]
    caller = Caller(found["id"], found["role"])
    environment = record.get("environment") or "local"
    moment = from_rfc3339(record["ts"])
    try:
        return rule.holds(_subject(tool, caller, record.get("arguments") or {}, environment, moment))
    except Unjudged:
        return True


def _lacking(rule: CallRule, record: Mapping[str, Any]) -> Iterator[str]:
    """What a rule must know and the record does not say: arguments that were not kept, or were cut."""
    kept = record.get("arguments") or {}
    for name, _ in rule.needs:
        parts = name.split(".")
        if parts[0] == "args":
            value = kept.get(parts[1])
            if value is None or (isinstance(value, str) and _CUT.search(value)):
                yield name
        elif name == "caller.label" or (name == "environment" and not record.get("environment")):
            yield name


def _subject(tool: Tool, caller: Caller, arguments: Any, environment: str, now: float) -> Subject:
    return Subject(
        arguments,
        len(strictjson.dumps(arguments)),
        {"id": caller.key_id, "role": caller.role, "label": caller.label},
        tool.name,
        tool.foreign.upstream if tool.foreign is not None else "",
        lambda: environment,
        now,
    )
