"""The packs' stores: where each is kept, one thread for each, and what they say about the environment (ADR-0001, ADR-0025).

Work handed to a store runs on its thread: in SQL as one transaction, on a DynamoDB table as atomic requests. The engines
are loaded when a store is used, not to name it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from toolgate.errors import StartRefused, StoreUnavailable, ToolgateError
from toolgate.model.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy.engine import Connection

    from toolgate.model.call import Environment
    from toolgate.model.powers import Table, Unchanged
    from toolgate.model.tool import Migration

In = TypeVar("In")
Out = TypeVar("Out")

PROBE_MAX_AGE_S: Final = 1.0
"""An answer older than this says nothing about now (ADR-0001)."""
PROBE_INTERVAL_S: Final = 0.25
"""Several probes fit into the age above, so that one slow round trip does not turn the environment."""
CONNECT_TIMEOUT_S: Final = 2
"""The smallest value libpq takes: an unreachable engine is reported, not waited for."""
RUN_TIMEOUT_S: Final = 9.0
"""One piece of work with its wait for the thread: above an engine's own limit, below the shortest tool deadline."""
MAX_BYTES: Final = 1 << 30
"""Of a SQLite file, where nobody says otherwise."""
SILENT_AFTER_S: Final = 3.0
"""A watched engine that has not answered for this long is not asked again by calls, only by the probe."""
_log: Final = logging.getLogger("toolgate.stores")


class TablePlace(Struct, frozen=True):
    """A DynamoDB table that holds a store."""

    table: str
    region: str
    """Empty: what the machine's own AWS configuration says."""
    version: int
    """Of what is kept in it, as this Toolgate knows it."""


Place = str | TablePlace
"""A database URL, or a table."""


class StoreTooNew(StoreUnavailable, StartRefused):
    """A newer Toolgate has migrated this store; an older one must not write what it does not know."""

    def __init__(self, name: str, found: int, known: int) -> None:
        super().__init__(
            f"store {name} has schema version {found}, this Toolgate knows {known}. Use the Toolgate that wrote it."
        )


class ReadOnlyStoreError(ToolgateError):
    """A `read` tool tried to write."""

    def __init__(self, name: str) -> None:
        super().__init__(f"store {name} is read only for this tool")


class TakesNoWrites(StoreUnavailable):
    """The engine answers, and takes none: after a failover, on a full disk, or because it is as large as it may be."""

    def __init__(self, name: str) -> None:
        super().__init__(f"store {name} takes no writes")


def silent(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"store {name} does not answer")


class Engine(Protocol):
    """What a store is kept in. It may block, and is never used on the event loop."""

    def transact(self, work: Callable[[Any], Out], *, writing: bool) -> Out:
        """Raises: StoreUnavailable, ReadOnlyStoreError; and whatever `work` raises."""
        ...

    def ask(self) -> None:
        """One round trip. Raises: StoreUnavailable."""
        ...

    def mark(self) -> Unchanged | None:
        """As of a store. Unlike the rest of an engine it is used on the event loop, and does not block."""
        ...

    def close(self) -> None: ...


class OpenStores:
    """Every store by name. `reading` is the same stores for tools that may not write."""

    def __init__(
        self,
        places: Mapping[str, Place],
        state_dir: Path,
        migrations: Sequence[Migration],
        binding: Sequence[str] = (),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`binding`: the stores that decisions count on. `max_bytes`: of each SQLite file. Nothing is opened here.

        Raises: StartRefused: a URL is no store we can open.
        """
        self.binding = tuple(binding)
        self._stores: dict[str, OpenStore] = {}
        for name, steps in _by_store(migrations).items():
            place = places.get(name, state_dir / "stores" / f"{name}.sqlite3")
            self._stores[name] = OpenStore(name, place, steps, max_bytes)
        self.reading = _Reading(self)
        self._watched = [store for store in self._stores.values() if store.shared]
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def get(self, name: str) -> OpenStore:
        """Raises: KeyError: no pack has tables in a store of that name."""
        return self._stores[name]

    def start(self) -> None:
        """Ask every shared store once, then keep asking from a thread of its own: no call ever waits for an answer.

        Raises: StoreTooNew.
        """
        for store in self._watched:
            store.ask()
            if isinstance(store.fault, StoreTooNew):
                raise store.fault
        if self._watched and self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="toolgate-store-probe", daemon=True)
            self._watcher.start()
            for store in self._watched:
                store.watched = True

    def shared(self) -> dict[str, bool]:
        """Each shared store, and whether it has answered lately: from what is known, without asking."""
        return {store.name: store.answered_lately() for store in self._watched}

    def silent(self) -> tuple[str, ...]:
        """What is wrong with each shared store that has not answered lately: from what is known, without asking."""
        return tuple(str(store.fault or silent(store.name)) for store in self._watched if not store.answered_lately())

    def close(self) -> None:
        """Let running work end, all stores' within the same moment, then close every connection."""
        self._stop.set()
        due = time.monotonic() + CONNECT_TIMEOUT_S
        for store in self._stores.values():
            store.take_no_more()
        if self._watcher is not None:
            self._watcher.join(max(0.0, due - time.monotonic()))
        for store in self._stores.values():
            store.close(due)

    def _watch(self) -> None:
        """Says when a store stops answering, and when it answers again."""
        were_up = self.shared()
        while not self._stop.wait(PROBE_INTERVAL_S):
            for store in self._watched:
                is_up = store.ask()
                if is_up is not were_up[store.name]:
                    _tell(store, is_up=is_up)
                were_up[store.name] = is_up


def _tell(store: OpenStore, *, is_up: bool) -> None:
    facts = {"about": {"event": "store.up" if is_up else "store.down", "store": store.name}}
    if is_up:
        _log.info("store %s answers again", store.name, extra=facts)
    else:
        _log.warning("%s", store.fault or silent(store.name), extra=facts)


class _Reading:
    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores

    def get(self, name: str) -> ReadingStore:
        return ReadingStore(self._stores.get(name))


def environment_of(stores: OpenStores) -> tuple[Environment, tuple[str, ...]]:
    """Local or cloud, and why, from what is already known: never blocks. Without a binding store it is local."""
    binding = [stores.get(name) for name in stores.binding]
    shared = [store for store in binding if store.shared]
    if not shared:
        return "local", ()
    notes = [f"store {store.name} is not on a shared engine" for store in binding if not store.shared]
    notes += [str(store.fault or silent(store.name)) for store in shared if not store.answered_lately()]
    return ("local", tuple(notes)) if notes else ("cloud", ())


class OpenStore:
    """One store, and its thread."""

    def __init__(
        self, name: str, place: Place | Path, migrations: Sequence[Migration], max_bytes: int = MAX_BYTES
    ) -> None:
        """`max_bytes`: of a SQLite file. Raises: StartRefused: the URL is no store we can open."""
        self.name = name
        self.in_table = isinstance(place, TablePlace)
        self.shared = self.in_table or (isinstance(place, str) and place.startswith("postgres"))
        self.fault: StoreUnavailable | None = None
        """Why the last attempt failed; None when it did not."""
        self.watched = False
        """True while a probe asks regularly."""
        self._file = place if isinstance(place, Path) else None
        self._make = partial(_engine, name, place, migrations, max_bytes)
        self._engine: Engine | None = None if self._file or self.in_table else self._make()
        self._making = threading.Lock()
        self._thread = _OneThread(f"toolgate-store-{name}")
        self._answered_at = float("-inf")

    @property
    def untouched(self) -> bool:
        """Nothing was ever kept in it: its file has not been made. Who only reads need not open it."""
        if self._file is None:
            return False
        try:
            self._file.lstat()
        except FileNotFoundError:
            return True
        except OSError:  # something is in the way: whoever opens it says so
            return False
        return False

    def mark(self) -> Unchanged | None:
        return None if self._engine is None else self._engine.mark()

    async def run(self, work: Callable[[Connection], Out]) -> Out:
        """One transaction on the store's thread: committed when `work` returns, rolled back when it raises.

        Raises: StoreUnavailable; and whatever `work` raises.
        """
        return await self._submit(work, in_table=False, writing=True)

    async def run_on_table(self, work: Callable[[Table], Out]) -> Out:
        """The same where the store is in a table: there each request is atomic, and what was done stays done."""
        return await self._submit(work, in_table=True, writing=True)

    async def read(self, work: Callable[[Connection], Out]) -> Out:
        """As `run`, without the right to write. Raises: ReadOnlyStoreError when `work` tries."""
        return await self._submit(work, in_table=False, writing=False)

    async def read_table(self, work: Callable[[Table], Out]) -> Out:
        return await self._submit(work, in_table=True, writing=False)

    async def probe(self) -> bool:
        if self.answered_lately():
            return True
        return await in_thread(self.ask)

    def ask(self) -> bool:
        """Ask now, on this thread, and remember the answer. Never raises."""
        with suppress(StoreUnavailable):
            self._noted(lambda: self._opened().ask(), proves_writing=True)
        return self.fault is None

    def answered_lately(self) -> bool:
        return self.fault is None and time.monotonic() - self._answered_at <= PROBE_MAX_AGE_S

    def take_no_more(self) -> None:
        self._thread.take_no_more()

    def close(self, due: float | None = None) -> None:
        """`due`: the monotonic second until which running work is waited for."""
        self._thread.take_no_more()
        self._thread.join(time.monotonic() + CONNECT_TIMEOUT_S if due is None else due)
        if self._engine is not None:
            self._engine.close()

    async def _submit(self, work: Callable[[In], Out], *, in_table: bool, writing: bool) -> Out:
        if in_table is not self.in_table:
            raise TypeError(f"store {self.name} is {'in a table' if self.in_table else 'in SQL'}")
        if self.watched and time.monotonic() - self._answered_at > SILENT_AFTER_S:
            # An engine that hangs holds the thread; nobody else queues behind it. The probe finds it again.
            raise StoreUnavailable(str(self.fault)) if self.fault else silent(self.name)
        submitted = asyncio.wrap_future(self._thread.submit(partial(self._transact, work, writing=writing)))
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                return await submitted
        except TimeoutError:
            raise silent(self.name) from None

    def _transact(self, work: Callable[[In], Out], *, writing: bool) -> Out:
        return self._noted(lambda: self._opened().transact(work, writing=writing), proves_writing=writing)

    def _noted(self, attempt: Callable[[], Out], *, proves_writing: bool) -> Out:
        """The attempt, and whether the engine answered it."""
        try:
            result = attempt()
        except StoreUnavailable as fault:
            self.fault = fault
            raise
        self._answered_at = time.monotonic()
        if proves_writing or not isinstance(self.fault, TakesNoWrites):
            self.fault = None
        return result

    def _opened(self) -> Engine:
        with self._making:
            if self._engine is None:
                self._engine = self._make()
            return self._engine


def _engine(name: str, place: Place | Path, migrations: Sequence[Migration], max_bytes: int) -> Engine:
    """Raises: StartRefused: a URL is no database; StoreUnavailable: what the engine needs is not installed."""
    if not isinstance(place, TablePlace):
        from toolgate.powers.sql import SqlEngine  # noqa: PLC0415 (SQLAlchemy, 150 ms, when a store is used)

        return SqlEngine(name, place, migrations, max_bytes)
    try:
        from toolgate.powers.dynamodb import TableEngine  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as fault:
        raise StoreUnavailable(f"store {name} needs DynamoDB support: pip install 'toolgate[dynamodb]'") from fault
    return TableEngine(name, place)


class _OneThread:
    """Work in order, on one daemon thread: an executor's thread would hold the end of the process while an engine hangs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], Out]) -> Future[Out]:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                thread.start()
                self._thread = thread  # only one that runs: the next call tries again
        future: Future[Out] = Future()
        self._queue.put((future, work))
        return future

    def take_no_more(self) -> None:
        """What was submitted is still done."""
        self._queue.put(None)

    def join(self, due: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, due - time.monotonic()))

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as fault:  # noqa: BLE001 (crosses the thread border and is raised by whoever waits)
                future.set_exception(fault)
            else:
                future.set_result(result)


class ReadingStore:
    """A store for tools that may not write."""

    def __init__(self, store: OpenStore) -> None:
        self.name = store.name
        self.shared = store.shared
        self.in_table = store.in_table
        self.untouched = store.untouched
        self.mark = store.mark
        self.run = store.read
        self.run_on_table = store.read_table
        self.probe = store.probe


def _by_store(migrations: Sequence[Migration]) -> dict[str, list[Migration]]:
    stores: dict[str, list[Migration]] = {}
    for step in sorted(migrations, key=lambda step: (step.store, step.version)):
        steps = stores.setdefault(step.store, [])
        if step.version != len(steps) + 1:
            raise ValueError(f"store {step.store}: migration {step.version} does not follow {len(steps)}")
        steps.append(step)
    return stores
