"""What is wrong with a condition beyond its types: constants that an argument never is, patterns that a caller chooses, tests for
what is null instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema_rs
from msgspec import Struct

from toolgate.kit.conditions.declared import DeclaredArguments, Variable
from toolgate.kit.conditions.messages import PACKAGE
from toolgate.kit.conditions.syntax import SyntaxNode

_EQUALITIES: Final = frozenset({"_==_", "_!=_"})
_COMPARISONS: Final = _EQUALITIES | {"_<_", "_<=_", "_>_", "_>=_"}
_PLACE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_NO_FIELD: Final = re.compile(r"undefined field '(\w+)' not found in struct '([\w.]+)'")
MAX_NAMED: Final = 300
"""Characters of the names that a fault tells."""


class ConditionFault(ValueError):
    """A condition that cannot be used: where in its text, and why."""

    def __init__(self, line: int, column: int, text: str) -> None:
        super().__init__(text)
        self.line, self.column, self.text = line, column, text


class _Places(Struct, frozen=True):
    """Which part of the input schema an expression stands for."""

    declared: DeclaredArguments
    types: Mapping[int, str] = {}
    """Of parts that are objects, as the checker found them."""

    def of(self, node: SyntaxNode, loops: Mapping[str, Variable | None]) -> Variable | None:
        """`loops`: what the loops around it call their items."""
        if node.kind == "name" and node.name in loops:
            return loops[node.name]
        found = self.declared.variables.get(node.path() or "")
        if found is not None:
            return found
        if node.kind == "select":
            fields = self.fields(node.parts[0], loops)
            return None if fields is None else fields.get(node.name)
        if node.kind == "call" and node.name == "_[_]":
            among = self.of(node.parts[0], loops)
            return None if among is None else among.items
        return None

    def fields(self, node: SyntaxNode, loops: Mapping[str, Variable | None]) -> Mapping[str, Variable] | None:
        """Of an object whose fields are known."""
        found = self.of(node, loops)
        shape = self.declared.shapes.get(found.type if found is not None else self.types.get(node.id, ""))
        return None if shape is None else shape.fields

    def walk(
        self, node: SyntaxNode, loops: Mapping[str, Variable | None]
    ) -> Iterator[tuple[SyntaxNode, Mapping[str, Variable | None]]]:
        yield node, loops
        within = loops
        if node.kind == "loop":
            among = self.of(node.parts[0], loops)
            within = {**loops, node.name: None if among is None else among.items}
        for number, part in enumerate(node.parts):
            yield from self.walk(part, within if number else loops)


def list_nulls(tree: SyntaxNode, declared: DeclaredArguments, text: str) -> str:
    """The text for the checker, which compares no list with null: where an array that may be absent is, null is an empty list.
    What runs is not changed."""
    places = _Places(declared)
    for node, loops in places.walk(tree, {}):
        if node.kind != "call" or node.name not in _EQUALITIES:
            continue
        for left, right in (node.parts, node.parts[::-1]):
            found = places.of(left, loops)
            is_null = right.kind == "const" and right.value is None
            if is_null and found is not None and found.items is not None and found.nullable:
                text = f"{text[: right.offset]}[  ]{text[right.offset + 4 :]}"
    return text


def checked_nodes(
    tree: SyntaxNode,
    text: str,
    declared: DeclaredArguments,
    closed: Mapping[str, Mapping[str, Any]],
    types: Mapping[int, str],
    ours: frozenset[str],
) -> None:
    """`closed`: schemas of variables that are no arguments. `ours`: all of those. Raises: ConditionFault."""
    places = _Places(declared, types)
    for node, loops in places.walk(tree, {}):
        if node.is_test and _is_known(node, places, loops):
            spelt = node.path() or f"it.{node.name}"
            raise _at(node, text, f"an absent argument is null: write {spelt} != null")
        if node.kind != "call":
            continue
        if node.name in ("matches", "contains") and not _is_ours(node.parts[-1], ours):
            raise _at(node, text, f"what {node.name}() looks for must be a constant: a caller's can take for ever")
        for left, constant, is_item in _compared(node):
            found = places.of(left, loops)
            found = found.items if found is not None and is_item else found
            schema = found.schema if found is not None else closed.get(left.path() or "")
            if schema is not None and not jsonschema_rs.is_valid(dict(schema), constant.value):
                spelt = _spelt(left) + ("[]" if is_item else "")
                raise _at(constant, text, f"{spelt} is never {constant.value!r}: its schema does not allow that")


def _is_known(node: SyntaxNode, places: _Places, loops: Mapping[str, Variable | None]) -> bool:
    return node.path() in places.declared.variables or places.fields(node.parts[0], loops) is not None


def _compared(node: SyntaxNode) -> Iterator[tuple[SyntaxNode, SyntaxNode, bool]]:
    """Which expressions a call compares with which constants, and whether it is their items that are."""
    if node.name in _COMPARISONS:
        one, other = node.parts
        yield from ((left, right, False) for left, right in ((one, other), (other, one)) if _is_value(right))
    elif node.name == "@in":
        item, among = node.parts
        if among.kind == "list":
            yield from ((item, each, False) for each in among.parts if _is_value(each))
        elif _is_value(item):
            yield among, item, True


def _spelt(node: SyntaxNode) -> str:
    if node.kind == "call" and node.name == "_[_]":
        return f"{_spelt(node.parts[0])}[]"
    if node.kind == "select":
        return f"{_spelt(node.parts[0])}.{node.name}"
    return node.name


def _is_value(node: SyntaxNode) -> bool:
    """A constant that is not null: whether something may be null, its type says."""
    return node.kind == "const" and node.value is not None


def _is_ours(node: SyntaxNode, ours: frozenset[str]) -> bool:
    return node.kind == "const" or node.path() in ours


def _at(node: SyntaxNode, text: str, reason: str) -> ConditionFault:
    before = text[: node.offset]
    return ConditionFault(before.count("\n") + 1, len(before) - before.rfind("\n"), reason)


def condition_fault(said: str, declared: DeclaredArguments) -> ConditionFault:
    """What the library says, in words of the policy."""
    found = _PLACE.search(said)
    if found is None:
        return ConditionFault(1, 1, said.splitlines()[0][:200])
    reason = found[3].replace(" (in container '')", "")
    if "undeclared reference" in reason and "'args" in reason:
        reason += f"; the arguments are {_named(declared.variables)}"
    missing = _NO_FIELD.search(reason)
    if missing is not None and missing[2] in declared.shapes:
        reason = f"there is no field '{missing[1]}' in it; there are {_named(declared.shapes[missing[2]].fields)}"
    return ConditionFault(int(found[1]), int(found[2]), re.sub(rf"\b{PACKAGE}\.\w+", PACKAGE, reason))


def _named(names: Mapping[str, Any]) -> str:
    return (", ".join(names) or "none")[:MAX_NAMED]
