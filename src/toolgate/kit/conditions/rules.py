"""Rules over one call: compiled once, judged once a call. What cannot be judged denies.

The library checks types with line and column, and stops after ten thousand steps of a loop. What it does not bound is bounded
here: a loop over arguments of any size, and patterns that a caller chooses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import jsonschema_rs
from msgspec import Struct

from toolgate.kit.conditions.declared import Variable, arguments_of
from toolgate.kit.conditions.syntax import SyntaxNode, read

if TYPE_CHECKING:
    from types import ModuleType

RuleKind = Literal["deny", "require-approval"]
LOOP_BYTES: Final = 64 * 1024
"""Of arguments, for rules that loop: each of ten thousand steps may read all of them."""
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_LOOP: Final = b"@result"
"""What the library calls the result of a loop."""
_PLACE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_ENVIRONMENTS: Final = ("local", "cloud")


class ConditionFault(ValueError):
    """A condition that cannot be used: where in its text, and why."""

    def __init__(self, line: int, column: int, text: str) -> None:
        super().__init__(text)
        self.line, self.column, self.text = line, column, text


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
    line: int = 0
    """Where it stands in the manifest; 0: not known."""

    def as_json(self) -> dict[str, Any]:
        """All that decides."""
        more = {"approvers": self.approvers} if self.kind == "require-approval" else {}
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
            found = self._run(data={name: find(subject) for name, find in self.needs}).value()
        except RuntimeError as fault:
            raise Unjudged(self, "rule_budget" if "budget" in str(fault) else "rule_error") from None
        if found is True or found is False:
            return bool(found)
        raise Unjudged(self, "rule_error")


class CallRules(Struct, frozen=True):
    """Those of one tool, in their order."""

    all: tuple[CallRule, ...]
    digest: str = ""
    """Of everything the policy says about the tool: an approval counts under this one."""

    def deciding(self, subject: Subject) -> CallRule | None:
        """The first that refuses; else, of those that require an approval, the one with most approvers. Raises: Unjudged."""
        found: CallRule | None = None
        for rule in self.all:
            if not rule.holds(subject):
                continue
            if rule.source.kind == "deny":
                return rule
            if found is None or rule.source.approvers > found.source.approvers:
                found = rule
        return found


class RuleChecker:
    """Compiles the rules of one tool. Raises: ImportError: the library is not installed."""

    def __init__(self, schema: Mapping[str, Any], roles: Iterable[str]) -> None:
        from cel_expr_python import cel  # noqa: PLC0415 (an extra: for those who have rules)

        self._cel: ModuleType = cel
        self._arguments = arguments_of(schema)
        self._closed: Mapping[str, Mapping[str, Any]] = {
            "caller.role": {"enum": sorted(roles)},
            "environment": {"enum": list(_ENVIRONMENTS)},
        }
        types = {name: cel.Type(declared.type) for name, declared in self._arguments.items()}
        types |= dict.fromkeys(
            ("caller.id", "caller.role", "caller.label", "tool", "upstream", "environment"), cel.Type.STRING
        )
        types["now"] = cel.Type.TIMESTAMP
        self._checking = cel.NewEnv(variables=types)
        # Null has no place in the types by which the library checks values, so what runs is checked and then untyped.
        self._running = cel.NewEnv(variables={**dict.fromkeys(types, cel.Type.DYN), "now": cel.Type.TIMESTAMP})

    def compile(self, rules: Sequence[RuleText]) -> CallRules:
        """Raises: ConditionFault, with the rule's name in its text."""
        return CallRules(tuple(self._rule(rule) for rule in rules))

    def _rule(self, source: RuleText) -> CallRule:
        try:
            checked = self._checking.compile(source.when)
            tree = read(self._checking.compile(source.when, disable_check=True).serialize())
        except RuntimeError as fault:
            raise self._fault(str(fault)) from None
        if checked.return_type().name() != "BOOL":
            raise ConditionFault(1, 1, "the condition is not boolean")
        for node in tree.walk():
            self._check(node, source.when)
        names = sorted(set(_names_in(tree, self._arguments)))
        needs = tuple((name, self._finder(name)) for name in names)
        return CallRule(source, needs, _LOOP in checked.serialize(), self._running.compile(source.when).eval)

    def _check(self, node: SyntaxNode, text: str) -> None:
        """What the types do not say. Raises: ConditionFault."""
        if node.is_test and node.path() in self._arguments:
            raise _at(node, text, f"an absent argument is null: write {node.path()} != null")
        if node.kind != "call":
            return
        if node.name in ("matches", "contains") and not _is_ours(node.parts[-1]):
            raise _at(node, text, f"what {node.name}() looks for must be a constant: a caller's can take for ever")
        for variable, constant in _compared(node):
            schema = self._closed.get(variable) or self._schema(variable)
            if schema is not None and not jsonschema_rs.is_valid(dict(schema), constant.value):
                raise _at(constant, text, f"{variable} is never {constant.value!r}: its schema does not allow that")

    def _schema(self, variable: str) -> Mapping[str, Any] | None:
        """Of a variable, or with [] behind it of its items."""
        declared = self._arguments.get(variable.removesuffix("[]"))
        if declared is None:
            return None
        if not variable.endswith("[]"):
            return declared.schema
        items = declared.schema.get("items")
        return {"$defs": declared.schema.get("$defs", {}), **items} if isinstance(items, Mapping) else None

    def _finder(self, name: str) -> Callable[[Subject], Any]:
        declared = self._arguments.get(name)
        return _argument(declared) if declared is not None else _OTHERS[name]

    def _fault(self, said: str) -> ConditionFault:
        found = _PLACE.search(said)
        if found is None:
            return ConditionFault(1, 1, said.splitlines()[0][:200])
        reason = found[3].replace(" (in container '')", "")
        if "undeclared reference" in reason and "'args" in reason:
            known = ", ".join(name for name in self._arguments) or "none"
            reason += f"; the arguments are {known[:300]}"
        return ConditionFault(int(found[1]), int(found[2]), reason)


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


def _names_in(tree: SyntaxNode, arguments: Mapping[str, Variable]) -> Iterator[str]:
    """Every variable that is spoken of; of a longer chain the declared beginning, all of them where several are."""
    for node in tree.walk():
        path = node.path()
        if path is not None and (path in arguments or path in _OTHERS):
            yield path


def _names(node: SyntaxNode) -> str:
    return node.path() or ""


def _compared(node: SyntaxNode) -> Iterator[tuple[str, SyntaxNode]]:
    """Which variables a call compares with which constants."""
    if node.name in _COMPARISONS:
        one, other = node.parts
        pairs = [(one, other), (other, one)]
        yield from ((_names(left), right) for left, right in pairs if left.path() and _is_value(right))
    elif node.name == "@in":
        item, among = node.parts
        if item.path() and among.kind == "list":
            yield from ((_names(item), each) for each in among.parts if _is_value(each))
        elif _is_value(item) and among.path():
            yield f"{among.path()}[]", item


def _is_value(node: SyntaxNode) -> bool:
    """A constant that is not null: whether something may be null, its type says."""
    return node.kind == "const" and node.value is not None


def _is_ours(node: SyntaxNode) -> bool:
    path = node.path()
    return node.kind == "const" or (path is not None and path in _OTHERS)


def _at(node: SyntaxNode, text: str, reason: str) -> ConditionFault:
    before = text[: node.offset]
    return ConditionFault(before.count("\n") + 1, len(before) - before.rfind("\n"), reason)
