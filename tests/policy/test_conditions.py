"""Rules in the manifest: refused at start with the line, never dropped by a deployment, in the contract; and the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands, Done
from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from tests.offers.client import Client
from toolgate.errors import OK, Ending, StartRefused
from toolgate.gate.keys import KeyRing
from toolgate.model.call import CallerBounds
from toolgate.policy.diff import compare
from toolgate.policy.manifest import MANIFEST_FILE, load_manifest, narrow, parse_manifest

Run = Callable[..., Done]
RULE = {"name": "small", "deny": "args.n != null && args.n > 5", "text": "At most five."}
EXAMPLES = [
    {"given": {"args": {"n": 5}}, "expect": "ok"},
    {"given": {"args": {"n": 6}, "caller": {"role": "admin"}}, "expect": "rule_denied", "rule": "small"},
    {"given": {"args": {"n": "six"}}, "expect": "bad_arguments"},
    {"given": {"caller": {"role": "guest"}}, "expect": "insufficient_role"},
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    rows = {"unruly_echo": {"x-rules": [RULE], "x-examples": EXAMPLES}}
    return make_home(tmp_path / "home", packs=("unruly",), rows=rows)


@pytest.fixture
def run(home: Home, capfd: pytest.CaptureFixture[str]) -> Run:
    toolgate = Commands(capfd)
    return lambda *words: toolgate(*words, "--home", str(home.path))


def rewrite(home: Home, **more: Any) -> Path:
    """The row of unruly_echo, changed; pretty, as people write it."""
    path = home.path / "policy" / MANIFEST_FILE
    manifest = json.loads(path.read_bytes())
    next(row for row in manifest["tools"] if row["name"] == "unruly_echo").update(more)
    path.write_text(json.dumps(manifest, indent=2))
    return path


def test_a_rule_that_cannot_be_right_stops_the_start_and_names_its_line(home: Home) -> None:
    bad = {"name": "of-another-tool", "deny": "args.path == 'x'"}
    path = rewrite(home, **{"x-rules": [bad]})
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "of-another-tool" in text)
    with pytest.raises(StartRefused) as caught:
        home.app()
    assert f"line {line}: row unruly_echo, rule of-another-tool, 1:5 of its condition: undeclared" in str(caught.value)


def test_without_the_library_a_home_with_rules_does_not_start(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(StartRefused, match=r"pip install 'toolgate\[rules\]'"):
        home.app()


def test_a_home_without_rules_does_not_load_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    home = make_home(tmp_path / "plain", packs=("unruly",))
    gate = Gate(home, home.app())
    gate.run(gate.app.close())
    gate.loop.close()


def manifest_of(*rules: dict[str, Any]) -> Any:
    row = {"name": "t", "x-tier": "experimental", "x-visibilityHint": "x", "x-roles": ["admin"], "x-rules": list(rules)}
    return parse_manifest({"version": "1.0.0", "tools": [row]}, "here")


def test_a_deployment_may_add_rules_and_drop_or_change_none() -> None:
    more = {"name": "more", "deny": "true"}
    assert [rule.name for rule in narrow(manifest_of(RULE), manifest_of(RULE, more)).rows["t"].rules] == [
        "small",
        "more",
    ]
    assert narrow(manifest_of(RULE), manifest_of(RULE | {"text": "Said otherwise."}))
    for own in ([], [more], [RULE | {"deny": "false"}], [RULE | {"name": "other"}]):
        with pytest.raises(StartRefused, match="packaged rule small is missing or different"):
            narrow(manifest_of(RULE), manifest_of(*own))


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "x"},
        {"deny": "true"},
        RULE | {"require-approval": "true"},
        RULE | {"approvers": 2},
        RULE | {"name": "No Name"},
        RULE | {"deny": ""},
        RULE | {"allow": "true"},
    ],
)
def test_a_rule_of_another_shape_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(StartRefused, match="x-rules"):
        manifest_of(rule)


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(StartRefused, match="two rules of one name"):
        manifest_of(RULE, RULE)


def test_a_rule_of_a_prompt_is_checked_against_its_arguments(tmp_path: Path) -> None:
    rows = {"prompt:before_you_act": {"x-rules": [{"name": "r", "deny": "args.nothing == 'x'"}]}}
    home = make_home(tmp_path / "home", packs=("governance",), rows=rows)
    with pytest.raises(StartRefused, match="row prompt:before_you_act, rule r"):
        home.app()


def test_a_new_rule_breaks_callers_and_one_that_is_gone_widens(home: Home) -> None:
    lock = json.loads((home.path / "policy" / "mcp-contract.json").read_bytes())
    entry = next(tool for tool in lock["tools"] if tool["name"] == "unruly_echo")
    assert entry["rules"] == [{"name": "small", "deny": RULE["deny"]}]
    bare = lock | {"tools": [{key: value for key, value in tool.items() if key != "rules"} for tool in lock["tools"]]}
    told = [(change.kind, change.what) for change in compare(bare, lock)]
    assert ("breaking", "rule:small") in told
    assert [(change.kind, change.what) for change in compare(lock, bare)] == [("widening", "rule:small")]


def test_the_packaged_manifest_has_no_rules_so_nobody_needs_the_library() -> None:
    assert not any(row.rules for row in load_manifest(None).rows.values())


def test_policy_test_judges_the_examples(home: Home, run: Run) -> None:
    done = run("policy", "test")
    assert (done.code, done.out.strip()) == (0, "4 of 4 examples are decided as expected")
    rewrite(home, **{"x-examples": [*EXAMPLES, {"given": {"args": {"n": 9}}, "expect": "ok"}]})
    done = run("policy", "test")
    assert done.code == 1
    assert "unruly_echo, example 5: expected ok, found rule_denied by small" in done.out


@pytest.mark.parametrize(
    ("role", "arguments", "said", "code"),
    [
        ("admin", {"n": 5}, "ok", 0),
        ("admin", {"n": 6}, "rule_denied, by rule small: At most five.", 5),
        ("guest", {"n": 6}, "insufficient_role: guest does not hold unruly_echo", 5),
        ("admin", {"m": 6}, "bad_arguments", 8),
    ],
)
def test_policy_explain_says_which_rule_decides(
    run: Run, tmp_path: Path, role: str, arguments: dict[str, Any], said: str, code: int
) -> None:
    file = tmp_path / "args.json"
    file.write_text(json.dumps(arguments))
    done = run("policy", "explain", "--tool", "unruly_echo", "--role", role, "--args", str(file))
    assert done.code == code
    assert done.out.strip().startswith(said)


def test_policy_explain_knows_the_role_label_and_scopes_of_a_key(home: Home, run: Run) -> None:
    ring = KeyRing(home.path / "keys" / "callers.json")
    narrow, _ = ring.create("admin", bounds=CallerBounds(scopes=("unruly_text",)))
    wide, _ = ring.create("admin", bounds=CallerBounds(scopes=("unruly_*",)))
    words = ("policy", "explain", "--tool", "unruly_echo", "--key")
    done = run(*words, narrow.id)
    assert (done.code, done.out.strip()) == (
        5,
        "insufficient_role: the scopes of its key do not cover unruly_echo",
    )
    assert run(*words, wide.id).code == 0
    assert (run(*words, "000000000000").code, run(*words[:-1]).code) == (2, 2)
    assert run(*words, wide.id, "--role", "admin").code == 2


def test_policy_test_explain_and_replay_judge_prompts_and_resources(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompt, resource = "prompt:before_you_act", "resource:own_record"
    rows = {
        prompt: {
            "x-rules": [{"name": "never", "deny": "args.purpose == 'mischief'"}],
            "x-examples": [{"given": {"args": {"tool": "x", "purpose": "mischief"}}, "expect": "rule_denied"}],
        },
        resource: {"x-rules": [{"name": "own", "deny": "args.request_id.startsWith('0')"}]},
    }
    settings = f'[ledger.keep]\n"{prompt}" = ["purpose"]\n'
    home = make_home(tmp_path / "home", packs=("governance",), settings=settings)
    with home.serving() as server:
        client = Client(server.port, home.keys["builder"])
        for purpose in ("mischief", "to learn"):
            arguments = {"tool": "dummy_experimental", "purpose": purpose}
            client.ask_modern("prompts/get", {"name": "before_you_act", "arguments": arguments})
        client.ask_modern("resources/read", {"uri": f"audit://mine/{'0' * 32}"})
    proposed = make_home(tmp_path / "proposed", packs=("governance",), rows=rows)
    run = Commands(capfd)
    at_proposed = ("--home", str(proposed.path))
    assert run("policy", "test", *at_proposed).out.strip() == "1 of 1 examples are decided as expected"
    (tmp_path / "args.json").write_text(json.dumps({"request_id": "0" * 32}))
    words = ("--tool", resource, "--role", "builder", "--args", str(tmp_path / "args.json"))
    assert run("policy", "explain", *words, *at_proposed).out.startswith("rule_denied, by rule own")
    policy = ("--policy", str(proposed.path / "policy"))
    told = run("policy", "replay", *policy, "--json", "--home", str(home.path)).json
    assert told["counts"] == {"same": 1, "would_refuse": 1, "would_let_through": 0, "cannot_tell": 1}
    assert told["would_refuse"][0] | {"caller": ""} == {
        "caller": "",
        "role": "builder",
        "tool": prompt,
        "why": "rule never",
        "calls": 1,
    }
    assert (told["cannot_tell"][0]["tool"], told["cannot_tell"][0]["why"]) == (
        resource,
        "rule own: the record does not hold args.request_id",
    )


ASK = {"name": "ask", "require-approval": "args.n != null && args.n > 5"}


@pytest.mark.parametrize(
    ("proposed", "counts"),
    [
        ([ASK], {"same": 5}),
        ([], {"same": 2, "would_let_through": 3}),
        ([RULE], {"same": 2, "would_refuse": 3}),
        ([{"name": "all", "require-approval": "true"}], {"same": 4, "cannot_tell": 1}),
    ],
    ids=["unchanged", "nobody is asked", "refused outright", "always asked"],
)
def test_policy_replay_tells_calls_that_a_person_decides_from_those_that_a_policy_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], proposed: list[dict[str, Any]], counts: dict[str, int]
) -> None:
    keep = '[ledger.keep]\nunruly_echo = ["n"]\n'
    home = make_home(tmp_path / "home", packs=("unruly",), settings=keep, rows={"unruly_echo": {"x-rules": [ASK]}})
    gate, toolgate = Gate(home, home.app()), Commands(capfd)
    gate.call("unruly_echo", {"n": 4}, key="builder")
    waits = [gate.call("unruly_echo", {"n": n}, key="builder") for n in (6, 7)]
    for verb, answer in zip(("approve", "refuse"), waits, strict=True):
        assert answer.details is not None
        assert toolgate("approvals", verb, answer.details["approval_id"], "--home", str(home.path)).code == 0
    assert [gate.call("unruly_echo", {"n": n}, key="builder").ending for n in (6, 7)] == [OK, Ending.RULE_DENIED]
    gate.run(gate.app.close())
    gate.loop.close()
    other = make_home(tmp_path / "proposed", packs=("unruly",), rows={"unruly_echo": {"x-rules": proposed}})
    words = ("policy", "replay", "--policy", str(other.path / "policy"), "--json", "--home", str(home.path))
    found = toolgate(*words).json["counts"]
    assert {kind: number for kind, number in found.items() if number} == counts


def test_policy_replay_knows_that_a_policy_cannot_widen_a_keys_scopes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    _, key = KeyRing(home.path / "keys" / "callers.json").create("admin", bounds=CallerBounds(scopes=("unruly_text",)))
    gate = Gate(home, home.app())
    assert gate.call("unruly_echo", {}, key=key).ending is Ending.INSUFFICIENT_ROLE
    gate.run(gate.app.close())
    gate.loop.close()
    words = ("policy", "replay", "--policy", str(home.path / "policy"), "--json", "--home", str(home.path))
    assert Commands(capfd)(*words).json["counts"]["same"] == 1


def test_policy_replay_says_whom_a_proposed_policy_would_have_refused_and_what_it_cannot_know(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = '[ledger.keep]\nunruly_echo = ["n"]\n'
    home = make_home(tmp_path / "home", packs=("unruly",), settings=settings)
    gate = Gate(home, home.app())
    for n in (4, 6, 7):
        gate.call("unruly_echo", {"n": n}, key="builder")
    gate.call("unruly_echo", {"text": "no n"}, key="builder")
    gate.call("unruly_text", {}, key="builder")
    gate.call("unruly_admin", {}, key="builder")
    gate.run(gate.app.close())
    gate.loop.close()
    rows = {
        "unruly_echo": {"x-rules": [RULE]},
        "unruly_text": {"x-roles": ["admin"]},
        "unruly_admin": {"x-roles": ["admin", "builder"]},
    }
    proposed = make_home(tmp_path / "proposed", packs=("unruly",), rows=rows)
    words = ("policy", "replay", "--policy", str(proposed.path / "policy"), "--json", "--home", str(home.path))
    told = Commands(capfd)(*words).json
    assert told["counts"] == {"same": 1, "would_refuse": 3, "would_let_through": 1, "cannot_tell": 1}
    assert {(one["tool"], one["why"], one["calls"]) for one in told["would_refuse"]} == {
        ("unruly_echo", "rule small", 2),
        ("unruly_text", "builder does not hold it", 1),
    }
    assert told["would_let_through"][0]["tool"] == "unruly_admin"
    assert told["cannot_tell"][0]["why"] == "rule small: the record does not hold args.n"
