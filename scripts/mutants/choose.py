"""Which of cosmic-ray's mutants are not worth a run: those that change nothing when the module runs, and those that say again
what another one of the same place says.

Annotations are never evaluated here (`from __future__ import annotations`), nor is what stands under `TYPE_CHECKING`; mypy
judges both. A bound that is one more or one less is as good a bound: whether it holds, tests ask that read it. Of the eleven
operators that cosmic-ray puts in place of one, one of the wrong sign and one that is off by one tell what the rest do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Final

ENOUGH: Final = {
    "Add": {"Sub"},
    "Sub": {"Add"},
    "Mul": {"FloorDiv"},
    "Div": {"Mul"},
    "FloorDiv": {"Mul"},
    "Mod": {"Sub"},
    "Pow": {"Mul"},
    "BitOr": {"BitAnd"},
    "BitAnd": {"BitOr"},
    "BitXor": {"BitOr"},
    "LShift": {"RShift"},
    "RShift": {"LShift"},
    "Eq": {"NotEq"},
    "NotEq": {"Eq"},
    "Lt": {"LtE", "GtE"},
    "LtE": {"Lt", "Gt"},
    "Gt": {"GtE", "LtE"},
    "GtE": {"Gt", "Lt"},
    "Is": {"IsNot"},
    "IsNot": {"Is"},
}


def left_out(source: str, mutants: Sequence[dict[str, Any]]) -> set[str]:
    """Their jobs."""
    unread = list(_unread(ast.parse(source)))
    return {each["job"] for each in mutants if _said_again(each["operator"]) or _is_within(each, unread)}


def _said_again(operator: str) -> bool:
    kind, _, names = operator.partition("Operator_")
    before, _, after = names.partition("_")
    if kind not in ("core/ReplaceBinary", "core/ReplaceComparison"):
        return False
    return before in ENOUGH and after not in ENOUGH[before]


Span = tuple[tuple[int, int], tuple[int, int]]


def _unread(tree: ast.Module) -> Iterator[Span]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Constant | ast.BinOp):
            yield _span(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield _span(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.returns is not None:
                yield _span(node.returns)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield _span(node)


def _span(node: ast.expr | ast.stmt) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)


def _is_within(mutant: dict[str, Any], spans: Sequence[Span]) -> bool:
    place = (mutant["line"], mutant["column"])
    return any(start <= place < end for start, end in spans)
