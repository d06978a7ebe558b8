from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit import canonical
from toolgate.model import strictjson

strict_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
strict_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda one: not 2**53 <= abs(one) < 1e21)
    | strict_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strict_text, inner, max_size=3),
    max_leaves=10,
)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_the_rfc_example_is_spelt_as_printed() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert canonical.dumps(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_ordered_by_utf_16_units() -> None:
    assert canonical.dumps({"\ufb33": 1, "\U0001f600": 2}).decode() == '{"\U0001f600":2,"\ufb33":1}'


@given(strict_values)
def test_a_canonical_text_reads_back_as_the_value_and_is_its_own_spelling(value: Any) -> None:
    text = canonical.dumps(value)
    read = json.loads(text)
    assert read == value
    assert canonical.dumps(strictjson.loads(text)) == text


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: "x"},
        {"a": {1, 2}},
        b"bytes",
        float("nan"),
        float("inf"),
        2**53,
        -(2**53),
        2.0**53,
        -1e20,
        "\ud800",
        {"\ud800": 1},
        "a\0b",
        {"a\0b": 1},
        nested(33),
        object(),
    ],
    ids=lambda value: type(value).__name__ if type(value) is object else repr(value),
)
def test_what_readers_could_read_differently_is_never_signed(value: Any) -> None:
    with pytest.raises(canonical.NotCanonicalError):
        canonical.dumps(value)


def test_as_deep_as_the_reader_goes_is_fine() -> None:
    assert canonical.dumps(nested(32)) == b"[" * 32 + b"0" + b"]" * 32
