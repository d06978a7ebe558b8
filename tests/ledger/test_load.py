"""Rotation, group syncs, checkpoints by count and by time, and several writers, all at once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from msgspec.structs import replace

from tests.ledger import world
from tests.ledger.world import INTENT, OUTCOME, numbered
from toolgate.ledger import Anchors, LocalLedger, Rules
from toolgate.ledger.reading.verify import read_anchors
from toolgate.model.clock import SystemClock

CALLS = 150


async def effects(ledger: LocalLedger, mine: int) -> None:
    for number in range(CALLS):
        intent = numbered(INTENT, f"{mine}-{number}")
        await ledger.durable(ledger.append(intent))
        await ledger.durable(ledger.append(replace(intent, event="outcome")))


async def all_effects(ledger: LocalLedger) -> None:
    await asyncio.wait_for(asyncio.gather(*(effects(ledger, mine) for mine in range(8))), 30)


def reads(ledger: LocalLedger, mine: int) -> None:
    for number in range(CALLS * 4):
        ledger.append(numbered(OUTCOME, f"read-{mine}-{number}"))


def test_everything_at_once_leaves_one_good_log(tmp_path: Path) -> None:
    rules = Rules(segment_bytes=65_536, checkpoint_seconds=0.01, checkpoint_records=20)
    anchors = Anchors(file=tmp_path / "elsewhere.txt")
    with world.opened(tmp_path / "log", SystemClock(), rules=rules, anchors=anchors) as ledger:  # type: ignore[arg-type] # a clock
        threads = [threading.Thread(target=reads, args=(ledger, mine)) for mine in range(2)]
        for thread in threads:
            thread.start()
        asyncio.run(all_effects(ledger))
        for thread in threads:
            thread.join()
    found = world.records(tmp_path / "log")
    requests = [(one["event"], one["requestId"]) for one in found if one["event"] in ("intent", "outcome")]
    assert len(requests) == len(set(requests)) == 8 * CALLS * 2 + 2 * CALLS * 4
    assert len(world.segments(tmp_path / "log")) > 20
    kept = read_anchors((tmp_path / "elsewhere.txt").read_text(), [ledger.verifier])
    report = world.check(tmp_path / "log", ledger, anchors=kept)
    assert report.good
    assert {one.size for one in kept} == set(report.runs[0].checkpoints)
    assert not list((tmp_path / "log").glob("*.lock"))
