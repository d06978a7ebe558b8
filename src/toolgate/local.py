"""What a pack's commands for people run with: its settings, stores and keys as a server has them, and a person's own files.

A command runs outside the road: no caller, no policy, no workspace walls. Its settings are checked as strictly as a server's.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolgate.cli.admin_records import recorded
from toolgate.config import load_settings, require_home
from toolgate.enabled import Enabled, check_stores, pack_settings, store_places
from toolgate.errors import ToolError
from toolgate.model.call import Caller, no_progress
from toolgate.model.clock import SystemClock
from toolgate.model.powers import FileEntry, WatchedTree
from toolgate.model.tool import Context
from toolgate.powers.secrets import PackSecrets, SecretSources
from toolgate.powers.stores import OpenStores, environment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from sqlalchemy.engine import Connection

    from toolgate.model.call import Environment
    from toolgate.model.powers import Compute, ReadFiles, Secrets
    from toolgate.model.tool import Pack
    from toolgate.powers.keys import KeyDirectory
    from toolgate.settings import Settings

In = TypeVar("In")
Out = TypeVar("Out")

DEADLINE_S: Final = 120.0
"""Seconds for one command: a person can wait longer than a caller, but not for ever on a hostile pattern."""
NOT_OURS: Final = frozenset({"node_modules", "__pycache__", "build", "dist", "venv", "target"})
"""Directories that hold other people's or generated files."""


@contextmanager
def open_local(pack: Pack, home: Path | None, *, keeps: bool = False) -> Iterator[Local]:
    """`keeps`: the command changes what is in a home, or needs what only a home has, and so there must be one.

    Raises: SettingsError: a setting of the pack is unknown or wrong, or there is no home to keep anything in.
    Side effects: opens stores on first use. A command that only reads leaves no empty store behind.
    """
    settings = load_settings(home, {}, os.environ)
    if keeps:
        require_home(settings)
    table = pack_settings(pack, settings)
    check_stores(settings)
    with tempfile.TemporaryDirectory(prefix="toolgate-") as scratch:
        state = settings.paths.state if keeps or settings.paths.state.is_dir() else Path(scratch)
        local = Local(pack, table, settings, state)
        try:
            yield local
        finally:
            local.close()


class Local:
    """One command's powers over one pack's things. Each is opened when it is first used."""

    def __init__(self, pack: Pack, table: Mapping[str, Any], whole: Settings, state: Path) -> None:
        self.settings = table
        """The pack's own settings, checked, defaults filled in."""
        self.whole = whole
        """Every setting: for places such as `whole.paths.workspace`."""
        self.clock = SystemClock()
        self._pack = pack
        self._state = state
        self._stores: OpenStores | None = None
        self._keys: KeyDirectory | None = None

    @property
    def stores(self) -> OpenStores:
        """The pack's stores, where the settings say they are."""
        if self._stores is None:
            binding = [store.name for store in self._pack.stores if store.binding]
            places = store_places(self.whole, self._pack.stores)
            most = self.whole.limits.store_bytes
            self._stores = OpenStores(places, self._state, self._pack.migrations, binding, most)
        return self._stores

    @property
    def keys(self) -> KeyDirectory:
        """The key directory; a person may also make keys in it."""
        if self._keys is None:
            from toolgate.ledger.files import KEY_FILE  # noqa: PLC0415 (signatures, for commands that sign)
            from toolgate.powers.keys import KeyDirectory  # noqa: PLC0415 (as above)

            uses = Enabled((self._pack,), {self._pack.name: self.settings}).key_uses(KEY_FILE)
            paths = self.whole.paths
            self._keys = KeyDirectory(paths.secrets, workspace=paths.workspace, uses=uses)
        return self._keys

    @property
    def secrets(self) -> Secrets:
        """The secrets that the pack declares."""
        sources = SecretSources(self.whole.paths.secrets, os.environ)
        return PackSecrets(sources, self._pack.secrets(self.settings))

    def run(self, store: str, work: Callable[[Connection], Out]) -> Out:
        """`work` in one transaction, in SQL. Raises: StoreUnavailable."""
        return asyncio.run(self.stores.get(store).run(work))

    def environment(self) -> Environment:
        """As a server on these stores would find it."""
        self.stores.start()
        return environment_of(self.stores)[0]

    def act(self, name: str, about: Mapping[str, Any]) -> AbstractContextManager[dict[str, Any]]:
        """Around what changes something: it is in the audit log before it happens. Raises: StartRefused."""
        return recorded(self.whole, name, about)

    def context(self, files: ReadFiles, compute: Compute | None = None) -> Context:
        """For a pack's function that takes a tool's context. It holds no power to write, sign or fetch.

        A person's trial runs must not count for everybody: they are a builder's.
        """
        return Context(
            caller=Caller("person", "builder"),
            clock=self.clock,
            deadline=time.monotonic() + DEADLINE_S,
            settings=self.settings,
            compute=compute or InProcessCompute(),
            progress=no_progress,
            files=files,
            stores=self.stores,
            memory=self._pack.memory(),
        )

    def close(self) -> None:
        if self._stores is not None:
            self._stores.close()


class InProcessCompute:
    """Runs work in this process, for work with bounds of its own; a person's command affects nobody else."""

    async def __call__(self, function: Callable[[In], Out], data: In, *, timeout_s: float | None = None) -> Out:  # noqa: ARG002 (the power's shape)
        return function(data)


@contextmanager
def isolated_compute() -> Iterator[Compute]:
    """Compute in a worker process, for work that only a kill can bound."""
    from toolgate.powers.compute import CallCompute, ComputePool  # noqa: PLC0415 (for commands that need it)

    pool = ComputePool(1)
    try:
        yield CallCompute(lambda: pool, time.monotonic() + DEADLINE_S)
    finally:
        pool.close()


class OwnFiles:
    """Files below a root, or anywhere by absolute path: the same shape as the workspace, without its restrictions."""

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
        """Links do not count as files: a pull request must not be able to make CI print a file from elsewhere."""
        info = self._info(path)
        return info is not None and stat.S_ISREG(info.st_mode)

    def is_dir(self, path: str) -> bool:
        return (self._root / path).is_dir()

    def is_there(self, path: str) -> bool:
        return self._info(path) is not None

    def walk(
        self, path: str = ".", *, max_files: int = 10_000, everything: bool = False, links: bool = False
    ) -> Iterator[FileEntry]:
        """Without directories that hold others' or generated files, unless `everything` is wanted."""
        self._require_no_link(path)
        if not self._stat(path):
            raise ToolError("FILE_NOT_FOUND", f"{path} is not there", missing=True)
        found: list[FileEntry] = []
        for folder, folders, files in os.walk(self._root / path, onerror=self._refuse):
            place = Path(folder).relative_to(self._root)
            linked = [name for name in folders if (self._root / place / name).is_symlink()]
            folders[:] = [name for name in folders if everything or not (name.startswith(".") or name in NOT_OURS)]
            for name in [*files, *linked]:
                if name.startswith(".") and not everything:
                    continue
                entry = self._entry((place / name).as_posix(), links=links or everything)
                if entry is not None:
                    found.append(entry)
                if len(found) > max_files:
                    raise ToolError("FILE_TOO_LARGE", f"{path} holds more than {max_files} files")
        return iter(sorted(found, key=lambda entry: entry.path))

    def watched(self, *, max_files: int = 10_000) -> WatchedTree:
        return WatchedTree(list(self.walk(max_files=max_files)), lambda: False)

    def _require_no_link(self, path: str) -> None:
        """As in the workspace: a folder that is a link may lead anywhere."""
        place = self._root
        for part in Path(path).parts:
            place /= part
            if place.is_symlink():
                raise ToolError("INVALID_PATH", f"{path} is a link; only the repository's own files are opened")

    def _entry(self, path: str, *, links: bool) -> FileEntry | None:
        info = self._stat(path)
        if info is None or not (stat.S_ISREG(info.st_mode) or (links and stat.S_ISLNK(info.st_mode))):
            return None
        return FileEntry(path, info.st_size, info.st_mtime, stat.S_ISLNK(info.st_mode))

    def _info(self, path: str) -> os.stat_result | None:
        """Of what has this name, be it a link; None where nothing has it.

        Raises: ToolError INVALID_PATH: a folder above it leads out of the repository. Within it a folder may be a link.
        """
        folder = os.path.realpath((self._root / path).parent)
        if not (Path(path).is_absolute() or Path(folder).is_relative_to(os.path.realpath(self._root))):
            raise ToolError("INVALID_PATH", f"{path} leads elsewhere; only the repository's own files are opened")
        return self._stat(path)

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return (self._root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError):
            raise ToolError("IO_ERROR", f"{path} cannot be read") from None

    def _refuse(self, fault: OSError) -> None:
        """A folder that cannot be listed: left out, all that is in it would seem not to be there."""
        if isinstance(fault, FileNotFoundError | NotADirectoryError):
            return  # a file by that name, or gone since its parent was listed
        name = Path(fault.filename).relative_to(self._root).as_posix()
        raise ToolError("IO_ERROR", f"{name} cannot be read: {fault.strerror}") from None
