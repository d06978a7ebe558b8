"""A full disk, a directory that cannot be written, a failing sync, a killed process: real ones wherever possible."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.ledger import world
from tests.ledger.world import INTENT, OUTCOME, numbered, opened
from tests.waiting import until
from toolgate.errors import LedgerUnavailable, StartRefused
from toolgate.kit.merkle import leaf_hash
from toolgate.ledger import files, local, sync_thread

FULL_DISK = """
import json, resource, signal, sys
from pathlib import Path
from tests.ledger import world
from toolgate.errors import LedgerUnavailable

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
directory = Path(sys.argv[1])
ledger = world.start(directory)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
written, refused = [], 0
for number in range(100):
    try:
        written.append(ledger.append(world.numbered(world.OUTCOME, number)).seq)
    except LedgerUnavailable:
        refused += 1
size = world.segments(directory)[0].stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
full = ledger.probe()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
back = ledger.probe()
written.append(ledger.append(world.numbered(world.OUTCOME, "after")).seq)
ledger.close()
print(json.dumps({"written": written, "refused": refused, "full": full, "back": back, "key": str(ledger.verifier)}))
"""


def test_a_full_disk_refuses_and_recovers_without_a_restart(tmp_path: Path) -> None:
    """The limit is the kernel's own (RLIMIT_FSIZE), in a process of its own: the last line really is cut short."""
    told = json.loads(world.python(FULL_DISK, tmp_path / "log").stdout)
    assert told["refused"] > 50
    assert (told["full"], told["back"]) == (False, True)
    found = {one["seq"]: one for one in world.records(tmp_path / "log")}
    assert all(found[seq]["event"] == "outcome" for seq in told["written"])
    assert sum(one["event"] == "outcome" for one in found.values()) == len(told["written"])
    from toolgate.kit.note import Verifier
    from toolgate.ledger.reading.verify import verify

    assert verify(tmp_path / "log", [Verifier.parse(told["key"])]).good


READ_ONLY = """
import os, sys
from pathlib import Path
from tests.ledger import world
from toolgate.errors import StartRefused

if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    world.start(Path(sys.argv[1]) / "log")
except StartRefused as refusal:
    print(refusal)
"""


def test_a_directory_that_cannot_be_written_refuses_to_start() -> None:
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o555)
        assert "cannot be" in world.python(READ_ONLY, place).stdout
        assert list(place.iterdir()) == []
    finally:
        shutil.rmtree(place)


def test_a_file_where_the_directory_should_be_refuses_to_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    with pytest.raises(StartRefused, match="Make its directory writable"):
        world.start(tmp_path / "log")


def test_a_failed_sync_ends_the_run_and_is_told_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may drop pages after one failed sync and report success for the next: it is never tried again."""
    attempts = []
    waited_for = threading.Event()

    def failing(descriptor: int) -> None:
        waited_for.wait(world.PATIENCE_S)
        attempts.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    async def scenario(ledger: local.LocalLedger) -> None:
        place = ledger.append(INTENT)
        waiting = asyncio.ensure_future(ledger.durable(place))
        await asyncio.sleep(0)
        waited_for.set()
        with pytest.raises(LedgerUnavailable, match="synced"):
            await asyncio.wait_for(waiting, world.PATIENCE_S)
        with pytest.raises(LedgerUnavailable, match="restart"):
            ledger.append(OUTCOME)
        with pytest.raises(LedgerUnavailable):
            await ledger.durable(replace(place, seq=place.seq + 1))

    ledger = world.start(tmp_path / "log")
    monkeypatch.setattr(files, "sync_data", failing)
    asyncio.run(scenario(ledger))
    monkeypatch.undo()
    assert not ledger.probe()
    assert ledger.until_checkpoint() is None, "the thread that syncs has nothing to wake up for"
    ledger.close()
    assert len(attempts) == 1
    with opened(tmp_path / "log") as following:
        found = next(one for one in world.records(tmp_path / "log") if one["event"] == "recovered")
    assert found["recovered"]["suspect"] is True
    assert found["recovered"]["unfinished"] == [{"requestId": "r", "seq": 1, "outcome": "in_doubt"}]
    assert world.check(tmp_path / "log", following).good


def test_durable_returns_when_the_bytes_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = files.sync_data

    def counted(descriptor: int) -> None:
        real(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    async def scenario(ledger: local.LocalLedger) -> None:
        places = [ledger.append(numbered(INTENT, number)) for number in range(50)]
        await asyncio.wait_for(asyncio.gather(*(ledger.durable(place) for place in places)), world.PATIENCE_S)
        assert synced[-1] >= world.segments(tmp_path / "log")[0].stat().st_size
        await ledger.durable(places[0])

    monkeypatch.setattr(files, "sync_data", counted)
    with opened(tmp_path / "log") as ledger:
        asyncio.run(scenario(ledger))
        assert len(synced) < 10, "fifty waiters share a few syncs"
        for number in range(50):
            ledger.append(replace(numbered(INTENT, number), event="outcome"))


def test_reads_are_synced_soon_without_anyone_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = threading.Event()
    monkeypatch.setattr(files, "sync_data", lambda descriptor: synced.set())
    with opened(tmp_path / "log") as ledger:
        synced.wait(world.PATIENCE_S)
        synced.clear()
        ledger.append(OUTCOME)
        assert synced.wait(world.PATIENCE_S)


def test_a_start_that_fails_before_its_first_record_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.written(tmp_path / "log", 1)

    def full(*_: object) -> None:
        raise LedgerUnavailable("no space")

    monkeypatch.setattr(local.SegmentWriter, "write", full)
    with pytest.raises(StartRefused):
        world.start(tmp_path / "log", run_id="failed")
    monkeypatch.undo()
    assert not list((tmp_path / "log").glob("*.failed.*"))


def test_a_start_that_fails_after_its_first_record_is_told_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "point_latest", full)
    with pytest.raises(StartRefused, match="No space left"):
        world.start(tmp_path / "log", run_id="failed")
    monkeypatch.undo()
    ledger = world.written(tmp_path / "log", 1, clock=world.later(5))
    report = world.check(tmp_path / "log", ledger)
    assert report.good
    assert {one.name.id: one.state for one in report.runs}["failed"] == "recovered"


def test_a_disk_that_fills_up_is_said_once_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = [5_000_000]
    monkeypatch.setattr(files, "free_bytes", lambda _: free[0])
    told = []
    with opened(tmp_path / "log", rules=local.Rules(checkpoint_seconds=3600.0, low_space_bytes=3_000_000)) as ledger:
        for amount in (3_000_000, 2_999_999, 1_000_000, 4_000_000, 2_000_000, 6_000_000, 2_000_000):
            free[0] = amount
            ledger._sync_thread.look_at_space()
            told.append(caplog.messages[:])
            caplog.clear()
    said = ["2 MB are free for the audit log; when the disk is full, every call is refused"]
    assert told == [[], said, [], [], [], [], said]


DIES = """
import os, signal, sys
from pathlib import Path
from tests.ledger import world

ledger = world.start(Path(sys.argv[1]), run_id="killed")
for number in range(20):
    ledger.append(world.numbered(world.OUTCOME, number))
ledger.append(world.numbered(world.INTENT, "open"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def died(directory: Path) -> Path:
    """A log whose process was killed in the middle of an effect; its segment."""
    world.python(DIES, directory, check=False)
    return world.segments(directory)[0]


def test_the_next_start_says_what_a_killed_one_left(tmp_path: Path) -> None:
    left = died(tmp_path / "log").read_bytes().splitlines()
    assert list((tmp_path / "log").glob("*.lock"))
    with opened(tmp_path / "log") as ledger:
        found = world.records(tmp_path / "log")
        recovered = [one["recovered"] for one in found if one["event"] == "recovered"]
        assert recovered == [
            {
                "run": "killed",
                "records": 22,
                "last": leaf_hash(left[-1]).hex(),
                "tornBytes": 0,
                "suspect": False,
                "unfinished": [{"requestId": "request-open", "seq": 21, "outcome": "in_doubt"}],
            }
        ]
        assert world.check(tmp_path / "log", ledger).good
    with opened(tmp_path / "log"):
        again = [one for one in world.records(tmp_path / "log") if one["event"] == "recovered"]
        assert len(again) == 1, "told once"


def test_a_line_torn_at_any_byte_is_recovered_from(tmp_path: Path) -> None:
    """A power cut may leave any part of the last record; what stands before it is good."""
    segment = died(tmp_path / "log")
    whole = segment.read_bytes()
    start_of_last = whole[:-1].rfind(b"\n") + 1
    for cut in range(start_of_last, len(whole), 37):
        copy = tmp_path / f"cut-{cut}"
        shutil.copytree(tmp_path / "log", copy)
        os.truncate(copy / segment.name, cut)
        with opened(copy) as ledger:
            ledger.append(OUTCOME)
        recovered = next(one["recovered"] for one in records_of_last_run(copy, ledger.run) if "recovered" in one)
        assert (recovered["records"], recovered["tornBytes"]) == (21, cut - start_of_last)
        report = world.check(copy, ledger)
        assert report.good
        assert sorted(run.torn_bytes for run in report.runs) == [0, cut - start_of_last]


def records_of_last_run(directory: Path, run: str) -> list[dict[str, object]]:
    found = []
    for line in world.lines(directory):
        one = json.loads(line)
        if one["run"] == run:
            found.append(one)
    return found


def test_a_dead_run_is_recovered_by_one_of_two_that_start_at_once(tmp_path: Path) -> None:
    died(tmp_path / "log")
    with opened(tmp_path / "log") as one, opened(tmp_path / "log"):
        assert sum(found["event"] == "recovered" for found in world.records(tmp_path / "log")) == 1
        assert world.check(tmp_path / "log", one).good


def test_an_outcome_that_could_not_be_written_is_told_at_the_next_start(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        ledger.append(numbered(INTENT, "lost"))
    with opened(tmp_path / "log"):
        recovered = next(one["recovered"] for one in world.records(tmp_path / "log") if one["event"] == "recovered")
    assert recovered["unfinished"] == [{"requestId": "request-lost", "seq": 1, "outcome": "in_doubt"}]


def test_a_flood_is_not_hidden_behind_a_log_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "log") as ledger:
        monkeypatch.setattr(os, "write", world.no_space)
        for number in range(50):
            with pytest.raises(LedgerUnavailable):
                ledger.append_refusal(numbered(world.ANONYMOUS, number))
        monkeypatch.undo()
        assert ledger.append_refusal(numbered(world.ANONYMOUS, "after"))
    for number in range(50):
        with pytest.raises(LedgerUnavailable, match="closed"):
            ledger.append_refusal(numbered(world.ANONYMOUS, number))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_ever_for_a_keeper_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise MemoryError

    async def scenario(ledger: local.LocalLedger) -> None:
        with pytest.raises(LedgerUnavailable):
            await asyncio.wait_for(ledger.durable(ledger.append(INTENT)), world.PATIENCE_S)

    ledger = world.start(tmp_path / "log")
    monkeypatch.setattr(files, "sync_data", broken)
    asyncio.run(scenario(ledger))
    monkeypatch.undo()
    ledger.close()


def test_an_effect_is_refused_when_the_disk_does_not_answer_and_goes_on_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_thread, "STUCK_SECONDS", 0.05)
    answers = threading.Event()
    real = files.sync_data
    ledger = world.start(tmp_path / "log", rules=world.QUIET)
    monkeypatch.setattr(files, "sync_data", lambda descriptor: answers.wait(world.PATIENCE_S) and real(descriptor))
    place = ledger.append(world.numbered(INTENT, 1))
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        asyncio.run(ledger.durable(place))
    until(lambda: not ledger.probe(), "readiness says so")
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        asyncio.run(ledger.durable(place))
    assert ledger._sync_thread._waiters == [], "nobody waits any more"
    monkeypatch.setattr(sync_thread, "STUCK_SECONDS", world.PATIENCE_S)
    answers.set()
    until(ledger.probe, "it answers again")
    asyncio.run(ledger.durable(place))
    ledger.append(world.numbered(OUTCOME, 1))
    ledger.close()
