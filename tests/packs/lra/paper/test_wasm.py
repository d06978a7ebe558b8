"""The structural reading of WASM modules against a real engine."""

from __future__ import annotations

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.lra.papers import WASM
from toolgate.packs.lra.build import shell
from toolgate.packs.lra.paper import wasm


@pytest.mark.parametrize(
    "wat",
    [
        '(module (func (export "f")))',
        '(module (memory 1) (func (export "f") (result i32) i32.const 1) (data (i32.const 0) "x"))',
        '(module (import "m" "g" (func)) (func (export "f") call 0) (table 1 funcref) (global i32 (i32.const 0)))',
    ],
)
def test_modules_an_engine_compiles_are_accepted(wat: str) -> None:
    assert wasm.fault(bytes(wasmtime.wat2wasm(wat))) is None


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "magic"),
        (b"MZ\x90\x00", "magic"),
        (b"\0asm", "version"),
        (b"\0asm\2\0\0\0", "version"),
        (b"\0asm\1\0\0\0", "empty"),
        (WASM[:-1], "longer"),
        (WASM + b"\x01", "cut short"),
        (WASM + b"\x63\x00", "does not exist"),
        (WASM + WASM[8:], "out of order"),
        (b"\0asm\1\0\0\0\x01\xff\xff\xff\xff\xff\x01", "32 bits"),
        (bytes(wasmtime.wat2wasm("(module (func))")), "exports no function"),
        (bytes(wasmtime.wat2wasm('(module (memory (export "m") 1))')), "exports no function"),
    ],
)
def test_what_is_no_usable_module_is_named(data: bytes, word: str) -> None:
    assert word in (wasm.fault(data) or "")


@cases(100, 500)
@given(st.integers(0, 180), st.integers(0, 255))
def test_what_we_call_structurally_broken_no_engine_compiles(position: int, value: int) -> None:
    """One byte changed: we may accept what only a full validator refuses, never refuse what an engine takes."""
    data = bytearray(shell.data("wasm", "lattice.wasm"))
    data[position] = value
    reason = wasm.fault(bytes(data))
    try:
        wasmtime.Module(wasmtime.Engine(), bytes(data))
    except wasmtime.WasmtimeError:
        return
    assert reason is None or "exports no function" in reason
