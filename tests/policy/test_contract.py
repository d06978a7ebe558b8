"""The contract: the same for the same code and policy, different for different ones, and readable only if it is one."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.support import accepted, manifest, pack, row, tool
from toolgate.errors import StartRefused
from toolgate.policy import contract
from toolgate.policy.manifest import Deprecation, parse_manifest

if TYPE_CHECKING:
    from pathlib import Path

BOUND = row("judge", tier="authoritative", adr="ADR-1")
POLICY = manifest(row("a"), row("b"), BOUND)
PACKS = [pack(tool("b"), tool("a"), name="zeta"), pack(tool("judge"), name="alpha")]


@pytest.mark.req("001-P7")
def test_an_entry_holds_what_callers_and_reviewers_rely_on() -> None:
    judge = tool(
        "judge",
        error_codes=("B_CODE", "A_CODE"),
        decisions=("warn", "block"),
        effect="network",
        deadline_s=2.5,
        argument_roles={"mode=x": frozenset({"committer", "admin"})},
    )
    built = contract.build([pack(judge)], manifest(BOUND), accepted("ADR-1"))
    entry = dict(built["tools"][0])
    assert len(entry.pop("digest")) == 64
    assert entry == {
        "name": "judge",
        "id": "mcp.tool:test.judge",
        "pack": "test",
        "description": "Says nothing.",
        "annotations": {
            "title": "Judge (authoritative)",
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": False,
            "openWorldHint": True,
        },
        "inputSchema": dict(judge.input_schema),
        "outputSchema": dict(judge.output_schema),
        "x-tier": "authoritative",
        "x-adr": "ADR-1",
        "x-visibilityHint": "Advice",
        "roles": ["admin", "builder", "committer"],
        "argumentRoles": {"mode=x": ["admin", "committer"]},
        "effect": "network",
        "deadlineSeconds": 2.5,
        "errorCodes": ["A_CODE", "B_CODE"],
        "decisions": ["block", "warn"],
    }
    assert built["adrs"] == [{"id": "ADR-1", "status": "accepted", "sha256": "0" * 64}]
    assert contract.build([pack(tool())], manifest(row()), {})["tools"][0]["x-adr"] is None


@given(st.permutations(PACKS), st.permutations(sorted(POLICY.rows.values(), key=lambda each: each.name)))
def test_order_of_packs_and_rows_does_not_matter(packs: Any, rows: Any) -> None:
    expected = contract.render(contract.build(PACKS, POLICY, accepted("ADR-1")))
    assert contract.render(contract.build(packs, manifest(*rows), accepted("ADR-1"))) == expected


def test_the_file_is_sorted_and_says_nothing_about_time_or_machine() -> None:
    text = contract.render(contract.build(PACKS, POLICY, accepted("ADR-1"))).decode()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert not any(word in text for word in ("generatedAt", "timestamp", "/home", "python"))


def test_digests_can_be_recomputed_by_anyone_with_rfc_8785() -> None:
    built = json.loads(contract.render(contract.build(PACKS, POLICY, accepted("ADR-1"))))

    def digest(value: dict[str, Any]) -> str:
        return sha256(rfc8785.dumps({key: item for key, item in value.items() if key != "digest"})).hexdigest()

    assert all(entry["digest"] == digest(entry) for entry in built["tools"])
    assert built["digest"] == digest(built)
    for entry in built["packs"]:
        tools = {each["name"]: each["digest"] for each in built["tools"] if each["pack"] == entry["name"]}
        assert entry["tools"] == sorted(tools)
        assert entry["digest"] == digest({"name": entry["name"], "tools": tools})


def test_tuples_and_whole_floats_are_written_as_json_has_them() -> None:
    loose = tool(input_schema={"type": "object", "required": ("x",), "minProperties": 1.0, "maximum": 1e300})
    strict = tool(input_schema={"type": "object", "required": ["x"], "minProperties": 1, "maximum": 1e300})
    one, other = (contract.build([pack(each)], manifest(row()), {}) for each in (loose, strict))
    assert contract.render(one) == contract.render(other)


def test_a_part_says_the_same_as_the_contract_of_those_packs_alone() -> None:
    whole = contract.build(PACKS, POLICY, accepted("ADR-1"))
    alone = contract.build([PACKS[0]], POLICY, {})
    assert contract.part(whole, ["zeta"]) == {key: alone[key] for key in ("adrs", "deprecations", "packs", "tools")}
    assert contract.part(whole, ["zeta", "alpha"])["tools"] == whole["tools"]


def test_announcements_are_part_of_the_contract() -> None:
    entry = {"tool": "a", "what": "argument:x", "announced": "2026-11-01", "text": "Use y."}
    found = parse_manifest({"version": "1.0.0", "tools": [], "deprecations": [entry]}, "here")
    assert isinstance(found.deprecations[0], Deprecation)
    assert contract.build([], found, {})["deprecations"] == [entry]


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path) -> None:
    built = contract.build(PACKS, POLICY, accepted("ADR-1"))
    (tmp_path / "lock.json").write_bytes(contract.render(built))
    assert contract.read_lock(tmp_path / "lock.json") == built
    assert contract.adrs_of(built) == accepted("ADR-1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("annotations", {"title": "Probe"}),
        ("annotations", {"readOnlyHint": "yes"}),
        ("roles", "admin"),
        ("roles", [1]),
        ("effect", "magic"),
        ("x-tier", "gold"),
        ("deadlineSeconds", "10"),
        ("argumentRoles", {"x": "admin"}),
        ("inputSchema", {"required": 5}),
        ("outputSchema", True),
        ("description", None),
        ("digest", 1),
        ("errorCodes", {}),
    ],
)
def test_a_contract_with_an_entry_of_another_shape_is_refused_before_it_is_compared(
    tmp_path: Path, field: str, value: Any
) -> None:
    built = contract.build([pack(tool())], manifest(row()), {})
    built["tools"][0][field] = value
    (tmp_path / "lock.json").write_text(json.dumps(built))
    with pytest.raises(StartRefused, match="is not a contract"):
        contract.read_lock(tmp_path / "lock.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"schemaVersion": "2.0.0", "digest": "", "packs": [], "adrs": [], "deprecations": [], "tools": []}',
        '{"schemaVersion": "1.0.0", "digest": "", "packs": [], "adrs": [], "deprecations": [], "tools": []}',
        '{"schemaVersion": "1.1.0", "digest": "", "packs": [], "adrs": [], "deprecations": [], "tools": [{}]}',
        '{"schemaVersion": "1.1.0", "digest": "", "packs": [], "adrs": [{"id": 1}], "deprecations": [], "tools": []}',
        '{"schemaVersion": "1.1.0", "schemaVersion": "1.1.0", "tools": []}',
    ],
)
def test_what_is_no_contract_is_refused_with_the_command_that_makes_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(StartRefused, match="toolgate contract build"):
        contract.read_lock(tmp_path / "lock.json")
