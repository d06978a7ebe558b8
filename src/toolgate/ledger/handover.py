"""The log's key changes by a record: the old key and the new one sign that the log goes on under the new one (ADR-0029).

The record stands in the last run that a rotation signs with the old key. Every run of a later key carries the notes of all
handovers so far in its first record, so whoever trusts one key of the log can follow it to every other.

    audit.key             the key that signs now
    audit.key.next        the one that is to follow, while it is being handed over
    audit.handovers       the notes, one for each change of the key
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from msgspec import Struct

from toolgate.errors import LedgerUnavailable, StartRefused
from toolgate.kit.note import NoteError, NoteSigner, Verifier, open_note, text_of
from toolgate.ledger import files, record, recovery
from toolgate.ledger.lines import SegmentDamaged, lines_in, tail_of

if TYPE_CHECKING:
    from toolgate.ledger.files import RunName, Segment
    from toolgate.ledger.local import LocalLedger

NOTES_FILE: Final = "audit.handovers"
"""Beside the key."""
MAX_HANDOVERS: Final = 200
"""Notes that a first record carries, some 500 bytes each: a key that changes every month lasts for sixteen years."""
MAX_LISTED: Final = 10_000
"""Runs of one key that a handover lists: its line stays one that everyone reads."""
WAIT_S: Final = 10.0
"""For others who begin a run or change the key, which takes them some milliseconds."""
PAUSE_S: Final = 0.01
_TITLE: Final = "toolgate key handover"


class Handover(Struct, frozen=True):
    """What both keys sign."""

    former: Verifier
    successor: Verifier
    run: str
    """In which it stands."""
    statement: str
    """Digest of the record itself, up to the note."""

    def text(self) -> str:
        lines = (
            _TITLE,
            f"from {self.former}",
            f"to {self.successor}",
            f"run {self.run}",
            f"statement {self.statement}",
        )
        return "".join(f"{line}\n" for line in lines)

    def signed(self, former: NoteSigner, successor: NoteSigner) -> str:
        return successor.cosign(former.sign(self.text()))

    @classmethod
    def open(cls, note: str) -> Handover:
        """Raises: NoteError: not a handover, or not signed by both of its keys."""
        lines = text_of(note).split("\n")
        names = ("from ", "to ", "run ", "statement ")
        if len(lines) != 6 or lines[0] != _TITLE or not all(map(str.startswith, lines[1:], names)):
            raise NoteError("not a handover of a log's key")
        former, successor, run, statement = (
            line.removeprefix(name) for line, name in zip(lines[1:], names, strict=False)
        )
        found = cls(Verifier.parse(former), Verifier.parse(successor), run, statement)
        both = {found.former, found.successor}
        if len(both) != 2 or set(open_note(note, both)[1]) != both:
            raise NoteError("a handover is signed by the old key and by the new one")
        return found


def opened(notes: Iterable[Any]) -> list[Handover]:
    """Those that are good; what is not leads nowhere."""
    found = []
    for note in notes:
        with suppress(NoteError):
            if isinstance(note, str):
                found.append(Handover.open(note))
    return found


def followed(trusted: Sequence[Verifier], handovers: Iterable[Handover]) -> list[Verifier]:
    """The keys that these lead to, forwards and backwards: each of the two has signed that the other is the log's."""
    keys, left = list(trusted), list(handovers)
    while reached := [handover for handover in left if handover.former in keys or handover.successor in keys]:
        left = [handover for handover in left if handover not in reached]
        keys += [key for handover in reached for key in (handover.former, handover.successor) if key not in keys]
    return keys


def named_in(segments: Sequence[Segment]) -> list[Any]:
    """The notes that a run's first record carries. Whether they are good is for `opened`. Raises: OSError."""
    with suppress(SegmentDamaged):
        for lines, _ in lines_in(segments[0].path):
            for line in lines[:1]:
                found = (record.read(line) or {}).get("handovers") if b'"handovers":' in line else None
                return found[:MAX_HANDOVERS] if isinstance(found, list) else []
    return []


def keys_of(directory: Path, trusted: Sequence[Verifier], notes: Iterable[Any] = ()) -> list[Verifier]:
    """Every key of a log that can be followed from one that is trusted. Raises: OSError."""
    named = [note for segments in files.runs_in(directory).values() for note in named_in(segments)]
    return followed(trusted, opened(dict.fromkeys([*notes, *named])))


def kept_notes(key_file: Path) -> list[str]:
    """Of the handovers that led to this key. Raises: OSError."""
    try:
        found = orjson.loads((key_file.parent / NOTES_FILE).read_bytes())
    except FileNotFoundError:
        return []
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, list) or not all(isinstance(note, str) for note in found):
        raise StartRefused(
            f"{NOTES_FILE} beside the audit log's key is damaged.\nRestore it from the backup of the home: without it nobody "
            "can follow the log from an earlier key."
        )
    return found


# Changing the key ------------------------------------------------------------------------------------------------------


def rotate(ledger: LocalLedger, directory: Path, key_file: Path) -> Handover:
    """Hand over from the key that signs now to a new one. Runs that go on end under the old key.

    Raises: StartRefused: it cannot be done now; LedgerUnavailable, OSError.
    Side effects: a record; the key file, whose old content is gone.
    """
    with held(directory, exclusive=True):
        former = files.load_or_create_key(key_file, ledger.verifier.name)
        if former.verifier != ledger.verifier:
            raise StartRefused("The audit log's key was just changed by somebody else.\nTry again.")
        notes = kept_notes(key_file)
        if len(notes) >= MAX_HANDOVERS:
            raise StartRefused(f"The key was changed {MAX_HANDOVERS} times.\nBegin a new log in a new directory.")
        listed = _last_checkpoints(directory, former.verifier, ledger.run)
        successor = files.create_key(_next(key_file), former.verifier.name)
        note = ledger.hand_over(former, successor, listed)
        _settle(key_file, [*notes, note])
    return Handover.open(note)


def finish(directory: Path, key_file: Path) -> None:
    """What a rotation that was cut short left: it is done if its record was written, else it has not happened.

    Raises: StartRefused, OSError.
    """
    if not _next(key_file).exists():
        return
    successor = files.load_or_create_key(_next(key_file), "").verifier
    note = _written(files.runs_in(directory), successor)
    if note is None:
        _next(key_file).unlink()
    else:
        _settle(key_file, list(dict.fromkeys([*kept_notes(key_file), note])))


@contextmanager
def held(directory: Path, *, exclusive: bool = False) -> Iterator[None]:
    """While a run begins nobody changes the key, and the other way round.

    Raises: LedgerUnavailable: it takes too long; OSError.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        due = time.monotonic() + WAIT_S
        while not _is_locked(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH):
            if time.monotonic() > due:
                raise LedgerUnavailable("somebody else begins a run or changes the key, and does not come to an end")
            time.sleep(PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _settle(key_file: Path, notes: Sequence[str]) -> None:
    files.write_file(key_file.parent / NOTES_FILE, orjson.dumps(notes).decode())
    _next(key_file).replace(key_file)
    files.sync_directory(key_file.parent)


def _next(key_file: Path) -> Path:
    return key_file.with_name(f"{key_file.name}.next")


def _last_checkpoints(directory: Path, signed_by: Verifier, but: str) -> list[dict[str, Any]]:
    """Of every run of this key, besides one: no other run may be of this key from now on. Raises: StartRefused, OSError."""
    found = []
    for name, segments in files.runs_in(directory).items():
        last = None if name.id == but else recovery.last_checkpoint_of(segments, [signed_by])
        if last is not None:
            found.append({"run": name.id, "size": last["size"], "root": last["root"]})
    if len(found) > MAX_LISTED:
        raise StartRefused(
            f"The log has {len(found)} runs of this key, and a handover lists at most {MAX_LISTED}.\n"
            "Delete old runs by ledger.retention_days, or begin a new log in a new directory."
        )
    return found


def _written(runs: Mapping[RunName, Sequence[Segment]], successor: Verifier) -> str | None:
    """The note of the record that hands over to this key, if there is one. Raises: OSError."""
    for segments in reversed(list(runs.values())):
        with suppress(SegmentDamaged):
            for line in tail_of(segments[-1].path, recovery.TAIL_BYTES).split(b"\n"):
                note = (record.read(line) or {}).get("note") if record.is_handover(line) else None
                if any(found.successor == successor for found in opened([note])):
                    return str(note)
    return None
