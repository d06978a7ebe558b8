"""The live list follows the log from file to file, shows each page what it may see, and says how much it left out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.index.test_index import Log, refusal
from tests.homes import PATIENCE_S
from toolgate.console import feed
from toolgate.console.feed import MOST_BYTES, MOST_RECORDS, Feed, FeedListener, Look, Tail
from toolgate.console.index.filters import CallFilter, read_filter
from toolgate.console.session import ConsoleSession
from toolgate.model.call import Caller


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def session(role: str = "auditor", key: str = "z") -> ConsoleSession:
    return ConsoleSession(Caller(key, role), "token", 0.0, 0.0)


def listener(role: str = "auditor", key: str = "z", **wanted: str) -> FeedListener:
    return FeedListener(session(role, key), CallFilter(**wanted), {})


def heard(page: FeedListener) -> tuple[list[int], list[dict[str, Any]]]:
    """Calls that a page was shown, and what it was told of others."""
    rows, left = [], []
    while not page.queue.empty():
        event = page.queue.get_nowait()
        assert event is not None
        kind, _, data = event.decode().strip().rpartition("data: ")
        found = json.loads(data)
        if kind.startswith("event: left-out"):
            left.append(found)
        else:
            rows.append(int(found["request"], 16))
    return rows, left


def looked(tail: Tail) -> Look:
    found = tail.new()
    assert found is not None
    return found


def requests(look: Look) -> list[int]:
    return [int(row.told["request"], 16) for row in look.rows]


def test_a_look_finds_what_was_added_and_nothing_twice(log: Log) -> None:
    log.call(1)
    tail = Tail(log.path)
    tail.begin()
    assert tail.new() is None
    log.call(2)
    log.call(3, **refusal("too_fast"))
    assert requests(looked(tail)) == [2, 3]
    assert tail.new() is None


def test_the_first_call_of_a_new_file_is_found_at_the_next_look(log: Log) -> None:
    tail = Tail(log.path)
    tail.begin()
    assert tail.new() is None
    log.clock.now += 5
    log.run(2)
    log.call(1)
    assert requests(looked(tail)) == [1], "not only when files are looked for from time to time"


def test_the_last_calls_of_a_file_are_found_though_the_next_file_has_begun(log: Log) -> None:
    log.clock.now += 5
    log.run(2, segment_bytes=6000)
    tail = Tail(log.path)
    tail.begin()
    made: list[int] = []
    while not list(log.path.glob("*run2.002.jsonl")):
        made.append(len(made))
        log.call(made[-1])
    assert len(made) > 2
    assert requests(looked(tail)) == made


def test_where_nothing_says_that_files_have_come_they_are_found_all_the_same(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tail, "_has_changed", lambda _: False)
    tail = Tail(log.path)
    tail.begin()
    log.clock.now += 5
    log.run(2)
    log.call(1)
    found = [look for _ in range(feed.SCAN_LOOKS) if (look := tail.new()) is not None]
    assert [requests(look) for look in found] == [[1]]


def test_of_many_calls_at_once_the_newest_are_shown_and_the_others_counted(log: Log) -> None:
    tail, page = Tail(log.path), listener()
    tail.begin()
    for number in range(MOST_RECORDS + 7):
        log.call(number)
    page.hear(looked(tail))
    rows, (left,) = heard(page)
    assert rows == list(range(7, MOST_RECORDS + 7))
    assert (left["count"], left["least"]) == (7, False)
    log.fresh()
    within = log.entries(read_filter({"since": left["since"], "until": left["until"]}))
    assert len(within) == 7, "the link leads to exactly those"


def test_each_page_counts_what_it_would_have_shown(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_BYTES", 1024 * 1024)
    tail = Tail(log.path)
    pages = {"own": listener("builder", "b"), "filtered": listener(verdict="too_fast"), "quiet": listener(tool="none")}
    tail.begin()
    for number in range(3 * MOST_RECORDS):
        log.call(number, caller="b" if number % 2 else "a", **(refusal("too_fast") if number % 3 else {}))
    look = looked(tail)
    assert look.unread == 0
    for page in pages.values():
        page.hear(look)
    told = {name: heard(page) for name, page in pages.items()}
    assert {name: len(rows) for name, (rows, _) in told.items()} == {
        "own": MOST_RECORDS,
        "filtered": MOST_RECORDS,
        "quiet": 0,
    }
    assert {name: [each["count"] for each in left] for name, (_, left) in told.items()} == {
        "own": [MOST_RECORDS // 2],
        "filtered": [MOST_RECORDS],
        "quiet": [],
    }


def test_calls_that_were_not_even_read_are_counted_for_whoever_sees_all_calls(log: Log) -> None:
    tail, page, other = Tail(log.path), listener(), listener("builder", "b")
    tail.begin()
    count = 0
    while sum(path.stat().st_size for path in log.path.glob("*.jsonl")) < 3 * MOST_BYTES:
        log.call(count)
        count += 1
    look = looked(tail)
    assert look.unread > 0
    for each in (page, other):
        each.hear(look)
    rows, (left,) = heard(page)
    assert (len(rows) + left["count"], left["least"]) == (count, False)
    rows, (left,) = heard(other)
    assert (rows, left["count"], left["least"]) == ([], 0, True), "others' calls are not counted to anybody else"


@pytest.mark.parametrize("piece", [16, 37, 500, 4096])
def test_calls_are_counted_wherever_a_piece_ends(log: Log, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(feed, "MOST_BYTES", 1000)
    monkeypatch.setattr(feed, "_PIECE", piece)
    tail = Tail(log.path)
    tail.begin()
    for number in range(30):
        log.call(number)
    look = looked(tail)
    assert (look.unread + len(look.rows), look.is_least) == (30, False)
    assert look.rows


def test_of_more_than_can_be_counted_a_page_says_at_least(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_BYTES", 4096)
    monkeypatch.setattr(feed, "MOST_COUNTED", 8192)
    tail, page = Tail(log.path), listener()
    tail.begin()
    for number in range(200):
        log.call(number)
    page.hear(looked(tail))
    rows, (left,) = heard(page)
    assert left["least"]
    assert 0 < len(rows) + left["count"] < 200


def test_a_page_that_does_not_read_is_told_later_how_much_it_missed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_WAITING", 5)
    tail, page = Tail(log.path), listener()
    tail.begin()
    for number in range(12):
        log.call(number)
        page.hear(looked(tail))
    rows, left = heard(page)
    assert (rows, left) == ([0, 1, 2, 3, 4], [])
    log.call(12)
    page.hear(looked(tail))
    rows, (told,) = heard(page)
    assert (rows, told["count"]) == ([12], 7)


def test_an_open_page_is_told_of_a_call(log: Log) -> None:
    async def follow() -> bytes | None:
        live = Feed(log.path, lambda _: True)
        page = live.listen(session(), CallFilter(), {})
        assert page is not None
        log.call(1)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await page.queue.get()
        finally:
            live.close()

    event = asyncio.run(follow())
    assert event is not None
    assert f"{1:032x}".encode() in event
