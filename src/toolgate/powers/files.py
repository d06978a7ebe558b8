"""The workspace: the only files a tool can touch (ADR-0011).

Every path is walked component by component from one open directory descriptor, each step with O_NOFOLLOW, so that a
link, swapped in at any moment, can refuse a call but never lead it outside. What is opened is checked by its
descriptor, not by its name: only regular files are read or replaced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import sys
import unicodedata
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError, WorkFailed
from toolgate.model.powers import FileEntry, WatchedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

MAX_PATH: Final = 1024
"""Characters in a path: the bound of every path argument."""
MAX_DEPTH: Final = 32
"""Directory levels below the workspace: bounds `walk`, and no project here is deeper than 8."""

BLOCK_BYTES: Final = 4096
"""What a file takes of a disk at least, whatever is in it: a caller who writes empty files fills the disk, too."""
SHARE_S: Final = 3600.0
"""Seconds in which a caller's share of the disk comes back: who uses it every day all day is noticed before the disk is full."""
MAX_WATCHED: Final = 1024
"""Directories of one tree that are watched: a system gives some ten thousand to all its processes together."""
_ANY_CHANGE: Final = (
    0x00000002 | 0x00000004 | 0x00000040 | 0x00000080 | 0x00000100 | 0x00000200 | 0x00000400 | 0x00000800
)
"""inotify(7): IN_MODIFY, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF."""
_IN_ONLYDIR: Final = 0x01000000
_EVENT_BYTES: Final = 4096
"""The queue takes no read that is shorter than its first event."""

_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY: Final = _OPEN | os.O_RDONLY | os.O_DIRECTORY
# O_NONBLOCK: opening a FIFO without a writer must not hang; O_NOCTTY: a terminal must not become ours.
_OPEN_FILE: Final = _OPEN | os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CREATE_FILE: Final = _OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL

_LINK_REFUSED: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO})
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_NEW: Final = ".new"
_ATTEMPTS: Final = 8
"""To make a hidden directory that nobody takes away in the same moment: a second one is rare, a third unheard of."""


class Workspace:
    """One directory and what is below it. Safe to share between threads: it holds nothing but the descriptor."""

    def __init__(self, root: Path) -> None:
        """Raises: OSError: `root` is not a directory that can be opened."""
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

    def free_bytes(self) -> int:
        """What is left of its disk for those who are not root."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    def read_bytes(self, path: str, *, max_bytes: int) -> bytes:
        parts = _parts(path)
        with self._parent(parts, path) as (parent, name), _translated(path):
            descriptor = os.open(name, _OPEN_FILE, dir_fd=parent)
            try:
                _require_regular(os.fstat(descriptor), path)
                return _read_all(descriptor, path, max_bytes)
            finally:
                os.close(descriptor)

    def is_file(self, path: str) -> bool:
        return self._kind(path, stat.S_ISREG)

    def is_dir(self, path: str) -> bool:
        return self._kind(path, stat.S_ISDIR)

    def is_there(self, path: str) -> bool:
        return self._kind(path, lambda _mode: True)

    def walk(
        self, path: str = ".", *, max_files: int = 10_000, everything: bool = False, links: bool = False
    ) -> Iterator[FileEntry]:
        """Raises ToolError FILE_TOO_LARGE when there are more files or levels: half a list would be a wrong answer."""
        return iter(self._found(path, max_files, everything=everything, links=links or everything))

    def watched(self, *, max_files: int = 10_000) -> WatchedTree:
        """Raises: as `walk`."""
        watch = _Inotify()
        try:
            return WatchedTree(self._found(".", max_files, enter=watch.add), watch.is_silent)
        except BaseException:
            watch.close()
            raise

    def _found(
        self,
        path: str,
        max_files: int,
        *,
        everything: bool = False,
        links: bool = False,
        enter: Callable[[int], None] = lambda _: None,
    ) -> list[FileEntry]:
        """`enter` gets the descriptor of each directory before it is listed."""
        found: list[FileEntry] = []
        pending = [tuple(_parts(path))]
        while pending:
            parts = pending.pop()
            if len(parts) > MAX_DEPTH:
                raise ToolError("FILE_TOO_LARGE", f"{path} has more than {MAX_DEPTH} levels of directories")
            shown = "/".join(parts) or "."
            with self._directory(parts, shown) as descriptor, _translated(shown):
                enter(descriptor)
                for entry in _listed(descriptor):
                    if entry.name.startswith(".") and not everything:
                        continue
                    is_link = entry.is_symlink()
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((*parts, entry.name))
                    elif entry.is_file(follow_symlinks=False) or (is_link and links):
                        info = entry.stat(follow_symlinks=False)
                        whole = "/".join((*parts, entry.name))
                        found.append(FileEntry(whole, info.st_size, info.st_mtime, is_link))
                    if len(found) + len(pending) > max_files:
                        raise ToolError("FILE_TOO_LARGE", f"{path} holds more than {max_files} files")
        return sorted(found, key=lambda entry: entry.path)

    def write_bytes(self, path: str, data: bytes, *, exclusive: bool = False, mode: int = 0o644) -> None:
        parts = _parts(path)
        with self._parent(parts, path) as (parent, name), _translated(path):
            with suppress(FileNotFoundError):
                _require_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
            temporary = f".{secrets.token_hex(8)}.tmp"
            try:
                _write_new(parent, temporary, data, mode)
                if exclusive:
                    # A link, unlike a rename, fails when the name is taken: the check and the claim are one step.
                    os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
                else:
                    os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)
            except FileExistsError:
                raise ToolError("FILE_EXISTS", f"{path} exists already") from None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)

    def create_tree(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Made under a hidden name and moved into place when it is whole, so that a kill leaves nothing half-made.

        mkdir is the claim, and the move replaces the empty directory that it made: a move alone would also replace somebody
        else's empty one, silently.
        """
        parts = _parts(directory)
        inner = {file: _parts(file) for file in files}
        if not all(inner.values()):
            raise _invalid("every file of a tree has a name")
        with self._parent(parts, directory) as (parent, name), _translated(directory):
            _sweep(parent, name)
            if _is_there(parent, name):
                raise ToolError("DIRECTORY_EXISTS", "Directory already exists")
            with _hidden(parent, name) as (hidden, descriptor):
                for file, data in files.items():
                    _plant(descriptor, inner[file], data)
                os.fsync(descriptor)
                try:
                    os.mkdir(name, 0o755, dir_fd=parent)
                except FileExistsError:
                    raise ToolError("DIRECTORY_EXISTS", "Directory already exists") from None
                try:
                    os.rename(hidden, name, src_dir_fd=parent, dst_dir_fd=parent)
                except BaseException as fault:
                    with suppress(OSError):
                        os.rmdir(name, dir_fd=parent)
                    if isinstance(fault, OSError) and fault.errno in (errno.ENOTEMPTY, errno.EEXIST):
                        # Somebody found the claimed directory and wrote into it before we moved: it is theirs as well.
                        raise ToolError("DIRECTORY_EXISTS", "Directory already exists") from None
                    raise
            os.fsync(parent)

    def _kind(self, path: str, is_kind: Callable[[int], bool]) -> bool:
        parts = _parts(path)
        try:
            with self._parent(parts, path) as (parent, name), _translated(path):
                mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except ToolError as fault:
            if fault.missing:
                return False
            raise
        return is_kind(mode)

    @contextmanager
    def _parent(self, parts: Sequence[str], path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the directory that holds the last component, and that component."""
        with self._directory(parts[:-1], path) as descriptor:
            yield descriptor, parts[-1] if parts else "."

    @contextmanager
    def _directory(self, parts: Sequence[str], path: str) -> Iterator[int]:
        with _translated(path), _descend(self._root, parts) as descriptor:
            yield descriptor


class ReadOnlyWorkspace:
    """The workspace as a `read` tool gets it: there is no method that writes."""

    __slots__ = ("is_dir", "is_file", "is_there", "read_bytes", "walk", "watched")

    def __init__(self, workspace: Workspace) -> None:
        self.read_bytes = workspace.read_bytes
        self.is_file = workspace.is_file
        self.is_dir = workspace.is_dir
        self.is_there = workspace.is_there
        self.walk = workspace.walk
        self.watched = workspace.watched


class WriteShares:
    """How much each caller may write: so much at once, and as much again in an hour. One for a server, used from any thread."""

    def __init__(self, most: int, reserve: int, now: Callable[[], float]) -> None:
        """`most`: bytes of one caller in an hour, and of one call. `reserve`: bytes of the disk that are for others."""
        self.most = most
        self._reserve = reserve
        self._now = now
        self._used: dict[str, tuple[float, float]] = {}
        """By caller: bytes, and when that was so. There are no more callers than keys."""
        self._lock = Lock()

    def admit(self, caller: str, free_bytes: int) -> None:
        """Before a call's first write, and never later: a call that has begun is not torn for what others write.

        Raises: WorkFailed.
        """
        if free_bytes < self._reserve:
            raise WorkFailed("disk_low", "The disk has too little room left for what tools write.")
        with self._lock:
            used = self._used_now(caller)
        if used >= self.most:
            text = f"This key has written {self.most} bytes within an hour, which is what it may; try again later."
            raise WorkFailed("write_share_used", text)

    def take(self, caller: str, size: int) -> None:
        with self._lock:
            self._used[caller] = self._used_now(caller) + size, self._now()

    def _used_now(self, caller: str) -> float:
        used, at = self._used.get(caller, (0.0, 0.0))
        return max(0.0, used - (self._now() - at) * self.most / SHARE_S)


class CallWriter(ReadOnlyWorkspace):
    """The workspace as one call with an effect gets it: what it writes is counted before it is written."""

    __slots__ = ("_caller", "_shares", "_workspace", "_written")

    def __init__(self, workspace: Workspace, shares: WriteShares, caller: str) -> None:
        super().__init__(workspace)
        self._workspace, self._shares, self._caller = workspace, shares, caller
        self._written = 0

    def write_bytes(self, path: str, data: bytes, *, exclusive: bool = False, mode: int = 0o644) -> None:
        """Raises: WorkFailed: the call, or its caller, may not write so much."""
        self._count((len(data),))
        self._workspace.write_bytes(path, data, exclusive=exclusive, mode=mode)

    def create_tree(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Raises: as `write_bytes`."""
        self._count(map(len, files.values()))
        self._workspace.create_tree(directory, files)

    def _count(self, sizes: Iterable[int]) -> None:
        size = sum(max(each, BLOCK_BYTES) for each in sizes)
        if not self._written:
            self._shares.admit(self._caller, self._workspace.free_bytes())
        if self._written + size > self._shares.most:
            raise WorkFailed("too_much_written", f"One call writes at most {self._shares.most} bytes.")
        self._written += size
        self._shares.take(self._caller, size)


class _Inotify:
    """Linux tells of changes before the writer's own call returns, so one read of its queue is as good as a walk: 2 us in place
    of 3 ms for a thousand files. Where it cannot be asked, nothing is ever known to be unchanged."""

    def __init__(self) -> None:
        self._queue: int | None = None
        self._lock = Lock()
        """Whoever asks may be a handler's thread: a number that another has closed may be any file's by now."""
        self._directories = 0
        self._libc: Any = None
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415 (2 ms, for servers whose tools look at whole trees)

            self._libc = ctypes.CDLL(None, use_errno=True)
            queue = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self._queue = queue if queue >= 0 else None

    def add(self, directory: int) -> None:
        """By its descriptor: a link swapped in for its name leads nowhere else."""
        self._directories += 1
        if self._queue is None:
            return
        name = f"/proc/self/fd/{directory}".encode()
        if (
            self._directories > MAX_WATCHED
            or self._libc.inotify_add_watch(self._queue, name, _ANY_CHANGE | _IN_ONLYDIR) < 0
        ):
            self.close()

    def is_silent(self) -> bool:
        """False once, false for ever."""
        with self._lock:
            if self._queue is None:
                return False
            with suppress(BlockingIOError):
                os.read(self._queue, _EVENT_BYTES)
                self._close()
            return self._queue is not None

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._queue is not None:
            os.close(self._queue)
            self._queue = None

    def __del__(self) -> None:
        self.close()


def _listed(descriptor: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(descriptor) as entries:
        yield from entries


@contextmanager
def open_directory(directory: Path) -> Iterator[Workspace]:
    """For a person's command, which names a directory of its own. Raises ToolError FILE_NOT_FOUND."""
    try:
        files = Workspace(directory)
    except OSError:
        raise ToolError("FILE_NOT_FOUND", f"{directory} is not a directory that can be opened", missing=True) from None
    try:
        yield files
    finally:
        files.close()


def _parts(path: str) -> list[str]:
    """The components of a relative path; `.` and empty ones dropped.

    Raises: ToolError INVALID_PATH: anything that could mean another place, or print as one.
    """
    if not path or len(path) > MAX_PATH:
        raise _invalid(f"a path has 1 to {MAX_PATH} characters")
    if path.startswith("/") or "\\" in path:
        raise _invalid("a path is relative to the workspace and uses forward slashes")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise _invalid("a path has no control characters")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _invalid("a path has no .. segment")
    return parts


def _invalid(text: str) -> ToolError:
    return ToolError("INVALID_PATH", text)


@contextmanager
def _descend(root: int, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of the directory `parts` below `root`, one step at a time and never through a link."""
    descriptor = os.dup(root)
    try:
        for part in parts:
            following = _open_directory(descriptor, part)
            os.close(descriptor)
            descriptor = following
        yield descriptor
    finally:
        os.close(descriptor)


def _open_directory(parent: int, name: str) -> int:
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        # Linux answers ENOTDIR for a link under O_DIRECTORY|O_NOFOLLOW: tell a link from a file.
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """The system's refusals in our words: the caller's own path, never the machine's."""
    try:
        yield
    except OSError as fault:
        if fault.errno in _ABSENT:
            raise ToolError("FILE_NOT_FOUND", f"Cannot read {path}: file not found", missing=True) from None
        if fault.errno in _LINK_REFUSED:
            raise _invalid(f"{path} is a link or a device; only files of the workspace are opened") from None
        if fault.errno == errno.ENAMETOOLONG:
            raise _invalid("a component of the path is too long") from None
        raise ToolError("IO_ERROR", f"I/O error: {path}: {os.strerror(fault.errno or errno.EIO)}") from None


def _require_regular(info: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        kind = "a directory" if stat.S_ISDIR(info.st_mode) else "not a regular file"
        raise _invalid(f"{path} is {kind}")


def _read_all(descriptor: int, path: str, max_bytes: int) -> bytes:
    """Read to the end, but never more than one byte past the limit: the file may grow while it is read."""
    chunks: list[bytes] = []
    room = max_bytes + 1
    while room and (chunk := os.read(descriptor, min(room, 1 << 20))):
        chunks.append(chunk)
        room -= len(chunk)
    if not room:
        raise ToolError("FILE_TOO_LARGE", f"{path} is larger than {max_bytes} bytes")
    return b"".join(chunks)


def _write_new(parent: int, name: str, data: bytes, mode: int = 0o644) -> None:
    descriptor = os.open(name, _CREATE_FILE, mode, dir_fd=parent)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plant(root: int, parts: Sequence[str], data: bytes) -> None:
    """Write one file of a new tree and the directories above it."""
    for level in range(1, len(parts)):
        with _descend(root, parts[: level - 1]) as parent, suppress(FileExistsError):
            os.mkdir(parts[level - 1], 0o755, dir_fd=parent)
    with _descend(root, parts[:-1]) as parent:
        _write_new(parent, parts[-1], data)
        os.fsync(parent)


def _prefix(name: str) -> str:
    """Of the hidden names that a tree of this name is made under; a digest, because the name may be as long as names get."""
    return f".{sha256(name.encode()).hexdigest()[:16]}."


@contextmanager
def _hidden(parent: int, name: str) -> Iterator[tuple[str, int]]:
    """A new hidden directory, locked while it is being filled; gone afterwards, unless it was moved."""
    for _ in range(_ATTEMPTS):
        hidden = f"{_prefix(name)}{secrets.token_hex(8)}{_NEW}"
        os.mkdir(hidden, 0o755, dir_fd=parent)
        # Between the two, another caller's sweep may take it for a dead one: then it is gone, and we make another.
        with suppress(FileNotFoundError):
            descriptor = _locked(parent, hidden, if_possible=True)
            if descriptor is not None:
                break
    else:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    try:
        yield hidden, descriptor
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(hidden, dir_fd=parent)
        os.close(descriptor)


def _sweep(parent: int, name: str) -> None:
    """Remove what a killed process left of a tree of this name; what a live one is filling is locked."""
    for entry in os.listdir(parent):
        if not (entry.startswith(_prefix(name)) and entry.endswith(_NEW)):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            descriptor = _locked(parent, entry)
            if descriptor is None:
                continue
            try:
                shutil.rmtree(entry, dir_fd=parent)
                with suppress(OSError):
                    os.rmdir(name, dir_fd=parent)  # its claim, if it got so far; a directory that holds anything stays
            finally:
                os.close(descriptor)


def _locked(parent: int, name: str, *, if_possible: bool = False) -> int | None:
    """The open directory, locked for as long as it is open; None when somebody else holds it, or has removed it.

    `if_possible`: also where the file system has no locks. Then nothing is ever swept, and nothing taken for dead.
    """
    descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        ours = False
    except OSError:
        ours = if_possible
    if not ours:
        os.close(descriptor)
    return descriptor if ours else None


def _is_there(parent: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=parent, follow_symlinks=False)
        return True
    return False
