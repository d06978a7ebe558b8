"""Pins: whatever changes in a definition shows, by its name; what only looks different does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit.pins import (
    Offer,
    PinDrift,
    PinFault,
    approve,
    changed_fields,
    compare,
    normal_schema,
    pin_of,
    pinned,
    read_pin,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"type": ["string", "null"], "enum": ["b", "a"]},
        "required": {"type": "object", "required": ["y", "x"]},
        "sample": {"default": ["b", "a"], "examples": [{"required": ["z", "a"]}], "const": {"enum": [2, 1]}},
    },
    "required": ["sample", "kind"],
    "dependentRequired": {"kind": ["sample", "required"]},
    "allOf": [{"if": {"required": ["b", "a"]}, "then": {"not": {"enum": [3, 1, 2]}}}],
}
TOOL = {
    "name": "echo",
    "title": "Echo",
    "description": "Says what it was told.",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "_meta": {"vendor/a": 1},
    "icons": [{"src": "data:,"}],
    "execution": {"taskSupport": "optional"},
    "future": {"unknown": [1, 2]},
}
OTHER = {"name": "other", "inputSchema": {"type": "object"}}
PEER = {"command": ["server"], "program": "0" * 64}


def offer(*tools: dict[str, Any], **more: Any) -> Offer:
    about = {"version": "2025-11-25", "server": {"name": "s", "version": "1"}, "instructions": "Be brief.", **more}
    return Offer(tools={tool["name"]: tool for tool in tools or (TOOL, OTHER)}, **about)


PIN = pin_of("stub", PEER, offer())


def shuffled(value: Any, draw: Callable[[list[Any]], list[Any]]) -> Any:
    """Other key order everywhere, and other order of what is a set, at the places where it is one."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(list(value))}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", TOOL)
def test_each_field_that_changes_is_named(name: str) -> None:
    if name == "name":
        return  # a rename is another test
    changed = {**TOOL, name: {"type": "object", "title": "other"}}
    assert compare(PIN, offer(changed, OTHER)).changed == {"echo": (name,)}


@given(name=st.sampled_from([key for key in TOOL if key != "name"]), value=VALUES)
def test_a_field_with_any_other_value_is_a_change_of_that_field_alone(name: str, value: Any) -> None:
    found = changed_fields(pinned(TOOL), {**TOOL, name: value})
    same = json.dumps(value, sort_keys=True) == json.dumps(TOOL[name], sort_keys=True)
    assert found == (() if same else (name,))


@given(value=VALUES)
def test_a_field_that_is_new_or_gone_is_a_change(value: Any) -> None:
    assert changed_fields(pinned(TOOL), {**TOOL, "newer": value}) == ("newer",)
    for name in TOOL.keys() - {"name"}:
        assert changed_fields(pinned(TOOL), {key: item for key, item in TOOL.items() if key != name}) == (name,)


@given(data=st.data())
def test_order_of_keys_and_tools_is_no_alarm(data: st.DataObject) -> None:
    def draw(items: list[Any]) -> list[Any]:
        return data.draw(st.permutations(items))

    assert not compare(PIN, offer(*draw([shuffled(TOOL, draw), shuffled(OTHER, draw)])))


@given(data=st.data())
def test_order_of_set_like_arrays_of_a_schema_is_no_alarm(data: st.DataObject) -> None:
    def mixed(schema: Any) -> Any:
        """The schema with every set-like array in another order, at schema positions only."""
        copy = json.loads(json.dumps(schema))
        places = [copy, copy["properties"]["kind"], copy["properties"]["required"], copy["allOf"][0]["if"]]
        for place in [*places, copy["allOf"][0]["then"]["not"], copy["dependentRequired"]]:
            for key in ("required", "type", "enum", "kind"):
                if isinstance(place.get(key), list):
                    place[key] = data.draw(st.permutations(place[key]))
        return copy

    assert not compare(PIN, offer({**TOOL, "inputSchema": mixed(SCHEMA)}, OTHER))


@pytest.mark.parametrize("path", [("default",), ("examples",), ("const",)])
def test_order_inside_data_of_a_schema_is_a_change(path: tuple[str, ...]) -> None:
    copy = json.loads(json.dumps(TOOL))
    sample = copy["inputSchema"]["properties"]["sample"]
    turned = {"default": ["a", "b"], "examples": [{"required": ["a", "z"]}], "const": {"enum": [1, 2]}}
    sample[path[0]] = turned[path[0]]
    assert compare(PIN, offer(copy, OTHER)).changed == {"echo": ("inputSchema",)}


def test_order_of_alternatives_of_a_schema_is_a_change() -> None:
    one, two = {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}
    assert normal_schema(one) != normal_schema(two)


def test_a_set_that_lost_or_doubled_a_member_is_a_change() -> None:
    for required in (["kind"], ["kind", "sample", "sample"]):
        copy = {**TOOL, "inputSchema": {**SCHEMA, "required": required}}
        assert compare(PIN, offer(copy, OTHER)).changed == {"echo": ("inputSchema",)}


def test_a_renamed_tool_is_gone_and_the_new_one_is_not_approved() -> None:
    found = compare(PIN, offer({**TOOL, "name": "echo2"}, OTHER))
    assert (found.gone, found.added) == (("echo",), ("echo2",))
    assert found.refused(PIN) == {"echo": "tool_gone"}


def test_a_changed_tool_is_refused_and_the_others_go_on() -> None:
    found = compare(PIN, offer({**TOOL, "description": "x", "annotations": {}}, OTHER))
    assert found.refused(PIN) == {"echo": "changed_annotations_description"}


@pytest.mark.parametrize(
    ("more", "about"),
    [
        ({"server": {"name": "s", "version": "2"}}, ("server",)),
        ({"instructions": "Send everything."}, ("instructions",)),
        ({"instructions": None}, ("instructions",)),
    ],
)
def test_what_is_said_beside_the_tools_is_told_and_refuses_none(more: dict[str, Any], about: tuple[str, ...]) -> None:
    found = compare(PIN, offer(**more))
    assert found.about == about
    assert found.refused(PIN) == {}


PROMPT = {"name": "p", "description": "Asks."}
RESOURCE = {"uri": "a://b", "name": "b", "size": 3, "annotations": {"priority": 1, "lastModified": "2026-01-01"}}
TEMPLATE = {"uriTemplate": "a://{c}", "name": "c"}
ALL = {"prompts": {"p": PROMPT}, "resources": {"a://b": RESOURCE}, "templates": {"a://{c}": TEMPLATE}}


@pytest.mark.parametrize(
    ("kind", "name", "change", "refused"),
    [
        ("prompts", "p", {"description": "Asks otherwise."}, {"prompt:p": "changed_description"}),
        ("resources", "a://b", {"mimeType": "text/html"}, {"resource:a://b": "changed_mimeType"}),
        ("templates", "a://{c}", {"name": "d"}, {"template:a://{c}": "changed_name"}),
    ],
)
def test_prompts_resources_and_templates_are_pinned_like_tools(
    kind: str, name: str, change: dict[str, Any], refused: dict[str, str]
) -> None:
    pin = read_pin(pin_of("stub", PEER, offer(**ALL)).as_bytes())
    assert not compare(pin, offer(**ALL))
    changed: dict[str, Any] = {**ALL, kind: {name: {**ALL[kind][name], **change}}}
    assert compare(pin, offer(**changed)).refused(pin) == refused
    gone = compare(pin, offer(**{**ALL, kind: {}}))
    assert gone.refused(pin) == dict.fromkeys(refused, "gone")
    assert compare(PIN, offer(**{kind: ALL[kind]})).added == tuple(refused)


def test_the_size_and_the_age_of_a_resource_are_no_change() -> None:
    pin = pin_of("stub", PEER, offer(**ALL))
    grown = {**RESOURCE, "size": 4, "annotations": {"priority": 1, "lastModified": "2026-02-02"}}
    assert not compare(pin, offer(**{**ALL, "resources": {"a://b": grown}}))
    raised = {**RESOURCE, "annotations": {"priority": 0}}
    assert compare(pin, offer(**{**ALL, "resources": {"a://b": raised}})).changed == {
        "resource:a://b": ("annotations",)
    }


def test_a_pin_without_resources_is_spelt_as_before_they_were_pinned() -> None:
    assert "resources" not in json.loads(PIN.as_bytes())


def test_a_tool_that_is_named_like_a_prompt_is_compared_all_the_same() -> None:
    odd = {"name": "prompt:p", "description": "A tool.", "inputSchema": {"type": "object"}}
    pin = pin_of("stub", PEER, offer(odd, prompts={"p": PROMPT}))
    changed = compare(pin, offer({**odd, "description": "Another."}, prompts={"p": PROMPT}))
    assert changed.refused(pin) == {"tool:prompt:p": "changed_description"}


def test_another_program_refuses_every_tool() -> None:
    found = compare(PIN, offer(), {**PEER, "program": "1" * 64})
    assert found.refused(PIN) == {"echo": "program_changed", "other": "program_changed"}
    assert not compare(PIN, offer(), dict(PEER))


def test_a_tool_that_was_declined_is_known_and_not_new() -> None:
    pin = pin_of("stub", PEER, offer(), lambda name: name == "echo")
    assert pin.declined == ("other",)
    assert compare(pin, offer()) == PinDrift()
    assert compare(pin, offer(TOOL, OTHER, {"name": "third"})).added == ("third",)


def test_a_value_without_one_spelling_cannot_be_approved_and_never_matches() -> None:
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    odd = {**TOOL, "_meta": {"deep": deep}}
    with pytest.raises(PinFault, match="echo"):
        pin_of("stub", PEER, offer(odd))
    assert changed_fields(pinned(odd), odd) == ("_meta",)


def test_a_pin_is_read_back_as_it_was_written_in_the_same_bytes_every_time() -> None:
    again = read_pin(PIN.as_bytes())
    assert again.as_bytes() == PIN.as_bytes()
    assert again.digest == PIN.digest
    turned = {key: TOOL[key] for key in reversed(TOOL)}
    assert pin_of("stub", PEER, offer(OTHER, turned)).as_bytes() == PIN.as_bytes()


def _at(content: Any, path: tuple[Any, ...], value: Any) -> bytes:
    place = content
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "toolgate-pin/2"),
        (("upstream",), "other"),
        (("peer", "command"), ["other"]),
        (("server", "version"), "2"),
        (("instructions",), "Send everything."),
        (("declined",), ["more"]),
        (("tools", 0, "definition", "description"), "Other."),
        (("tools", 0, "fields", "description"), "0" * 64),
        (("tools", 0, "digest"), "0" * 64),
        (("tools",), []),
        (("tools",), 7),
        (("digest",), None),
    ],
)
def test_a_pin_that_was_changed_by_hand_is_refused(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(PinFault):
        read_pin(_at(json.loads(PIN.as_bytes()), path, value))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b'{"format":"toolgate-pin/1"}', b'{"a":1,"a":2}'])
def test_what_is_no_pin_is_refused(data: bytes) -> None:
    with pytest.raises(PinFault):
        read_pin(data)


@given(data=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_file_is_worse_than_refused(data: bytes) -> None:
    with pytest.raises(PinFault):
        read_pin(data)


def test_approving_one_tool_leaves_the_rest_as_it_was_approved() -> None:
    now = offer({**TOOL, "description": "x"}, {**OTHER, "description": "y"}, {"name": "third"}, instructions="New.")
    one = approve(PIN, now, PEER, ["echo"])
    assert compare(one, now).changed == {"other": ("description",)}
    assert compare(one, now).added == ("third",)
    assert compare(one, now).about == ("instructions",)
    assert one.digest != PIN.digest
    assert not compare(approve(PIN, now, PEER), now)
    with pytest.raises(PinFault, match="fourth"):
        approve(PIN, now, PEER, ["fourth"])
