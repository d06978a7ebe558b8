from __future__ import annotations

import re
from copy import deepcopy
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import SettingsError
from toolgate.gate.admit import arguments_digest
from toolgate.gate.redact import MAX_FIELDS, MAX_TEXT, REPLACEMENT, check_kept, kept
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


def _tool(schema: dict[str, Any]) -> Any:
    return SimpleNamespace(input_schema=schema)


PLAIN = {"properties": {"path": {"type": "string"}, "ticket": {"type": "string"}}}


@pytest.mark.parametrize(
    ("chosen", "schema", "said"),
    [
        (["path"] * (MAX_FIELDS + 1), PLAIN, f"names {MAX_FIELDS + 1} arguments"),
        (["typo"], PLAIN, "has no argument typo.\nIt takes: path, ticket."),
        (["typo"], {}, "has no argument typo.\nIt takes: none."),
        (["path"], {"properties": {"path": {"x-secret": True}}}, "path is secret"),
        (["path"], {"properties": {"path": {"items": [{"x-secret": True}]}}}, "path is secret"),
        (["path"], {"properties": {"path": {"anyOf": ({}, {"x-secret": True})}}}, "path is secret"),
        (["path"], {"x-secret": True, "properties": {"path": {}}}, "path is secret"),
        (
            ["path"],
            {"properties": {"path": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"x-secret": True}}},
            "path is secret",
        ),
        (
            ["path"],
            {"properties": {"path": {"$dynamicRef": "#a"}}, "$defs": {"a": {"x-secret": True}}},
            "path is secret",
        ),
    ],
)
def test_the_log_keeps_no_argument_that_is_unknown_or_may_hold_a_secret(
    chosen: list[str], schema: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        check_kept({"notes_add": chosen}, {"notes_add": _tool(schema)})


@pytest.mark.parametrize(
    ("chosen", "schema"),
    [
        (["path"] * MAX_FIELDS, PLAIN),
        (["path"], {**PLAIN, "x-secret": False}),
        (["path"], {"properties": {"path": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}),
        (["path"], {"properties": {"path": {}, "key": {"x-secret": True}}}),
    ],
)
def test_the_log_keeps_what_cannot_hold_a_secret(chosen: list[str], schema: dict[str, Any]) -> None:
    check_kept({"notes_add": chosen}, {"notes_add": _tool(schema)})


def test_every_tool_that_the_settings_name_is_looked_at() -> None:
    with pytest.raises(SettingsError, match="there is no tool gone"):
        check_kept({"notes_add": ["path"], "gone": ["path"]}, {"notes_add": _tool(PLAIN)})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * MAX_TEXT, "x" * MAX_TEXT),
        ("x" * (MAX_TEXT + 1), "x" * MAX_TEXT + f"... ({MAX_TEXT + 1} characters)"),
        ({"a": [1]}, {"a": [1]}),
        ([1] * MAX_TEXT, "[" + "1," * (MAX_TEXT // 2 - 1) + "1" + f"... ({2 * MAX_TEXT + 1} characters)"),
        ("see tg_0123456789ab_00ff", "see [key]"),
    ],
)
def test_a_kept_value_is_short_and_never_a_key(value: Any, shown: Any) -> None:
    assert kept(["path"], {"path": value, "other": 1}) == {"arguments": {"path": shown}}


@pytest.mark.parametrize(
    ("chosen", "arguments"), [([], {"path": 1}), (["path"], {"other": 1}), (["path"], ["path"]), (["path"], None)]
)
def test_nothing_is_kept_where_there_is_nothing_to_keep(chosen: list[str], arguments: Any) -> None:
    assert kept(chosen, arguments) is None
