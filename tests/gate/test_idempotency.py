"""A call with an idempotency key runs once; who asks again gets the recorded answer, or hears why not."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gate.conftest import WIRE, Gate
from tests.gate.test_road import watched
from tests.homes import Home, make_home
from tests.powers.sql.postgres import shared_postgres
from tests.waiting import soon
from toolgate.app import build
from toolgate.config import load_settings
from toolgate.errors import Ending
from toolgate.gate.arrival import Arrival
from toolgate.gate.idempotency import RunState
from toolgate.model.call import Call
from toolgate.model.envelope import Answer


class Once(Gate):
    """A gate whose calls of `unruly_write` are counted by the file they leave."""

    def call_once(self, once: str, arguments: Any, tool: str = "unruly_write", *, key: str = "admin") -> Answer:
        return self.run(self.acall(tool, arguments, key=key, once=once))

    def ran(self, name: str) -> bool:
        """Did a call leave its file? It is taken away, so that the next one shows."""
        file = self.home.workspace / name
        found = file.exists()
        file.unlink(missing_ok=True)
        return found

    def with_idempotency(self, **changed: Any) -> None:
        road = self.app.road
        self.app.road = replace(road, idempotency=replace(road.idempotency, **changed))

    async def left_open(self, once: str, arguments: Any) -> None:
        """As if the process of this call had ended in the middle of it."""
        road = self.app.road
        caller = road.authenticate(self.home.keys["admin"].encode())
        ticket = road.admission.enter(caller, Call(WIRE, "unruly_write", arguments, idempotency_key=once))
        assert await road.idempotency.claim(ticket) is None
        ticket.release()


class LaterClock:
    """The wall clock, moved."""

    def __init__(self, clock: Any, by_s: float) -> None:
        self.monotonic = clock.monotonic
        self._wall, self._by_s = clock.wall, by_s

    def wall(self) -> float:
        return float(self._wall()) + self._by_s


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("once") / "home", packs=("unruly",))


def opened(home: Home, url: str = "") -> Iterator[Once]:
    for file in home.workspace.iterdir():
        file.unlink()
    environ = {"TOOLGATE_IDEMPOTENCY_URL": url} if url else {}
    gate = Once(home, build(load_settings(home.path, {}, environ)))
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


@pytest.fixture(params=["sqlite", "postgres"])
def once(home: Home, request: pytest.FixtureRequest) -> Iterator[Once]:
    yield from opened(home, shared_postgres().new_database() if request.param == "postgres" else "")
    (home.path / "state" / "stores" / "idempotency.sqlite3").unlink(missing_ok=True)


@pytest.fixture
def local(home: Home) -> Iterator[Once]:
    yield from opened(home)
    (home.path / "state" / "stores" / "idempotency.sqlite3").unlink(missing_ok=True)


def test_the_second_call_gets_the_first_ones_answer_and_does_not_run(once: Once) -> None:
    first = once.call_once("k", {"name": "one"})
    assert once.ran("one")
    again = once.call_once("k", {"name": "one"})
    assert not once.ran("one")
    assert (again.ending, again.stdout) == (Ending.OK, first.stdout)
    assert again.envelope is not None
    assert again.envelope.data == {"name": "one"}
    assert again.request_id != first.request_id


def test_a_repeated_answer_is_a_record_of_its_own_that_names_the_first(once: Once) -> None:
    ledger = watched(once)
    first = once.call_once("k", {"name": "one"})
    again = once.call_once("k", {"name": "one"})
    assert [entry.event for entry in ledger.entries] == ["intent", "outcome", "outcome"]
    assert ledger.entries[2].ids.request == again.request_id
    assert dict(ledger.entries[2].more or {})["repeats"] == first.request_id
    assert again.audit is not None
    assert (again.audit["repeats"], again.audit["seq"]) == (first.request_id, 3)
    assert first.audit is not None
    assert "repeats" not in first.audit


@pytest.mark.parametrize("other", [{"name": "two"}, {"name": "one", "password": "b"}])
def test_other_arguments_under_the_same_key_are_refused_secret_ones_included(once: Once, other: dict[str, str]) -> None:
    tool = "unruly_write_secretly"
    assert once.call_once("k", {"name": "one", "password": "a"}, tool).ending is Ending.OK
    assert once.ran("one")
    answer = once.call_once("k", {"password": "a", **other}, tool)
    assert (answer.ending, dict(answer.details or {})["reason"]) == (Ending.KEY_REUSED, "other_arguments")
    assert not once.ran(other["name"])


def test_what_is_kept_neither_tells_the_arguments_nor_the_answer(local: Once) -> None:
    local.call_once("k", {"name": "canary-name", "password": "canary-word"}, "unruly_write_secretly")
    folder = local.home.path / "state" / "stores"
    kept = b"".join(file.read_bytes() for file in folder.glob("idempotency.sqlite3*"))
    assert b"idempotency_claim" in kept
    assert b"canary" not in kept


def test_another_caller_another_tool_and_another_key_are_other_calls(once: Once) -> None:
    for key, tool, caller in (
        ("k", "unruly_write", "admin"),
        ("k", "unruly_write", "builder"),
        ("l", "unruly_write", "admin"),
        ("k", "unruly_write_secretly", "admin"),
    ):
        arguments = {"name": "one"} | ({"password": "x"} if tool != "unruly_write" else {})
        assert once.call_once(key, arguments, tool, key=caller).ending is Ending.OK
        assert once.ran("one")


def test_a_call_under_way_is_not_run_beside_itself(once: Once) -> None:
    workspace = once.home.workspace

    async def twice() -> tuple[Answer, Answer, Answer]:
        under_way = asyncio.ensure_future(once.acall("unruly_wait", once="k"))
        await soon((workspace / "inside").exists, "the first call is inside")
        second = await once.acall("unruly_wait", once="k")
        (workspace / "release").touch()
        return await under_way, second, await once.acall("unruly_wait", once="k")

    first, second, third = once.run(twice())
    assert (first.ending, second.ending, third.ending) == (Ending.OK, Ending.KEY_BUSY, Ending.OK)
    assert second.retry_after_s == 1
    assert dict(second.details or {})["first_request_id"] == first.request_id
    assert (third.audit or {})["repeats"] == first.request_id


def test_of_many_at_once_one_runs(once: Once) -> None:
    ledger = watched(once)

    async def all_at_once() -> list[Answer]:
        return await asyncio.gather(*(once.acall("unruly_write", {"name": "one"}, once="k") for _ in range(8)))

    endings = [answer.ending for answer in once.run(all_at_once())]
    assert set(endings) <= {Ending.OK, Ending.KEY_BUSY}
    assert [entry.event for entry in ledger.entries].count("intent") == 1


@pytest.mark.parametrize("state", ["over", "elsewhere"])
def test_a_call_whose_process_is_gone_is_in_doubt_and_not_run(once: Once, state: RunState) -> None:
    once.run(once.left_open("k", {"name": "one"}))
    once.with_idempotency(state_of=lambda _: state)
    answer = once.call_once("k", {"name": "one"})
    assert answer.ending is (Ending.IN_DOUBT if state == "over" else Ending.KEY_BUSY)
    once.with_idempotency(clock=LaterClock(once.app.road.clock, 60.0))
    answer = once.call_once("k", {"name": "one"})
    assert (answer.ending, dict(answer.details or {})["reason"]) == (Ending.IN_DOUBT, "first_call_in_doubt")
    assert not once.ran("one")


def test_the_run_of_a_process_that_ended_is_over_and_our_own_goes_on(home: Home, local: Once) -> None:
    before = Once(home, home.app())
    run = before.app.road.idempotency.run
    state_of = local.app.road.idempotency.state_of
    assert state_of(run) == state_of(local.app.road.idempotency.run) == "going_on"
    before.run(before.app.close())
    before.loop.close()
    assert state_of(run) == "over"
    assert state_of("20200101T000000Z.0000000000000000") == "elsewhere"


def test_a_call_that_was_cancelled_is_in_doubt(local: Once) -> None:
    workspace = local.home.workspace

    async def cancelled() -> tuple[Answer, Answer]:
        under_way = asyncio.ensure_future(local.acall("unruly_wait", once="k"))
        await soon((workspace / "inside").exists, "the call is inside")
        local.app.road.cancel_all()
        return await under_way, await local.acall("unruly_wait", once="k")

    first, second = local.run(cancelled())
    assert (first.ending, second.ending) == (Ending.TOOL_FAILED, Ending.IN_DOUBT)


@pytest.mark.parametrize("key", ["k", None])
def test_who_leaves_can_ask_again_so_a_call_with_a_key_goes_on(local: Once, key: str | None) -> None:
    workspace = local.home.workspace

    async def left() -> Answer:
        under_way = asyncio.ensure_future(local.acall("unruly_wait", once=key))
        await soon((workspace / "inside").exists, "the call is inside")
        ticket = next(iter(local.app.road.under_way))
        Arrival(None, "http", None, ticket=ticket).leave()  # type: ignore[arg-type]
        (workspace / "release").touch()
        return await under_way

    assert local.run(left()).ending is (Ending.OK if key else Ending.TOOL_FAILED)


def test_a_read_is_asked_each_time(local: Once) -> None:
    for text in ("a", "b"):
        answer = local.call_once("k", {"text": text}, "unruly_echo")
        assert answer.envelope is not None
        assert answer.envelope.data == {"text": text}
    assert not (local.home.path / "state" / "stores" / "idempotency.sqlite3").exists()


def test_a_call_without_a_key_opens_no_store(local: Once) -> None:
    assert local.call("unruly_write", {"name": "one"}).ending is Ending.OK
    assert not (local.home.path / "state" / "stores" / "idempotency.sqlite3").exists()


def test_what_was_refused_before_it_ran_leaves_the_key_free(once: Once) -> None:
    assert once.call_once("k", {}).ending is Ending.BAD_ARGUMENTS
    ledger = watched(once, fail_on="intent")
    assert once.call_once("k", {"name": "one"}).ending is Ending.UNAVAILABLE
    assert not once.ran("one")
    ledger.fail_on = ""
    assert once.call_once("k", {"name": "one"}).ending is Ending.OK
    assert once.ran("one")


def test_a_call_whose_end_could_not_be_written_down_is_in_doubt(once: Once) -> None:
    ledger = watched(once, fail_on="outcome")
    assert once.call_once("k", {"name": "one"}).ending is Ending.UNAVAILABLE
    assert once.ran("one")
    ledger.fail_on = ""
    assert once.call_once("k", {"name": "one"}).ending is Ending.IN_DOUBT
    assert not once.ran("one")


def test_what_the_tool_said_no_to_is_repeated_as_it_was(once: Once) -> None:
    first = once.call_once("k", {"name": "../outside"})
    again = once.call_once("k", {"name": "../outside"})
    assert first.ending is not Ending.OK
    assert (again.ending, again.text, again.details) == (first.ending, first.text, first.details)
    assert (again.audit or {})["repeats"] == first.request_id


def test_a_key_past_its_time_is_forgotten(once: Once) -> None:
    once.call_once("k", {"name": "one"})
    assert once.ran("one")
    once.with_idempotency(clock=LaterClock(once.app.road.clock, once.app.road.idempotency.bounds.keep_s + 1))
    assert once.call_once("k", {"name": "two"}).ending is Ending.OK
    assert once.ran("two")


def test_a_caller_holds_so_many_keys_and_none_is_dropped_for_another(once: Once) -> None:
    bounds = once.app.road.idempotency.bounds
    once.with_idempotency(bounds=replace(bounds, keys_per_caller=1))
    once.call_once("k", {"name": "one"})
    assert once.ran("one")
    answer = once.call_once("l", {"name": "two"})
    assert (answer.ending, dict(answer.details or {})["reason"]) == (Ending.TOO_MANY, "too_many_idempotency_keys")
    assert not once.ran("two")
    assert once.call_once("k", {"name": "one"}).ending is Ending.OK, "what is kept is still told"
    assert not once.ran("one")
    assert once.call_once("l", {"name": "two"}, key="builder").ending is Ending.OK, "another caller has room of its own"


def test_kept_answers_take_so_much_room(once: Once) -> None:
    once.with_idempotency(bounds=replace(once.app.road.idempotency.bounds, bytes_per_caller=1))
    assert once.call_once("k", {"name": "one"}).ending is Ending.OK
    assert once.call_once("l", {"name": "one"}).ending is Ending.TOO_MANY


def test_a_home_with_another_log_key_does_not_run_what_the_first_has_run(once: Once) -> None:
    once.call_once("k", {"name": "one"})
    assert once.ran("one")
    once.with_idempotency(secret=lambda: b"x" * 32)
    answer = once.call_once("k", {"name": "one"})
    assert (answer.ending, dict(answer.details or {})["reason"]) == (Ending.UNAVAILABLE, "idempotency_other_home")
    assert not once.ran("one")


def test_a_kept_answer_that_somebody_changed_is_not_told(local: Once) -> None:
    local.call_once("k", {"name": "one"})
    local.ran("one")
    with sqlite3.connect(local.home.path / "state" / "stores" / "idempotency.sqlite3") as connection:
        (kept,) = connection.execute("SELECT answer FROM idempotency_claim").fetchone()
        connection.execute("UPDATE idempotency_claim SET answer = ?", (kept[:-1] + bytes([kept[-1] ^ 1]),))
    connection.close()
    answer = local.call_once("k", {"name": "one"})
    assert (answer.ending, dict(answer.details or {})["reason"]) == (Ending.IN_DOUBT, "kept_answer_unreadable")
    assert not local.ran("one")


def test_without_its_store_a_call_with_a_key_does_not_run(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    (home.path / "state" / "stores" / "idempotency.sqlite3").mkdir(parents=True)
    for gate in opened(home):
        answer = gate.call_once("k", {"name": "one"})
        assert (answer.ending, dict(answer.details or {})["reason"]) == (Ending.UNAVAILABLE, "idempotency_unavailable")
        assert not gate.ran("one")
        assert gate.call("unruly_write", {"name": "one"}).ending is Ending.OK, "calls without a key need no store"
