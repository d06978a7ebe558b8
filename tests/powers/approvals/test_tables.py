"""Requests, votes and grants, on SQLite and on a real PostgreSQL: spent once, never answered by who asks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.homes import PATIENCE_S, ROOT, environment
from tests.powers.approvals.requests import a_request
from tests.support import let_stores_wait
from tests.waiting import until
from toolgate.kit.conditions.approval import MAX_WAITING, ApprovalClaim, Person, VoteRefused
from toolgate.powers.approvals import tables
from toolgate.powers.approvals.tables import KEPT_S, TAKEN_S, ApprovalTables

T = TypeVar("T")
Open = Callable[[], ApprovalTables]
BOB, EVE, ZOE = Person("bob-key", "bob"), Person("eve-key", "eve"), Person("zoe-key", "zoe")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def approve(store: ApprovalTables, identity: str, who: Person = BOB, now: float = 1.0) -> str:
    return run(store.vote(identity, who, "approve", "", now))


def test_a_request_waits_is_granted_and_is_spent_once(opened: Open) -> None:
    one, two = opened(), opened()
    assert run(one.claim(a_request("r1"), 1.0)) == ApprovalClaim("new", "r1")
    assert run(two.claim(a_request("r2"), 1.0)) == ApprovalClaim("pending", "r1")
    assert approve(two, "r1") == "approved"
    assert run(one.claim(a_request("r3"), 1.0)) == ApprovalClaim("spent", "r1")
    assert run(two.claim(a_request("r4"), 1.0)) == ApprovalClaim("new", "r4"), "the next call asks anew"


def test_a_grant_is_for_one_binding(opened: Open) -> None:
    store = opened()
    run(store.claim(a_request("r1"), 1.0))
    approve(store, "r1")
    assert run(store.claim(a_request("r2", binding="another"), 1.0)) == ApprovalClaim("new", "r2")
    assert run(store.claim(a_request("r3"), 1.0)) == ApprovalClaim("spent", "r1")


def test_a_refusal_is_heard_until_the_request_expires(opened: Open) -> None:
    store = opened()
    run(store.claim(a_request("r1", life_s=100), 1.0))
    assert run(store.vote("r1", BOB, "refuse", "no", 1.0)) == "refused"
    assert run(store.claim(a_request("r2"), 2.0)) == ApprovalClaim("refused", "r1")
    assert run(store.claim(a_request("r3"), 100.0)) == ApprovalClaim("new", "r3")
    with pytest.raises(VoteRefused):
        approve(store, "r1")


def test_neither_a_request_nor_a_grant_outlives_its_time(opened: Open) -> None:
    store = opened()
    run(store.claim(a_request("r1", life_s=100), 1.0))
    with pytest.raises(VoteRefused):
        approve(store, "r1", now=100.0)
    assert run(store.claim(a_request("r2", created=100.0, life_s=100), 100.0)) == ApprovalClaim("new", "r2", ("r1",))
    approve(store, "r2", now=101.0)
    assert run(store.claim(a_request("r3"), 200.0)) == ApprovalClaim("new", "r3", ("r2",))


@pytest.mark.parametrize(
    "who",
    [
        Person("asker"),
        Person("asker", "bob"),
        Person("another", "ann"),
        Person("another", "ANN"),
        Person("another", "", "Team A"),
        Person("another", "ci", "team a"),
        Person("another", "ci", "ann"),
        Person("user 1000", "team a"),
    ],
)
def test_who_asks_does_not_answer_with_any_key(opened: Open, who: Person) -> None:
    store = opened()
    run(store.claim(a_request("r1", owner="team a"), 1.0))
    with pytest.raises(VoteRefused, match="same person"):
        approve(store, "r1", who)
    assert run(store.claim(a_request("r2"), 1.0)) == ApprovalClaim("pending", "r1")


def test_two_keys_of_one_owner_are_one_approver(opened: Open) -> None:
    store = opened()
    run(store.claim(a_request("r1", needed=2), 1.0))
    assert approve(store, "r1", Person("k1", "laptop", "eve")) == "pending"
    for again in (Person("k2", "phone", "Eve"), Person("k3", "eve"), Person("k4", "laptop", "zoe")):
        with pytest.raises(VoteRefused, match="has answered already"):
            approve(store, "r1", again)
    assert approve(store, "r1", Person("k5", "phone", "zoe")) == "approved"


def test_a_request_is_answered_by_the_roles_that_its_rule_names(opened: Open) -> None:
    store = opened()
    run(store.claim(a_request("r1", roles="lead,release"), 1.0))
    with pytest.raises(VoteRefused, match="another role: lead,release") as refused:
        approve(store, "r1", BOB)
    assert refused.value.reason == "other_role"
    assert approve(store, "r1", Person("k", "bob", role="release")) == "approved"


def test_each_expiry_is_handed_out_once_and_again_only_if_nobody_recorded_it(opened: Open) -> None:
    first, second = opened(), opened()
    run(first.claim(a_request("waits", binding="a", life_s=100), 1.0))
    run(first.claim(a_request("granted", binding="b", life_s=100), 1.0))
    run(first.claim(a_request("later", binding="c", life_s=1000), 1.0))
    approve(first, "granted")
    assert run(first.take_expired(99.0)) == []
    taken = run(first.take_expired(100.0))
    assert {(each.id, each.binding) for each in taken} == {("waits", "a"), ("granted", "b")}
    assert run(second.take_expired(101.0)) == [], "another process has them"
    run(first.expiry_recorded("waits"))
    assert [each.id for each in run(second.take_expired(100.0 + TAKEN_S))] == ["granted"], "the first one died"
    run(second.expiry_recorded("granted"))
    assert run(first.take_expired(900.0)) == []
    with pytest.raises(VoteRefused):
        approve(first, "granted", EVE)


def test_expiries_are_handed_out_in_portions_and_by_one_of_many(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    let_stores_wait(monkeypatch)
    monkeypatch.setattr(tables, "MOST_TAKEN", 3)
    stores = [opened() for _ in range(4)]

    async def fill() -> None:
        for n in range(20):
            await stores[0].claim(a_request(f"r{n}", binding=f"b{n}", life_s=10 + n), 1.0)

    async def take() -> list[str]:
        found = await asyncio.gather(*(store.take_expired(100.0) for store in stores))
        assert all(len(each) <= 3 for each in found)
        return [request.id for each in found for request in each]

    run(fill())
    taken = [name for _ in range(4) for name in run(take())]
    assert len(taken) == len(set(taken))
    while more := run(stores[0].take_expired(100.0)):
        taken += [request.id for request in more]
    assert sorted(taken) == sorted(f"r{n}" for n in range(20))


def test_an_expiry_that_nobody_recorded_is_not_forgotten(opened: Open) -> None:
    store, late = opened(), KEPT_S * 2.0
    run(store.claim(a_request("old", binding="a", life_s=100), 1.0))
    run(store.claim(a_request("refused", binding="b", life_s=100), 1.0))
    run(store.vote("refused", BOB, "refuse", "", 2.0))
    run(store.claim(a_request("new", binding="c", created=late), late))
    assert {row["id"] for row in run(store.all())} == {"old", "new"}
    (taken,) = run(store.take_expired(late))
    run(store.expiry_recorded(taken.id))
    run(store.claim(a_request("newer", binding="d", created=late), late))
    assert {row["id"] for row in run(store.all())} == {"new", "newer"}


def test_as_many_people_must_approve_as_the_rule_says(opened: Open) -> None:
    store = opened()
    run(store.claim(a_request("r1", needed=3), 1.0))
    assert approve(store, "r1", BOB) == "pending"
    for again in (BOB, Person("bob-other-key", "bob")):
        with pytest.raises(VoteRefused, match="has answered already"):
            approve(store, "r1", again)
    assert approve(store, "r1", EVE) == "pending"
    assert run(store.claim(a_request("r2"), 1.0)).state == "pending"
    assert approve(store, "r1", ZOE) == "approved"
    found = run(store.get("r1"))
    assert found is not None
    assert [vote["approver"] for vote in found["votes"]] == ["bob-key", "eve-key", "zoe-key"]


def test_votes_at_once_are_counted_together(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    let_stores_wait(monkeypatch)
    stores = [opened() for _ in range(8)]
    run(stores[0].claim(a_request("r1", needed=8), 1.0))

    async def all_vote() -> list[str]:
        votes = (store.vote("r1", Person(f"k{n}"), "approve", "", 1.0) for n, store in enumerate(stores))
        return list(await asyncio.gather(*votes))

    assert Counter(run(all_vote())) == {"pending": 7, "approved": 1}


def test_one_grant_is_spent_by_one_of_many_at_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    let_stores_wait(monkeypatch)
    stores = [opened() for _ in range(8)]
    run(stores[0].claim(a_request("r1"), 1.0))
    approve(stores[0], "r1")

    async def all_claim() -> list[ApprovalClaim]:
        return list(await asyncio.gather(*(store.claim(a_request(f"n{n}"), 1.0) for n, store in enumerate(stores))))

    states = Counter(claim.state for claim in run(all_claim()))
    assert states == {"spent": 1, "new": 1, "pending": 6}


def test_a_caller_has_so_many_requests_waiting(opened: Open) -> None:
    store = opened()

    async def fill() -> list[ApprovalClaim]:
        return [await store.claim(a_request(f"r{n}", binding=f"b{n}"), 1.0) for n in range(MAX_WAITING + 1)]

    assert [claim.state for claim in run(fill())] == ["new"] * MAX_WAITING + ["too_many"]
    assert run(store.claim(a_request("other", binding="x", caller="other"), 1.0)).state == "new"


@pytest.mark.guard
def test_under_eight_processes_and_kills_each_grant_has_one_effect_at_most(
    opened: Open, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grants are given one after the other, while processes that would spend them are killed and started again."""
    let_stores_wait(monkeypatch)
    store, effects, grants = opened(), tmp_path / "effects", 12
    run(store.all())  # makes the tables

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.powers.approvals.claiming", place, str(effects)]
        return subprocess.Popen(command, cwd=ROOT, env=environment())

    def spent() -> list[str]:
        return [row["id"] for row in run(store.all("spent"))]

    workers = [start() for _ in range(8)]
    given: list[str] = []
    try:
        for number in cycle(range(8)):
            waiting = until(lambda: run(store.all("pending")), "a worker asks", 2 * PATIENCE_S)
            approve(store, waiting[0]["id"])
            given.append(waiting[0]["id"])
            if len(given) % 3 == 0:
                workers[number].kill()
                workers[number].wait()
                workers[number] = start()
            if len(given) == grants:
                break
        until(lambda: set(given) <= set(spent()), "every grant is spent", 2 * PATIENCE_S)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    had = Counter(effects.read_text().splitlines())
    assert max(had.values()) == 1, "no grant has two effects"
    assert had.keys() <= set(given), "no effect is without a grant"
    assert len(had) >= grants - grants // 3, "only a kill can lose one"
