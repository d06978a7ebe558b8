"""The log's key changes: whoever has one of its keys can verify all of it, and a handover that is removed or forged is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ledger import world
from tests.ledger.world import OUTCOME, QUIET
from toolgate.cli.main import main
from toolgate.config import load_settings
from toolgate.errors import LedgerUnavailable, StartRefused
from toolgate.kit.note import NoteError, NoteSigner, Verifier
from toolgate.ledger import LOG_PATH, LocalLedger, files, handover, open_ledger
from toolgate.ledger.files import runs_in
from toolgate.ledger.handover import Handover, kept_notes, rotate
from toolgate.ledger.opening import open_for_server
from toolgate.ledger.reading import proofs
from toolgate.ledger.reading.verify import LogVerification, verify


class Log:
    """A log whose key was changed after its first run: runs `one`, `change` and `two`."""

    def __init__(self, folder: Path) -> None:
        self.directory, self.key_file = folder / "log", folder / "audit.key"
        self.seconds = 0
        self.first = self.written("one")
        self.keys = [self.first, self.changed("change")]
        self.written("two")

    def start(self, run: str) -> LocalLedger:
        self.seconds += 1
        return open_ledger(
            self.directory, clock=world.later(self.seconds), key_file=self.key_file, run_id=run, rules=QUIET
        )

    def written(self, run: str) -> Verifier:
        ledger = self.start(run)
        for number in range(3):
            ledger.append(world.numbered(OUTCOME, f"{run}-{number}"))
        ledger.close()
        return ledger.verifier

    def changed(self, run: str) -> Verifier:
        ledger = self.start(run)
        made = rotate(ledger, self.directory, self.key_file)
        ledger.close()
        return made.successor

    def segment(self, run: str) -> Path:
        return next(
            path for path in self.directory.glob("*.jsonl") if f".{run}." in path.name and not path.is_symlink()
        )

    def verify(self, key: Verifier | None = None, **more: Any) -> LogVerification:
        return verify(self.directory, [key or self.first], **more)

    def faults(self) -> list[str]:
        return [str(fault) for fault in self.verify().faults]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_an_auditor_with_the_first_key_alone_verifies_to_the_end(log: Log) -> None:
    log.changed("again")
    log.written("three")
    report = log.verify()
    assert report.faults == []
    assert [run.name.id for run in report.runs] == ["one", "change", "two", "again", "three"]
    assert len({run.signed_by for run in report.runs}) == 3


def test_an_auditor_with_the_newest_key_alone_verifies_from_the_beginning(log: Log) -> None:
    assert log.verify(log.keys[-1]).faults == []


def test_before_the_first_run_of_a_new_key_the_note_beside_it_leads_back(log: Log) -> None:
    newest = log.changed("again")
    assert not log.verify(newest).good, "the log itself does not know this key yet"
    assert log.verify(newest, handovers=kept_notes(log.key_file)).good
    assert log.verify().good


def test_one_run_can_be_verified_alone_with_the_first_key(log: Log) -> None:
    run = next(name for name in runs_in(log.directory) if name.id == "two")
    assert log.verify(only=run).good


def test_a_stranger_key_leads_nowhere(log: Log) -> None:
    stranger = NoteSigner("toolgate/audit", bytes(32)).verifier
    report = log.verify(stranger)
    assert len([run for run in report.runs if run.fault]) == 3


def test_a_server_that_runs_meanwhile_ends_under_the_old_key_and_is_good(log: Log) -> None:
    running = log.start("running")
    log.changed("again")
    running.append(world.numbered(OUTCOME, "later"))
    running.close()
    log.written("three")
    assert log.faults() == []


def test_the_next_start_remembers_runs_of_the_old_key_that_it_has_not_seen(log: Log) -> None:
    """What is kept beside the key of a run is signed with the key of that run."""
    running = log.start("running")
    log.changed("again")
    running.append(world.numbered(OUTCOME, "later"))
    running.close()
    log.written("three")
    log.segment("running").unlink()
    assert any("running" in fault and "missing" in fault for fault in log.faults())


def test_a_run_of_a_key_that_was_handed_over_is_named(log: Log) -> None:
    """Whoever has the old key may go on signing with it: nothing knows these runs."""
    thief = log.key_file.with_name("stolen.key")
    stolen = Log.__new__(Log)
    stolen.directory, stolen.key_file, stolen.seconds = log.directory, thief, 20
    shutil.copy(log.key_file, thief)
    log.changed("again")
    stolen.written("forged")
    assert log.faults() == ["run forged: it is of a key that was handed over in run again, which does not know it"]


def test_a_run_of_the_old_key_cannot_be_rewritten_with_that_key(log: Log) -> None:
    old = log.key_file.with_name("old.key")
    shutil.copy(log.key_file, old)
    log.written("victim")
    log.changed("again")
    name = log.segment("victim")
    name.unlink()
    stolen = Log.__new__(Log)
    stolen.directory, stolen.key_file, stolen.seconds = log.directory, old, 3
    ledger = stolen.start("victim")
    ledger.append(world.numbered(OUTCOME, "another"))
    ledger.close()
    assert any(fault.startswith("run victim: cut: run again saw") for fault in log.faults())


def test_a_key_that_was_handed_over_twice_is_named(log: Log) -> None:
    old = log.key_file.with_name("old.key")
    shutil.copy(log.key_file, old)
    log.changed("again")
    shutil.copy(old, log.key_file)
    log.changed("forged")
    assert "run forged: the key was handed over twice: run again did it, too" in log.faults()


def lines_changed(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Log], object]:
    def spoil(log: Log) -> None:
        path = log.segment("change")
        path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().splitlines())))

    return spoil


def is_handover(line: bytes) -> bool:
    return b'"event":"handover"' in line


REMOVED: dict[str, tuple[Callable[[Log], object], str]] = {
    "the record": (
        lines_changed(lambda lines: [line for line in lines if not is_handover(line)]),
        "run change: record 2 stands",
    ),
    "its run": (lambda log: log.segment("change").unlink(), "run change: run two saw this run, and it is missing"),
    "all from it on": (
        lines_changed(lambda lines: lines[:1]),
        "run change: killed or cut",
    ),
    "what it lists": (
        lines_changed(
            lambda lines: [
                line.replace(b'"run":"one"', b'"run":"0ne"') if is_handover(line) else line for line in lines
            ]
        ),
        "run change: the handover's fields are not what it signs",
    ),
    "a signature": (
        lines_changed(lambda lines: [without_signature(line) if is_handover(line) else line for line in lines]),
        "run change: the handover of the key is not good: a handover is signed by the old key and by the new one",
    ),
}


def without_signature(line: bytes) -> bytes:
    found = json.loads(line)
    note = found["note"]
    return line.replace(
        json.dumps(note, ensure_ascii=False).encode(), json.dumps(cut(note), ensure_ascii=False).encode()
    )


def cut(note: str) -> str:
    return "\n".join(note.split("\n")[:-2]) + "\n"


@pytest.mark.parametrize("what", REMOVED)
def test_what_is_removed_or_changed_of_a_handover_is_named(what: str, log: Log) -> None:
    spoil, said = REMOVED[what]
    spoil(log)
    assert any(said in fault for fault in log.faults()), log.faults()


def test_a_handover_that_one_key_signed_alone_is_none() -> None:
    former, successor = NoteSigner("toolgate/audit", bytes(32)), NoteSigner("toolgate/audit", bytes([1]) * 32)
    made = Handover(former.verifier, successor.verifier, "run", "00" * 32)
    assert Handover.open(made.signed(former, successor)) == made
    for note in (former.sign(made.text()), successor.sign(made.text()), made.signed(former, former)):
        with pytest.raises(NoteError, match="signed by the old key and by the new one"):
            Handover.open(note)
    itself = Handover(former.verifier, former.verifier, "run", "00" * 32)
    with pytest.raises(NoteError):
        Handover.open(itself.signed(former, former))
    for text in ("", "toolgate key handover\n", made.text() + "more\n", made.text().replace("run run", "ran run")):
        with pytest.raises(NoteError):
            Handover.open(successor.cosign(former.sign(text or "x\n")))


@pytest.mark.parametrize("key", [0, 1])
def test_a_proof_of_any_run_can_be_checked_with_either_key(log: Log, key: int) -> None:
    for request in ("request-one-1", "request-two-1"):
        proof = proofs.prove(log.directory, request)
        assert proofs.check(proof, [log.keys[key]])["requestId"] == request
        with pytest.raises(proofs.ProofError):
            proofs.check(proof, [NoteSigner("toolgate/audit", bytes(32)).verifier])
        with pytest.raises(proofs.ProofError):
            proofs.check(proof | {"handovers": "nonsense"}, [NoteSigner("toolgate/audit", bytes(32)).verifier])


def test_a_rotation_that_was_cut_short_before_its_record_has_not_happened(log: Log) -> None:
    files.create_key(log.key_file.with_name("audit.key.next"), "toolgate/audit")
    assert log.written("three") == log.keys[-1]
    assert not log.key_file.with_name("audit.key.next").exists()
    assert log.faults() == []


def test_a_rotation_that_was_cut_short_behind_its_record_is_finished_by_the_next_start(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    ledger = log.start("again")
    monkeypatch.setattr(handover, "_settle", killed)
    with pytest.raises(KeyboardInterrupt):
        rotate(ledger, log.directory, log.key_file)
    monkeypatch.undo()
    ledger.close()
    assert log.written("three") not in log.keys
    assert len(kept_notes(log.key_file)) == 2
    assert log.faults() == []


def test_nobody_begins_a_run_while_the_key_changes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "WAIT_S", 0.0)
    with handover.held(log.directory, exclusive=True), pytest.raises(StartRefused, match="does not come to an end"):
        log.start("three")
    with handover.held(log.directory):
        log.written("three")
        with pytest.raises(LedgerUnavailable), handover.held(log.directory, exclusive=True):
            pass


def test_of_two_rotations_at_once_the_second_is_refused(log: Log) -> None:
    slow = log.start("slow")
    log.changed("quick")
    with pytest.raises(StartRefused, match="just changed by somebody else"):
        rotate(slow, log.directory, log.key_file)
    slow.close()
    assert log.faults() == []


def test_notes_that_are_damaged_refuse_the_start(log: Log) -> None:
    log.key_file.with_name(handover.NOTES_FILE).write_text('{"a": 1}')
    with pytest.raises(StartRefused, match="Restore it from the backup"):
        log.start("three")


def test_the_command_changes_the_key_and_records_who_did_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    assert main(["init", str(home)]) == 0
    settings = load_settings(home, {}, {})
    first = home / "first.pub"
    first.write_text((home / "runs" / LOG_PATH / files.PUBLIC_KEY).read_text())
    capsys.readouterr()
    assert main(["audit", "rotate-key", "--home", str(home), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["from"] == first.read_text().strip()
    assert main(["audit", "verify", "--home", str(home)]) == 0, "with the new key, before a run of it"
    open_for_server(settings, world.StillClock()).close()
    assert (home / "runs" / LOG_PATH / files.PUBLIC_KEY).read_text().strip() == made["to"]
    for key in (first, home / "runs" / LOG_PATH / files.PUBLIC_KEY):
        assert main(["audit", "verify", str(home / "runs" / LOG_PATH), "--key", str(key)]) == 0
    capsys.readouterr()
    assert main(["audit", "tail", "--home", str(home), "--json"]) == 0
    acts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["audit", "tail", "--home", str(home)]) == 0
    assert "handover" in capsys.readouterr().out, "people see it, too"
    outcome = next(one for one in acts if one.get("act") == "audit.rotate_key" and one["stage"] == "outcome")
    assert (outcome["status"], outcome["by"] is not None) == ("ok", True)
    assert "PRIVATE" not in json.dumps(acts)
