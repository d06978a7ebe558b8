"""What a change means to callers: a table of changes, and laws that tie the words to what validators accept."""

from __future__ import annotations

from copy import deepcopy
from datetime import date
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.policy.support import accepted, manifest, pack, row, tool
from toolgate.policy import contract
from toolgate.policy.diff import ContractChange, compare, unannounced
from toolgate.policy.schemadiff import schema_changes

SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Words.",
    "properties": {
        "path": {"type": "string", "maxLength": 100, "minLength": 1, "description": "A path."},
        "mode": {"enum": ["fast", "slow"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 10, "default": 3},
        "names": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def _with(path: str, value: Any) -> dict[str, Any]:
    """The schema with one place set; None takes it away."""
    schema = deepcopy(SCHEMA)
    *parents, last = path.split("/")
    place: Any = schema
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return schema


# place, new value, for arguments, for results, what
SCHEMA_CHANGES: list[tuple[str, Any, str, str, str]] = [
    ("description", "Other.", "text-only", "text-only", ""),
    ("properties/path/description", "Other.", "text-only", "text-only", "path"),
    ("properties/path/maxLength", 50, "breaking", "widening", "path"),
    ("properties/path/maxLength", 200, "widening", "widening", "path"),
    ("properties/path/maxLength", None, "widening", "widening", "path"),
    ("properties/path/minLength", 2, "breaking", "widening", "path"),
    ("properties/path/minLength", 0, "widening", "widening", "path"),
    ("properties/path/pattern", "^a", "breaking", "widening", "path"),
    ("properties/path/type", ["string", "null"], "widening", "breaking", "path"),
    ("properties/path/type", "integer", "breaking", "breaking", "path"),
    ("properties/path/x-reason", "invalid_file", "breaking", "breaking", "path"),
    ("properties/path/x-secret", True, "widening", "widening", "path"),
    ("properties/count/type", "number", "widening", "breaking", "count"),
    ("properties/count/minimum", 1, "breaking", "widening", "count"),
    ("properties/count/maximum", 9, "breaking", "widening", "count"),
    ("properties/count/default", 4, "breaking", "widening", "count"),
    ("properties/mode/enum", ["fast"], "breaking", "widening", "mode"),
    ("properties/mode/enum", ["fast", "slow", "even"], "widening", "widening", "mode"),
    ("properties/mode/enum", ["slow", "fast"], "text-only", "text-only", "mode"),
    ("properties/mode", {"const": "fast"}, "breaking", "widening", "mode"),
    ("properties/mode", None, "breaking", "breaking", "mode"),
    ("properties/new", {"type": "null"}, "widening", "widening", "new"),
    ("properties/names/items/maxLength", 8, "breaking", "widening", "names[]"),
    ("properties/names/maxItems", 6, "widening", "widening", "names"),
    ("properties/names/uniqueItems", True, "breaking", "widening", "names"),
    ("properties/names/items", None, "widening", "breaking", "names"),
    ("required", ["path", "mode"], "breaking", "widening", "mode"),
    ("required", [], "widening", "breaking", "path"),
    ("additionalProperties", True, "widening", "widening", ""),
    ("additionalProperties", None, "widening", "widening", ""),
    ("anyOf", [{"required": ["mode"]}], "breaking", "breaking", ""),
    ("if", {"required": ["mode"]}, "breaking", "breaking", ""),
    ("x-unheard-of", 1, "breaking", "breaking", ""),
]


@pytest.mark.parametrize(("place", "value", "argument", "result", "what"), SCHEMA_CHANGES)
def test_each_change_of_a_schema_has_its_meaning(place: str, value: Any, argument: str, result: str, what: str) -> None:
    new = _with(place, value)
    assert [told[:2] for told in schema_changes(SCHEMA, new, side="argument")] == [
        (argument, f"argument:{what}" if what else "arguments")
    ]
    assert [told[:2] for told in schema_changes(SCHEMA, new, side="result")] == [
        (result, f"result:{what}" if what else "result")
    ]


def test_a_new_required_argument_breaks() -> None:
    new = _with("properties/new", {"type": "null"})
    new["required"] = ["path", "new"]
    assert [told[:2] for told in schema_changes(SCHEMA, new, side="argument")] == [("breaking", "argument:new")]


def test_another_way_in_widens_and_one_less_breaks() -> None:
    one, two = [{"required": ["a"]}], [{"required": ["a"]}, {"required": ["b"]}]
    base = {"type": "object", "anyOf": one}
    assert [told[0] for told in schema_changes(base, {**base, "anyOf": two}, side="argument")] == ["widening"]
    assert [told[0] for told in schema_changes({**base, "anyOf": two}, base, side="argument")] == ["breaking"]


names = st.sampled_from(["a", "b", "c"])
small = st.integers(0, 4)


@st.composite
def leaves(draw: Any) -> dict[str, Any]:
    kind = draw(st.sampled_from(["string", "integer", "number", "array", "values", "mixed"]))
    if kind == "string":
        keywords = {"maxLength": small, "minLength": small, "pattern": st.sampled_from(["^x", "y"])}
        return {"type": "string"} | draw(st.fixed_dictionaries({}, optional=keywords))
    if kind in ("integer", "number"):
        keywords = {
            "minimum": small,
            "maximum": small,
            "exclusiveMaximum": small,
            "multipleOf": st.sampled_from([1, 2]),
        }
        return {"type": kind} | draw(st.fixed_dictionaries({}, optional=keywords))
    if kind == "array":
        items = {"items": st.just({"type": "integer"}) | st.just({"type": "string", "maxLength": 1})}
        keywords = items | {"maxItems": small, "minItems": small, "uniqueItems": st.booleans()}
        return {"type": "array"} | draw(st.fixed_dictionaries({}, optional=keywords))
    if kind == "values":
        return draw(
            st.sampled_from(
                [{"enum": ["x", 1]}, {"enum": [True]}, {"const": 1}, {"enum": ["x", 1, None]}, {"const": "x"}]
            )
        )
    return {"type": draw(st.sampled_from([["string", "null"], ["integer", "null"], ["string", "integer"], "null"]))}


@st.composite
def schemas(draw: Any) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, leaves(), max_size=3))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "required": st.lists(names, unique=True, max_size=2),
                "additionalProperties": st.sampled_from([False, True, {"type": "integer"}]),
                "anyOf": st.lists(names.map(lambda name: {"required": [name]}), min_size=1, max_size=2),
                "maxProperties": small,
                "propertyNames": st.just({"maxLength": 1}) | st.just({"enum": ["a", "b"]}),
                "description": st.sampled_from(["one", "two"]),
            },
        )
    )
    return schema


@st.composite
def neighbours(draw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two schemas that differ in one or two places: two of anything would nearly always break."""
    old = draw(schemas())
    new = deepcopy(old)
    for _ in range(draw(st.integers(1, 2))):
        other = draw(schemas())
        places = [(new, other), *((leaf, draw(leaves())) for leaf in new["properties"].values())]
        place, source = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["take", "drop", "grow"]))
        key = draw(st.sampled_from(sorted(source if change == "take" or not place else place)))
        if change == "take":
            place[key] = source[key]
        elif change == "drop" and key in place and key not in ("type", "properties"):
            del place[key]
        elif type(place.get(key)) is int:
            place[key] += draw(st.integers(-2, 2))
            place[key] = max(place[key], 1)
    return old, new


values = st.sampled_from(["", "x", "xy", "y", "xxxxx", 0, 1, 2, 3, 1.5, None, True, [], [1], [1, 1], ["x"], [1, 2, 3]])
arguments = st.lists(st.dictionaries(names, values, max_size=3), min_size=15, max_size=25)


@cases(40, 200)
@given(pair=neighbours(), calls=arguments)
def test_what_is_not_called_breaking_refuses_no_call_that_was_accepted(pair: Any, calls: Any) -> None:
    old, new = pair
    kinds = {kind for kind, _, _ in schema_changes(old, new, side="argument")}
    before, after = jsonschema_rs.Draft202012Validator(old), jsonschema_rs.Draft202012Validator(new)
    refused = [call for call in calls if before.is_valid(call) and not after.is_valid(call)]
    accepted_now = [call for call in calls if after.is_valid(call) and not before.is_valid(call)]
    assert not refused or "breaking" in kinds
    assert not accepted_now or kinds - {"text-only"}


@cases(20, 100)
@given(pair=neighbours())
def test_a_difference_is_never_silent_and_equality_says_nothing(pair: Any) -> None:
    old, new = pair
    for side in ("argument", "result"):
        assert list(schema_changes(old, deepcopy(old), side=side)) == []  # type: ignore[arg-type]  # a literal, looped
        assert (list(schema_changes(old, new, side=side)) == []) == (  # type: ignore[arg-type]  # as above
            contract.digest(old) == contract.digest(new)
        )


def _built(adrs: Any = None, **changes: Any) -> contract.Contract:
    policy_changes = {key: changes.pop(key) for key in ("tier", "adr", "hint", "roles") if key in changes}
    return contract.build([pack(tool(**changes))], manifest(row(**policy_changes)), adrs or {})


TOOL_CHANGES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"summary": "Else."}, "text-only", "description"),
    ({}, {"title": "Else"}, "text-only", "annotation:title"),
    ({"effect": "write"}, {"effect": "write", "destructive": False}, "widening", "annotation:destructiveHint"),
    ({"effect": "write", "idempotent": True}, {"effect": "write"}, "widening", "annotation:idempotentHint"),
    ({"effect": "write"}, {}, "widening", "annotation:readOnlyHint"),
    ({}, {"effect": "network"}, "widening", "annotation:openWorldHint"),
    ({}, {"hint": "Else"}, "text-only", "hint"),
    ({}, {"id": "test.else"}, "breaking", "id"),
    ({}, {"roles": frozenset({"builder", "admin"})}, "breaking", "role:committer"),
    ({"roles": frozenset({"admin"})}, {"roles": frozenset({"admin", "builder"})}, "widening", "role:builder"),
    ({"error_codes": ("GONE",)}, {}, "breaking", "code:GONE"),
    ({}, {"error_codes": ("COME",)}, "widening", "code:COME"),
    ({"decisions": ("warn",)}, {}, "breaking", "decision:warn"),
    ({"tier": "authoritative"}, {}, "breaking", "tier"),
    ({}, {"tier": "authoritative"}, "widening", "tier"),
    ({}, {"adr": "ADR-1"}, "widening", "adr"),
    ({}, {"deadline_s": 9}, "breaking", "deadline"),
    ({}, {"deadline_s": 11}, "widening", "deadline"),
    ({}, {"effect": "network"}, "widening", "effect"),
    ({}, {"argument_roles": {"x": frozenset({"admin"})}}, "breaking", "argument-roles:x"),
    ({"argument_roles": {"x": frozenset({"admin"})}}, {}, "widening", "argument-roles:x"),
    (
        {"argument_roles": {"x": frozenset({"admin", "builder"})}},
        {"argument_roles": {"x": frozenset({"admin"})}},
        "breaking",
        "argument-roles:x",
    ),
    ({}, {"input_schema": SCHEMA}, "breaking", "argument:path"),
]


@pytest.mark.parametrize(("old", "new", "kind", "what"), TOOL_CHANGES)
def test_each_change_of_a_tool_has_its_meaning(old: Any, new: Any, kind: str, what: str) -> None:
    found = compare(_built(**old), _built(**new))
    assert (kind, what) in [(change.kind, change.what) for change in found]
    assert found[0].kind == kind, "the gravest comes first, and is not graver than expected"


def test_tools_that_come_and_go() -> None:
    one = contract.build([pack(tool("a"))], manifest(row("a"), row("b")), {})
    two = contract.build([pack(tool("a"), tool("b"))], manifest(row("a"), row("b")), {})
    assert compare(one, two) == [ContractChange("widening", "b", "tool", "the tool is new")]
    assert compare(two, one) == [ContractChange("breaking", "b", "tool", "the tool is gone")]


def test_a_record_that_is_edited_or_loses_its_acceptance() -> None:
    bound = {"tier": "authoritative", "adr": "ADR-1"}
    good = _built(accepted("ADR-1"), **bound)
    assert [(each.kind, each.what) for each in compare(good, _built(accepted("ADR-1", "superseded"), **bound))] == [
        ("breaking", "status")
    ]
    edited = {"ADR-1": type(accepted("ADR-1")["ADR-1"])("ADR-1", "accepted", "1" * 64)}
    assert [(each.kind, each.what) for each in compare(good, _built(edited, **bound))] == [("text-only", "text")]


def test_a_field_nobody_knows_is_breaking() -> None:
    old, new = _built(), _built()
    new["tools"][0]["x-surprise"] = True
    assert [(change.kind, change.what) for change in compare(old, new)] == [("breaking", "x-surprise")]


TODAY = date(2026, 11, 15)
GONE = ContractChange("breaking", "probe", "argument:path", "gone")


@pytest.mark.parametrize(
    ("tool_name", "what", "announced", "enough"),
    [
        ("probe", "argument:path", "2026-11-01", True),
        ("probe", "argument:path", "2026-11-02", False),
        ("probe", "argument:path", "2027-01-01", False),
        ("probe", "tool", "2026-11-01", True),
        ("probe", "argument:mode", "2026-11-01", False),
        ("other", "argument:path", "2026-11-01", False),
        ("probe", "argument:path", "long ago", False),
    ],
)
def test_a_breaking_change_needs_two_weeks_of_notice_for_that_very_part(
    tool_name: str, what: str, announced: str, enough: bool
) -> None:
    old = {"deprecations": [{"tool": tool_name, "what": what, "announced": announced, "text": "Use y."}]}
    assert unannounced([GONE], old, TODAY) == ([] if enough else [GONE])


def test_compatible_changes_need_no_notice() -> None:
    assert (
        unannounced(
            [ContractChange("widening", "a", "tool", ""), ContractChange("text-only", "a", "hint", "")],
            {"deprecations": []},
            TODAY,
        )
        == []
    )
