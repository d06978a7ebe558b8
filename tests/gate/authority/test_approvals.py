"""Approvals on the road: a request, a person's yes, the same call again; and every way in which it is not the same call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.support import Commands, Done
from tests.gate.conftest import WIRE, Gate
from tests.homes import Home, make_home
from toolgate.errors import Ending, StoreUnavailable
from toolgate.gate.authority import approvals
from toolgate.gate.authority.approvals import LIFE_S
from toolgate.model.call import Call
from toolgate.model.envelope import Answer
from toolgate.model.tool import Foreign
from toolgate.powers.approvals.tables import ApprovalTables

ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {
        "x-rules": [
            {"name": "ask", "require-approval": "args.name.startsWith('release')"},
            {"name": "two", "require-approval": "args.name == 'release-two'", "approvers": 2},
            {"name": "never", "deny": "args.name == 'release-never'"},
        ]
    },
    "unruly_secret": {"x-rules": [{"name": "ask", "require-approval": "true"}]},
}
Run = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly",), rows=ROWS)


@pytest.fixture
def gate(home: Home) -> Iterator[Gate]:
    gate = Gate(home, home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


@pytest.fixture
def toolgate(home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    commands = Commands(capfd)
    monkeypatch.delenv("TOOLGATE_API_KEY", raising=False)
    return lambda *words: commands("approvals", *words, "--home", str(home.path))


def ask(gate: Gate, name: str = "release", key: str = "builder") -> Answer:
    return gate.call("unruly_write", {"name": name}, key=key)


def waiting(answer: Answer) -> str:
    """The id of the request that the caller hears of."""
    assert answer.ending is Ending.APPROVAL_REQUIRED
    assert answer.details is not None
    assert answer.retry_after_s
    return str(answer.details["approval_id"])


def test_a_call_waits_for_a_yes_runs_once_and_asks_again(gate: Gate, toolgate: Run) -> None:
    request = waiting(ask(gate))
    assert waiting(ask(gate)) == request, "asking again is the same request"
    assert not (gate.home.workspace / "release").exists()
    assert toolgate("approve", request, "--reason", "seen").code == 0
    assert ask(gate).ending is Ending.OK
    assert (gate.home.workspace / "release").exists()
    assert waiting(ask(gate)) != request
    calls = [record for record in gate.home.calls() if record.get("approval") == request]
    assert [record["event"] for record in calls] == ["outcome", "outcome", "intent", "outcome"]


def test_what_happens_to_a_request_is_in_the_log_with_a_proof(gate: Gate, toolgate: Run, home: Home) -> None:
    request = waiting(ask(gate))
    toolgate("refuse", request, "--reason", "not today")
    acts = [
        (record["act"], record["about"]) for record in home.records() if record["event"] == "act" and "about" in record
    ]
    assert [act for act, _ in acts] == ["approvals.request", "approvals.refuse", "approvals.refuse"]
    assert {about["approval"] for _, about in acts} == {request}
    assert len({about["binding"] for _, about in acts}) == 1
    assert acts[-1][1]["state"] == "refused"


@pytest.mark.parametrize("other", ["name", "caller", "policy", "pin"])
def test_one_thing_that_differs_is_another_call(gate: Gate, toolgate: Run, home: Home, other: str) -> None:
    request = waiting(ask(gate))
    assert toolgate("approve", request).code == 0
    if other == "name":
        found = ask(gate, "release.")
    elif other == "caller":
        found = ask(gate, key="admin")
    else:
        grants = gate.app.road.admission.permits._by_name
        grant = grants["unruly_write"]
        assert grant.rules is not None
        if other == "policy":
            grants["unruly_write"] = replace(grant, rules=replace(grant.rules, digest="another"))
        else:
            foreign = replace(grant.tool, foreign=Foreign("git", "another pin", {}))
            grants["unruly_write"] = replace(grant, tool=foreign)
        found = ask(gate)
        grants["unruly_write"] = grant
    assert waiting(found) != request
    assert ask(gate).ending is Ending.OK, "and the grant is still there for what was approved"


def test_what_was_answered_under_an_idempotency_key_needs_no_second_yes(gate: Gate, toolgate: Run) -> None:
    caller = gate.app.road.authenticate(gate.home.keys["builder"].encode())

    def call() -> Answer:
        asked = Call(WIRE, "unruly_write", {"name": "release"}, idempotency_key="once")
        return gate.run(gate.app.road.travel(gate.app.road.admission.enter(caller, asked)))

    assert toolgate("approve", waiting(call())).code == 0, "a call that waits does not keep its key"
    assert call().ending is Ending.OK
    again = call()
    assert again.ending is Ending.OK
    assert again.audit is not None
    assert "repeats" in again.audit


def test_a_refusal_is_told(gate: Gate, toolgate: Run) -> None:
    request = waiting(ask(gate))
    assert toolgate("refuse", request).code == 0
    answer = ask(gate)
    assert answer.ending is Ending.RULE_DENIED
    assert answer.details == {"reason": "approval_refused", "rule": "ask", "approval_id": request}


def test_a_rule_that_refuses_wins_over_one_that_asks(gate: Gate) -> None:
    assert ask(gate, "release-never").ending is Ending.RULE_DENIED


def test_two_people_where_the_rule_wants_two_and_never_who_asks(
    gate: Gate, toolgate: Run, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = home.ring()
    keys = {name: ring.create("admin", label=label)[1] for name, label in {"a": "ann", "a2": "ann", "b": "bob"}.items()}
    request = waiting(ask(gate, "release-two", key=keys["a"]))

    def answer(key: str) -> Done:
        monkeypatch.setenv("TOOLGATE_API_KEY", key)
        return toolgate("approve", request)

    assert [answer(keys[name]).code for name in ("a", "a2")] == [1, 1]
    assert answer(home.keys["builder"]).code == 5
    assert "waits for others" in answer(keys["b"]).out
    assert answer(keys["b"]).code == 1
    assert waiting(ask(gate, "release-two", key=keys["a"])) == request
    assert answer(home.keys["admin"]).code == 0
    assert ask(gate, "release-two", key=keys["a"]).ending is Ending.OK


def test_an_approver_sees_the_arguments_and_no_secret(gate: Gate, toolgate: Run) -> None:
    grant = {grant.tool.name: grant for grant in gate.app.road.admission.permits.all()}["unruly_secret"]
    name = grant.io.secrets[0][0]
    one = waiting(gate.call("unruly_secret", {name: "hunter2"}, key="builder"))
    other = waiting(gate.call("unruly_secret", {name: "hunter3"}, key="builder"))
    assert one != other, "a secret argument is bound as well"
    shown = toolgate("show", one, "--json").json
    assert json.loads(shown["shown"]) == {name: "[secret]"}
    assert "hunter" not in json.dumps(gate.home.records())
    assert [row["id"] for row in toolgate("list", "--json").json] == [other, one]


def test_what_nobody_would_read_cannot_be_approved(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "MAX_SHOWN", 20)
    answer = ask(gate, "release-of-a-long-name")
    assert answer.ending is Ending.RULE_DENIED
    assert answer.details == {"reason": "too_long_to_approve", "rule": "ask"}


def test_a_request_that_expired_is_recorded_and_a_new_one_asked(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    request = waiting(ask(gate))
    now = gate.app.road.clock.wall
    monkeypatch.setattr(type(gate.app.road.clock), "wall", staticmethod(lambda: now() + LIFE_S))
    assert waiting(ask(gate)) != request
    acts = [record for record in gate.home.records() if record.get("act") == "approvals.expire"]
    assert [record["about"]["approval"] for record in acts] == [request]


def test_without_the_store_the_call_is_refused(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: Any) -> Any:
        raise StoreUnavailable("silent")

    monkeypatch.setattr(ApprovalTables, "claim", silent)
    answer = ask(gate)
    assert (answer.ending, answer.details) == (Ending.UNAVAILABLE, {"reason": "store_unavailable"})
    assert not (gate.home.workspace / "release").exists()


def test_an_answer_to_nothing_says_so(toolgate: Run) -> None:
    for word in ("show", "approve", "refuse"):
        done = toolgate(word, "0123456789abcdef")
        assert (done.code, "no request with this id" in done.err) == (1, True)
