"""What is decided about a call, written down a second time and as simply as it can be: roles, scopes, stops, arguments, rules,
approvals. It shares no code with the gate, and knows globs only as beginnings of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LIFE_S = 3600
ERROR = "error"
Verdict = tuple[str, str]
"""How it ended, and the reason where several lead there."""


@dataclass(frozen=True)
class Rule:
    """`holds`: of the arguments and the caller's role; True, False or ERROR."""

    text: str
    holds: Callable[[Mapping[str, Any], str], Any]
    asks: bool
    people: int = 1
    by: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Who:
    id: str
    role: str
    names: frozenset[str]
    scope: str | None = None
    """The beginning of the names that its key may use."""


@dataclass(frozen=True)
class Halt:
    tool: str = ""
    who: str | None = None
    until: int | None = None


@dataclass
class Request:
    asker: Who
    people: int
    by: frozenset[str]
    ends: int
    state: str = "waits"
    said_yes: list[Who] = field(default_factory=list)


@dataclass
class Model:
    now: int
    tools: dict[str, tuple[frozenset[str], list[Rule]]] = field(default_factory=dict)
    """Roles and rules."""
    halts: list[Halt] = field(default_factory=list)
    requests: dict[Any, Request] = field(default_factory=dict)
    policy: int = 0

    def call(self, who: Who, tool: str, given: dict[str, Any]) -> Verdict:
        if tool not in self.tools:
            return "unknown_tool", ""
        roles, rules = self.tools[tool]
        if who.role not in roles or (who.scope is not None and not tool.startswith(who.scope)):
            return "insufficient_role", ""
        if any(self._halts(halt, who, tool) for halt in self.halts):
            return "stopped", "stopped"
        arguments = {name: value for name, value in given.items() if value is not None}
        if not 0 <= arguments.get("n", 0) <= 9:
            return "bad_arguments", ""
        asking: list[Rule] = []
        for rule in rules:
            held = rule.holds(arguments, who.role)
            if held is True:
                asking.append(rule)
            if held == ERROR or (len(_named(asking)) > 1 and not frozenset.intersection(*_named(asking))):
                return "rule_denied", "rule_error"
            if held is True and not rule.asks:
                return "rule_denied", "rule_denied"
        return self._asked(who, tool, arguments, asking) if asking else ("ok", "")

    def _halts(self, halt: Halt, who: Who, tool: str) -> bool:
        is_over = halt.until is not None and self.now >= halt.until
        return not is_over and tool.startswith(halt.tool) and halt.who in (None, who.id)

    def _asked(self, who: Who, tool: str, arguments: dict[str, Any], asking: list[Rule]) -> Verdict:
        same = (self.policy, who.id, tool, tuple(sorted(arguments.items())))
        found = self.requests.get(same)
        if found is None or self.now >= found.ends or found.state == "spent":
            named = _named(asking)
            by = frozenset.intersection(*named) if named else frozenset()
            self.requests[same] = Request(who, max(rule.people for rule in asking), by, self.now + LIFE_S)
            return "approval_required", "approval_required"
        if found.state == "granted":
            found.state = "spent"
            return "ok", ""
        if found.state == "refused":
            return "rule_denied", "approval_refused"
        return "approval_required", "approval_required"

    def answer(self, request: Request, who: Who, *, yes: bool) -> str:
        """What becomes of it; empty: the answer does not count."""
        if request.state != "waits" or self.now >= request.ends or (request.by and who.role not in request.by):
            return ""
        if any(who.id == other.id or who.names & other.names for other in (request.asker, *request.said_yes)):
            return ""
        request.said_yes.append(who)
        if not yes:
            request.state = "refused"
        elif len(request.said_yes) >= request.people:
            request.state = "granted"
        return request.state


def _named(rules: list[Rule]) -> list[frozenset[str]]:
    return [rule.by for rule in rules if rule.by]
