"""The newest checkpoint of each run, kept beside the log's key: an attacker who can only write to the log cannot roll these back.

A checkpoint is kept when the log is on disk that far, so a log that is shorter was cut. What is kept of a run that is over
goes into the first record of the next one, and is forgotten here: from then on the log itself remembers that run. So there
are as many files as runs that go on, and those that ended since the last start.

    audit.key                            the log's key
    audit.tips/4f0c1d.../9f60b33d1d...   a directory for each place that a log of this key has; a signed note for each run
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from toolgate.kit import note
from toolgate.ledger import files

DIRECTORY: Final = "audit.tips"
"""Beside the key file."""
_PLACE_DIGITS: Final = 16
"""Of the digest of a log's path: a log that begins anew elsewhere is not missing runs."""
MAX_RUNS: Final = 1000
"""Runs that one first record takes over: 150 bytes each. What is left waits for the start after it."""


class Tips:
    """Signed notes in a directory, one file a run. Only whoever may use the log's key may write there."""

    def __init__(self, key_file: Path, log: Path) -> None:
        place = sha256(os.fsencode(log.resolve())).hexdigest()[:_PLACE_DIGITS]
        self._directory = key_file.parent / DIRECTORY / place

    def keep(self, run: str, text: str) -> None:
        """Raises: OSError. Side effects: makes the directory."""
        self._directory.parent.mkdir(mode=0o700, exist_ok=True)
        files.make_directory(self._directory)
        files.write_file(self._directory / run, text, synced=False)

    def read(self, trusted: Sequence[note.Verifier]) -> Mapping[str, note.Checkpoint]:
        """By run. One that is not whole after a power cut, or of another key, says nothing. Raises: OSError."""
        found = {}
        for path in self._files():
            with suppress(note.NoteError, UnicodeDecodeError, FileNotFoundError):
                found[path.name] = note.open_checkpoint(_text(path), trusted)
        return found

    def forget(self, run: str, known: note.Checkpoint, trusted: Sequence[note.Verifier]) -> None:
        """Unless a newer one is kept by now. Raises: OSError."""
        path = self._directory / run
        with suppress(note.NoteError, UnicodeDecodeError, FileNotFoundError):
            if note.open_checkpoint(_text(path), trusted) == known:
                path.unlink()

    def drop(self, run: str) -> None:
        """The run is deleted on purpose. Raises: OSError."""
        (self._directory / run).unlink(missing_ok=True)

    def _files(self) -> Iterator[Path]:
        if self._directory.is_dir():
            known = sorted(path for path in self._directory.iterdir() if files.is_run_id(path.name))
            yield from known[:MAX_RUNS]


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(note.MAX_NOTE_BYTES + 1).decode()
