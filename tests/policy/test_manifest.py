"""The manifest file: what is read, what is refused, and that a deployment can only narrow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.support import ALL, accepted, edit_manifest, home, json_row, manifest, row
from toolgate.errors import StartRefused
from toolgate.kit.conditions.rules import RuleText
from toolgate.policy import contract
from toolgate.policy.bundle import digests, load_decisions, load_policy, policy_digest, records_in_force
from toolgate.policy.manifest import ManifestRow, load_manifest, narrow

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.policy.manifest import Manifest

COMMITTERS = frozenset({"committer", "admin"})
ADRS = {
    "validate_l0_invariants": "ADR-0007",
    "analyze_dissonance": "ADR-0008",
    "check_adr_compliance": "ADR-0009",
    "check_consent_requirements": "ADR-0010",
}
FOR_COMMITTERS = {
    "lra_init",
    "lra_sign",
    "consensus_propose",
    "consensus_vote",
    "consensus_gossip",
    "vrf_eval",
}
FOR_ALL = {
    *ADRS,
    "lra_validate",
    "lra_check",
    "lra_serve",
    "lra_verify",
    "query_fp_store",
    "dummy_experimental",
    "consensus_finality",
    "vrf_verify",
    "library_search",
    "library_fetch",
    "prompt:before_you_act",
    "prompt:governance_guide",
    "resource:contract",
    "resource:decision_record",
    "resource:own_record",
    "resource:own_records",
    "resource:paper",
    "resource:receipt",
    "resource:round",
}


@pytest.mark.req("001-P1")
def test_the_packaged_manifest_says_what_was_decided_about_every_tool() -> None:
    rows = load_manifest(None).rows
    assert {name: each.roles for name, each in rows.items()} == (
        dict.fromkeys(FOR_ALL, ALL) | dict.fromkeys(FOR_COMMITTERS, COMMITTERS)
    )
    assert {name: each.adr for name, each in rows.items() if each.tier == "authoritative"} == ADRS
    assert all(each.adr is None for name, each in rows.items() if name not in ADRS)
    assert all(each.pack in {"lra", "governance", "consensus", "library"} for each in rows.values())


def _write(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "mcp-tools.policy.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def _file(tmp_path: Path, **changes: Any) -> Path:
    content = {"version": "1.0.0", "tools": [json_row("probe")]} | changes
    return _write(tmp_path, json.dumps(content))


def test_a_manifest_is_read_into_rows_by_name(tmp_path: Path) -> None:
    rows = [json_row("probe"), json_row("other", **{"x-tier": "authoritative", "x-adr": "ADR-12", "x-pack": "mine"})]
    found = load_manifest(_file(tmp_path, **{"$schema": "./policy-schema.json", "tools": rows}))
    assert found.version == "1.0.0"
    assert found.rows["probe"] == row("probe", roles=frozenset({"builder"}))
    assert found.rows["other"] == row(
        "other", tier="authoritative", adr="ADR-12", pack="mine", roles=frozenset({"builder"})
    )


def test_d14_row_of_document_001_is_refused_with_what_it_lacks_and_what_to_write(tmp_path: Path) -> None:
    """It knows no roles. Absence denies, so a row without them would serve nobody, silently."""
    theirs = {
        "name": "analyze_dissonance",
        "x-tier": "authoritative",
        "x-adr": "ADR-0008",
        "x-visibilityHint": "Primary L1 governance analysis",
    }
    with pytest.raises(
        StartRefused, match=r'row analyze_dissonance: "x-roles" is a required property \(name who may call'
    ):
        load_manifest(_file(tmp_path, tools=[theirs]))


BROKEN_CONTENT = {
    "unknown key": ({"extra": 1}, "extra"),
    "no semantic version": ({"version": "1.0"}, "version"),
    "version with a line break": ({"version": "1.0.0\n"}, "version"),
    "version with leading zero": ({"version": "01.0.0"}, "version"),
    "tools is not a list": ({"tools": {}}, "tools"),
    "row is not an object": ({"tools": ["probe"]}, "row 0"),
    "unknown key in a row": ({"tools": [json_row("probe", promote=True)]}, "row probe"),
    "unknown tier": ({"tools": [json_row("probe", **{"x-tier": "gold"})]}, "row probe: x-tier"),
    "tier in other letters": ({"tools": [json_row("probe", **{"x-tier": "Authoritative"})]}, "row probe: x-tier"),
    "placeholder for an ADR": ({"tools": [json_row("probe", **{"x-adr": "ADR-0xy"})]}, "row probe: x-adr"),
    "ADR with other digits": ({"tools": [json_row("probe", **{"x-adr": "ADR-١٢"})]}, "row probe: x-adr"),
    "unknown role": ({"tools": [json_row("probe", **{"x-roles": ["root"]})]}, "row probe: there is no role root"),
    "a role that calls nothing": ({"tools": [json_row("probe", **{"x-roles": ["auditor"]})]}, "auditor calls no tool"),
    "a role that is no name": ({"tools": [json_row("probe", **{"x-roles": ["Root"]})]}, "row probe: x-roles"),
    "a custom role of an own name": ({"roles": [{"name": "auditor", "base": "admin"}]}, "auditor is Toolgate's own"),
    "a custom role twice": ({"roles": [{"name": "qa", "base": "admin"}] * 2}, "role qa is declared twice"),
    "a custom role without a base": ({"roles": [{"name": "qa"}]}, "roles/0"),
    "a custom role made of an auditor": ({"roles": [{"name": "qa", "base": "auditor"}]}, "roles/0/base"),
    "a custom role made of another": (
        {"roles": [{"name": "qa", "base": "admin"}, {"name": "qb", "base": "qa"}]},
        "roles/1/base",
    ),
    "a role twice": ({"tools": [json_row("probe", **{"x-roles": ["admin", "admin"]})]}, "row probe: x-roles"),
    "no role": ({"tools": [json_row("probe", **{"x-roles": []})]}, "row probe: x-roles"),
    "roles as one word": ({"tools": [json_row("probe", **{"x-roles": "admin"})]}, "row probe: x-roles"),
    "no roles at all": ({"tools": [{"name": "p", "x-tier": "experimental", "x-visibilityHint": "x"}]}, "x-roles"),
    "no tier": ({"tools": [{"name": "p", "x-roles": ["admin"], "x-visibilityHint": "x"}]}, "x-tier"),
    "no hint": ({"tools": [{"name": "p", "x-roles": ["admin"], "x-tier": "experimental"}]}, "x-visibilityHint"),
    "empty hint": ({"tools": [json_row("probe", **{"x-visibilityHint": ""})]}, "row probe: x-visibilityHint"),
    "name no tool can have": ({"tools": [json_row("probe one")]}, "row probe one"),
    "two rows for one tool": ({"tools": [json_row("probe"), json_row("probe")]}, "two rows for probe"),
    "day that is none": (
        {"deprecations": [{"tool": "probe", "what": "tool", "announced": "2026-02-30", "text": "x"}]},
        "no real day",
    ),
}


@pytest.mark.req("001-P1")
@pytest.mark.parametrize("name", BROKEN_CONTENT)
def test_a_manifest_that_does_not_fit_its_schema_is_refused_by_place(tmp_path: Path, name: str) -> None:
    changes, place = BROKEN_CONTENT[name]
    with pytest.raises(StartRefused) as refusal:
        load_manifest(_file(tmp_path, **changes))
    assert place in str(refusal.value)
    assert "\n" in str(refusal.value), "a fault comes with its fix"


@pytest.mark.parametrize(
    "text",
    [
        b'{"version": "1.0.0", "version": "1.0.0", "tools": []}',
        b'{"version": "1.0.0", "tools": [], "tools": []}',
        b'\xef\xbb\xbf{"version": "1.0.0", "tools": []}',
        b'{"version": "1.0.0", "tools": [NaN]}',
        b'{"version": "1.0.0", "tools": []} {}',
        b"",
        b"[" * 10_000,
        b" " * (2 * 1024 * 1024),
    ],
)
def test_a_manifest_that_readers_could_read_differently_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(StartRefused):
        load_manifest(_write(tmp_path, text))


def test_a_missing_manifest_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"mcp-tools\.policy\.json cannot be read"):
        load_manifest(tmp_path / "mcp-tools.policy.json")


BOUND = row("judge", tier="authoritative", adr="ADR-7", pack="core")
NOTED = row("noted", adr="ADR-3")
DEFAULT = manifest(row("probe", roles=frozenset({"builder", "admin"}), pack="core"), BOUND, NOTED)

TOO_MUCH = {
    "another role": row("probe", roles=ALL, pack="core"),
    "other roles": row("probe", roles=frozenset({"committer"}), pack="core"),
    "higher tier": row("probe", tier="authoritative", adr="ADR-9", pack="core", roles=frozenset({"admin"})),
    "higher tier by its own ADR": row("noted", tier="authoritative", adr="ADR-3"),
    "higher tier without an ADR": row("noted", tier="authoritative"),
    "another ADR": row("judge", tier="authoritative", adr="ADR-9", pack="core"),
    "another pack": row("probe", pack="evil", roles=frozenset({"admin"})),
    "any pack": row("probe", pack=None, roles=frozenset({"admin"})),
    "new and authoritative, no ADR": row("new", tier="authoritative"),
    "new and authoritative, missing ADR": row("new", tier="authoritative", adr="ADR-8"),
    "new and authoritative, proposed ADR": row("new", tier="authoritative", adr="ADR-10"),
    "new and authoritative, packaged ADR": row("new", tier="authoritative", adr="ADR-7"),
    "new and experimental, packaged ADR": row("new", adr="ADR-7"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_deployment_that_asks_for_more_is_refused_by_row(name: str) -> None:
    asked = TOO_MUCH[name]
    adrs = accepted("ADR-9") | accepted("ADR-7") | accepted("ADR-10", "proposed")
    with pytest.raises(StartRefused, match=f"row {asked.name}: "):
        narrow(DEFAULT, manifest(asked), adrs)


def test_a_deployment_may_withdraw_take_roles_demote_and_add_advisory_tools() -> None:
    fewer = row("probe", roles=frozenset({"admin"}), pack="core")
    lower = row("judge", pack="core", roles=frozenset({"admin"}))
    found = narrow(DEFAULT, manifest(lower, row("new")))
    assert found.withdrawn == {"probe", "noted"}
    assert found.demoted == {"judge"}
    assert narrow(DEFAULT, manifest(fewer, BOUND)).rows["probe"].roles == {"admin"}


def test_a_new_tool_may_bind_by_an_accepted_record_of_the_deployment_itself() -> None:
    binding = row("new", tier="authoritative", adr="ADR-9")
    assert narrow(DEFAULT, manifest(binding), accepted("ADR-9")).rows["new"] == binding


roles = st.frozensets(st.sampled_from(sorted(ALL)), min_size=1)
rows = st.builds(
    row,
    name=st.sampled_from(["a", "b", "c", "d"]),
    tier=st.sampled_from(["authoritative", "experimental"]),
    adr=st.sampled_from([None, "ADR-1", "ADR-2"]),
    roles=roles,
    pack=st.sampled_from([None, "core", "other"]),
)
manifests = st.lists(rows, max_size=4, unique_by=lambda each: each.name).map(lambda each: manifest(*each))


def _no_more(base: ManifestRow, asked: ManifestRow) -> bool:
    lower = asked.tier in (base.tier, "experimental")
    return asked.roles <= base.roles and lower and asked.pack == base.pack and asked.adr in (None, base.adr)


@given(default=manifests, own=manifests)
def test_whatever_two_manifests_say_the_result_never_grants_more(default: Manifest, own: Manifest) -> None:
    new = [each for each in own.rows.values() if each.name not in default.rows]
    bound = {each.adr for each in default.rows.values()}
    old_ok = all(_no_more(default.rows[name], each) for name, each in own.rows.items() if name in default.rows)
    new_ok = all(
        (each.tier == "experimental" or each.adr == "ADR-2") and (each.adr is None or each.adr not in bound)
        for each in new
    )
    try:
        found = narrow(default, own, accepted("ADR-2"))
    except StartRefused:
        assert not (old_ok and new_ok)
    else:
        assert old_ok
        assert new_ok
        assert found.rows == own.rows
        assert found.withdrawn == default.rows.keys() - own.rows.keys()


@given(default=manifests)
def test_the_default_is_its_own_narrowing(default: Manifest) -> None:
    assert narrow(default, default) == default


def test_a_deployment_cannot_loosen_the_schema_by_editing_its_copy(tmp_path: Path) -> None:
    policy = home(tmp_path) / "policy"
    (policy / "policy-schema.json").write_text("{}")
    edit_manifest(policy, lambda content: content.update(extra=True))
    with pytest.raises(StartRefused, match="extra"):
        load_decisions(policy)


DECIDING: dict[str, dict[str, Any]] = {
    "tier": {"tier": "authoritative"},
    "adr": {"adr": "ADR-0099"},
    "hint": {"hint": "Other advice"},
    "roles": {"roles": COMMITTERS},
    "pack": {"pack": "test"},
    "effect": {"effect": "read"},
    "asks": {"asks": frozenset({"roots"})},
    "rules": {"rules": (RuleText("big", "deny", "size(args) > 1"),)},
}


def test_p8_whatever_decides_is_in_the_digest_of_the_policy() -> None:
    """A field that a row gets later must be put into `as_decided`, or be named here as one that decides nothing."""
    assert DECIDING.keys() | {"name", "examples"} == set(ManifestRow.__struct_fields__)
    plain = policy_digest(manifest(row()))
    others = [policy_digest(manifest(row(**changes))) for changes in DECIDING.values()]
    others += [policy_digest(manifest(row("other"))), policy_digest(manifest(row(), roles={"releaser": "committer"}))]
    assert len({plain, *others}) == len(others) + 1


def test_p8_layout_order_examples_and_version_are_not_in_the_digest_of_the_policy(tmp_path: Path) -> None:
    content = {"version": "1.0.0", "tools": [json_row("one"), json_row("two")]}
    same = {
        "tools": [json_row("two"), json_row("one", **{"x-examples": [{"given": {}, "expect": "ok"}]})],
        "version": "2.0.0",
    }
    texts = [json.dumps(content), json.dumps(content, indent=4), json.dumps(same)]
    found = set()
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        found.add(policy_digest(load_manifest(path)))
    assert len(found) == 1


def test_p8_the_digest_of_a_contract_is_made_of_it_and_not_taken_from_it() -> None:
    policy = load_policy(None)
    assert digests(policy.manifest, policy.lock)["contract"] == policy.lock["digest"]
    assert digests(policy.manifest, policy.lock | {"digest": "0" * 64})["contract"] == policy.lock["digest"]


def test_without_a_directory_the_packaged_policy_holds() -> None:
    policy = load_policy(None)
    assert policy.manifest == load_manifest(None)
    assert policy.lock["schemaVersion"] == contract.SCHEMA_VERSION


def test_a_named_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="is not a directory"):
        load_policy(tmp_path / "policy")


def test_a_policy_without_its_lock_is_refused_and_names_the_command(tmp_path: Path) -> None:
    policy = home(tmp_path) / "policy"
    (policy / "mcp-contract.json").unlink()
    with pytest.raises(StartRefused, match="toolgate contract build"):
        load_policy(policy)


def test_records_of_a_deployment_do_not_stand_in_for_packaged_ones(tmp_path: Path) -> None:
    policy = home(tmp_path) / "policy"
    (policy / "adr").mkdir()
    (policy / "adr" / "ADR-0007-ours.md").write_text("# ADR-0007: Ours\n\n**Status:** Accepted\n")
    (policy / "adr" / "ADR-0900-ours.md").write_text("# ADR-0900: Ours\n\n**Status:** Accepted\n")
    _, adrs = load_decisions(policy)
    assert adrs["ADR-0900"].title == "Ours"
    assert adrs["ADR-0007"].title != "Ours"
    own = accepted("ADR-7") | accepted("ADR-9")
    assert records_in_force(DEFAULT, own, {}) == accepted("ADR-9")
    assert records_in_force(DEFAULT, own, accepted("ADR-7", "proposed")) == accepted("ADR-9") | accepted(
        "ADR-7", "proposed"
    )
