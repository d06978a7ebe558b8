"""Someone who can write the log's directory and has no key: whatever they cut, remove, forge or pretend is named."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.homes import ROOT
from tests.ledger import world
from tests.ledger.world import OUTCOME
from toolgate.cli.main import main
from toolgate.kit import note
from toolgate.kit.merkle import leaf_hash
from toolgate.kit.note import Verifier
from toolgate.ledger import LOG_PATH, Anchors, LocalLedger, Rules, files, record
from toolgate.ledger.reading.verify import LogVerification, verify
from toolgate.ledger.tips import Tips

RULES = Rules(checkpoint_seconds=3600.0, checkpoint_records=4)
OLDER = ROOT / "tests" / "fixtures" / "ledger" / "older"
DIES = """
import os, signal, sys
from pathlib import Path
from tests.ledger import world, test_tamper

ledger = world.start(Path(sys.argv[1]), world.later(10), run_id="killed", rules=test_tamper.RULES)
for number in range(6):
    ledger.append(world.numbered(world.OUTCOME, f"killed-{number}"))
ledger._sync_thread.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass
class Log:
    """A log, and what its owner has beside the key."""

    directory: Path
    verifier: Verifier
    reports: list[LogVerification] = field(default_factory=list)

    @property
    def tips(self) -> Tips:
        return Tips(self.directory.parent / "audit.key", self.directory)

    def at_home(self) -> LogVerification:
        return verify(self.directory, [self.verifier], anchors=self.tips.read([self.verifier]).values())

    def elsewhere(self) -> LogVerification:
        return verify(self.directory, [self.verifier])

    def segment(self, run: str) -> Path:
        return next(path for path in world.segments(self.directory) if f".{run}." in path.name)

    def restarted(self) -> Log:
        world.written(self.directory, 1, clock=world.later(1000), run_id="restarted")
        return self


def finished(tmp_path: Path, *runs: str, count: int = 10) -> Log:
    """Runs that ended well, one after the other."""
    for number, run in enumerate(runs or ("only",)):
        ledger = world.written(tmp_path / "log", count, clock=world.later(number), run_id=run, rules=RULES)
    return Log(tmp_path / "log", ledger.verifier)


def texts(report: LogVerification) -> str:
    return "\n".join(str(fault) for fault in report.faults)


def forge(path: Path, change: Callable[[bytes], bytes] = lambda line: line) -> None:
    """One more record at the end, with every hash right."""
    lines = path.read_bytes().splitlines()
    body = change(next(line for line in lines if b'"event":"outcome"' in line)).rpartition(b',"run":')[0] + b"}"
    run = path.name.split(".")[1]
    added = record.with_chain(body, run, len(lines), leaf_hash(lines[-1]).hex())
    path.write_bytes(b"".join(line + b"\n" for line in [*lines, added]))


# F17: a lock file alone proves nothing ------------------------------------------------------------------------------


def test_f17_a_cut_run_with_a_lock_file_that_nobody_holds_is_a_fault(tmp_path: Path) -> None:
    log = finished(tmp_path)
    world.cut(log.segment("only"), 6)
    world.lock_of(log.segment("only")).touch(mode=0o600)
    assert "killed or cut: it ends without a last checkpoint" in texts(log.elsewhere())
    assert "cut: an anchor saw" in texts(log.at_home())


def test_f17_the_next_start_does_not_vouch_for_a_cut_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = finished(tmp_path)
    world.cut(log.segment("only"), 6)
    world.lock_of(log.segment("only")).touch(mode=0o600)
    log.restarted()
    assert "run only of the audit log is cut; see: toolgate audit verify" in caplog.messages
    for report in (log.elsewhere(), log.at_home(), log.elsewhere()):
        assert "run only: cut: run restarted saw its checkpoint of 13 records" in texts(report)


def test_f17_forged_records_behind_the_last_checkpoint_are_found_after_a_restart_too(tmp_path: Path) -> None:
    log = finished(tmp_path)
    segment = log.segment("only")
    world.cut(segment, len(segment.read_bytes().splitlines()) - 1)
    forge(segment, lambda line: line.replace(b'"id":"k1"', b'"id":"victim"'))
    world.lock_of(segment).touch(mode=0o600)
    assert not log.elsewhere().good
    assert not log.at_home().good
    log.restarted()
    assert not log.elsewhere().good
    assert not log.at_home().good


def test_f17_a_removed_run_is_missed_the_newest_at_home_and_after_a_restart_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = finished(tmp_path, "first", "second", "third")
    copy = Log(shutil.copytree(tmp_path / "log", tmp_path / "copy"), log.verifier)
    copy.segment("second").unlink()
    assert "run second: run third saw this run, and it is missing" in texts(copy.elsewhere())
    log.segment("third").unlink()
    assert "run third: an anchor knows this run, and it is missing" in texts(log.at_home())
    assert log.elsewhere().good, "what only the newest run knew is not known elsewhere: that takes an anchor"
    log.restarted()
    assert "run third of the audit log is missing" in caplog.text
    assert "run third: run restarted saw this run, and it is missing" in texts(log.elsewhere())


def test_f17_runs_that_began_in_the_same_moment_are_all_remembered(tmp_path: Path) -> None:
    with world.opened(tmp_path / "log", run_id="one") as one, world.opened(tmp_path / "log", run_id="other"):
        one.append(OUTCOME)
    world.written(tmp_path / "log", 1, run_id="next", clock=world.later(10))
    log = Log(tmp_path / "log", one.verifier)
    assert log.elsewhere().good
    for run in ("one", "other"):
        copy = Log(shutil.copytree(tmp_path / "log", tmp_path / run), one.verifier)
        copy.segment(run).unlink()
        assert "saw this run, and it is missing" in texts(copy.elsewhere())


def test_f17_only_runs_that_go_on_are_kept_beside_the_key(tmp_path: Path) -> None:
    log = finished(tmp_path, "first", "second")
    assert set(log.tips.read([log.verifier])) == {"second"}, "the first is in the second's first record"
    with world.opened(tmp_path / "log", run_id="third", clock=world.later(10)) as ledger:
        with world.opened(tmp_path / "log", run_id="fourth", clock=world.later(20)):
            assert set(log.tips.read([log.verifier])) == {"third", "fourth"}
        assert ledger.run == "third"
        assert log.at_home().good
    assert set(log.tips.read([log.verifier])) == {"third", "fourth"}
    assert log.at_home().good


HOLDS = """
import fcntl, sys
stream = open(sys.argv[1])
fcntl.flock(stream, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_f17_a_run_goes_on_while_a_process_holds_its_lock_and_no_longer(tmp_path: Path) -> None:
    with world.opened(tmp_path / "log", run_id="mine") as ledger:
        ledger.append(OUTCOME)
        log = Log(shutil.copytree(tmp_path / "log", tmp_path / "copy"), ledger.verifier)
        assert world.check(tmp_path / "log", ledger).runs[0].state == "running"
    lock = world.lock_of(log.segment("mine"))
    command = [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert (log.elsewhere().good, log.elsewhere().runs[0].state) == (True, "running")
        process.kill()
    assert lock.exists()
    assert (log.elsewhere().good, log.elsewhere().runs[0].state) == (False, "unknown")


def test_f17_a_process_that_holds_a_lock_for_a_cut_run_deceives_nobody_who_has_the_key(tmp_path: Path) -> None:
    log = finished(tmp_path)
    segment = log.segment("only")
    for keep in (len(segment.read_bytes().splitlines()) - 1, 6):
        world.cut(segment, keep)
        lock = files.Lock.create(world.lock_of(segment))
        assert "cut: an anchor saw 14 records" in texts(log.at_home())
        lock.release(finished=True)


def test_f17_asking_whether_a_lock_is_held_keeps_no_start_from_a_dead_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stamp.run.lock"
    path.touch()
    with path.open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert not files.is_held(path)
        monkeypatch.setattr(files.time, "sleep", lambda _: fcntl.flock(asking, fcntl.LOCK_UN))
        (name, lock), *others = files.dead_runs(tmp_path)
    assert (str(name), others) == ("stamp.run", [])
    assert files.is_held(path)
    lock.release(finished=True)
    assert not files.is_held(path)


def test_f17_a_killed_run_is_a_fault_until_a_start_found_it_and_cannot_be_changed_after(tmp_path: Path) -> None:
    world.python(DIES, tmp_path / "log", check=False)
    log = Log(tmp_path / "log", Verifier.parse((tmp_path / "log" / files.PUBLIC_KEY).read_text()))
    assert "run killed: killed or cut" in texts(log.at_home())
    log.restarted()
    assert log.at_home().good
    assert {one.name.id: one.state for one in log.at_home().runs} == {"killed": "recovered", "restarted": "closed"}
    segment = log.segment("killed")
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b"request-killed-5", b"request-killed-X"))
    assert "cut or changed: run restarted found it dead with 8 records" in texts(log.elsewhere())
    segment.write_bytes(whole)
    world.cut(segment, 7)
    assert "found it dead with 8 records" in texts(log.elsewhere())
    segment.write_bytes(whole)
    forge(segment)
    assert "found it dead with 8 records" in texts(log.elsewhere())
    segment.write_bytes(whole)
    world.cut(segment, 7)
    world.lock_of(segment).touch(mode=0o600)
    world.written(log.directory, 1, clock=world.later(2000), run_id="later")
    assert "run restarted found it dead with 8 records" in texts(log.elsewhere()), "whatever a later start finds"


def test_f17_one_run_alone_without_a_last_word_is_not_called_good(tmp_path: Path) -> None:
    log = finished(tmp_path)
    world.cut(log.segment("only"), 6)
    name = files.run_of_segment(log.segment("only").name)
    assert "when the whole log is verified" in texts(verify(log.directory, [log.verifier], only=name))


def test_f17_a_run_made_up_without_the_key_vouches_for_nothing(tmp_path: Path) -> None:
    log = finished(tmp_path)
    world.cut(log.segment("only"), 6)
    last = leaf_hash(log.segment("only").read_bytes().splitlines()[-1]).hex()
    body = record.recovered_body(0.0, {"run": "only", "records": 6, "last": last})
    made_up = log.directory / "20990101T000000Z.made-up.001.jsonl"
    made_up.write_bytes(record.with_chain(body, "made-up", 0, None) + b"\n")
    report = log.elsewhere()
    assert "run made-up: the run does not begin with a signed checkpoint" in texts(report)
    assert "run only: killed or cut" in texts(report)


def test_f17_what_a_run_says_of_a_dead_one_counts_when_it_is_signed(tmp_path: Path) -> None:
    log = finished(tmp_path, "cut")
    with world.opened(tmp_path / "log", run_id="live", clock=world.later(10), rules=RULES):
        world.cut(log.segment("cut"), 6)
        last = leaf_hash(log.segment("cut").read_bytes().splitlines()[-1]).hex()
        lines = log.segment("live").read_bytes().splitlines()
        body = record.recovered_body(0.0, {"run": "cut", "records": 6, "last": last})
        forged = record.with_chain(body, "live", len(lines), leaf_hash(lines[-1]).hex())
        with log.segment("live").open("ab") as stream:
            stream.write(forged + b"\n")
        assert not [fault for fault in log.elsewhere().faults if fault.run == "live"], "it cannot be told from ours yet"
        assert "run cut: killed or cut" in texts(log.elsewhere())


def test_f17_a_second_copy_of_a_run_does_not_stand_in_for_a_cut_one(tmp_path: Path) -> None:
    log = finished(tmp_path)
    segment = log.segment("only")
    shutil.copy(segment, segment.with_name("20990101T000000Z.only.001.jsonl"))
    world.cut(segment, 6)
    assert "this run is there twice" in texts(log.elsewhere())
    assert "killed or cut" in texts(log.elsewhere())


def test_f17_a_log_that_was_emptied_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLGATE_HOME", str(tmp_path))
    log, key = tmp_path / "runs" / LOG_PATH, tmp_path / "secrets" / "audit.key"
    world.written(log, 3, key_file=key, run_id="gone")
    assert main(["audit", "verify"]) == 0
    world.segments(log)[0].unlink()
    assert main(["audit", "verify"]) == 1
    assert "run gone: an anchor knows this run, and it is missing" in capsys.readouterr().out
    assert main(["audit", "verify", str(shutil.copytree(log, tmp_path / "copy", symlinks=True))]) == 1
    assert "nothing was verified" in capsys.readouterr().err


def test_nothing_is_kept_beside_the_key_that_the_disk_may_still_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.opened(tmp_path / "log", run_id="mine", rules=RULES) as ledger:
        log = Log(tmp_path / "log", ledger.verifier)
        first = log.tips.read([ledger.verifier])["mine"]
        assert first.size == 0
        synced = threading.Event()
        monkeypatch.setattr(files, "sync_data", lambda _: synced.wait(world.PATIENCE_S))
        for number in range(5):
            ledger.append(world.numbered(OUTCOME, number))
        ledger._sync_thread.keep_newest(4)
        assert log.tips.read([ledger.verifier])["mine"] == first, "the checkpoint is record 5"
        ledger._sync_thread.keep_newest(5)
        assert log.tips.read([ledger.verifier])["mine"].size == 5
        synced.set()


def test_a_key_directory_that_cannot_be_written_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.written(tmp_path / "log", 1)
    shutil.rmtree(tmp_path / "audit.tips")
    (tmp_path / "audit.tips").write_text("in the way")
    ledger = world.written(tmp_path / "log", 30, clock=world.later(5), rules=RULES)
    assert caplog.text.count("audit.tips beside the log's key cannot be written") == 1
    assert world.check(tmp_path / "log", ledger).good


def test_what_a_dead_run_calls_a_checkpoint_is_copied_to_an_anchor_only_if_it_is_one(tmp_path: Path) -> None:
    world.python(DIES, tmp_path / "log", check=False)
    segment = world.segments(tmp_path / "log")[0]
    lines = segment.read_bytes().splitlines()
    stated = record.statement(0.0, size=len(lines), root=bytes(32), more={})
    forged = record.with_chain(record.signed_body(stated, "forged\n"), "killed", len(lines), "00" * 32)
    segment.write_bytes(b"".join(line + b"\n" for line in [*lines, forged]))
    kept = tmp_path / "elsewhere.txt"
    world.written(tmp_path / "log", 1, clock=world.later(20), anchors=Anchors(file=kept))
    assert "forged" not in kept.read_text()


# F26: nothing in a checkpoint can be edited unseen -------------------------------------------------------------------


def edit_last(path: Path, change: Callable[[bytes], bytes]) -> None:
    *others, last = path.read_bytes().splitlines(keepends=True)
    assert change(last) != last
    path.write_bytes(b"".join([*others, change(last)]))


def add_signature(line: bytes) -> bytes:
    stranger = note.NoteSigner("witness", bytes(32)).sign("anything\n").rpartition("\n\n")[2]
    return line.replace(b'\\n"', b"\\n" + stranger.encode().replace(b"\n", b"\\n") + b'"')


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "time": lambda line: re.sub(rb'"ts":"20\d\d', b'"ts":"2019', line),
    "a field more": lambda line: line.replace(b'"final":true', b'"final":true,"note2":"forged"'),
    "a field twice": lambda line: line.replace(b'"final":true', b'"final":true,"final":true'),
    "a count": lambda line: line.replace(b'"final":true', b'"final":true,"suppressed":1'),
    "no end": lambda line: line.replace(b',"final":true', b""),
    "a space": lambda line: line.replace(b'"final":true', b'"final": true'),
    "size": lambda line: line.replace(b'"size":', b'"size":1'),
    "root": lambda line: re.sub(
        rb'"root":"(.)', lambda found: b'"root":"' + (b"1" if found[1] == b"0" else b"0"), line
    ),
    "run": lambda line: re.sub(rb'"run":"[^"]*"', b'"run":"other"', line),
    "behind the note": lambda line: line.replace(b',"run":', b',"more":1,"run":'),
    "behind the run": lambda line: line.replace(b',"seq":', b',"more":1,"seq":'),
    "another signature": add_signature,
    "agent": lambda line: line.replace(b'"taskId":"envelope', b'"taskId":"xnvelope'),
}


@pytest.mark.parametrize("edit", EDITS)
def test_f26_an_edited_final_checkpoint_is_found(tmp_path: Path, edit: str) -> None:
    log = finished(tmp_path)
    edit_last(log.segment("only"), EDITS[edit])
    assert not log.elsewhere().good


def test_f26_a_run_cannot_be_ended_early(tmp_path: Path) -> None:
    log = finished(tmp_path)
    segment = log.segment("only")
    for keep in (1, 6, 11):
        copy = tmp_path / f"copy-{keep}"
        shutil.copytree(log.directory, copy)
        world.cut(copy / segment.name, keep)
        edit_last(copy / segment.name, lambda line: line.replace(b',"note":', b',"final":true,"note":'))
        assert not verify(copy, [log.verifier]).good


@pytest.mark.parametrize(
    "value", [b'{"x":1}', b"5", b'"x"', b"[]", b'{"run":1,"size":0,"root":""}', b'{"run":"a","size":"0","root":""}']
)
def test_f26_a_malformed_word_about_other_runs_is_named(tmp_path: Path, value: bytes) -> None:
    """In the older form too, where the first record is not signed whole."""
    log = finished(tmp_path)
    for directory, run, verifier in ((log.directory, "only", log.verifier), (older(tmp_path), "closed", older_key())):
        path = next(path for path in world.segments(directory) if f".{run}." in path.name)
        first = path.read_bytes().splitlines()[0].replace(b'"previous":null', b'"previous":' + value)
        path.write_bytes(first + b"\n")
        fault = verify(directory, [verifier]).faults[0]
        assert (fault.run, fault.line) == (run, 1)
        assert "malformed" in fault.text or "not what it signs" in fault.text


def test_f26_a_run_that_was_found_dead_is_missed_in_the_older_form_too(tmp_path: Path) -> None:
    directory = older(tmp_path)
    next(directory.glob("*.killed.001.jsonl")).unlink()
    first = next(directory.glob("*.after.001.jsonl"))
    assert json.loads(first.read_bytes().splitlines()[0])["previous"]["run"] == "killed"
    assert "run killed: run after found this run dead, and it is missing" in texts(verify(directory, [older_key()]))


def older(tmp_path: Path) -> Path:
    """A log as it was written before a checkpoint signed all of itself: one run closed, one killed, one after it."""
    return shutil.copytree(OLDER, tmp_path / "older", dirs_exist_ok=True)


def older_key() -> Verifier:
    return Verifier.parse((OLDER / files.PUBLIC_KEY).read_text())


def test_f26_logs_of_the_older_form_are_verified_as_far_as_they_were_signed(tmp_path: Path) -> None:
    report = verify(older(tmp_path), [older_key()])
    assert report.good
    assert {one.name.id: (one.state, one.whole) for one in report.runs} == {
        "closed": ("closed", False),
        "killed": ("recovered", False),
        "after": ("closed", False),
    }
    edits = {name: edit for name, edit in EDITS.items() if name not in ("time", "a count")}
    for edit in edits.values():
        path = next((older(tmp_path)).glob("*.after.001.jsonl"))
        edit_last(path, edit)
        assert not verify(path.parent, [older_key()]).good


# Whatever is done ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Runs that ended well in several segments, one that was killed, and one that found it."""
    place = tmp_path_factory.mktemp("several")
    log = place / "log"
    small = Rules(checkpoint_seconds=3600.0, checkpoint_records=4, segment_bytes=8_000)
    world.written(log, 24, clock=world.later(0), run_id="first", rules=small)
    world.written(log, 9, clock=world.later(5), run_id="second", rules=RULES)
    world.python(DIES, log, check=False)
    ledger = world.written(log, 9, clock=world.later(20), run_id="third", rules=RULES)
    world.written(log, 5, clock=world.later(30), run_id="fourth", rules=RULES)
    found = Log(log, ledger.verifier)
    assert found.at_home().good
    assert len(world.segments(log)) > 5
    return found


def not_empty(directory: Path) -> list[Path]:
    return [path for path in world.segments(directory) if path.stat().st_size]


def touch_locks(directory: Path, chance: random.Random) -> None:
    path = chance.choice(not_empty(directory))
    world.lock_of(path).touch(mode=0o600)


def cut_lines(directory: Path, chance: random.Random) -> None:
    path = chance.choice(not_empty(directory))
    world.cut(path, chance.randrange(len(path.read_bytes().splitlines())))


def cut_bytes(directory: Path, chance: random.Random) -> None:
    path = chance.choice(not_empty(directory))
    os.truncate(path, chance.randrange(path.stat().st_size))


def remove(directory: Path, chance: random.Random) -> None:
    chance.choice(not_empty(directory)).unlink()


def remove_run(directory: Path, chance: random.Random) -> None:
    run = chance.choice(not_empty(directory)).name.split(".")[1]
    for path in directory.glob(f"*.{run}.*"):
        path.unlink()


def swap_lines(directory: Path, chance: random.Random) -> None:
    path = chance.choice(not_empty(directory))
    lines = path.read_bytes().splitlines(keepends=True)
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    path.write_bytes(b"".join(lines))


def swap_files(directory: Path, chance: random.Random) -> None:
    one, other = chance.choice(not_empty(directory)), chance.choice(not_empty(directory))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def flip(directory: Path, chance: random.Random) -> None:
    path = chance.choice(not_empty(directory))
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut_and_end(directory: Path, chance: random.Random) -> None:
    """Back to a checkpoint, which is then called the last one."""
    path = chance.choice(not_empty(directory))
    lines = path.read_bytes().splitlines()
    signed = [number for number, line in enumerate(lines) if record.is_checkpoint(line)]
    if signed:
        world.cut(path, chance.choice(signed) + 1)
        data = path.read_bytes()
        start = data[:-1].rfind(b"\n") + 1
        path.write_bytes(data[:start] + data[start:].replace(b',"note":', b',"final":true,"note":'))


def add_record(directory: Path, chance: random.Random) -> None:
    paths = [path for path in not_empty(directory) if b'"event":"outcome"' in path.read_bytes()]
    if paths:
        forge(chance.choice(paths))


def move_in_time(directory: Path, chance: random.Random) -> None:
    path = chance.choice(not_empty(directory))
    path.rename(path.with_name(f"20{chance.randrange(10, 99)}0101T000000Z{path.name[16:]}"))


DEEDS = (
    touch_locks, cut_lines, cut_bytes, remove, remove_run, swap_lines, swap_files, flip, cut_and_end, add_record, move_in_time
)  # fmt: skip


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in world.segments(directory)}


def deeds_found(several: Log, place: Path, count: int, seed: int) -> None:
    """Each try: a few deeds on a copy. Good is said only of what no signature speaks against."""
    chance = random.Random(seed)
    tips = several.tips.read([several.verifier]).values()
    before = contents(several.directory)
    but_newest = {name: data for name, data in before.items() if ".fourth." not in name}
    for number in range(count):
        directory = place / f"{seed}-{number}"
        shutil.copytree(several.directory, directory, symlinks=True)
        done = [chance.choice(DEEDS) for _ in range(chance.randrange(1, 4))]
        for deed in done:
            if not_empty(directory):
                deed(directory, chance)
        after = contents(directory)
        names = f"seed {seed}, try {number}: {[deed.__name__ for deed in done]}"
        same = after == before
        assert verify(directory, [several.verifier], anchors=tips).good == same, names
        assert verify(directory, [several.verifier]).good == (same or after == but_newest), names
        if not same and after:
            restart(several, directory, place / f"{seed}-{number}.key")
            assert not verify(directory, [several.verifier]).good, f"{names}, and a restart"
        shutil.rmtree(directory)


def restart(several: Log, directory: Path, key_file: Path) -> LocalLedger:
    """The next start of the same server: it has the key, and what is kept beside it."""
    shutil.copy(several.directory.parent / "audit.key", key_file)
    tips = Tips(key_file, directory)
    for source in several.tips._directory.iterdir():
        tips.keep(source.name, source.read_text())
    return world.written(directory, 1, clock=world.later(10**6), key_file=key_file, rules=RULES)


def test_f17_whatever_is_cut_removed_swapped_or_pretended_verify_never_calls_it_good(
    several: Log, tmp_path: Path
) -> None:
    deeds_found(several, tmp_path, 40, seed=1)


@pytest.mark.guard
@pytest.mark.timeout(300)
def test_f17_many_more_random_deeds_are_never_called_good(several: Log, tmp_path: Path) -> None:
    deeds_found(several, tmp_path, 200, seed=2)


def test_the_first_record_after_a_cut_still_says_what_it_saw(tmp_path: Path) -> None:
    log = finished(tmp_path, "first", "second").restarted()
    found = [json.loads(line) for line in log.segment("restarted").read_bytes().splitlines()]
    assert [one["run"] for one in found[0]["seen"]] == ["second"]
