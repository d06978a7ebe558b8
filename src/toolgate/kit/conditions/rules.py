"""Rules over one call: compiled once, judged once a call. What cannot be judged denies.

The library checks types with line and column, and stops after ten thousand steps of a loop. What it does not bound is bounded
here: a loop over arguments of any size, and patterns that a caller chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolgate.kit.conditions.checks import ConditionFault, checked_nodes, condition_fault, list_nulls
from toolgate.kit.conditions.declared import Variable, arguments_of
from toolgate.kit.conditions.messages import Descriptors
from toolgate.kit.conditions.syntax import SyntaxNode, message_types, read

RuleKind = Literal["deny", "require-approval"]
LOOP_BYTES: Final = 64 * 1024
"""Of arguments, for rules that loop: each of ten thousand steps may read all of them."""
SHARED_BYTES: Final = 4096
"""Of arguments, for rules that are judged in a room with others; what they read is copied into it."""
ROOM_BYTES: Final = 64 * 1024
"""Of one room, as far as it is counted: the arguments of each rule, and what the library needs besides."""
RULE_BYTES: Final = 64
_LOOP: Final = b"@result"
"""What the library calls the result of a loop."""
_ENVIRONMENTS: Final = ("local", "cloud")


class Unjudged(Exception):
    """A rule could not be judged for this call, so it denies. `reason`: rule_error, or rule_budget."""

    def __init__(self, rule: CallRule, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


class RuleText(Struct, frozen=True):
    """A rule as the manifest has it."""

    name: str
    kind: RuleKind
    when: str
    """The condition, in CEL."""
    text: str = ""
    """For the caller: why, and what to do instead."""
    approvers: int = 1
    """How many people must say yes, for one that requires it."""
    answered_by: tuple[str, ...] = ()
    """Roles whose answers count; none: those of every role that may answer."""
    line: int = 0
    """Where it stands in the manifest; 0: not known."""

    def as_json(self) -> dict[str, Any]:
        """All that decides."""
        more: dict[str, Any] = {"approvers": self.approvers} if self.kind == "require-approval" else {}
        more |= {"answeredBy": sorted(self.answered_by)} if self.answered_by else {}
        return {"name": self.name, self.kind: self.when, **more}


class Subject(Struct, frozen=True):
    """All that a rule may know of a call."""

    arguments: Mapping[str, Any]
    size: int
    """Bytes of the arguments as JSON."""
    caller: Mapping[str, str]
    """id, role, label."""
    tool: str
    upstream: str
    """Empty for a tool of our own."""
    environment: Callable[[], str]
    now: float


class CallRule(Struct, frozen=True):
    """A rule that was checked."""

    source: RuleText
    needs: tuple[tuple[str, Callable[[Subject], Any]], ...]
    """The variables it speaks of, and how each is found."""
    loops: bool
    _run: Callable[..., Any]

    def holds(self, subject: Subject) -> bool:
        """Raises: Unjudged."""
        if self.loops and subject.size > LOOP_BYTES:
            raise Unjudged(self, "rule_budget")
        try:
            # By place: names of parameters are a seventh of the instructions that the library takes for a rule.
            found = self._run(
                None, {name: find(subject) for name, find in self.needs}, None, _room(subject.size)
            ).value()
        except RuntimeError as fault:
            raise Unjudged(self, "rule_budget" if "budget" in str(fault) else "rule_error") from None
        if found is True or found is False:
            return bool(found)
        raise Unjudged(self, "rule_error")


class _Rooms:
    """Memory in which rules are judged, one room after the other. Making one is a quarter of the instructions that a
    rule takes, and what lies in one is freed with it; so it is left after some rules, and a rule that reads much gets its own."""

    __slots__ = ("_left", "_room", "make")

    def __init__(self) -> None:
        self.make: Callable[[], Any] = _no_room
        self._room: Any = None
        self._left = 0

    def __call__(self, size: int) -> Any:
        if size > SHARED_BYTES:
            return None
        if self._left <= 0:
            self._room, self._left = self.make(), ROOM_BYTES
        self._left -= size + RULE_BYTES
        return self._room


def _no_room() -> Any:
    return None


_room: Final = _Rooms()


class CallRules(Struct, frozen=True):
    """Those of one tool, in their order."""

    all: tuple[CallRule, ...]
    digest: str = ""
    """Of everything the policy says about the tool: an approval counts under this one."""

    def deciding(self, subject: Subject) -> CallRule | None:
        """The first that refuses; else, of those that require an approval, the one with most approvers, answered by roles that
        all of them name. Raises: Unjudged: or nobody could answer."""
        found: CallRule | None = None
        for rule in self.all:
            if not rule.holds(subject):
                continue
            if rule.source.kind == "deny":
                return rule
            found = rule if found is None else _both(found, rule)
        return found


def _both(one: CallRule, other: CallRule) -> CallRule:
    """What satisfies two rules that want an approval. Raises: Unjudged."""
    most = other if other.source.approvers > one.source.approvers else one
    first, second = set(one.source.answered_by), set(other.source.answered_by)
    roles = first & second if first and second else first | second
    if first and second and not roles:
        raise Unjudged(most, "rule_error")
    return most if roles == set(most.source.answered_by) else _answered_by(most, roles)


def _answered_by(rule: CallRule, roles: Iterable[str]) -> CallRule:
    return replace(rule, source=replace(rule.source, answered_by=tuple(sorted(roles))))


class RuleChecker:
    """Compiles the rules of one tool. Raises: ImportError: the library is not installed."""

    def __init__(self, schema: Mapping[str, Any], roles: Iterable[str]) -> None:
        from cel_expr_python import cel  # noqa: PLC0415 (an extra: for those who have rules)

        _room.make = cel.Arena
        self._declared = arguments_of(schema)
        self._arguments = self._declared.variables
        self._closed: Mapping[str, Mapping[str, Any]] = {
            "caller.role": {"enum": sorted(roles)},
            "environment": {"enum": list(_ENVIRONMENTS)},
        }
        types = {name: cel.Type(declared.type) for name, declared in self._arguments.items()}
        types |= dict.fromkeys(
            ("caller.id", "caller.role", "caller.label", "tool", "upstream", "environment"), cel.Type.STRING
        )
        types["now"] = cel.Type.TIMESTAMP
        self._checking = cel.NewEnv(descriptor_pool=Descriptors(self._declared.shapes), variables=types)
        # Null has no place in the types by which the library checks values, so what runs is checked and then untyped.
        self._running = cel.NewEnv(variables={**dict.fromkeys(types, cel.Type.DYN), "now": cel.Type.TIMESTAMP})

    def compile(self, rules: Sequence[RuleText]) -> CallRules:
        """Raises: ConditionFault, with the rule's name in its text."""
        return CallRules(tuple(self._rule(rule) for rule in rules))

    def _rule(self, source: RuleText) -> CallRule:
        text = source.when
        try:
            tree = read(self._checking.compile(text, disable_check=True).serialize())
            checked = self._checking.compile(list_nulls(tree, self._declared, text))
            run = self._running.compile(text).eval
        except RuntimeError as fault:
            raise condition_fault(str(fault), self._declared) from None
        if checked.return_type().name() != "BOOL":
            raise ConditionFault(1, 1, "the condition is not boolean")
        serialized = checked.serialize()
        checked_nodes(tree, text, self._declared, self._closed, message_types(serialized), frozenset(_OTHERS))
        names = sorted(set(_names_in(tree, self._arguments)))
        needs = tuple((name, self._finder(name)) for name in names)
        return CallRule(source, needs, _LOOP in serialized, run)

    def _finder(self, name: str) -> Callable[[Subject], Any]:
        declared = self._arguments.get(name)
        return _argument(declared) if declared is not None else _OTHERS[name]


def _argument(declared: Variable) -> Callable[[Subject], Any]:
    path, convert = declared.path, declared.convert

    def find(subject: Subject) -> Any:
        value: Any = subject.arguments
        for name in path:
            if type(value) is not dict or name not in value:
                return None
            value = value[name]
        return convert(value)

    return find


_OTHERS: Final[Mapping[str, Callable[[Subject], Any]]] = {
    "caller.id": lambda subject: subject.caller["id"],
    "caller.role": lambda subject: subject.caller["role"],
    "caller.label": lambda subject: subject.caller["label"],
    "tool": lambda subject: subject.tool,
    "upstream": lambda subject: subject.upstream,
    "environment": lambda subject: subject.environment(),
    "now": lambda subject: datetime.fromtimestamp(subject.now, UTC),
}


def _names_in(node: SyntaxNode, arguments: Mapping[str, Variable]) -> Iterator[str]:
    """Every variable that is spoken of; of a longer chain the longest beginning that is one, as the library reads it."""
    path = node.path()
    if path is not None and (path in arguments or path in _OTHERS):
        yield path
        return
    for part in node.parts:
        yield from _names_in(part, arguments)
