"""SQL stores: SQLite files by default, PostgreSQL by URL; and what they say about the environment (decision 40).

Each store has one thread; work handed to it runs there in one transaction. SQLite transactions that may write are
serialised (`BEGIN IMMEDIATE`); PostgreSQL runs at READ COMMITTED. So what must be atomic is one statement
(`INSERT ... ON CONFLICT`), which both engines agree on.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url, text

from toolgate.errors import StartRefused, StoreUnavailable, ToolgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy.engine import Connection

    from toolgate.model.call import Environment
    from toolgate.model.tool import Migration

Out = TypeVar("Out")

BINDING_STORES: Final = ("false_positives", "consent")
"""Decision 40: only when both are shared and answer is a decision binding."""
PROBE_MAX_AGE_S: Final = 1.0
"""An answer older than this says nothing about now (decision 40)."""
PROBE_INTERVAL_S: Final = 0.25
"""Several probes fit into the age above, so that one slow round trip does not turn the environment."""
CONNECT_TIMEOUT_S: Final = 2
"""The smallest value libpq takes: an unreachable engine is reported, not waited for."""
STATEMENT_TIMEOUT_MS: Final = 8000
"""Below the shortest deadline of a tool (10 s), so that the caller hears `unavailable` and not `timeout`."""
RUN_TIMEOUT_S: Final = 9.0
"""One transaction with its wait for the thread: above the statement's own limit, below the shortest tool deadline."""
SILENT_AFTER_S: Final = 3.0
"""A watched engine that has not answered for this long is not asked again by calls, only by the probe."""
DEAD_PEER_TIMEOUT_MS: Final = 3000
"""Unacknowledged bytes for this long mean the machine behind the connection is gone."""
SQLITE_BUSY_TIMEOUT_S: Final = 5
"""Another process may hold the file's write lock for a transaction; ours last milliseconds."""
_MIGRATION_LOCK: Final = 0x70016A7E
"""PostgreSQL advisory lock that serialises migrations of several servers on one database."""


class StoreTooNew(StoreUnavailable, StartRefused):
    """A newer Toolgate has migrated this store; an older one must not write into tables it does not know."""


class ReadOnlyStoreError(ToolgateError):
    """A `read` tool tried to write."""


class SqlStores:
    """Every store by name. `reading` is the same stores for tools that may not write."""

    def __init__(self, urls: Mapping[str, str], state_dir: Path, migrations: Sequence[Migration]) -> None:
        """Raises: StartRefused: a URL is no store we can open. Nothing is opened here."""
        self._stores: dict[str, SqlStore] = {}
        for name, steps in _by_store(migrations).items():
            default = URL.create("sqlite", database=str(state_dir / "stores" / f"{name}.sqlite3"))
            self._stores[name] = SqlStore(name, _url(name, urls[name]) if name in urls else default, steps)
        self.reading = _Reading(self)
        self._watched = [store for store in self._stores.values() if store.shared]
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._stores

    def get(self, name: str) -> SqlStore:
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

    def close(self) -> None:
        """Let running work end, then close every connection."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(timeout=CONNECT_TIMEOUT_S)
        for store in self._stores.values():
            store.close()

    def _watch(self) -> None:
        while not self._stop.wait(PROBE_INTERVAL_S):
            for store in self._watched:
                store.ask()


class _Reading:
    def __init__(self, stores: SqlStores) -> None:
        self._stores = stores

    def get(self, name: str) -> ReadingStore:
        return ReadingStore(self._stores.get(name))


def environment_of(stores: SqlStores) -> tuple[Environment, tuple[str, ...]]:
    """Local or cloud, and why, from what is already known: never blocks."""
    binding = [stores.get(name) for name in BINDING_STORES if name in stores]
    shared = [store for store in binding if store.shared]
    if not shared or len(binding) < len(BINDING_STORES):
        return "local", ()
    notes = [f"store {store.name} is not on a shared engine" for store in binding if not store.shared]
    notes += [str(store.fault or _silent(store.name)) for store in shared if not store.answered_lately()]
    return ("local", tuple(notes)) if notes else ("cloud", ())


class SqlStore:
    """One store. Opened, and its migrations applied, by whoever needs it first."""

    def __init__(self, name: str, url: URL, migrations: Sequence[Migration]) -> None:
        self.name = name
        self.shared = url.get_backend_name() == "postgresql"
        self.fault: StoreUnavailable | None = None
        """Why the last attempt failed; None when it did not."""
        self.watched = False
        """True while a probe asks regularly."""
        self._url = url
        self._migrations = migrations
        self._engines: tuple[Engine, Engine] | None = None
        self._opening = threading.Lock()
        self._thread = _OneThread(f"toolgate-store-{name}")
        self._answered_at = float("-inf")

    async def run(self, work: Callable[[Connection], Out]) -> Out:
        """One transaction on the store's thread: committed when `work` returns, rolled back when it raises.

        Raises: StoreUnavailable; and whatever `work` raises.
        """
        return await self._submit(work, writing=True)

    async def read(self, work: Callable[[Connection], Out]) -> Out:
        """The same without the right to write. Raises: ReadOnlyStoreError when `work` tries."""
        return await self._submit(work, writing=False)

    async def probe(self) -> bool:
        if self.answered_lately():
            return True
        return await asyncio.to_thread(self.ask)

    def ask(self) -> bool:
        """Ask now, on this thread, and remember the answer. Never raises."""
        with suppress(StoreUnavailable):
            self._transact(_select_one, writing=False)
        return self.fault is None

    def answered_lately(self) -> bool:
        return self.fault is None and time.monotonic() - self._answered_at <= PROBE_MAX_AGE_S

    def close(self) -> None:
        self._thread.close()
        if self._engines is not None:
            for engine in self._engines:
                engine.dispose()

    async def _submit(self, work: Callable[[Connection], Out], *, writing: bool) -> Out:
        if self.watched and time.monotonic() - self._answered_at > SILENT_AFTER_S:
            # An engine that hangs holds the thread; nobody else queues behind it. The probe finds it again.
            raise _silent(self.name)
        submitted = asyncio.wrap_future(self._thread.submit(partial(self._transact, work, writing=writing)))
        try:
            return await asyncio.wait_for(submitted, RUN_TIMEOUT_S)
        except TimeoutError:
            raise _silent(self.name) from None

    def _transact(self, work: Callable[[Connection], Out], *, writing: bool) -> Out:
        try:
            writer, reader = self._open()
            with (writer if writing else reader).begin() as connection:
                result = work(connection)
        except StoreUnavailable as fault:
            self.fault = fault
            raise
        except exc.DBAPIError as fault:
            raise self._translated(fault) from fault
        except exc.TimeoutError as fault:  # no free connection: the engine hangs on the ones we have
            self.fault = _silent(self.name)
            raise self.fault from fault
        self.fault, self._answered_at = None, time.monotonic()
        return result

    def _translated(self, fault: exc.DBAPIError) -> Exception:
        """What the driver said, in our words: its own text may hold addresses and values."""
        sqlstate, sqlite = getattr(fault.orig, "sqlstate", None), getattr(fault.orig, "sqlite_errorname", "")
        if sqlstate == "25006" or sqlite.startswith("SQLITE_READONLY"):
            return ReadOnlyStoreError(f"store {self.name} is read only for this tool")
        # SQLite files a wrong statement (SQLITE_ERROR) under the same class as a file that cannot be opened.
        silent = isinstance(fault, exc.OperationalError | exc.InterfaceError) and sqlite != "SQLITE_ERROR"
        if silent or fault.connection_invalidated:
            self.fault = _silent(self.name)
            return self.fault
        return fault  # a constraint or a wrong statement: the caller's own matter

    def _open(self) -> tuple[Engine, Engine]:
        with self._opening:
            if self._engines is None:
                engines = self._engine(writing=True), self._engine(writing=False)
                try:
                    with engines[0].begin() as connection:
                        migrate(connection, self.name, self._migrations)
                except BaseException:
                    for engine in engines:
                        engine.dispose()
                    raise
                self._engines = engines
            return self._engines

    def _engine(self, *, writing: bool) -> Engine:
        if self.shared:
            return _postgresql(self._url, self.name, writing=writing)
        return _sqlite(self._url, self.name, writing=writing)


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
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
        future: Future[Out] = Future()
        self._queue.put((future, work))
        return future

    def close(self) -> None:
        """Side effects: waits for what was submitted, as long as the engine answers at all."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=CONNECT_TIMEOUT_S)

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

    def __init__(self, store: SqlStore) -> None:
        self.name = store.name
        self.shared = store.shared
        self.run = store.read
        self.probe = store.probe


def migrate(connection: Connection, store: str, migrations: Sequence[Migration]) -> None:
    """Bring the tables of one store to the newest version we know, in the caller's transaction: all steps or none.

    Raises: StoreTooNew.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS toolgate_schema (store TEXT PRIMARY KEY, version INTEGER NOT NULL)"
    )
    found = (
        connection.execute(text("SELECT version FROM toolgate_schema WHERE store = :store"), {"store": store}).scalar()
        or 0
    )
    known = migrations[-1].version
    if found > known:
        raise StoreTooNew(
            f"store {store} has schema version {found}, this Toolgate knows {known}. Use the Toolgate that wrote it."
        )
    for step in migrations[found:]:
        for statement in step.statements:
            connection.exec_driver_sql(statement)
    connection.execute(
        text(
            "INSERT INTO toolgate_schema (store, version) VALUES (:store, :version)"
            " ON CONFLICT (store) DO UPDATE SET version = excluded.version"
        ),
        {"store": store, "version": known},
    )


def _by_store(migrations: Sequence[Migration]) -> dict[str, list[Migration]]:
    stores: dict[str, list[Migration]] = {}
    for step in sorted(migrations, key=lambda step: (step.store, step.version)):
        steps = stores.setdefault(step.store, [])
        if step.version != len(steps) + 1:
            raise ValueError(f"store {step.store}: migration {step.version} does not follow {len(steps)}")
        steps.append(step)
    return stores


def _url(name: str, given: str) -> URL:
    """Raises: StartRefused. The URL itself is never quoted: it may hold a password."""
    try:
        url = make_url(given)
    except (exc.ArgumentError, ValueError):
        url = URL.create("nothing")
    if url.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise StartRefused(
        f"stores.{name} is not a store Toolgate can open. Use postgresql://USER@HOST/DATABASE or sqlite:////absolute/path."
    )


def _silent(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"store {name} does not answer")


def _select_one(connection: Connection) -> None:
    connection.exec_driver_sql("SELECT 1")


def _postgresql(url: URL, name: str, *, writing: bool) -> Engine:
    options = f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={STATEMENT_TIMEOUT_MS}"
    if not writing:
        options += " -c default_transaction_read_only=on"
    try:
        return create_engine(
            url,
            pool_size=2,  # the store's thread and the probe
            max_overflow=0,
            pool_timeout=CONNECT_TIMEOUT_S,
            pool_pre_ping=True,  # a restarted engine is found again without a failed call
            hide_parameters=True,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "tcp_user_timeout": DEAD_PEER_TIMEOUT_MS,
                "application_name": f"toolgate-{name}",
                "options": options,
            },
        )
    except ModuleNotFoundError as fault:
        raise StoreUnavailable(f"store {name} needs PostgreSQL support: pip install 'toolgate[postgres]'") from fault


def _sqlite(url: URL, name: str, *, writing: bool) -> Engine:
    assert url.database is not None
    try:
        _private_file(Path(url.database))
    except OSError as fault:
        raise StoreUnavailable(f"store {name}: its file cannot be created or opened") from fault
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The driver's implicit BEGIN comes only before the first write: read-then-write would not be one transaction.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"query_only={int(not writing)}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _private_file(path: Path) -> None:
    """Nobody else on the machine reads the store; SQLite gives its side files the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
