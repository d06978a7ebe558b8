from __future__ import annotations

from copy import deepcopy
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.gate.admit import arguments_digest
from toolgate.gate.redact import REPLACEMENT
from toolgate.model import strictjson

PATHS = (("key",), ("nested", "token"), ("list", "*", "secret"))


def test_without_secrets_it_is_the_digest_and_length_of_the_sorted_json() -> None:
    text = b'{"a":1,"b":[true]}'
    assert arguments_digest((), {"b": [True], "a": 1}) == (sha256(text).hexdigest(), len(text))


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_digest_does_not_depend_on_a_secret(one: str, other: str) -> None:
    def arguments(secret: str) -> dict[str, Any]:
        return {"key": secret, "nested": {"token": secret, "x": 1}, "list": [{"secret": secret}, {"y": 2}]}

    assert arguments_digest(PATHS, arguments(one))[0] == arguments_digest(PATHS, arguments(other))[0]


def test_it_does_depend_on_everything_else_and_on_whether_a_secret_was_sent() -> None:
    base = {"key": "k", "nested": {"token": "t", "x": 1}}
    digests = {
        arguments_digest(PATHS, base)[0],
        arguments_digest(PATHS, {"nested": base["nested"]})[0],
        arguments_digest(PATHS, {**base, "nested": {"token": "t", "x": 2}})[0],
        arguments_digest(PATHS, {**base, "more": 1})[0],
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ({"nested": "canary"}, {"nested": REPLACEMENT}),
        ({"nested": ["canary"]}, {"nested": REPLACEMENT}),
        ({"list": "canary"}, {"list": REPLACEMENT}),
        ({"list": {"secret": "canary"}}, {"list": REPLACEMENT}),
        ({"list": ["canary", {"secret": "canary"}]}, {"list": [REPLACEMENT, {"secret": REPLACEMENT}]}),
        ("canary", REPLACEMENT),
        (None, REPLACEMENT),
    ],
)
def test_arguments_of_another_shape_are_redacted_before_anyone_validated_them(arguments: Any, seen: Any) -> None:
    assert arguments_digest(PATHS, arguments)[0] == sha256(strictjson.dumps_sorted(seen)).hexdigest()


def test_the_callers_own_arguments_stay_as_they_are() -> None:
    arguments = {"key": "k", "list": [{"secret": "s"}]}
    before = deepcopy(arguments)
    arguments_digest(PATHS, arguments)
    assert arguments == before
