"""What a person's own commands run with (decision 5): their own files, their own stores, no key, no workspace.

The rim of this room: the only module here, besides the commands, that knows the powers themselves.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolgate.config import load_settings
from toolgate.errors import ToolError
from toolgate.model.call import Caller, no_progress
from toolgate.model.clock import SystemClock
from toolgate.model.powers import FileEntry
from toolgate.model.tool import Context
from toolgate.packs.governance.settings import SETTINGS_SCHEMA
from toolgate.packs.governance.tables import CONSENT, FALSE_POSITIVES, MIGRATIONS
from toolgate.powers.compute import CallCompute, ComputePool
from toolgate.powers.sql import SqlStores, environment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.engine import Connection

    from toolgate.model.call import Environment
    from toolgate.model.powers import Compute

In = TypeVar("In")
Out = TypeVar("Out")

DEADLINE_S: Final = 120.0
"""Seconds for one command: a person can wait longer than a caller, but not for ever on a hostile pattern."""
PASSED_BY: Final = frozenset({"node_modules", "__pycache__", "build", "dist", "venv", "target"})
"""Directories that hold other people's or generated files."""


class OwnFiles:
    """Files below a root, or anywhere by absolute path: the same shape as the workspace, without its walls."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_bytes(self, path: str, *, max_bytes: int) -> bytes:
        try:
            with (self._root / path).open("rb") as opened:
                data = opened.read(max_bytes + 1)
        except FileNotFoundError:
            raise ToolError("FILE_NOT_FOUND", f"{path} is not there", missing=True) from None
        except (OSError, ValueError):
            raise ToolError("IO_ERROR", f"{path} cannot be read") from None
        if len(data) > max_bytes:
            raise ToolError("FILE_TOO_LARGE", f"{path} is larger than {max_bytes} bytes")
        return data

    def is_file(self, path: str) -> bool:
        """A link is none: a pull request must not be able to make CI print a file from elsewhere."""
        return (self._root / path).is_file() and not (self._root / path).is_symlink()

    def is_dir(self, path: str) -> bool:
        return (self._root / path).is_dir()

    def walk(self, path: str = ".", *, max_files: int = 10_000) -> Iterator[FileEntry]:
        found: list[FileEntry] = []
        for folder, folders, files in os.walk(self._root / path):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in PASSED_BY]
            for name in files:
                whole = Path(folder) / name
                if name.startswith(".") or whole.is_symlink() or not whole.is_file():
                    continue
                info = whole.stat()
                found.append(FileEntry(whole.relative_to(self._root).as_posix(), info.st_size, info.st_mtime))
                if len(found) > max_files:
                    raise ToolError("FILE_TOO_LARGE", f"{path} holds more than {max_files} files")
        return iter(sorted(found, key=lambda entry: entry.path))


class Person:
    """One command's powers. Stores are opened where the settings say; `keep` says whether the command writes to them."""

    def __init__(self, root: Path, stores: SqlStores, compute: Compute, settings: dict[str, Any]) -> None:
        self.root = root
        self.stores = stores
        self.files = OwnFiles(root)
        self.clock = SystemClock()
        self._compute = compute
        self._settings = settings

    @property
    def now(self) -> int:
        return int(self.clock.wall() * 1000)

    def environment(self) -> Environment:
        self.stores.start()
        return environment_of(self.stores)[0]

    def context(self) -> Context:
        # A person's trial runs must not open the breaker for everybody: they count like a builder's.
        return Context(
            caller=Caller("person", "builder"),
            clock=self.clock,
            deadline=time.monotonic() + DEADLINE_S,
            settings=self._settings,
            compute=self._compute,
            progress=no_progress,
            files=self.files,
            stores=self.stores,
        )

    def store(self, name: str, work: Callable[[Connection], Any]) -> Any:
        """Raises: StoreUnavailable."""
        return asyncio.run(self.stores.get(name).run(work))

    def named(self, files: list[Path] | None) -> list[str]:
        """Paths as typed, from where the person stands, as the repository calls them."""
        return [_below(self.root, path.absolute()) for path in files or ()]


class _Here:
    """Parsing is bounded by itself (`yamldoc`), and a person's process harms nobody else: no worker to wait for."""

    async def __call__(self, function: Callable[[In], Out], data: In, *, timeout_s: float | None = None) -> Out:  # noqa: ARG002 (the power's shape)
        return function(data)


@contextmanager
def person(
    home: Path | None, root: Path | None = None, *, keep: bool = False, isolated: bool = False
) -> Iterator[Person]:
    """`isolated`: for work that only a kill can bound (the repository's own patterns).

    Raises: SettingsError.
    Side effects: opens stores on first use. A command that only reads does not leave an empty store behind.
    """
    settings = load_settings(home, {}, os.environ)
    urls = {FALSE_POSITIVES: settings.stores.false_positives, CONSENT: settings.stores.consent}
    given = {name: url for name, url in urls.items() if url}
    defaults = {name: about["default"] for name, about in SETTINGS_SCHEMA["properties"].items()}
    with tempfile.TemporaryDirectory(prefix="toolgate-") as scratch:
        state = settings.paths.state if keep or settings.paths.state.is_dir() else Path(scratch)
        stores, pool = SqlStores(given, state, MIGRATIONS), ComputePool(1)
        compute = CallCompute(lambda: pool, time.monotonic() + DEADLINE_S) if isolated else _Here()
        try:
            table = settings.packs.tables.get("governance", {})
            yield Person(root or repository_root(Path.cwd()), stores, compute, defaults | dict(table))
        finally:
            pool.close()
            stores.close()


def repository_root(start: Path) -> Path:
    """The nearest directory upwards that is a repository, else where we are."""
    return next((place for place in (start, *start.parents) if (place / ".git").exists()), start)


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
