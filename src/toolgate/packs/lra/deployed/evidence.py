"""Evidence that runs: a claim's WASM module, called once in a sandbox, its answer compared with what the claim expects.

What to run and what to expect is read in `paper/expectations.py`. A module gets no imports: no clock, no files, no network,
nothing but its arguments. Fuel bounds its steps, the store its memory. Results may differ by `data-lra-tolerance`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from math import isclose
from typing import Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.packs.lra.paper.expectations import Declared

FUEL: Final = 200_000_000
"""WASM instructions, roughly: about a second of work."""
MEMORY_BYTES: Final = 64 * 1024 * 1024
TABLE_ELEMENTS: Final = 10_000
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


class Trial(Struct, frozen=True):
    """A declaration with the module's bytes: all that the sandbox needs, and it travels to a worker process."""

    declared: Declared
    module: bytes


class TrialOutcome(Struct, frozen=True):
    ran: bool
    matched: bool
    detail: str


def run(trial: Trial) -> TrialOutcome:
    """Call the function once. Whatever the module does becomes an outcome.

    Raises ToolError UNAVAILABLE: the sandbox is not installed.
    """
    try:
        import wasmtime  # noqa: PLC0415 (an extra: only this function needs it)
    except ImportError:
        text = "running evidence needs the WASM sandbox: pip install 'toolgate[wasm]'"
        raise ToolError("UNAVAILABLE", text) from None
    try:
        results = _call(wasmtime, trial)
    except (wasmtime.WasmtimeError, wasmtime.Trap) as fault:
        return TrialOutcome(ran=False, matched=False, detail=_why(str(fault)))
    except ValueError as fault:
        return TrialOutcome(ran=False, matched=False, detail=str(fault))
    matched = _matches(results, trial.declared)
    return TrialOutcome(ran=True, matched=matched, detail=" ".join(str(result) for result in results))


def _call(wasmtime: Any, trial: Trial) -> Sequence[Any]:
    config = wasmtime.Config()
    config.consume_fuel = True
    # By default 4 GiB of address space are set aside for each memory, more than a worker process may have.
    config.memory_reservation = 0
    config.memory_reservation_for_growth = 0
    config.memory_guard_size = 0
    # By default a module's data goes into a file in memory, and a worker process writes no files.
    config.memory_init_cow = False
    store = wasmtime.Store(wasmtime.Engine(config))
    store.set_fuel(FUEL)
    store.set_limits(memory_size=MEMORY_BYTES, table_elements=TABLE_ELEMENTS, instances=1, tables=4, memories=1)
    module = wasmtime.Module(store.engine, trial.module)
    if module.imports:
        raise ValueError("the module wants imports; evidence runs without any")
    exports = wasmtime.Instance(store, module, []).exports(store)
    function = exports.get(trial.declared.function)
    if not isinstance(function, wasmtime.Func):
        raise ValueError("the module exports no such function")
    kinds = [str(kind) for kind in function.type(store).params]
    if len(kinds) != len(trial.declared.values):
        raise ValueError(f"the function takes {len(kinds)} arguments, {len(trial.declared.values)} are given")
    answer = function(store, *(_value(text, kind) for text, kind in zip(trial.declared.values, kinds, strict=True)))
    if answer is None:
        return []
    return answer if isinstance(answer, list) else [answer]


def _value(text: str, kind: str) -> int | float:
    if kind in ("i32", "i64"):
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{kind} argument is not an integer")
        bits = int(kind[1:])
        if not -(1 << bits - 1) <= int(text) < 1 << bits:
            raise ValueError(f"{kind} argument is out of range")
        return int(text)
    if kind in ("f32", "f64"):
        return float(text)
    raise ValueError("the function takes arguments that are not numbers")


def _matches(results: Sequence[Any], asked: Declared) -> bool:
    if len(results) != len(asked.expected):
        return False
    return all(_equal(got, want, asked.tolerance) for got, want in zip(results, asked.expected, strict=True))


def _equal(got: Any, want: str, tolerance: str) -> bool:
    """As the page's own script compares."""
    if isinstance(got, int):
        return abs(Decimal(got) - Decimal(want)) <= abs(Decimal(tolerance))
    if isinstance(got, float):
        return isclose(got, float(want), rel_tol=0.0, abs_tol=abs(float(tolerance)))
    return False


def _why(text: str) -> str:
    """The sandbox's reason in our words: its own texts hold addresses, names and backtraces of the module."""
    if "fuel" in text:
        return f"stopped after {FUEL} instructions"
    if "memory" in text and "limit" in text:
        return f"wanted more than {MEMORY_BYTES} bytes of memory"
    if "trap" in text:
        return "the module trapped"
    return "not a module that can be run"
