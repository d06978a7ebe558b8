"""One JSON reader for every face: what is ambiguous between readers is refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from toolgate.model import strictjson
from toolgate.model.strictjson import JsonFault

HOSTILE: dict[str, bytes] = {
    "duplicate key": b'{"a":1,"a":2}',
    "nested duplicate key": b'{"x":[{"a":1,"a":1}]}',
    "escaped duplicate key": b'{"a":1,"\\u0061":2}',
    "NaN": b'{"a":NaN}',
    "Infinity": b"[Infinity]",
    "minus infinity": b"[-Infinity]",
    "a number beyond a double": b"[1e400]",
    "an integer beyond 2^53": b"[1152921504606846976]",
    "just beyond the safe integer": b"[9007199254740992]",
    "a negative one": b"[-9007199254740992]",
    "four thousand digits": b"[" + b"9" * 4000 + b"]",
    "lone high surrogate": b'["\\ud800"]',
    "lone low surrogate": b'["\\udc00"]',
    "NUL in a string": b'["a\\u0000b"]',
    "NUL in a key": b'{"a\\u0000":1}',
    "raw control character": b'["a\nb"]',
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "not UTF-8": b'["\xff"]',
    "overlong UTF-8": b'["\xc0\xaf"]',
    "depth 33": b"[" * 33 + b"]" * 33,
    "depth 10000": b"[" * 10_000 + b"]" * 10_000,
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "trailing text": b"{} {}",
    "trailing comma": b"[1,]",
    "comment": b"{}//x",
    "single quotes": b"{'a':1}",
    "empty": b"",
    "blank": b"   ",
    "leading zero": b"[01]",
    "plus sign": b"[+1]",
    "hexadecimal": b"[0x10]",
    "bare word": b"[nul]",
    "unterminated": b'{"a":"b',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_readers_would_read_differently_is_refused(name: str) -> None:
    with pytest.raises(JsonFault) as caught:
        strictjson.loads(HOSTILE[name])
    assert caught.value.reason == "malformed_json"


def test_too_large_is_its_own_reason() -> None:
    with pytest.raises(JsonFault) as caught:
        strictjson.loads(b'"' + b"x" * strictjson.MAX_BYTES + b'"')
    assert caught.value.reason == "body_too_large"


MANY: dict[str, bytes] = {
    "empty objects": b"[" + b"{}," * 300_000 + b"{}]",
    "empty arrays in depth": b"[" * 31 + b"[]," * 300_000 + b"1" + b"]" * 31,
    "numbers": b"[" + b"1," * 500_000 + b"1]",
    "texts": b"[" + b'"",' * 300_000 + b'""]',
    "names": b"{" + b",".join(b'"k%06d":1' % number for number in range(80_000)) + b"}",
    "texts of quotes": b"[" + rb'"\"",' * 150_000 + b"1]",
    "texts of backslashes": b"[" + rb'"\\",' * 150_000 + b"1]",
    "one more than allowed": b"[" + b" " * strictjson.PLAIN_BYTES + b"1," * (strictjson.MAX_VALUES - 1) + b"1]",
}


@pytest.mark.parametrize("name", MANY)
def test_f24_too_many_values_are_refused_before_one_of_them_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strictjson, "_read_strictly", lambda _: pytest.fail("the text was read"))
    with pytest.raises(JsonFault, match="more than 20000 values") as caught:
        strictjson.loads(MANY[name])
    assert caught.value.reason == "too_many_values"


FEW: dict[str, bytes] = {
    "as many as allowed": b"[" + b" " * strictjson.PLAIN_BYTES + b"1," * (strictjson.MAX_VALUES - 2) + b"1]",
    "commas in a text": b'["' + b"a,[{" * 200_000 + b'"]',
    "quotes and commas in a text": b'["' + rb"\",\\" * 150_000 + b'"]',
}


@pytest.mark.parametrize("name", FEW)
def test_f24_what_stands_in_a_text_is_one_value(name: str) -> None:
    assert strictjson.loads(FEW[name]) == json.loads(FEW[name])


def test_f24_our_own_files_may_have_more() -> None:
    assert len(strictjson.loads(MANY["numbers"], max_values=None)) == 500_001


def depth_of(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if below is None else 1 + max((depth_of(each) for each in below), default=0)


bracket_texts = st.text(st.sampled_from('[]{},:"\\ a'), max_size=6)


@cases(100, 500)
@given(
    st.recursive(
        bracket_texts | st.integers(0, 9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(bracket_texts, inner, max_size=3),
        max_leaves=40,
    ),
    st.integers(0, 34),
    st.booleans(),
)
def test_f24_depth_is_counted_without_looking_at_values(inner: Any, levels: int, pretty: bool) -> None:
    """Wide beside deep, so that brackets alone decide nothing; brackets in texts are not brackets."""
    value: Any = [inner, *([[]] * 33)]
    for level in range(levels):
        value = [value] if level % 2 else {"[": value}
    data = json.dumps(value, indent=1 if pretty else None).encode()
    try:
        read = strictjson.loads(data)
    except JsonFault:
        assert depth_of(value) > strictjson.MAX_DEPTH
    else:
        assert read == value
        assert depth_of(value) <= strictjson.MAX_DEPTH


def test_f24_wide_values_are_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strictjson, "_check", lambda _: pytest.fail("each value was looked at"))
    value = {"rows": [{"name": "[x]", "cells": [1, 2, {"a": "\\"}]} for _ in range(1500)]}
    assert strictjson.loads(strictjson.dumps(value)) == value
    assert strictjson.encode_checked(value) == strictjson.dumps(value)


def test_the_fault_never_quotes_a_value() -> None:
    with pytest.raises(JsonFault) as caught:
        strictjson.loads(b'{"tg_secret_key":1,"tg_secret_key":2}')
    assert "secret" not in str(caught.value)


def test_the_edges_that_are_fine() -> None:
    assert strictjson.loads(b"[9007199254740991,-9007199254740991,1e308,-0.0,0]")[0] == 2**53 - 1
    assert strictjson.loads(b"[" * 32 + b"]" * 32)
    assert strictjson.loads('["\\ud83d\\ude00","é"]'.encode()) == ["😀", "é"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


spelt = st.builds(
    lambda sign, whole, rest, power: f"{sign}{whole}{rest}{power}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**18),
    st.sampled_from(["", ".0", ".5", ".123456789"]),
    st.sampled_from(["", "e3", "E+30", "e300", "E+307", "e308", "e309", "e0310", "e-400"]),
)


@cases(100, 500)
@given(spelt)
def test_the_quick_scan_never_lets_through_what_the_walk_refuses(number: str) -> None:
    """A number in any spelling is refused exactly if it is beyond a double or beyond a safe integer."""
    value = json.loads(number)
    bad = (isinstance(value, int) and abs(value) >= 2**53) or (isinstance(value, float) and not math.isfinite(value))
    try:
        strictjson.loads(f"[{number}]".encode())
    except JsonFault:
        assert bad
    else:
        assert not bad


def outcome(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return repr(read(data))  # 1, 1.0 and True are equal, and are not the same
    except JsonFault as fault:
        return fault.reason


SPELLINGS: tuple[Callable[[Any], bytes], ...] = (
    strictjson.dumps,
    strictjson.dumps_sorted,
    strictjson.dumps_pretty,
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, separators=(",", ":")).encode(),
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"),
)
odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None), max_size=6)
    | st.sampled_from(["\0", "\ud800", "[[[[", 2**53, 2**53 - 1, -(2**53), 1e16, 1e-7, -0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@cases(100, 500)
@given(odd_values, st.sampled_from(SPELLINGS), st.integers(0, 40))
def test_what_reads_like_our_own_writing_is_read_as_strictly(
    value: Any, spelling: Callable[[Any], bytes], depth: int
) -> None:
    nested = reduce(lambda below, _: [below], range(depth), value)
    try:
        data = spelling(nested)
    except TypeError:  # orjson's own limits
        return
    assert outcome(strictjson.loads, data) == outcome(strictjson._read_strictly, data)


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_nothing_hostile_reads_like_our_own_writing(data: bytes) -> None:
    assert outcome(strictjson.loads, data) == outcome(strictjson._read_strictly, data) == "malformed_json"


@given(spelt, spelt)
def test_numbers_in_any_spelling_are_read_alike(one: str, other: str) -> None:
    data = f'{{"a":{one},"b":[{other}]}}'.encode()
    assert outcome(strictjson.loads, data) == outcome(strictjson._read_strictly, data)


@given(values)
def test_every_strict_value_survives_writing_and_reading(value: Any) -> None:
    encoded = strictjson.encode_checked(value)
    assert encoded == strictjson.dumps(value)
    assert strictjson.loads(encoded) == value


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_a_fault_and_nothing_else(data: bytes) -> None:
    try:
        value = strictjson.loads(data)
    except JsonFault:
        return
    assert value == json.loads(data)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2},
        datetime.now(UTC),
        {"x": {1, 2}},
        b"bytes",
        float("nan"),
        [float("inf")],
        2**60,
        2**70,
        ["\0"],
        "\ud800",
        {"x": (1, 2)},
        UUID(int=1),
        orjson.Fragment(b"1"),
        Counter(x=1),
        reduce(lambda below, _: [below], range(33), []),
        reduce(lambda below, _: [below], range(500), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_never_could_be_strict_json_is_found_in_values_too(value: Any) -> None:
    with pytest.raises(JsonFault):
        strictjson.encode_checked(value)
