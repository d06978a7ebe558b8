"""The directory of the log: names, segments, locks, the key file. What is in a segment is not known here.

    20261115T214325Z.9f60b33d1d9d95e7.001.jsonl    segments of one run, one run for each server start
    20261115T214325Z.9f60b33d1d9d95e7.lock         there while the run goes on; held by its process
    20261115T214325Z.9f60b33d1d9d95e7.anchored     the last checkpoint that was copied elsewhere
    20261115T214325Z.9f60b33d1d9d95e7.suspect      a sync failed: what was written last may not be on disk
    envelope_validation.latest.jsonl               link to the newest segment
    audit-log.pub                                  the newest key that verifies the checkpoints

A lock file that no process holds belongs to a run that died, or to nobody: anyone can make one. Locks are flock(2): they are
known on the machine where the server runs, and on others only as far as a network file system passes them on.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from toolgate.errors import StartRefused
from toolgate.kit import note

LOG_PATH: Final = Path("mcp_server", "envelope_validation")
"""Where the log is, below the directory of runs (ADR-0005)."""
LATEST: Final = "envelope_validation.latest.jsonl"
KEY_FILE: Final = "audit.key"
"""The log's signing key, in the settings' directory of secrets."""
PUBLIC_KEY: Final = "audit-log.pub"
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_ASKING_SECONDS: Final = 0.001
"""Longer than anyone takes to ask whether a lock is held."""
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SEGMENT: Final = re.compile(r"([0-9]{8}T[0-9]{6}Z)\.([A-Za-z0-9_-]{1,64})\.([0-9]{3,6})\.jsonl(\.gz)?")


class RunName(Struct, frozen=True, order=True):
    """`stamp.id`; runs sort by their start."""

    stamp: str
    id: str

    @classmethod
    def make(cls, wall: float, run_id: str) -> RunName:
        """Raises: StartRefused: the id cannot be part of a file name."""
        if not is_run_id(run_id):
            raise StartRefused("A run id has 1 to 64 letters, digits, dashes or underscores.\nGive another one.")
        return cls(datetime.fromtimestamp(wall, UTC).strftime("%Y%m%dT%H%M%SZ"), run_id)

    def __str__(self) -> str:
        return f"{self.stamp}.{self.id}"

    def segment(self, number: int) -> str:
        return f"{self}.{number:03d}.jsonl"


class Segment(Struct, frozen=True):
    number: int
    path: Path


def runs_in(directory: Path) -> dict[RunName, list[Segment]]:
    """Every run with its segments in order, oldest run first. Links and foreign files are passed over."""
    found: dict[RunName, list[Segment]] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            match = _SEGMENT.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                found.setdefault(RunName(match[1], match[2]), []).append(Segment(int(match[3]), directory / entry.name))
    return {
        name: sorted(found[name], key=lambda segment: (segment.number, segment.path.name)) for name in sorted(found)
    }


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def run_of_segment(name: str) -> RunName | None:
    """The run that a file name belongs to; None when it is not a segment's."""
    match = _SEGMENT.fullmatch(name)
    return RunName(match[1], match[2]) if match else None


def make_directory(directory: Path) -> None:
    """Raises: OSError. Side effects: the directory and what is missing above it, with mode 0700; an existing one keeps its."""
    for missing in reversed([place for place in (directory, *directory.parents) if not place.exists()]):
        missing.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)


def create_segment(path: Path) -> int:
    """A new file, opened for appending only. Raises: OSError: also when it exists."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(path, flags, _FILE_MODE)


def point_latest(directory: Path, segment: str) -> None:
    """Replace the link in one step: readers see the old segment or the new one. Raises: OSError."""
    temporary = directory / f".{segment}.link"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(segment)
    temporary.replace(directory / LATEST)


def free_bytes(directory: Path) -> int:
    """Space for someone who is not root. Raises: OSError."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def sync_data(descriptor: int) -> None:
    """Data and size on disk; times may lag. Raises: OSError."""
    # macOS has no fdatasync in Python's os module.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_directory(directory: Path) -> None:
    """A new name survives a power cut only when its directory is synced too. Raises: OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, text: str, *, synced: bool = True) -> None:
    """Replace a small file atomically, mode 0600. Without `synced` a power cut may leave it empty. Raises: OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    try:
        os.write(descriptor, text.encode())
        if synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)


class Lock:
    """A lock file held by this process; the kernel lets go of it when the process dies, however it dies."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> Lock:
        """Locked before it has its name: nobody can find it unlocked and think its run dead. Raises: OSError."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.link(temporary, path)  # unlike a rename, never in place of another run's lock
        except OSError:
            os.close(descriptor)
            raise
        finally:
            temporary.unlink(missing_ok=True)
        return cls(path, descriptor)

    @classmethod
    def take_over(cls, path: Path) -> Lock | None:
        """The lock of a run that died; None while its process lives, or when someone else was faster."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return cls(path, descriptor)
        except OSError:
            pass
        os.close(descriptor)
        return None

    def release(self, *, finished: bool) -> None:
        """`finished` removes the file: nothing is left to recover."""
        if finished:
            with suppress(OSError):
                self.path.unlink()
        os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Does a process hold this lock now? No: also when the file is missing, or locks cannot be asked for here."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def dead_runs(directory: Path) -> Iterator[tuple[RunName, Lock]]:
    """Runs whose process is gone, each with its lock now ours.

    Asked twice: whoever asks `is_held` has a lock for an instant, and that is no reason to think its run alive.
    """
    waiting = locked_runs(directory)
    for pause in (_ASKING_SECONDS, 0.0):
        held = []
        for name in waiting:
            lock = Lock.take_over(directory / f"{name}.lock")
            if lock is None:
                held.append(name)
            else:
                yield name, lock
        time.sleep(pause if held else 0.0)
        waiting = held


def locked_runs(directory: Path) -> list[RunName]:
    """Runs that have a lock file, held or not."""
    names = (path.name.removesuffix(".lock").partition(".") for path in sorted(directory.glob("*.lock")))
    return [RunName(stamp, run_id) for stamp, _, run_id in names if stamp and is_run_id(run_id)]


def load_or_create_key(path: Path, name: str) -> note.NoteSigner:
    """The log's signing key, made at the first start. It signs checkpoints and nothing else.

    Raises: StartRefused: the file is not such a key or others can read it. Side effects: may create it, mode 0600.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
            _create_key(path, name)
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError):
        raise StartRefused(
            f"The audit log's key {path.name} cannot be read or created.\nCheck the permissions of its directory."
        ) from None
    if mode & 0o077:
        raise StartRefused(f"The audit log's key {path.name} can be read by others.\nRun: chmod 600 on it.")
    try:
        return note.NoteSigner.parse(text)
    except note.NoteError:
        raise StartRefused(
            f"{path.name} is not an audit log key.\nMove it away; a new one is made at the next start."
        ) from None


def run_state(directory: Path, run: str) -> Literal["going_on", "over", "elsewhere"]:
    """Of the process that writes, or wrote, a run (`str(RunName)`). Elsewhere: its log is not here, so nobody can tell."""
    name = RunName(*run.split(".", 1))
    if is_held(directory / f"{name}.lock"):
        return "going_on"
    first = directory / name.segment(1)
    return "over" if first.exists() or first.with_name(f"{first.name}.gz").exists() else "elsewhere"


def derived_key(path: Path, use: bytes) -> bytes:
    """32 bytes for another use than signing, made of the log's key: the same for every process of a home, and no second file to
    guard. Raises: OSError."""
    return hmac.digest(path.read_bytes(), b"toolgate " + use, "sha256")


def create_key(path: Path, name: str) -> note.NoteSigner:
    """A new key in place of whatever the file held. Raises: OSError."""
    text = note.secret_text(name, os.urandom(32))
    write_file(path, text + "\n")
    return note.NoteSigner.parse(text)


def _create_key(path: Path, name: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_file(temporary, note.secret_text(name, os.urandom(32)) + "\n")
    # link, not rename: of two servers that start at once, one makes the key and both use it.
    with suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
