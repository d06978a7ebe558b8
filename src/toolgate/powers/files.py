"""The workspace: the only files a tool can touch (decision 56).

Every path is walked component by component from one open directory descriptor, each step with O_NOFOLLOW, so that a
link, swapped in at any moment, can refuse a call but never lead it outside. What is opened is checked by its
descriptor, not by its name: only regular files are read or replaced.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import unicodedata
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from toolgate.errors import ToolError
from toolgate.model.powers import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

MAX_PATH: Final = 1024
"""Characters in a path: document 000's bound for every path argument."""
MAX_DEPTH: Final = 32
"""Directory levels below the workspace: bounds `walk`, and no project here is deeper than 8."""

_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY: Final = _OPEN | os.O_RDONLY | os.O_DIRECTORY
# O_NONBLOCK: opening a FIFO without a writer must not hang; O_NOCTTY: a terminal must not become ours.
_OPEN_FILE: Final = _OPEN | os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CREATE_FILE: Final = _OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL

_LINK_REFUSED: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO})
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class Workspace:
    """One directory and what is below it. Safe to share between threads: it holds nothing but the descriptor."""

    def __init__(self, root: Path) -> None:
        """Raises: OSError: `root` is not a directory that can be opened."""
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

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

    def walk(self, path: str = ".", *, max_files: int = 10_000) -> Iterator[FileEntry]:
        """Raises ToolError FILE_TOO_LARGE when there are more files or levels: half a list would be a wrong answer."""
        found: list[FileEntry] = []
        pending = [tuple(_parts(path))]
        while pending:
            parts = pending.pop()
            if len(parts) > MAX_DEPTH:
                raise ToolError("FILE_TOO_LARGE", f"{path} has more than {MAX_DEPTH} levels of directories")
            shown = "/".join(parts) or "."
            with self._directory(parts, shown) as descriptor, _translated(shown), os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((*parts, entry.name))
                    elif entry.is_file(follow_symlinks=False):
                        info = entry.stat(follow_symlinks=False)
                        found.append(FileEntry("/".join((*parts, entry.name)), info.st_size, info.st_mtime))
                    if len(found) + len(pending) > max_files:
                        raise ToolError("FILE_TOO_LARGE", f"{path} holds more than {max_files} files")
        return iter(sorted(found, key=lambda entry: entry.path))

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
        """mkdir is the claim, not the rename of a finished directory: a rename replaces an empty one silently."""
        parts = _parts(directory)
        inner = {file: _parts(file) for file in files}
        if not all(inner.values()):
            raise _invalid("every file of a tree has a name")
        with self._parent(parts, directory) as (parent, name), _translated(directory):
            try:
                os.mkdir(name, 0o755, dir_fd=parent)
            except FileExistsError:
                raise ToolError("DIRECTORY_EXISTS", "Directory already exists") from None
            made: list[tuple[str, ...]] = []
            try:
                descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
                try:
                    for file, data in files.items():
                        _plant(descriptor, inner[file], data, made)
                    os.fsync(descriptor)
                except BaseException:
                    _uproot(descriptor, made)
                    raise
                finally:
                    os.close(descriptor)
            except BaseException:
                os.rmdir(name, dir_fd=parent)
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

    __slots__ = ("is_dir", "is_file", "read_bytes", "walk")

    def __init__(self, workspace: Workspace) -> None:
        self.read_bytes = workspace.read_bytes
        self.is_file = workspace.is_file
        self.is_dir = workspace.is_dir
        self.walk = workspace.walk


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


def _plant(root: int, parts: Sequence[str], data: bytes, made: list[tuple[str, ...]]) -> None:
    """Write one file of a new tree and the directories above it; `made` grows before a step that may fail half-way."""
    for level in range(1, len(parts)):
        with _descend(root, parts[: level - 1]) as parent, suppress(FileExistsError):
            os.mkdir(parts[level - 1], 0o755, dir_fd=parent)
            made.append((*parts[:level], ""))
    made.append(tuple(parts))
    with _descend(root, parts[:-1]) as parent:
        _write_new(parent, parts[-1], data)
        os.fsync(parent)


def _uproot(root: int, made: Sequence[tuple[str, ...]]) -> None:
    """Remove what `_plant` made, newest first. A trailing empty component marks a directory."""
    for parts in reversed(made):
        is_directory = not parts[-1]
        path = parts[:-1] if is_directory else parts
        with suppress(FileNotFoundError), _descend(root, path[:-1]) as parent:
            (os.rmdir if is_directory else os.unlink)(path[-1], dir_fd=parent)
