"""Tampering is found, and the first bad line named; a torn tail is not called tampering."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ledger import world
from tests.ledger.world import OUTCOME, StillClock, numbered, opened
from toolgate.kit import note
from toolgate.kit.note import Verifier
from toolgate.ledger import Anchors, LocalLedger, Rules, files, tips
from toolgate.ledger.reading.verify import LogVerification, read_anchors, verify

RULES = Rules(checkpoint_seconds=3600.0, checkpoint_records=16)


@dataclass
class Log:
    directory: Path
    segment: Path
    lines: list[bytes]
    verifier: Verifier

    def rewrite(self, lines: list[bytes]) -> LogVerification:
        return self.replace(b"".join(line + b"\n" for line in lines))

    def replace(self, data: bytes) -> LogVerification:
        self.segment.write_bytes(data)
        return verify(self.directory, [self.verifier])


@pytest.fixture
def log(tmp_path: Path) -> Log:
    ledger = world.written(tmp_path / "log", 60, rules=RULES)
    segment = world.segments(tmp_path / "log")[0]
    return Log(tmp_path / "log", segment, segment.read_bytes().splitlines(), ledger.verifier)


def test_an_untouched_log_is_good(log: Log) -> None:
    report = verify(log.directory, [log.verifier])
    assert report.good
    assert (report.runs[0].records, report.runs[0].covered, report.runs[0].final) == (
        len(log.lines),
        len(log.lines) - 1,
        True,
    )


def changed(line: bytes) -> bytes:
    return line.replace(b'"status":"ok"', b'"status":"error"')


@pytest.mark.parametrize(
    ("edit", "bad"),
    [
        (lambda lines: [*lines[:20], changed(lines[20]), *lines[21:]], 20),
        (lambda lines: [*lines[:20], lines[20].replace(b'"prev":"', b'"prev":"0')[:-2] + b'"}', *lines[21:]], 20),
        (lambda lines: [*lines[:20], *lines[21:]], 20),
        (lambda lines: [*lines[:20], lines[19], *lines[20:]], 20),
        (lambda lines: [*lines[:20], lines[21], lines[20], *lines[22:]], 20),
        (lambda lines: [*lines[:20], b"{}", *lines[20:]], 20),
        (lambda lines: [*lines[:20], b"", *lines[20:]], 20),
        (lambda lines: lines[1:], 0),
        (lambda lines: [*lines[:20], lines[20] + b" ", *lines[21:]], 20),
    ],
    ids=[
        "changed",
        "other hash",
        "deleted",
        "doubled",
        "swapped",
        "inserted",
        "empty line",
        "first deleted",
        "space added",
    ],
)
def test_the_first_bad_line_is_named(log: Log, edit: Callable[[list[bytes]], list[bytes]], bad: int) -> None:
    report = log.rewrite(edit(log.lines))
    assert not report.good
    fault = report.faults[0]
    assert (fault.seq, fault.file, fault.line) == (bad, log.segment.name, bad + 1)


def test_a_past_rewritten_with_all_its_hashes_is_found_by_the_next_checkpoint(log: Log) -> None:
    from toolgate.kit.merkle import leaf_hash
    from toolgate.ledger.record import with_chain

    lines = [*log.lines]
    lines[20] = changed(lines[20])
    for seq in range(21, len(lines)):
        body = lines[seq].rpartition(b',"run":')[0] + b"}"
        run = log.segment.name.split(".")[1]
        lines[seq] = with_chain(body, run, seq, leaf_hash(lines[seq - 1]).hex())
    fault = log.rewrite(lines).faults[0]
    assert "one of records 17 to 33 was changed" in fault.text


def test_a_log_signed_by_another_key_is_refused(log: Log) -> None:
    stranger = note.NoteSigner("toolgate/audit", bytes(32)).verifier
    assert "checkpoint is not good" in verify(log.directory, [stranger]).faults[0].text


@contextmanager
def held(path: Path) -> Iterator[None]:
    """As a server that runs holds its lock."""
    lock = files.Lock.create(path)
    try:
        yield
    finally:
        lock.release(finished=True)


def test_a_torn_tail_is_told_from_tampering(log: Log) -> None:
    whole = log.segment.read_bytes()
    assert "behind the end" in log.replace(whole + b'{"half').faults[0].text
    run = log.segment.name.rpartition(".001")[0]
    last = len(b"\n".join(log.lines[:-1])) + 1
    with held(log.directory / f"{run}.lock"):
        report = log.replace(whole[: last + 50])
        assert report.good
        assert (report.runs[0].torn_bytes, report.runs[0].state) == (50, "running")
    assert "no later run found it dead" in log.replace(whole[: last + 50]).faults[0].text


def test_records_added_behind_the_end_of_a_run_are_found(log: Log) -> None:
    """Without the key, and with every hash right: no checkpoint covers them, but the run had said its last word."""
    from toolgate.kit.merkle import leaf_hash
    from toolgate.ledger.record import with_chain

    body = log.lines[20].rpartition(b',"run":')[0] + b"}"
    run = log.segment.name.split(".")[1]
    added = with_chain(body, run, len(log.lines), leaf_hash(log.lines[-1]).hex())
    fault = log.rewrite([*log.lines, added]).faults[0]
    assert (fault.seq, fault.text) == (len(log.lines), "something was written behind the end of the run")


def random_edit(data: bytes, limit: int, chance: random.Random) -> bytes:
    """One change somewhere in the first `limit` bytes."""
    kind = chance.choice(["flip", "cut", "duplicate", "swap", "insert"])
    at = chance.randrange(limit)
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if kind == "insert":
        return data[:at] + bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9))) + data[at:]
    lines = data.split(b"\n")
    number = chance.randrange(data[:limit].count(b"\n"))
    if kind == "cut":
        if chance.random() < 0.5:
            return b"\n".join(lines[:number] + lines[number + 1 :])
        return data[:at] + data[min(limit, at + chance.randrange(1, 2000)) :]
    if kind == "duplicate":
        return b"\n".join([*lines[: number + 1], *lines[number:]])
    other = chance.randrange(data[:limit].count(b"\n"))
    lines[number], lines[other] = lines[other], lines[number]
    return b"\n".join(lines)


def edits_found(log: Log, count: int, seed: int) -> None:
    whole = log.segment.read_bytes()
    limit = len(b"\n".join(log.lines[:-1])) + 1
    chance = random.Random(seed)
    tried = 0
    while tried < count:
        edited = random_edit(whole, limit, chance)
        if edited == whole:
            continue
        tried += 1
        assert not log.replace(edited).good, f"seed {seed}, edit {tried} was not found"
    assert log.replace(whole).good


def test_random_edits_are_all_found(log: Log) -> None:
    edits_found(log, 300, seed=1)


@pytest.mark.guard
@pytest.mark.timeout(300)
def test_ten_thousand_random_edits_are_all_found(log: Log) -> None:
    edits_found(log, 10_000, seed=2)


def test_a_missing_segment_is_named_and_a_compressed_one_is_read(tmp_path: Path) -> None:
    rules = Rules(segment_bytes=65_536, checkpoint_seconds=3600.0)
    ledger = world.written(tmp_path / "log", 300, rules=rules)
    second = world.segments(tmp_path / "log")[1]
    with gzip.open(f"{second}.gz", "wb") as packed:
        packed.write(second.read_bytes())
    second.unlink()
    assert world.check(tmp_path / "log", ledger).good
    Path(f"{second}.gz").unlink()
    assert f"segment {second.name} is missing" in str(world.check(tmp_path / "log", ledger).faults[0])


def test_the_end_of_a_segment_cut_off_is_found(tmp_path: Path) -> None:
    ledger = world.written(tmp_path / "log", 300, rules=Rules(segment_bytes=65_536, checkpoint_seconds=3600.0))
    first = world.segments(tmp_path / "log")[0]
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    assert "torn in the middle" in world.check(tmp_path / "log", ledger).faults[0].text
    first.write_bytes(b"\n".join(whole.splitlines()[:-1]) + b"\n")
    assert "stands where" in world.check(tmp_path / "log", ledger).faults[0].text


def test_one_run_can_be_checked_alone(tmp_path: Path) -> None:
    first = world.written(tmp_path / "log", 5)
    second = world.written(tmp_path / "log", 5)
    bad = next(path for path in world.segments(tmp_path / "log") if first.run in path.name)
    bad.write_bytes(changed(bad.read_bytes()))
    reports = {one.name.id: one for one in world.check(tmp_path / "log", first).runs}
    assert reports[first.run].fault
    alone = world.check(tmp_path / "log", second, only=reports[second.run].name)
    assert alone.good
    assert len(alone.runs) == 1


def test_a_run_that_disappears_or_shrinks_is_missed_by_the_next(tmp_path: Path) -> None:
    world.written(tmp_path / "log", 5, run_id="first")
    second = world.written(tmp_path / "log", 5, clock=world.later(10))
    segment = world.segments(tmp_path / "log")[0]
    whole = segment.read_bytes()
    segment.unlink()
    assert "saw this run, and it is missing" in world.check(tmp_path / "log", second).faults[0].text
    segment.write_bytes(b"\n".join(whole.splitlines()[:-1]) + b"\n")
    assert any("saw its checkpoint" in one.text for one in world.check(tmp_path / "log", second).faults)


def anchored(tmp_path: Path) -> tuple[LocalLedger, Path]:
    """A run that is still going on, with every checkpoint copied to a file. Its id begins with 0, as one in sixteen does."""
    file = tmp_path / "elsewhere.txt"
    ledger = world.start(tmp_path / "log", rules=RULES, anchors=Anchors(file=file), run_id="0ee5e363af9eca7e")
    for number in range(40):
        ledger.append(numbered(OUTCOME, number))
    ledger.close()
    return ledger, file


def test_a_log_cut_back_to_an_earlier_checkpoint_is_found_with_an_anchor(tmp_path: Path) -> None:
    ledger, file = anchored(tmp_path)
    anchors = read_anchors(file.read_text(), [ledger.verifier])
    assert [one.size for one in anchors] == sorted({one.size for one in anchors})
    assert world.check(tmp_path / "log", ledger, anchors=anchors).good
    segment = world.segments(tmp_path / "log")[0]
    world.cut(segment, 18)
    with held(world.lock_of(segment)):
        assert world.check(tmp_path / "log", ledger).good, "without an anchor this looks like an earlier state"
        fault = world.check(tmp_path / "log", ledger, anchors=anchors).faults[0]
    assert "cut: an anchor saw" in fault.text


def test_a_log_rewritten_with_the_real_key_is_found_with_an_anchor(tmp_path: Path) -> None:
    ledger, file = anchored(tmp_path)
    anchors = read_anchors(file.read_text(), [ledger.verifier])
    shutil.rmtree(tmp_path / "log")
    shutil.rmtree(tmp_path / tips.DIRECTORY)  # who has the key can write beside it
    forged = world.written(tmp_path / "log", 50, run_id=ledger.run, rules=RULES, clock=world.later(5))
    assert world.check(tmp_path / "log", forged).good
    fault = world.check(tmp_path / "log", forged, anchors=anchors).faults[0]
    assert "the log was rewritten" in fault.text


def test_an_anchored_run_that_is_gone_is_missed(tmp_path: Path) -> None:
    ledger, file = anchored(tmp_path)
    anchors = read_anchors(file.read_text(), [ledger.verifier])
    world.segments(tmp_path / "log")[0].unlink()
    assert "an anchor knows this run" in world.check(tmp_path / "log", ledger, anchors=anchors).faults[0].text


def test_a_forged_anchor_is_refused(tmp_path: Path) -> None:
    ledger, file = anchored(tmp_path)
    with pytest.raises(note.NoteError):
        read_anchors(file.read_text().replace("run ", "run x", 1), [ledger.verifier])


def test_a_command_is_given_each_newest_checkpoint_and_no_key_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_API_KEY", "tg_secret")
    script = tmp_path / "anchor.sh"
    script.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment.txt\ncat > {tmp_path}/copied.txt\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    ledger = world.written(tmp_path / "log", 40, rules=RULES, anchors=Anchors(command=[str(script)]))
    last = note.open_checkpoint((tmp_path / "copied.txt").read_text(), [ledger.verifier])
    assert last.size == len(world.lines(tmp_path / "log")) - 1
    assert "TOOLGATE" not in (tmp_path / "environment.txt").read_text()


def test_an_anchor_that_does_not_work_delays_no_record_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.written(tmp_path / "log", 40, rules=RULES, anchors=Anchors(command=["/nonexistent/program"]))
    assert len(world.lines(tmp_path / "log")) > 40
    assert "checkpoints cannot be copied: FileNotFoundError" in caplog.messages
    assert not list((tmp_path / "log").glob("*.anchored"))


def age(directory: Path, run: str, days: float) -> None:
    for path in directory.glob(f"*.{run}.*.jsonl"):
        moment = StillClock().now - days * 86_400
        os.utime(path, (moment, moment))


def test_p8_old_runs_go_only_when_set_and_only_when_copied_elsewhere_and_the_log_says_who(tmp_path: Path) -> None:
    copied = {"anchors": Anchors(file=tmp_path / "elsewhere.txt")}
    keep = Rules(checkpoint_seconds=3600.0, retention_days=30)
    log = tmp_path / "log"
    world.written(log, 3, run_id="copied", **copied)
    world.written(log, 3, run_id="not-copied")
    world.written(log, 3, run_id="young", **copied)
    for run, days in (("copied", 40), ("not-copied", 40), ("young", 20)):
        age(log, run, days)
    world.written(log, 1, run_id="without")
    assert {path.name.split(".")[1] for path in world.segments(log)} == {"copied", "not-copied", "young", "without"}
    with opened(log, world.later(1), run_id="with", rules=keep) as ledger:
        assert {path.name.split(".")[1] for path in world.segments(log)} == {"not-copied", "young", "without", "with"}
        first = next(one for one in world.records(log) if one["run"] == "with")
        assert [one["run"] for one in first["retired"]] == ["copied"]
        acts = [one for one in world.records(log) if one["event"] == "act"]
    assert [(one["act"], one["stage"]) for one in acts] == [
        ("retention.delete", stage) for stage in ("intent", "outcome")
    ]
    for one in acts:  # P8: who, from where, and by which rule
        assert one["by"]["uid"] == os.getuid()
        assert one["from"] == {"host": socket.gethostname(), "way": "server start"}
        assert one["about"] == {"runs": ["copied"], "retention_days": 30}
    assert world.check(log, ledger).good


def test_a_run_that_died_can_be_retired_after_its_checkpoint_was_copied_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os,signal,sys\nfrom pathlib import Path\nfrom tests.ledger import world\n"
    code += "world.start(Path(sys.argv[1]), run_id='dead')\nos.kill(os.getpid(), signal.SIGKILL)"
    world.python(code, log, check=False)
    world.written(log, 1, run_id="next", clock=world.later(1), anchors=Anchors(file=tmp_path / "elsewhere.txt"))
    age(log, "dead", 40)
    keep = Rules(checkpoint_seconds=3600.0, retention_days=30)
    ledger = world.written(log, 1, clock=world.later(2), rules=keep)
    assert "dead" not in {path.name.split(".")[1] for path in world.segments(log)}
    assert world.check(log, ledger).good
