"""How a policy decides about one call, step by step as a server would, and about calls that are on record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import Ending, Refusal
from toolgate.gate.admit import permit_arguments
from toolgate.gate.validate import bundle_of
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
_BEFORE_POLICY: Final = frozenset(
    {Ending.APPROVAL_REQUIRED, Ending.STOPPED, Ending.TOO_MANY, Ending.TOO_FAST, Ending.BAD_ARGUMENTS}
)
"""Ends of calls whose arguments no rule has seen."""


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

    def call(self, name: str, caller: Caller, arguments: Any, environment: str, now: float) -> Judged:
        """As the road does: role, scopes, schema, roles of arguments, rules."""
        row, tool = self.rows.get(name), self.tools.get(name)
        if row is None or tool is None:
            return Judged(Ending.UNKNOWN_TOOL, reason="no such tool, or no row for it")
        if caller.role not in row.roles:
            return Judged(Ending.INSUFFICIENT_ROLE, reason=f"{caller.role} does not hold {name}")
        if caller.bounds is not None and not caller.bounds.covers(tool.row or name):
            return Judged(Ending.INSUFFICIENT_ROLE, reason=f"the scopes of its key do not cover {name}")
        io = bundle_of(tool)
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
        happening = (record.get("error") or {}).get("happening")
        if record.get("event") != "outcome" or caller is None or tool_id is None:
            return None
        name = self._names.get(tool_id, tool_id)
        refused = happening in _BY_POLICY
        now, why = self._proposed(name, record, judges_rules=happening not in _BEFORE_POLICY)
        kind = "cannot_tell" if now is None else "same"
        if now is not None and now != refused:
            kind = "would_refuse" if now else "would_let_through"
        return Replayed(kind, caller["id"], caller["role"], name, why)

    def _proposed(self, name: str, record: Mapping[str, Any], *, judges_rules: bool) -> tuple[bool | None, str]:
        """Would it be refused, and why; None: the record does not hold what decides."""
        row, tool = self.rows.get(name), self.tools.get(name)
        role = record["caller"]["role"]
        if row is None or tool is None:
            return True, "no row"
        if role not in row.roles:
            return True, f"{role} does not hold it"
        if "keyScopes" in record:
            return True, "the scopes of its key do not cover it"  # whatever the policy says
        if not judges_rules or name not in self.rules:
            return False, "its role holds it"
        missing: list[str] = []
        for rule in self.rules[name].all:
            if rule.source.kind != "deny":
                continue  # whether a person would have approved it is on no record
            lacking = sorted(_lacking(rule, record))
            if lacking:
                missing.append(f"rule {rule.source.name}: the record does not hold {', '.join(lacking)}")
            elif _holds(rule, tool, record):
                return True, f"rule {rule.source.name}"
        return (None, "; ".join(missing)) if missing else (False, "no rule refuses it")


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
