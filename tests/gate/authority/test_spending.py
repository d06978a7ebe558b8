"""Grants on the whole road, under eight processes of one home that are killed at any moment: each has one effect at most, and no
effect is without its grant and its intent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from tests.gate.authority.spending import TOOL
from tests.homes import PATIENCE_S, ROOT, Home, environment, make_home
from tests.powers.sql.postgres import shared_postgres
from tests.support import let_stores_wait
from tests.waiting import until
from toolgate.kit.conditions.approval import Person
from toolgate.powers.approvals.tables import ApprovalTables

PROCESSES, GRANTS = 8, 24
T = TypeVar("T")


@pytest.fixture(params=["sqlite", "postgresql"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    place = f"sqlite:///{tmp_path}/approvals.sqlite3"
    if request.param == "postgresql":
        place = shared_postgres().new_database()
    rows: dict[str, Any] = {TOOL: {"x-rules": [{"name": "ask", "require-approval": "true"}]}}
    settings = f'[stores]\napprovals = "{place}"\n[limits]\nrate_per_minute = 0\n'
    return make_home(tmp_path / "home", packs=("unruly",), rows=rows, settings=settings)


class Workers:
    """Always eight, whoever dies."""

    def __init__(self, home: Home, effects: Path) -> None:
        self._home, self._effects, self._seeds = home, effects, count()
        self.died = 0
        self._all = [self._start() for _ in range(PROCESSES)]

    def _start(self) -> subprocess.Popen[bytes]:
        words = [str(self._home.path), str(self._effects), self._home.keys["builder"], str(next(self._seeds))]
        command = [sys.executable, "-m", "tests.gate.authority.spending", *words]
        return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        self._all[number].kill()

    def replace_the_dead(self) -> None:
        for number, worker in enumerate(self._all):
            if worker.poll() is not None:
                assert worker.returncode == -9, "nothing but a kill ends one"
                self.died += 1
                self._all[number] = self._start()

    def end(self) -> None:
        for worker in self._all:
            worker.kill()
            worker.wait(PATIENCE_S)


@pytest.fixture
def workers(home: Home, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(home, tmp_path / "effects")
    yield made
    made.end()


def records(home: Home) -> Iterator[dict[str, Any]]:
    """Of every run. The last line of a process that was killed may be half of one."""
    folder = home.path / "runs" / "mcp_server" / "envelope_validation"
    for path in folder.glob("*.jsonl"):
        if path.is_symlink():
            continue
        *whole, last = path.read_text().split("\n")
        assert not last or len(whole) > 0
        yield from map(json.loads, whole)


@pytest.mark.guard
@pytest.mark.timeout(600)
def test_each_grant_has_one_effect_at_most_and_no_effect_is_without_its_grant_and_its_intent(
    home: Home, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_stores_wait(monkeypatch)
    store, random, given = ApprovalTables(_place(home)), Random(9), []
    try:
        for _ in range(GRANTS):
            request = until(lambda: _waiting(store, workers, given), "a worker asks", 4 * PATIENCE_S)
            assert run(store.vote(request, Person("boss", "zoe"), "approve", "", _now(store, request))) == "approved"
            given.append(request)
            for _ in range(random.randrange(12)):
                run(store.get(request))  # a moment that is another each time
            if random.random() < 0.3:
                workers.kill(random.randrange(PROCESSES))
        until(lambda: _all_spent(store, workers, given), "every grant is spent", 4 * PATIENCE_S)
        until(lambda: _waiting(store, workers, given), "and what spent the last one has ended", 4 * PATIENCE_S)
    finally:
        workers.end()
        spent = {row["id"] for row in run(store.all("spent"))}
        store.close()
    assert workers.died > 2, "some were killed"
    intents = {
        record["requestId"]: record["approval"]
        for record in records(home)
        if record["event"] == "intent" and "approval" in record
    }
    effects = Counter((tmp_path / "effects").read_text().split())
    assert set(effects) <= set(intents), "no effect is without its intent"
    assert set(effects.values()) == {1}
    assert max(Counter(intents.values()).values()) == 1, "no grant has two intents"
    assert set(intents.values()) <= set(given) == spent, "no intent is without a grant that was given and spent"
    assert len(effects) >= GRANTS - workers.died, "only a kill can lose one"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _place(home: Home) -> str:
    return next(line for line in (home.path / "toolgate.toml").read_text().splitlines() if "approvals =" in line).split(
        '"'
    )[1]


def _now(store: ApprovalTables, request: str) -> float:
    found = run(store.get(request))
    assert found is not None
    return float(found["created"]) / 1000


def _waiting(store: ApprovalTables, workers: Workers, given: list[str]) -> str | None:
    workers.replace_the_dead()
    found = [row["id"] for row in run(store.all("pending")) if row["id"] not in given]
    return found[0] if found else None


def _all_spent(store: ApprovalTables, workers: Workers, given: list[str]) -> bool:
    workers.replace_the_dead()
    return set(given) <= {row["id"] for row in run(store.all("spent"))}
