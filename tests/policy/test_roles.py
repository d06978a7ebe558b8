"""Roles of a deployment: each is made of a built-in one, and never holds more than that one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import Commands, Done
from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from tests.policy.support import ALL, edit_manifest, home, manifest, pack, row, tool
from toolgate.cli.upstream.approval import _roles as chosen_roles
from toolgate.config import load_settings
from toolgate.errors import OK, Ending, StartRefused
from toolgate.kit.conditions.rules import RuleText
from toolgate.model.call import Caller
from toolgate.policy import contract
from toolgate.policy.bundle import load_decisions
from toolgate.policy.diff import compare
from toolgate.policy.manifest import MANIFEST_FILE, Manifest, narrow
from toolgate.policy.roles import with_custom_roles

RELEASER = {"releaser": "committer"}
DEFAULT = manifest(row("sign", roles=frozenset({"committer", "admin"})), row("look", roles=ALL))


def test_a_custom_role_may_stand_where_the_packaged_row_has_its_base() -> None:
    own = manifest(row("sign", roles=frozenset({"releaser"})), roles=RELEASER)
    assert narrow(DEFAULT, own).rows["sign"].roles == {"releaser"}


def test_a_custom_role_is_refused_where_the_packaged_row_does_not_have_its_base() -> None:
    own = manifest(row("sign", roles=frozenset({"tester"})), roles={"tester": "builder"})
    with pytest.raises(StartRefused, match=r"row sign: tester \(made of builder\) does not hold it"):
        narrow(DEFAULT, own)


def test_rows_of_strangers_may_name_any_role() -> None:
    own = manifest(row("theirs", roles=frozenset({"tester", "admin"})), roles={"tester": "builder"})
    assert narrow(DEFAULT, own).rows["theirs"].roles == {"tester", "admin"}


def test_a_packaged_rule_about_the_role_admits_no_role_that_it_does_not_know() -> None:
    rule = RuleText("small", "deny", "caller.role == 'committer'")
    default = manifest(row("sign", roles=frozenset({"committer"}), rules=(rule,)))
    own = manifest(row("sign", roles=frozenset({"releaser"}), rules=(rule,)), roles=RELEASER)
    with pytest.raises(StartRefused, match="rule small goes by the caller's role, and does not know releaser"):
        narrow(default, own)


_names = st.sampled_from(["a", "b", "c"])
_built_in = st.sampled_from(sorted(ALL))
_bases = st.dictionaries(st.sampled_from(["qa", "qb", "qc"]), _built_in, max_size=3)


@st.composite
def _deployments(draw: st.DrawFn) -> tuple[Manifest, Manifest]:
    roles = draw(_bases)
    some = st.frozensets(st.sampled_from([*sorted(ALL), *sorted(roles)]), min_size=1)
    default = draw(st.dictionaries(_names, st.frozensets(_built_in, min_size=1)))
    own = draw(st.dictionaries(_names, some))
    return (
        manifest(*(row(name, roles=held) for name, held in default.items())),
        manifest(*(row(name, roles=held) for name, held in own.items()), roles=roles),
    )


@given(pair=_deployments())
def test_whatever_roles_a_deployment_makes_nobody_holds_more_than_its_base(pair: tuple[Manifest, Manifest]) -> None:
    default, own = pair
    fits = all(
        own.roles.get(role, role) in default.rows[name].roles
        for name, each in own.rows.items()
        if name in default.rows
        for role in each.roles
    )
    try:
        narrow(default, own)
    except StartRefused:
        assert not fits
    else:
        assert fits


def test_an_argument_is_held_by_roles_made_of_those_that_hold_it() -> None:
    guarded = tool("probe", argument_roles={"receipt": frozenset({"committer", "admin"})})
    found = with_custom_roles(guarded, RELEASER | {"tester": "builder"})
    assert found.argument_roles == {"receipt": {"committer", "admin", "releaser"}}
    assert with_custom_roles(guarded, {}) is guarded


def test_the_contract_names_what_a_role_is_made_of_and_another_base_breaks_it() -> None:
    def built(base: str) -> contract.Contract:
        rows = row("probe", roles=frozenset({"releaser"}))
        return contract.build([pack(tool("probe"))], manifest(rows, roles={"releaser": base}), {})

    assert built("committer")["tools"][0]["roleBases"] == RELEASER
    (change,) = compare(built("committer"), built("admin"))
    assert (change.kind, change.what) == ("breaking", "role-base:releaser")
    plain = contract.build([pack(tool("probe"))], manifest(row("probe")), {})
    assert "roleBases" not in plain["tools"][0]


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        (["tester"], "row lra_sign: there is no role tester"),
        (["builder"], "builder does not hold it by the packaged policy"),
    ],
)
def test_what_is_wrong_with_a_role_is_told_with_file_and_line(tmp_path: Path, roles: list[str], said: str) -> None:
    policy = home(tmp_path) / "policy"

    def change(content: Any) -> None:
        next(each for each in content["tools"] if each["name"] == "lra_sign")["x-roles"] = roles

    edit_manifest(policy, change)
    file = policy / MANIFEST_FILE
    line = next(at for at, text in enumerate(file.read_text().splitlines(), 1) if '"lra_sign"' in text)
    with pytest.raises(StartRefused) as caught:
        load_decisions(policy)
    assert f"{file}, line {line}: " in str(caught.value)
    assert said in str(caught.value)


# In a home --------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_home(tmp_path: Path) -> Home:
    rows = {"unruly_guarded": {"x-roles": ["releaser", "admin"]}}
    return make_home(tmp_path / "home", packs=("unruly",), rows=rows, roles=RELEASER)


Run = Callable[..., Done]


@pytest.fixture
def run(own_home: Home, capfd: pytest.CaptureFixture[str]) -> Run:
    toolgate = Commands(capfd)
    return lambda *words: toolgate(*words, "--home", str(own_home.path))


def test_policy_commands_know_custom_roles(run: Run, own_home: Home, tmp_path: Path) -> None:
    assert "0 fatal" in run("policy", "lint").out
    shown = run("policy", "show", "--json").json
    assert shown["roles"] == RELEASER
    assert "releaser  committer" in run("policy", "show").out
    file = tmp_path / "args.json"
    file.write_text('{"mode": "special"}')
    explain = ("policy", "explain", "--tool", "unruly_guarded", "--args", str(file), "--role")
    assert run(*explain, "releaser").out == "ok\n"
    assert run(*explain, "committer").code == 5
    assert "no role tester" in run(*explain, "tester").err
    edit_manifest(own_home.path / "policy", lambda content: content.pop("roles"))
    refused = run("policy", "lint")
    assert refused.code == 1
    assert "there is no role releaser" in refused.err


def test_a_key_is_made_of_a_custom_role_and_of_no_unknown_one(run: Run) -> None:
    made = run("keys", "create", "--role", "releaser", "--json")
    assert made.json["role"] == "releaser"
    refused = run("keys", "create", "--role", "tester")
    assert refused.code == 2
    assert "'tester' is not one of" in refused.err
    assert "'releaser'" in refused.err


def test_a_key_whose_role_the_policy_no_longer_has_calls_nothing(own_home: Home) -> None:
    _, text = own_home.ring().create("forgotten")
    gate = Gate(own_home, own_home.app())
    try:
        assert gate.call("unruly_guarded", key="releaser").ending is OK
        assert gate.call("unruly_guarded", key=text).ending is Ending.INSUFFICIENT_ROLE
        assert gate.app.road.admission.permits.visible(Caller("x", "forgotten")) == []
    finally:
        gate.run(gate.app.close())
        gate.loop.close()


def test_a_handler_learns_what_a_custom_role_is_made_of(own_home: Home) -> None:
    gate = Gate(own_home, own_home.app())
    try:
        grant = gate.app.road.admission.permits.known("unruly_guarded")
        assert grant is not None
        for role, acts_as in (("releaser", "committer"), ("admin", "admin")):
            call: Any = SimpleNamespace(progress=None, log=None, capabilities=frozenset())
            ticket: Any = SimpleNamespace(caller=Caller("k", role), call=call, answers={}, state=None)
            caller = gate.app.powers.context_for(grant, ticket).caller
            assert (caller.role, caller.acts_as) == (role, acts_as)
    finally:
        gate.run(gate.app.close())
        gate.loop.close()


def test_the_lock_of_a_home_holds_its_roles(own_home: Home) -> None:
    lock = json.loads((own_home.path / "policy" / "mcp-contract.json").read_bytes())
    (entry,) = [each for each in lock["tools"] if each["name"] == "unruly_guarded"]
    assert entry["roleBases"] == RELEASER


def test_adopted_tools_are_given_to_custom_roles_and_to_no_unknown_one(own_home: Home) -> None:
    settings = load_settings(own_home.path, {}, {})
    assert chosen_roles("releaser, builder", settings) == ["builder", "releaser"]
    for wrong in ("tester", "auditor", ""):
        with pytest.raises(typer.BadParameter, match="releaser"):
            chosen_roles(wrong, settings)
