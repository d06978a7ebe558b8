"""The index says what the log says, as much as it may hold, and is made again whenever it is lost."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from toolgate.console.index import building, tables
from toolgate.console.index.building import CatchUp, behind, catch_up
from toolgate.console.index.filters import CallFilter
from toolgate.console.index.reading import Entry, reading
from toolgate.console.proving import ProofAsked, make_proof
from toolgate.kit.note import NoteSigner
from toolgate.ledger import record
from toolgate.ledger.files import RunName
from toolgate.ledger.local import LocalLedger, Rules
from toolgate.ledger.reading.proofs import check
from toolgate.ledger.tips import Tips
from toolgate.model.call import Caller, Wire
from toolgate.model.clock import Ids, rfc3339
from toolgate.model.envelope import Clamp
from toolgate.model.record import LedgerEntry

NOW = 1_800_000_000.0
SIGNER = NoteSigner("test/log", b"s" * 32)
ALL = 10**9


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Log:
    """A real one, with calls as the road tells them."""

    def __init__(self, path: Path) -> None:
        self.path = path / "log"
        self.index = path / "state" / "index.sqlite3"
        self.path.mkdir()
        self.clock = Clock()
        self.run(1)

    def run(self, number: int, **rules: Any) -> None:
        tips = Tips(self.path.parent / "audit.key", self.path)
        name = RunName.make(self.clock.now, f"run{number}")
        self.ledger = LocalLedger(
            self.path, name, signer=SIGNER, rules=Rules(**rules), clock=self.clock, tips=tips, deterministic=False
        )
        self.ledger.checkpoint()

    def call(self, number: int, tool: str = "notes.add", caller: str = "a", **more: Any) -> str:
        self.clock.now += 1
        request = f"{number:032x}"
        entry = LedgerEntry(
            "outcome",
            Wire("mrt", "http", "/mrt_dispatch"),
            Ids(request, "t" * 32, "s" * 16),
            rfc3339(self.clock.now),
            f"mcp.tool:{tool}",
            more.pop("status", "ok"),
            caller=Caller(caller, "builder"),
            tier=more.pop("tier", "experimental"),
            duration_ms=float(number),
            **more,
        )
        self.ledger.append(entry)
        return request

    def fresh(self, most: int = ALL) -> None:
        catch_up(CatchUp(str(self.path), str(self.index), most))

    def entries(self, wanted: CallFilter | None = None, owner: str | None = None, most: int = ALL) -> list[Entry]:
        with reading(self.index, self.path, owner, {"notes_add": "mcp.tool:notes.add"}) as index:
            return index.entries(wanted or CallFilter(), self.clock.now, most)

    def requests(self, **wanted: str) -> list[int]:
        return [int(each.request, 16) for each in self.entries(CallFilter(**wanted))][::-1]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def refusal(happening: str) -> dict[str, Any]:
    return {"status": "error", "error": {"happening": happening, "code": None, "reason": None}}


def test_every_call_is_there_once_newest_first_however_often_it_is_made(log: Log) -> None:
    for number in range(20):
        log.call(number)
        if number % 3 == 0:
            log.fresh()
    log.fresh()
    log.fresh()
    assert [int(each.request, 16) for each in log.entries()] == list(range(19, -1, -1))
    assert behind(log.path, log.index).waiting == 0


def test_a_line_is_read_from_the_log_itself(log: Log) -> None:
    request = log.call(7)
    log.fresh()
    with reading(log.index, log.path, None, {}) as index:
        (entry,) = index.of_request(request)
        found = record.read(index.line(entry) or b"")
    assert found is not None
    assert (found["requestId"], found["seq"]) == (request, entry.seq)


def test_filters_select_what_they_say(log: Log) -> None:
    log.call(1)
    log.call(2, tool="notes.read", caller="b", tier="authoritative")
    log.call(3, **refusal("too_many"))
    log.call(4, clamps=(Clamp("r", "decision", "block", "warn"),), decision="warn")
    log.call(5, more={"upstream": "time", "pin": "p"})
    log.fresh()
    wanted: list[tuple[dict[str, str], list[int]]] = [
        ({}, [1, 2, 3, 4, 5]),
        ({"tool": "notes_add"}, [1, 3, 4, 5]),
        ({"tool": "mcp.tool:notes.read"}, [2]),
        ({"caller": "b"}, [2]),
        ({"tier": "authoritative"}, [2]),
        ({"verdict": "refused"}, [3]),
        ({"verdict": "too_many"}, [3]),
        ({"verdict": "ok", "caller": "a"}, [1, 4, 5]),
        ({"clamped": "1"}, [4]),
        ({"decision": "warn"}, [4]),
        ({"upstream": "time"}, [5]),
        ({"since": "2s"}, [3, 4, 5]),
        ({"until": "2s"}, [1, 2]),
        ({"tool": "no such"}, []),
        ({"since": "nonsense"}, [1, 2, 3, 4, 5]),
    ]
    for filters, numbers in wanted:
        assert log.requests(**filters) == numbers, filters


def test_pages_follow_each_other_without_gap_or_repetition_while_calls_come(log: Log) -> None:
    for number in range(25):
        log.call(number)
    log.fresh()
    seen: list[int] = []
    before = None
    while True:
        with reading(log.index, log.path, None, {}) as index:
            page = index.entries(CallFilter(), NOW, 10, before)
        if not page:
            break
        seen += [int(each.request, 16) for each in page]
        before = page[-1].place
        log.call(100 + len(seen))
        log.fresh()
    assert seen == list(range(24, -1, -1))


def test_a_person_who_sees_their_own_calls_sees_no_others(log: Log) -> None:
    theirs = log.call(1, caller="a")
    log.call(2, caller="b")
    log.fresh()
    assert [each.caller for each in log.entries(owner="b")] == ["b"]
    with reading(log.index, log.path, "b", {}) as index:
        assert index.of_request(theirs) == []
        assert [each.calls for each in index.by("caller", 0)] == [1]
        assert sum(good + bad for _, good, bad in index.series(0, 600_000)) == 1


def test_sums_are_those_of_the_rows(log: Log) -> None:
    for number in range(30):
        log.call(number, tool=f"notes.t{number % 3}", **(refusal("bad_arguments") if number % 5 == 0 else {}))
        log.clock.now += 90
        log.fresh()
    with reading(log.index, log.path, None, {}) as index:
        tools, verdicts = index.by("tool", 0), {each.name: each.calls for each in index.by("verdict", 0)}
        assert [each.calls for each in tools] == [10, 10, 10]
        assert verdicts == {"ok": 24, "bad_arguments": 6}
        assert sum(good for _, good, _ in index.series(0, 600_000)) == 24
        assert index.durations(0) == ([1000 * number for number in range(1, 30)], 0)


def test_a_lost_or_damaged_index_is_made_again_from_the_log(log: Log) -> None:
    for number in range(5):
        log.call(number)
    log.fresh()
    before = log.entries()
    tables.drop_index(log.index)
    log.fresh()
    assert log.entries() == before
    tables.drop_index(log.index)
    log.index.write_bytes(b"no database at all" * 1000)
    log.fresh()
    assert log.entries() == before
    connection = sqlite3.connect(log.index)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    log.fresh()
    assert log.entries() == before


def test_what_the_log_no_longer_has_the_index_forgets(log: Log) -> None:
    log.call(1)
    first = next(log.path.glob("*.jsonl"))
    log.clock.now += 5
    log.run(2)
    log.call(2)
    log.fresh()
    assert log.requests() == [1, 2]
    first.unlink()
    log.fresh()
    assert log.requests() == [2]


def test_a_packed_file_is_read_once_and_its_lines_are_found(log: Log) -> None:
    request = log.call(1)
    plain = next(log.path.glob("*.jsonl"))
    plain.with_name(plain.name + ".gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    log.fresh()
    log.fresh()
    assert log.requests() == [1]
    assert behind(log.path, log.index).waiting == 0
    with reading(log.index, log.path, None, {}) as index:
        (entry,) = index.of_request(request)
        assert request.encode() in (index.line(entry) or b"")


def test_a_line_that_is_still_being_written_waits(log: Log) -> None:
    log.call(1)
    path = next(log.path.glob("*.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    log.fresh()
    assert log.requests() == []
    path.write_bytes(whole)
    log.fresh()
    assert log.requests() == [1]


def test_the_newest_file_comes_first_and_the_work_has_a_bound(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.call(1)
    log.clock.now += 5
    log.run(2)
    log.call(2)
    log.fresh(most=1)
    assert log.requests() == [2]
    assert behind(log.path, log.index).waiting > 0
    log.fresh()
    assert log.requests() == [1, 2]


def test_the_index_is_bounded_and_the_oldest_go_first(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_ENTRIES", 40)
    for number in range(100):
        log.call(number)
        log.clock.now += 120
        log.fresh()
    kept = log.requests()
    assert kept == list(range(100))[-len(kept) :]
    assert 20 <= len(kept) <= 45
    with reading(log.index, log.path, None, {}) as index:
        assert sum(each.calls for each in index.by("tool", 0)) == len(kept)


def test_a_proof_made_for_a_page_is_one_that_audit_verifies(log: Log) -> None:
    numbers = [log.call(number) for number in range(9)]
    log.fresh()
    with reading(log.index, log.path, None, {}) as index:
        (entry,) = index.of_request(numbers[4])
        asked = ProofAsked(str(log.path), index.run_name(entry), entry.seq)
    assert "no checkpoint covers" in make_proof(asked)["fault"]
    log.ledger.checkpoint()
    assert check(make_proof(asked), [SIGNER.verifier])["requestId"] == numbers[4]
    assert "no such record" in make_proof(ProofAsked(str(log.path), asked.run, 999))["fault"]


def test_two_processes_at_once_leave_each_record_once(log: Log) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for number in range(200):
        log.call(number)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(log.fresh) for _ in range(8)]:
            done.result(timeout=30)
    assert log.requests() == list(range(200))
    with reading(log.index, log.path, None, {}) as index:
        assert sum(each.calls for each in index.by("tool", 0)) == 200
