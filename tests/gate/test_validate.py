"""Schemas: compiled once, fail-closed, reasons derived from the schema and never from the value."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cases import cases
from toolgate.errors import CanonicalError
from toolgate.gate.explain import MAX_FAULTS, MAX_POINTER, MAX_RANKED, Explainer
from toolgate.gate.validate import NOTHING_OPTIONAL, bundle_of, compile_schema
from toolgate.model.tool import Foreign, Result, Tool
from toolgate.packs.loader import built_in, load_packs
from toolgate.registry import SchemaRegistry

PATH = {"type": "string", "minLength": 1, "maxLength": 8, "pattern": "^[a-z/]+$", "x-reason": "invalid_path"}
INPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["project_name", "path"],
    "properties": {
        "project_name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "path": PATH,
        "port": {"type": "integer", "minimum": 1024, "maximum": 65535},
        "vote": {
            "type": "object",
            "additionalProperties": False,
            "required": ["root"],
            "properties": {"root": {"type": "string", "maxLength": 4}},
        },
        "files": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 4}},
        "alias": {"type": "string", "maxLength": 3, "x-name": "target"},
    },
}
GOOD = {"project_name": "abc", "path": "a/b"}


def tool(name: str = "t_one", schema: Any = None, output: Any = None) -> Tool:
    return Tool(
        name=name,
        id=name.replace("_", "."),
        summary="",
        input_schema=schema or INPUT,
        output_schema=output or {"type": "object", "required": ["hits"]},
        effect="read",
        deadline_s=1,
        run=lambda ctx, args: Result(),
    )


@pytest.mark.req("000-D-06", "000-C-07")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"project_name": None}, "invalid_project_name"),
        ({"project_name": ""}, "missing_project_name"),
        ({"project_name": "abcdef"}, "project_name_too_long"),
        ({"project_name": "ABC"}, "invalid_project_name"),
        ({"project_name": "abc\n"}, "invalid_project_name"),
        ({"project_name": 3}, "invalid_project_name"),
        ({"path": "A"}, "invalid_path"),
        ({"path": ""}, "missing_path"),
        ({"path": "a" * 9}, "path_too_long"),
        ({"port": 80}, "invalid_port"),
        ({"port": "8080"}, "invalid_port"),
        ({"port": 8080.0}, "invalid_port"),
        ({"port": True}, "invalid_port"),
        ({"port": 8080.5}, "invalid_port"),
        ({"vote": {}}, "missing_root"),
        ({"vote": {"root": 1}}, "invalid_root"),
        ({"vote": {"root": "x", "more": 1}}, "unknown_argument"),
        ({"files": ["abcde"]}, "files_too_long"),
        ({"files": ["a", "b", "c"]}, "invalid_files"),
        ({"alias": "abcd"}, "target_too_long"),
        ({"alias": 1}, "invalid_target"),
        ({"zz": 1}, "unknown_argument"),
    ],
)
def test_each_fault_has_a_stable_reason(change: dict[str, Any], reason: str) -> None:
    faults = SchemaRegistry([tool()]).load_tool_io("t_one").input.faults(GOOD | change)
    assert faults[0].reason == reason


@pytest.mark.req("002-S3")
def test_an_absent_mandatory_key_is_named_first() -> None:
    validator = SchemaRegistry([tool()]).load_tool_io("mcp.tool:t.one").input
    assert [fault.reason for fault in validator.faults({"zz": 1})] == [
        "missing_path",
        "missing_project_name",
        "unknown_argument",
    ]
    with pytest.raises(ValueError, match="missing_path"):
        validator.validate({})


def test_a_reason_of_the_root_can_be_named_by_the_schema() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"target": {"type": "string"}, "path": {"type": "string"}},
        "anyOf": [{"required": ["target"]}, {"required": ["path"]}],
        "x-reasons": {"anyOf": "missing_target"},
    }
    assert SchemaRegistry([tool(schema=schema)]).load_tool_io("t_one").input.faults({})[0].reason == "missing_target"


def test_faults_are_sorted_bounded_and_hold_no_value() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {f"k{n:02}": {"type": "integer"} for n in range(40)},
    }
    faults = (
        SchemaRegistry([tool(schema=schema)])
        .load_tool_io("t_one")
        .input.faults({f"k{n:02}": "s3cret" for n in range(40)})
    )
    assert len(faults) == 20
    assert [fault.pointer for fault in faults] == sorted(fault.pointer for fault in faults)
    assert "s3cret" not in repr(faults)


@pytest.mark.req("002-S2")
def test_the_same_schema_anywhere_is_the_same_object() -> None:
    registry = SchemaRegistry([tool("t_one"), tool("t_two")])
    assert registry.load_tool_io("t_one").input is registry.load_tool_io("t_two").input
    assert registry.load_envelope() is registry.load_envelope()
    assert compile_schema(dict(reversed(INPUT.items()))) is registry.load_tool_io("t.one").input


@pytest.mark.req("002-S2")
def test_d12_registries_share_their_validators() -> None:
    first, second = SchemaRegistry([tool("t_one")]), SchemaRegistry([tool("t_two")])
    assert first.load_tool_io("t_one").input is second.load_tool_io("t_two").input


@pytest.mark.req("002-S1")
def test_d12_registry_without_tools_knows_those_that_ship_with_toolgate() -> None:
    """As document 002 writes it."""
    bundle = SchemaRegistry().load_tool_io("mcp.tool:library.search")
    assert (bundle.input.is_valid({"query": "drift"}), bundle.input.is_valid({})) == (True, False)
    names = [each for pack in load_packs(built_in()) for each in pack.tools]
    assert all(SchemaRegistry().load_tool_io(each.canonical_id).output for each in names)
    with pytest.raises(KeyError):
        SchemaRegistry().load_tool_io("mcp.tool:no.such")


def test_d12_guide_for_embedders_runs_as_printed() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "embedding.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "embedding.md", "exec"), {})


@pytest.mark.req("002-S1", "002-S4")
def test_a_tool_is_found_by_each_of_its_names_and_both_sides_are_guarded() -> None:
    registry = SchemaRegistry([tool()])
    bundle = registry.load_tool_io("mcp.tool:t.one")
    assert bundle is registry.load_tool_io("t_one")
    assert not bundle.input.is_valid({})
    assert not bundle.output.is_valid({})
    assert bundle.output.is_valid({"hits": []})


def test_an_unknown_tool_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        SchemaRegistry([]).load_tool_io("mcp.tool:no.such")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": False, "properties": {"x": {"$ref": "http://example.org/s.json"}}},
        {"type": "object", "additionalProperties": False, "properties": {"x": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "additionalProperties": False, "properties": {"x": {"pattern": "(?=a)"}}},
        {"type": "object", "additionalProperties": False, "properties": {"x": {"pattern": "("}}},
        {"type": "object", "additionalProperties": False, "properties": {"x": {"type": "nonsense"}}},
        {"type": "object"},
        {"type": "array", "additionalProperties": False},
    ],
    ids=["remote", "file", "look-around", "broken pattern", "no such type", "open object", "not an object"],
)
def test_a_schema_that_cannot_be_trusted_does_not_compile(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"schema|Schema"):
        SchemaRegistry([tool(schema=schema)])


ENVELOPE = {"id": 1, "jsonrpc": "2.0", "method": "mcp.tool.invoke", "params": {"tool": "mcp.tool:a.b", "input": {}}}


@pytest.mark.req("002-E1", "002-E2", "002-E3")
@pytest.mark.parametrize(
    "envelope",
    [
        *({key: value for key, value in ENVELOPE.items() if key != missing} for missing in ENVELOPE),
        ENVELOPE | {"id": None},
        ENVELOPE | {"id": True},
        ENVELOPE | {"id": 1.0},
        ENVELOPE | {"id": 1.5},
        ENVELOPE | {"id": ""},
        ENVELOPE | {"id": "x" * 129},
        ENVELOPE | {"jsonrpc": "1.0"},
        ENVELOPE | {"method": "tools/call"},
        ENVELOPE | {"params": "text"},
        ENVELOPE | {"meta": {}},
        ENVELOPE | {"params": {"tool": "mcp.tool:a.b"}},
        ENVELOPE | {"params": {"input": {}}},
        ENVELOPE | {"params": {"tool": "a.b", "input": {}}},
        ENVELOPE | {"params": {"tool": "mcp.tool:a.b\n", "input": {}}},
        ENVELOPE | {"params": {"tool": "mcp.tool:...", "input": {}}},
        ENVELOPE | {"params": {"tool": "mcp.tool:a b", "input": {}}},
        ENVELOPE | {"params": {"tool": "mcp.tool:a.b", "input": []}},
        ENVELOPE | {"params": {"tool": "mcp.tool:a.b", "input": {}, "extra": 1}},
    ],
    ids=str,
)
def test_a_deviating_request_envelope_is_refused(envelope: Any) -> None:
    assert not SchemaRegistry().load_envelope().is_valid(envelope)


@pytest.mark.parametrize("request_id", ["x", "x" * 128, 0, -1, 2**53 - 1])
def test_a_proper_request_envelope_is_taken(request_id: Any) -> None:
    assert SchemaRegistry().load_envelope().is_valid(ENVELOPE | {"id": request_id})


@pytest.mark.req("002-C1", "002-C2")
@pytest.mark.parametrize(
    ("code", "status", "number", "message"),
    [
        ("INVALID_INPUT", 400, -32602, "Invalid params"),
        ("INVALID_OUTPUT", 502, -32002, "Invalid tool output"),
        ("NOT_FOUND", 404, -32004, "Resource not found"),
        ("UNAUTHORIZED", 401, -32001, "Unauthorized"),
        ("INTERNAL_ERROR", 500, -32603, "Internal error"),
    ],
)
def test_the_five_canonical_errors_are_as_printed(code: str, status: int, number: int, message: str) -> None:
    assert CanonicalError.to_http_status(code) == status
    first = CanonicalError.to_jsonrpc_error(code)
    assert first == {"code": number, "message": message, "data": {"canonical_code": code}}
    first["data"]["canonical_code"] = "changed by a careless caller"
    assert CanonicalError.to_jsonrpc_error(code)["data"]["canonical_code"] == code


def test_an_unknown_canonical_error_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        CanonicalError.to_jsonrpc_error("TIMEOUT")
    with pytest.raises(KeyError):
        CanonicalError.to_http_status("TIMEOUT")


NAMES = ("text", "count", "a/b", "~", "deep")
TEXTS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(1, 4),
        "pattern": st.sampled_from(["^[a-z]*$", "x"]),
        "enum": st.lists(st.sampled_from(["", "x", "abc"]), min_size=1, max_size=2, unique=True),
        "x-name": st.just("shown"),
        "x-reason": st.just("invalid_path"),
        "x-reasons": st.just({"pattern": "odd_letters"}),
        "description": st.just("A text."),
    },
)
NUMBERS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={"minimum": st.integers(0, 2), "maximum": st.integers(1, 9), "multipleOf": st.just(2)},
)
OTHERS = st.sampled_from(
    [
        {"const": 5},
        {"type": ["string", "null"], "maxLength": 2},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        {"type": "object", "properties": {"x": {"type": "string", "maxLength": 1}}, "additionalProperties": False},
        {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]},
    ]
)


@st.composite
def closed_objects(draw: st.DrawFn) -> dict[str, Any]:
    about = draw(st.dictionaries(st.sampled_from(NAMES), TEXTS | NUMBERS | OTHERS, max_size=4))
    required = [name for name in about if draw(st.booleans())]
    more = draw(st.sampled_from([{}, {"title": "Arguments"}, {"minProperties": 1}]))
    return {"type": "object", "properties": about, "required": required, "additionalProperties": False, **more}


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 12),
    st.sampled_from([1.0, 1.5, -0.0, 4e20]),
    st.text("xyZ", max_size=6),
    st.lists(st.sampled_from([1, 1.0, "x"]), max_size=3),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["", "x", "xx", 1]), max_size=2),
)


@cases(100, 400)
@given(
    closed_objects(),
    st.dictionaries(st.sampled_from([*NAMES, "more", "/"]), VALUES, max_size=6) | st.lists(VALUES, max_size=1),
)
def test_a_plain_object_is_explained_as_the_library_would(schema: dict[str, Any], instance: Any) -> None:
    validator = compile_schema(schema)
    slow = validator._explainer.by_library(instance)
    expected = [fault for _, fault in sorted(slow, key=lambda one: (one[1].pointer, one[0], one[1].keyword))]
    assert validator.faults(instance) == expected[:MAX_FAULTS]
    assert validator.is_valid(instance) == (not expected)


def test_what_nobody_can_explain_is_not_valid_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    validator = compile_schema({"not": {}})
    monkeypatch.setattr(Explainer, "by_library", lambda *_: [])
    assert [fault.reason for fault in validator.faults({})] == ["invalid_arguments"]


def test_a_name_that_a_caller_made_up_is_not_echoed_at_length() -> None:
    validator = compile_schema({"type": "object", "properties": {}, "additionalProperties": False})
    (fault,) = validator.faults({"x" * 500_000: 1})
    assert len(fault.pointer) == MAX_POINTER


def test_many_unknown_arguments_are_told_up_to_a_limit() -> None:
    validator = compile_schema({"type": "object", "properties": {}, "additionalProperties": False})
    instance = {f"name-{number:03}": 1 for number in range(500)}
    assert [fault.pointer for fault in validator.explain(instance)] == [f"/name-{number:03}" for number in range(20)]


def test_the_usual_fault_is_not_asked_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It spells out each fault for people, which costs more than the whole call."""
    monkeypatch.setattr(Explainer, "by_library", None)
    about = {"text": {"type": "string", "maxLength": 3}, "deep": {"type": "array", "items": {}}}
    validator = compile_schema(
        {"type": "object", "properties": about, "required": ["text"], "additionalProperties": False}
    )
    assert [fault.reason for fault in validator.explain({"text": "long", "more": 1})] == [
        "unknown_argument",
        "text_too_long",
    ]
    assert [fault.reason for fault in validator.explain({})] == ["missing_text"]


LISTS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["names"],
    "properties": {
        "names": {
            "type": "array",
            "maxItems": 10_000,
            "items": {"type": "string", "maxLength": 3, "x-reason": "invalid_name"},
        },
        "more": {"type": "array", "maxItems": 10_000, "items": {"$ref": "#/$defs/number"}, "x-name": "numbers"},
    },
    "$defs": {"number": {"type": "integer"}},
}


def explained(instance: Any) -> list[dict[str, str]]:
    """Without the sentences, which `tests/gate/test_wording.py` is about."""
    told = [fault.as_json() for fault in compile_schema(LISTS).faults(instance)]
    assert all(fault.pop("text") for fault in told)
    return told


def test_f24_of_arguments_that_honest_callers_send_each_fault_has_its_place() -> None:
    assert explained({"names": ["ok"] * 3000 + ["long"]}) == [
        {"pointer": "/names/3000", "keyword": "maxLength", "reason": "names_too_long"}
    ]


def test_f24_of_very_many_values_only_the_property_is_named() -> None:
    assert explained({"names": [{}] * 9000, "more": [1] * 9000}) == [
        {"pointer": "/names", "keyword": "schema", "reason": "invalid_names"}
    ]
    assert explained({"more": ["x"] * 9000}) == [
        {"pointer": "/more", "keyword": "schema", "reason": "invalid_numbers"},
        {"pointer": "/names", "keyword": "required", "reason": "missing_names"},
    ]
    assert explained([1] * 9000)[0]["reason"] == "invalid_arguments"


def test_f24_the_library_spells_out_no_more_faults_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    real = Explainer._ranked
    monkeypatch.setattr(Explainer, "_ranked", lambda self, error: (looked.append(1), real(self, error))[1])
    assert len(explained({"names": [{}] * 3000})) == MAX_FAULTS
    assert len(looked) == MAX_RANKED


OPTIONAL = {
    "type": "object",
    "additionalProperties": False,
    "required": ["must"],
    "properties": {
        "must": {"type": "string", "maxLength": 9},
        "may": {"type": "string", "maxLength": 9},
        "choice": {"enum": ["a", None]},
        "maybe": {"type": ["string", "null"], "maxLength": 9},
        "deep": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "may": {"type": "integer"},
                "deeper": {"type": "object", "properties": {"may": {"const": 1}}},
            },
        },
    },
}


@pytest.mark.parametrize(
    ("sent", "judged"),
    [
        ({"must": "x", "may": None}, {"must": "x"}),
        ({"must": None}, {"must": None}),
        ({"must": "x", "choice": None, "maybe": None}, {"must": "x", "choice": None, "maybe": None}),
        ({"must": "x", "nobody": None}, {"must": "x", "nobody": None}),
        ({"must": "x", "deep": {"may": None, "deeper": {"may": None}}}, {"must": "x", "deep": {"deeper": {}}}),
        ({"must": "x", "deep": None}, {"must": "x"}),
    ],
    ids=str,
)
def test_null_for_an_optional_argument_counts_as_absent(sent: dict[str, Any], judged: dict[str, Any]) -> None:
    optional = SchemaRegistry([tool(schema=OPTIONAL)]).load_tool_io("t_one").optional
    before = copy.deepcopy(sent)
    assert optional.without_nulls(sent) == judged
    assert sent == before


def test_arguments_without_null_are_not_copied() -> None:
    optional = SchemaRegistry([tool(schema=OPTIONAL)]).load_tool_io("t_one").optional
    sent = {"must": "x", "deep": {"may": 1}}
    assert optional.without_nulls(sent) is sent


def test_secrets_are_found_wherever_a_schema_says_so_by_their_paths() -> None:
    secret = {"type": "string", "maxLength": 9, "x-secret": True}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "key": secret,
            "name": {"type": "string", "maxLength": 9, "x-secret": False},
            "deep": {"type": "object", "properties": {"token": secret, "more": {"type": "boolean"}}},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"pin": secret}}},
        },
    }
    found = SchemaRegistry([tool(schema=schema)]).load_tool_io("t_one").secrets
    assert found == (("key",), ("deep", "token"), ("list", "*", "pin"))


def test_a_number_that_is_no_integer_may_have_a_decimal_point() -> None:
    for more in ({}, {"n": {"type": "integer"}}):
        validator = compile_schema({"type": "object", "properties": {"ratio": {"type": "number"}, **more}})
        assert validator.is_valid({"ratio": 1.0})
        assert validator.is_valid({"n": 1.0}) is not bool(more)


def test_an_adopted_tool_is_judged_by_the_schemas_it_came_with() -> None:
    adopted = replace(tool(), foreign=Foreign("up", "pin", {"outputSchema": {"type": "object", "required": ["hits"]}}))
    io = bundle_of(adopted)
    assert (io.secrets, io.optional) == ((), NOTHING_OPTIONAL)
    assert io.output.is_valid({"content": [], "structuredContent": {"hits": 1}})
    assert not io.output.is_valid({"hits": 1})
    assert bundle_of(tool()).output.is_valid({"hits": 1})


def test_one_of_several_arguments_is_asked_for_without_a_combinator() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"target": {"type": "string", "maxLength": 4}, "path": {"type": "string", "maxLength": 4}},
        "x-needs-one": ["target", "path"],
    }
    validator = compile_schema(schema)
    assert validator.is_valid({"path": "x"})
    assert validator.is_valid({"target": "x"})
    (fault,) = validator.faults({})
    assert (fault.reason, fault.text) == (
        "missing_target",
        "target (or path) is missing; expected a string of at most 4 characters.",
    )
