"""What became of each request for approval is on record, whoever did it: asked, granted, refused, expired; and each is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands, Done
from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from tests.waiting import soon, until
from toolgate.approving import ExpiryWatch
from toolgate.errors import Ending, LedgerUnavailable, StoreUnavailable
from toolgate.gate.authority.approvals import LIFE_S
from toolgate.model.clock import SystemClock
from toolgate.powers.approvals.tables import ApprovalTables

ROWS: dict[str, dict[str, Any]] = {"unruly_write": {"x-rules": [{"name": "ask", "require-approval": "true"}]}}
BOUND = ("approval", "binding", "caller", "tool", "pin", "policy", "rule")
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
    return lambda *words: commands(*words, "--home", str(home.path))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = SystemClock().wall

    def move(seconds: float) -> None:
        monkeypatch.setattr(SystemClock, "wall", staticmethod(lambda: now() + seconds))

    return move


def ask(gate: Gate, name: str) -> str:
    answer = gate.call("unruly_write", {"name": name}, key="builder")
    assert answer.ending is Ending.APPROVAL_REQUIRED
    assert answer.details is not None
    return str(answer.details["approval_id"])


def acts(home: Home, act: str) -> list[dict[str, Any]]:
    return [record for record in home.records() if record.get("act") == f"approvals.{act}"]


async def watched(gate: Gate, is_seen: Callable[[], Any], look_s: float = 0.01) -> None:
    watch = ExpiryWatch(gate.app.road.approvals, gate.app.settings, look_s)
    try:
        await soon(is_seen, "the watch has written it down")
    finally:
        await watch.stop()


def test_a_server_records_each_expiry_with_its_binding_although_nobody_asks_again(
    gate: Gate, toolgate: Run, home: Home, later: Callable[[float], None]
) -> None:
    waits, granted = ask(gate, "one"), ask(gate, "two")
    assert toolgate("approvals", "approve", granted).code == 0
    later(LIFE_S)
    gate.run(watched(gate, lambda: len(acts(home, "expire")) == 2))
    asked = {record["about"]["approval"]: record["about"] for record in acts(home, "request")}
    for record in acts(home, "expire"):
        about = record["about"]
        assert {name: about[name] for name in BOUND} == {name: asked[about["approval"]][name] for name in BOUND}
    assert {record["about"]["approval"] for record in acts(home, "expire")} == {waits, granted}


def test_an_expiry_is_recorded_once_by_however_many_servers(
    gate: Gate, home: Home, later: Callable[[float], None]
) -> None:
    request = ask(gate, "one")
    later(LIFE_S)
    other = Gate(home, home.app(), gate.loop)
    try:
        assert gate.run(gate.app.road.approvals.record_expired()) == 1
        assert gate.run(other.app.road.approvals.record_expired()) == 0
        gate.run(watched(other, lambda: acts(home, "expire")))
    finally:
        gate.run(other.app.close())
    assert [record["about"]["approval"] for record in acts(home, "expire")] == [request]


def test_a_log_that_cannot_be_written_loses_no_expiry(
    gate: Gate, home: Home, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask(gate, "one")
    later(LIFE_S)
    approvals = gate.app.road.approvals
    with monkeypatch.context() as broken:
        broken.setattr(gate.app.ledger, "append_act", _unavailable)
        assert gate.run(approvals.record_expired()) == 1
    later(LIFE_S + 61)
    assert gate.run(approvals.record_expired()) == 1
    assert [record["about"]["approval"] for record in acts(home, "expire")] == [request]


def _unavailable(*_: Any) -> None:
    raise LedgerUnavailable("full")


def test_a_store_that_is_silent_for_a_while_does_not_end_the_watch(
    gate: Gate, home: Home, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(gate, "one")
    later(LIFE_S)
    good, failed = ApprovalTables.take_expired, []

    async def sometimes(store: ApprovalTables, now: float) -> Any:
        if len(failed) < 2:
            failed.append(now)
            raise StoreUnavailable("silent")
        return await good(store, now)

    monkeypatch.setattr(ApprovalTables, "take_expired", sometimes)
    gate.run(watched(gate, lambda: acts(home, "expire")))
    assert len(failed) == 2


def test_a_home_that_never_needed_an_approval_gets_no_store_by_looking(gate: Gate, home: Home) -> None:
    looked: list[int] = []

    class Place:
        def exists(self) -> bool:
            looked.append(1)
            return (home.path / "state" / "stores" / "approvals.sqlite3").exists()

    async def looks() -> None:
        watch = ExpiryWatch(gate.app.road.approvals, gate.app.settings, 0.0)
        watch._place = Place()  # type: ignore[assignment]
        await soon(lambda: len(looked) > 2, "some looks")
        await watch.stop()

    gate.run(looks())
    assert not (home.path / "state" / "stores" / "approvals.sqlite3").exists()


def test_a_served_home_records_what_expired_while_no_server_ran(home: Home, later: Callable[[float], None]) -> None:
    """The watch of a real server: its first look is at its start."""
    later(-2 * LIFE_S)
    gate = Gate(home, home.app())
    request = ask(gate, "one")
    gate.run(gate.app.close())
    gate.loop.close()
    later(0)
    with home.serving():
        until(lambda: acts(home, "expire"), "the server has written it down")
    assert [record["about"]["approval"] for record in acts(home, "expire")] == [request]


def test_every_record_of_a_request_is_proved_and_one_that_is_changed_is_not(
    toolgate: Run,
    home: Home,
    tmp_path: Path,
    later: Callable[[float], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, command = Gate(home, home.app()), Commands(capfd)
    asked = {name: ask(gate, name) for name in ("granted", "refused", "left")}
    assert toolgate("approvals", "approve", asked["granted"], "--reason", "seen").code == 0
    assert toolgate("approvals", "refuse", asked["refused"]).code == 0
    assert gate.call("unruly_write", {"name": "granted"}, key="builder").ending is Ending.OK
    later(LIFE_S)
    assert gate.run(gate.app.road.approvals.record_expired()) == 1
    gate.run(gate.app.close())  # the last checkpoint covers everything
    gate.loop.close()
    monkeypatch.chdir(tmp_path)
    found = {act: acts(home, act) for act in ("request", "approve", "refuse", "expire")}
    assert [len(records) for records in found.values()] == [3, 2, 2, 1]
    for record in (record for records in found.values() for record in records):
        proof = toolgate("audit", "prove", record["requestId"], "--event", record["stage"])
        assert proof.code == 0, proof.err
        file = tmp_path / "proof.json"
        file.write_text(proof.out)
        checked = check(command, file, home)
        assert (checked.code, checked.json["about"]["binding"]) == (0, record["about"]["binding"])
        file.write_text(proof.out.replace(record["about"]["binding"], "0" * 64))
        assert check(command, file, home).code == 1
    assert toolgate("audit", "verify").code == 0


def check(command: Commands, file: Path, home: Home) -> Done:
    """As somebody who has the public key and nothing else."""
    public = home.path / "runs" / "mcp_server" / "envelope_validation" / "audit-log.pub"
    return command("audit", "check-proof", str(file), "--key", str(public))
