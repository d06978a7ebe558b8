"""Records that are gathered: chained when they are made, written together by `flush`, or not at all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.ledger import world
from tests.ledger.world import ANONYMOUS, INTENT, OUTCOME, no_space, numbered, opened
from toolgate.errors import LedgerUnavailable
from toolgate.ledger import LocalLedger, Rules


def calls(directory: Path) -> list[str]:
    """Request ids in the file, as any reader finds them now."""
    return [one["requestId"] for one in world.records(directory) if one["event"] in ("intent", "outcome")]


def gather(ledger: LocalLedger, entry: Any) -> None:
    ledger.append(entry, is_held=True)


def test_what_is_gathered_is_written_by_flush_in_one_write(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        for number in range(5):
            gather(ledger, numbered(OUTCOME, number))
        assert calls(tmp_path / "log") == []
        with patch.object(os, "write", wraps=os.write) as write:
            ledger.flush()
            ledger.flush()
        assert write.call_count == 1
        assert calls(tmp_path / "log") == [f"request-{number}" for number in range(5)]
    assert world.check(tmp_path / "log", ledger).good


@pytest.mark.parametrize("entry", [INTENT, ANONYMOUS], ids=["an effect", "a stranger"])
def test_an_effect_or_a_stranger_is_written_at_once_and_behind_what_was_gathered(tmp_path: Path, entry: Any) -> None:
    with opened(tmp_path / "log") as ledger:
        gather(ledger, numbered(OUTCOME, "first"))
        gather(ledger, numbered(entry, "second"))
        assert calls(tmp_path / "log") == ["request-first", "request-second"]


def test_a_record_is_durable_only_after_it_is_written(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        place = ledger.append(numbered(INTENT, 1))
        gather(ledger, numbered(OUTCOME, 2))
        asyncio.run(asyncio.wait_for(ledger.durable(place), world.PATIENCE_S))
        with ledger._lock:
            assert ledger._sync_thread.synced == place.seq, "what waits in memory is not said to be on disk"


def test_a_write_that_fails_for_one_leaves_what_others_gathered(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        gather(ledger, numbered(OUTCOME, "held"))
        with patch.object(os, "write", no_space), pytest.raises(LedgerUnavailable):
            ledger.append(numbered(INTENT, "refused"))
        ledger.flush()
        assert calls(tmp_path / "log") == ["request-held"]
    assert world.check(tmp_path / "log", ledger).good


def test_what_is_gathered_is_written_before_a_checkpoint_signs_it(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        gather(ledger, numbered(OUTCOME, 1))
        with patch.object(os, "write", no_space), pytest.raises(LedgerUnavailable):
            ledger.checkpoint()
        with patch.object(os, "write", no_space), pytest.raises(LedgerUnavailable):
            ledger.flush()
        gather(ledger, numbered(OUTCOME, 2))
        ledger.checkpoint()
        assert calls(tmp_path / "log") == ["request-2"]
    assert world.check(tmp_path / "log", ledger).good


def test_a_run_that_ends_writes_what_it_gathered(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        gather(ledger, numbered(OUTCOME, 1))
    assert calls(tmp_path / "log") == ["request-1"]


STEPS = st.sampled_from(["gather", "gather", "gather", "write", "effect", "flush", "fail", "fail to write", "sign"])


@cases(25, 100)
@given(st.lists(STEPS, max_size=40), st.sampled_from([2, 5, 256]), st.sampled_from([1500, 1 << 20]))
def test_whatever_is_gathered_written_and_lost_the_log_holds_what_was_promised(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], records: int, segment: int
) -> None:
    directory = tmp_path_factory.mktemp("gather") / "log"
    rules = Rules(checkpoint_seconds=3600.0, checkpoint_records=records, segment_bytes=segment)
    promised: list[str] = []
    held: list[str] = []
    with opened(directory, rules=rules) as ledger:
        for number, step in enumerate(steps):
            name = f"request-{number}"
            match step:
                case "gather":
                    gather(ledger, numbered(OUTCOME, number))
                    held.append(name)
                case "write" | "effect":
                    ledger.append(numbered(OUTCOME if step == "write" else INTENT, number))
                    promised += [*held, name]
                    held = []
                case "flush":
                    ledger.flush()
                    promised, held = promised + held, []
                case "fail":
                    with patch.object(os, "write", no_space):
                        if held and not set(held) <= set(calls(directory)):
                            with pytest.raises(LedgerUnavailable):
                                ledger.flush()
                            held = [one for one in held if one in calls(directory)]
                        promised, held = promised + held, []
                case "fail to write":
                    with patch.object(os, "write", no_space), pytest.raises(LedgerUnavailable):
                        ledger.append(numbered(OUTCOME, number))
                case "sign":
                    ledger.checkpoint()
                    promised, held = promised + held, []
            assert set(promised) <= set(calls(directory))
    assert calls(directory) == promised + held, "and the end of a run writes what was held"
    world.written(directory, 0, clock=world.later(10))  # tells of an effect without an outcome
    assert world.check(directory, ledger).good
