"""Rules on the road: after validation, before the intent, once, and never a way to more than the role holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from toolgate.errors import Ending
from toolgate.kit.conditions.rules import CallRule

ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {
        "x-rules": [
            {"name": "no-keys", "deny": "args.name.endsWith('.key')", "text": "Keys are not written here."},
            {"name": "broken", "deny": "1 / (args.name == 'zero' ? 0 : 1) > 2"},
            {"name": "not-in-the-cloud", "deny": "environment == 'cloud'"},
        ]
    },
    "unruly_echo": {"x-rules": [{"name": "small", "deny": "args.n != null && args.n > 5"}]},
    "unruly_admin": {"x-rules": [{"name": "nobody", "deny": "false"}]},
}


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    home = make_home(tmp_path_factory.mktemp("rules") / "home", packs=("unruly",), rows=ROWS)
    gate = Gate(home, home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


def last(home: Home) -> dict[str, Any]:
    return home.calls()[-1]


def test_a_rule_refuses_before_the_intent_and_is_named(ruled: Gate) -> None:
    before = len(ruled.home.calls())
    answer = ruled.call("unruly_write", {"name": "server.key"})
    assert (answer.ending, answer.text) == (Ending.RULE_DENIED, "Keys are not written here.")
    assert answer.details == {"reason": "rule_denied", "rule": "no-keys"}
    assert not (ruled.home.workspace / "server.key").exists()
    records = ruled.home.calls()[before:]
    assert [record["event"] for record in records] == ["outcome"]
    assert (records[0]["error"]["happening"], records[0]["rule"]) == ("rule_denied", "no-keys")


def test_what_no_rule_refuses_runs(ruled: Gate) -> None:
    assert ruled.call("unruly_write", {"name": "note"}).ending is Ending.OK
    assert ruled.call("unruly_echo", {"n": 5}).ending is Ending.OK
    assert ruled.call("unruly_echo", {}).ending is Ending.OK
    assert ruled.call("unruly_echo", {"n": 6}).ending is Ending.RULE_DENIED


def test_an_error_in_a_rule_refuses(ruled: Gate) -> None:
    answer = ruled.call("unruly_write", {"name": "zero"})
    assert (answer.ending, answer.details) == (Ending.RULE_DENIED, {"reason": "rule_error", "rule": "broken"})
    assert not (ruled.home.workspace / "zero").exists()


def test_the_schema_and_the_role_decide_first(ruled: Gate) -> None:
    assert ruled.call("unruly_write", {"name": 3}).ending is Ending.BAD_ARGUMENTS
    assert ruled.call("unruly_admin", {}, key="builder").ending is Ending.INSUFFICIENT_ROLE
    assert ruled.call("unruly_echo", {"n": 10}).ending is Ending.BAD_ARGUMENTS


def test_a_rule_is_judged_once_on_what_runs(ruled: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Null for an optional argument is taken out before anything else sees it, rules included."""
    seen: list[Any] = []
    holds = CallRule.holds
    monkeypatch.setattr(
        CallRule, "holds", lambda self, subject: (seen.append(subject.arguments), holds(self, subject))[1]
    )
    answer = ruled.call("unruly_echo", {"n": 3, "text": None})
    assert answer.ending is Ending.OK
    assert seen == [{"n": 3}]


def test_a_rule_sees_the_environment_that_the_server_is_in(ruled: Gate) -> None:
    local = ruled.app.road
    ruled.app.road = replace(local, environment=lambda: ("cloud", ("a note",)))
    try:
        assert ruled.call("unruly_write", {"name": "note"}).details == {
            "reason": "rule_denied",
            "rule": "not-in-the-cloud",
        }
    finally:
        ruled.app.road = local


def test_a_tool_without_rules_has_none_to_judge(ruled: Gate) -> None:
    by_name = {grant.tool.name: grant for grant in ruled.app.road.admission.permits.all()}
    assert {name for name, grant in by_name.items() if grant.rules is not None} == set(ROWS)


def test_rules_never_widen(ruled: Gate, tmp_path: Path) -> None:
    """Whatever is let through with rules is let through without them, and differs in nothing but refusals by a rule."""
    plain = make_home(tmp_path / "home", packs=("unruly",))
    without = Gate(plain, plain.app())
    calls: list[tuple[str, Any]] = [
        *(("unruly_echo", {"n": n}) for n in range(-1, 11)),
        ("unruly_echo", {"text": "a"}),
        ("unruly_echo", {"unknown": 1}),
        ("unruly_admin", {}),
        ("unruly_write", {}),
        ("unruly_nothing", {}),
    ]
    for role in ("builder", "committer", "admin", None):
        for tool, arguments in calls:
            with_rules = ruled.call(tool, arguments, key=role).ending
            bare = without.call(tool, arguments, key=role).ending
            assert with_rules in (bare, Ending.RULE_DENIED)
            assert bare is Ending.OK or with_rules is bare
    without.run(without.app.close())
    without.loop.close()
