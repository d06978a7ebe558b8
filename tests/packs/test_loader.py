"""The door: packs come by name through entry points, and what does not fit is refused before anything of it is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.policy.support import install, pack_source
from toolgate.errors import StartRefused
from toolgate.model.tool import Result
from toolgate.packs import loader
from toolgate.packs.loader import built_in, load_packs
from toolgate.packs.schemas import faults_of, unbounded

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of installed distributions, before all others."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_strangers_pack_comes_by_the_same_door_as_ours(site: Path) -> None:
    install(site, "stray", pack_source())
    ours, theirs = load_packs(["governance", "stray"])
    assert "dummy_experimental" in [tool.name for tool in ours.tools]
    assert [tool.name for tool in theirs.tools] == ["stray_probe"]


def test_a_pack_that_is_not_named_is_not_imported(site: Path) -> None:
    install(site, "bomb", "raise SystemExit('imported')")
    load_packs(["governance"])
    assert not [module for module in sys.modules if "bomb" in module]


def test_only_packs_of_toolgate_itself_are_built_in(site: Path) -> None:
    install(site, "stray", pack_source())
    assert "governance" in built_in()
    assert "stray" not in built_in()


def test_a_pack_is_judged_once_in_a_process_and_another_of_its_name_anew(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    monkeypatch.setattr(loader, "faults", lambda pack, *, pinned: judged.append(pack.name) or ())
    install(site, "stray", pack_source())
    (first,) = load_packs(["stray"])
    assert load_packs(["stray"])[0] is first
    assert judged == ["stray"]
    for module in [each for each in sys.modules if "stray" in each]:
        monkeypatch.delitem(sys.modules, module)
    assert load_packs(["stray"])[0] is not first
    assert judged == ["stray", "stray"]


@pytest.mark.req("001-P12")
def test_the_dummy_violates_on_purpose_and_declares_none_of_it() -> None:
    (governance,) = load_packs(["governance"])
    dummy = next(tool for tool in governance.tools if tool.name == "dummy_experimental")
    result: Any = dummy.run(None, {})  # type: ignore[arg-type]  # it touches no power
    assert result == Result(
        data={"some": "payload"},
        decision="block",
        code="INVARIANT_VIOLATION",
        message=result.message,
    )
    assert "block" not in dummy.decisions
    assert "INVARIANT_VIOLATION" not in dummy.error_codes


def test_a_pack_that_is_not_installed_is_refused() -> None:
    with pytest.raises(StartRefused, match="pack nowhere is not installed"):
        load_packs(["nowhere"])


def test_a_name_that_two_distributions_offer_is_refused(site: Path) -> None:
    install(site, "governance", pack_source("governance"), distribution="impostor")
    with pytest.raises(StartRefused, match=r"offered by more than one package.*impostor"):
        load_packs(["governance"])


BAD_MODULES = {
    "raises": ("raise RuntimeError('boom')", "RuntimeError: boom"),
    "lacks PACK": ("x = 1", "cannot be imported"),
    "is not Python": ("def", "SyntaxError"),
    "exports something else": ("PACK = {'name': 'stray'}", "is not a toolgate.model.tool.Pack"),
    "calls itself otherwise": (pack_source("governance"), "calls itself 'governance'"),
}


@pytest.mark.parametrize("name", BAD_MODULES)
def test_a_module_that_is_no_pack_is_refused(site: Path, name: str) -> None:
    source, fault = BAD_MODULES[name]
    install(site, "stray", source)
    with pytest.raises(StartRefused, match=fault):
        load_packs(["stray"])


def _topped(keyword: str, value: str) -> str:
    """A closed schema with one keyword more at its top."""
    return f"{{'type': 'object', 'properties': {{}}, 'additionalProperties': False, {keyword!r}: {value}}}"


BAD_TOOLS = {
    "name with capitals": ({"name": "'Stray'"}, "a name is"),
    "name with a dash": ({"name": "'stray-probe'"}, "a name is"),
    "name with a line break": ({"name": "'stray\\n'"}, "a name is"),
    "name too long": ({"name": repr("a" * 65)}, "a name is"),
    "id with dots only": ({"id": "'..'"}, "the id"),
    "id with a prefix": ({"id": "'mcp.tool:stray'"}, "the id"),
    "no summary": ({"summary": "''"}, "a summary"),
    "endless summary": ({"summary": "'x' * 3000"}, "a summary"),
    "unknown effect": ({"effect": "'admin'"}, "effect is one of"),
    "no deadline": ({"deadline_s": "0"}, "deadline_s"),
    "endless deadline": ({"deadline_s": "float('inf')"}, "deadline_s"),
    "deadline that is not a number": ({"deadline_s": "float('nan')"}, "deadline_s"),
    "code in small letters": ({"error_codes": "('oops',)"}, "error code 'oops'"),
    "code with a blank": ({"error_codes": "('OOPS ',)"}, "error code 'OOPS '"),
    "code with a line end": ({"error_codes": "('OOPS\\n',)"}, "error code"),
    "code with an invisible letter": ({"error_codes": "('OOPS\u200b',)"}, "error code 'OOPS\\u200b'"),
    "code in wide letters": ({"error_codes": "('ＯＯＰＳ',)"}, "error code"),
    "code of another script": ({"error_codes": "('ООРЅ',)"}, "error code"),
    "code that is too long": ({"error_codes": "('O' * 65,)"}, "error code"),
    "code that is not text": ({"error_codes": "(7,)"}, "error code 7"),
    "codes that are one text": ({"error_codes": "('OOPS')"}, "a tuple of codes"),
    "unknown decision": ({"decisions": "('BLOCK',)"}, "is not a decision"),
    "unknown role for an argument": ({"argument_roles": "{'x': frozenset({'root'})}"}, "unknown role"),
    "schema that is none": ({"input_schema": "{'type': 'strin'}"}, "input schema"),
    "output schema that is none": ({"output_schema": "{'minLength': 'x'}"}, "output schema"),
    "reference to elsewhere": ({"output_schema": "{'$ref': 'https://example.org/x'}"}, "output schema"),
    "dangling reference": ({"output_schema": "{'$ref': '#/$defs/none'}"}, "output schema"),
    "input that is not an object": ({"input_schema": "{'type': 'string', 'maxLength': 3}"}, "the root has"),
    "open input": ({"input_schema": "{'type': 'object'}"}, "open object"),
    "a choice at the top": ({"input_schema": _topped("anyOf", "[{}]")}, "anyOf at the top"),
    "one choice at the top": ({"input_schema": _topped("oneOf", "[{}]")}, "oneOf at the top"),
    "all of several at the top": ({"input_schema": _topped("allOf", "[{}]")}, "allOf at the top"),
    "a denial at the top": ({"input_schema": _topped("not", "{'required': ['x']}")}, "not at the top"),
    "a condition at the top": ({"input_schema": _topped("if", "{}")}, "if at the top"),
    "a need of nothing": (
        {"input_schema": _topped("x-needs-one", "['x']")},
        "x-needs-one names what is not a property",
    ),
}


@pytest.mark.parametrize("name", BAD_TOOLS)
def test_a_tool_that_breaks_a_rule_of_the_door_is_refused_by_name(site: Path, name: str) -> None:
    changes, fault = BAD_TOOLS[name]
    install(site, "stray", pack_source(**changes))
    with pytest.raises(StartRefused, match="pack stray, tool") as refusal:
        load_packs(["stray"])
    assert fault in str(refusal.value)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("('stamp.key',)", "keys is not a function"),
        ("lambda settings: settings['nothing']", "keys is not a function"),
        ("lambda settings: ['stamp.key']", "keys is not a function"),
        ("lambda settings: {'stamp.key': 'Any Use'}", "the use 'Any Use'"),
        ("lambda settings: {'stamp.key': None}", "the use None"),
    ],
)
def test_f22_keys_without_a_use_of_one_word_are_refused(site: Path, keys: str, fault: str) -> None:
    install(site, "stray", pack_source().replace("Pack(", f"Pack(keys={keys}, "))
    with pytest.raises(StartRefused, match="pack stray: ") as refusal:
        load_packs(["stray"])
    assert fault in str(refusal.value)


@pytest.mark.parametrize("changes", [{"name": "'dummy_experimental'"}, {"id": "'governance.dummy_experimental'"}])
def test_two_packs_cannot_share_a_tools_name_or_id(site: Path, changes: dict[str, str]) -> None:
    install(site, "stray", pack_source(**changes))
    with pytest.raises(StartRefused, match="used twice, in pack governance and in pack stray"):
        load_packs(["governance", "stray"])


UNBOUNDED = {
    "string": ({"type": "string"}, "#"),
    "string with a pattern only": ({"type": "string", "pattern": "^a*$"}, "#"),
    "one of two types": ({"type": ["string", "null"]}, "#"),
    "number without a top": ({"type": "number", "minimum": 0}, "#"),
    "integer without a bottom": ({"type": "integer", "maximum": 0}, "#"),
    "array": ({"type": "array", "items": {"type": "null"}}, "#"),
    "array of anything": ({"type": "array", "maxItems": 3, "items": {}}, "#/items"),
    "tuple of anything": ({"type": "array", "maxItems": 1, "prefixItems": [True]}, "#/prefixItems/0"),
    "open object": ({"type": "object", "properties": {}}, "#"),
    "object open by word": ({"type": "object", "additionalProperties": True}, "#"),
    "map without a number": ({"type": "object", "additionalProperties": {"type": "null"}}, "#"),
    "nested": (
        {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "string"}}},
        "#/properties/a",
    ),
    "anything": ({}, "#"),
    "true": (True, "#"),
    "only a description": ({"description": "x"}, "#"),
    "one open branch": ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "#/anyOf/1"),
    "open definition": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "#/$defs/a"),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_an_input_leaves_unbounded_is_found_by_place(name: str) -> None:
    schema, place = UNBOUNDED[name]
    assert place in [fault.partition(" ")[0] for fault in unbounded(schema)]


BOUNDED: list[Any] = [
    False,
    {"type": "string", "maxLength": 3},
    {"enum": ["a", 1]},
    {"const": None},
    {"type": "boolean"},
    {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 9},
    {"type": "array", "maxItems": 3, "items": {"type": "boolean"}},
    {"type": "object", "additionalProperties": False, "properties": {}, "anyOf": [{"required": ["a"]}]},
    {"type": "object", "additionalProperties": False, "if": {"properties": {"a": {"const": 1}}}, "then": {}},
    {
        "type": "object",
        "maxProperties": 2,
        "propertyNames": {"maxLength": 3},
        "additionalProperties": {"type": "null"},
    },
    {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
]


@pytest.mark.parametrize("schema", BOUNDED)
def test_a_bounded_schema_has_no_fault(schema: Any) -> None:
    assert list(unbounded(schema)) == []


def test_every_schema_of_every_pack_of_ours_is_valid_and_every_input_is_bounded() -> None:
    packs = load_packs(built_in())
    assert packs
    for tool in (tool for pack in packs for tool in pack.tools):
        assert list(faults_of(tool.input_schema)) == [], tool.name
        assert list(faults_of(tool.output_schema)) == [], tool.name
        assert list(unbounded(tool.input_schema)) == [], tool.name
        # Within an answer, a part that a stranger wrote (a receipt) may be open; the answer itself is not.
        assert not [fault for fault in unbounded(tool.output_schema) if fault.startswith("# ")], tool.name
