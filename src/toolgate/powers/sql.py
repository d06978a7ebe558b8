"""Stores in SQL: SQLite files by default, PostgreSQL by URL.

SQLite transactions that may write are serialised (`BEGIN IMMEDIATE`); PostgreSQL runs at READ COMMITTED, which for a reader is
one statement by itself. So what must be
atomic is one statement (`INSERT ... ON CONFLICT`), which both engines agree on.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url, text

from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.powers.stores import CONNECT_TIMEOUT_S, ReadOnlyStoreError, StoreTooNew, TakesNoWrites, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.engine import Connection

    from toolgate.model.powers import Unchanged
    from toolgate.model.tool import Migration

Out = TypeVar("Out")

STATEMENT_TIMEOUT_MS: Final = 8000
"""Below the shortest deadline of a tool (10 s), so that the caller hears `unavailable` and not `timeout`. PostgreSQL holds
each statement to it, SQLite the whole transaction."""
SQLITE_STEPS: Final = 10_000
"""Of its machine, between two looks at the clock: less than a millisecond."""
DEAD_PEER_TIMEOUT_MS: Final = 3000
"""Unacknowledged bytes for this long mean the machine behind the connection is gone."""
SQLITE_BUSY_TIMEOUT_S: Final = 5
"""Another process may hold the file's write lock for a transaction; ours last milliseconds."""
_MIGRATION_LOCK: Final = 0x70016A7E
"""PostgreSQL advisory lock that serialises migrations of several servers on one database."""


class SqlEngine:
    """One store's database. Opened, and its migrations applied, by whoever needs it first."""

    def __init__(self, name: str, place: str | Path, migrations: Sequence[Migration], max_bytes: int) -> None:
        """`place`: a URL, or the path of a SQLite file, which grows no larger than `max_bytes`.

        Raises: StartRefused: the URL is no database we can open.
        """
        self._name = name
        self._max_bytes = max_bytes
        self._url = URL.create("sqlite", database=str(place)) if isinstance(place, Path) else _url(name, place)
        self._migrations = migrations
        self._engines: tuple[Engine, Engine] | None = None
        self._changes: _Changes | None = None
        self._opening = threading.Lock()

    def transact(self, work: Callable[[Connection], Out], *, writing: bool) -> Out:
        """One transaction. Raises: StoreUnavailable, ReadOnlyStoreError; and whatever `work` raises."""
        try:
            writer, reader = self._open()
            return self._once(writer, work) if writing else self._read(reader, work)
        except exc.DBAPIError as fault:
            raise self._translated(fault, writing=writing) from fault
        except exc.TimeoutError as fault:  # no free connection: the engine hangs on the ones we have
            raise silent(self._name) from fault

    def _once(self, engine: Engine, work: Callable[[Connection], Out]) -> Out:
        with engine.begin() as connection:
            return work(connection)

    def _read(self, reader: Engine, work: Callable[[Connection], Out]) -> Out:
        """Once more if the engine was restarted: a connection that ended is found by using it, not by a round trip before."""
        try:
            return self._once(reader, work)
        except exc.DBAPIError as fault:
            if not fault.connection_invalidated:
                raise
        return self._once(reader, work)

    def ask(self) -> None:
        """Raises: StoreUnavailable: also when the engine answers and takes no writes, as after a failover."""
        if self._url.get_backend_name() == "postgresql":
            if self.transact(_takes_no_writes, writing=True):
                raise TakesNoWrites(self._name)
        else:
            self.transact(_select_one, writing=False)

    def mark(self) -> Unchanged | None:
        """None: not open yet, busy, or PostgreSQL, where asking would be the same round trip as reading."""
        return None if self._changes is None else self._changes.mark()

    def close(self) -> None:
        if self._changes is not None:
            self._changes.close()
        if self._engines is not None:
            for engine in self._engines:
                engine.dispose()

    def _translated(self, fault: exc.DBAPIError, *, writing: bool) -> Exception:
        """What the driver said, in our words: its own text may hold addresses and values."""
        sqlstate, sqlite = getattr(fault.orig, "sqlstate", None), getattr(fault.orig, "sqlite_errorname", "")
        if sqlstate == "25006" or sqlite.startswith("SQLITE_READONLY"):
            return TakesNoWrites(self._name) if writing else ReadOnlyStoreError(self._name)
        if sqlite == "SQLITE_FULL":  # its own bound, or the disk
            return TakesNoWrites(self._name)
        # SQLite files a wrong statement (SQLITE_ERROR) under the same class as a file that cannot be opened.
        unanswered = isinstance(fault, exc.OperationalError | exc.InterfaceError) and sqlite != "SQLITE_ERROR"
        if unanswered or fault.connection_invalidated:
            return silent(self._name)
        return fault  # a constraint or a wrong statement: the caller's own matter

    def _open(self) -> tuple[Engine, Engine]:
        with self._opening:
            if self._engines is None:
                engines = self._engine(writing=True), self._engine(writing=False)
                try:
                    with engines[0].begin() as connection:
                        migrate(connection, self._name, self._migrations)
                    if self._url.get_backend_name() == "sqlite":
                        self._changes = _Changes(engines[1])
                except BaseException:
                    for engine in engines:
                        engine.dispose()
                    raise
                self._engines = engines
            return self._engines

    def _engine(self, *, writing: bool) -> Engine:
        if self._url.get_backend_name() == "postgresql":
            return _postgresql(self._url, self._name, writing=writing)
        return _sqlite(self._url, self._name, self._max_bytes, writing=writing)


class _Changes:
    """Whether anybody has committed to a SQLite file: a connection of its own that does nothing but ask. 4 us a question.

    `data_version` differs after a commit of any other connection, here or in another process; numbers of two connections say
    nothing about each other, so there is one for all marks. It takes and gives back the lock of a reader,
    which waits for no writer.
    """

    def __init__(self, reader: Engine) -> None:
        self._connection = reader.raw_connection()
        driver: Any = self._connection.driver_connection
        self._driver = driver
        self._connection.detach()
        self._driver.execute("PRAGMA busy_timeout=0")

    def mark(self) -> Unchanged | None:
        now = self._version()
        return None if now is None else partial(self._is_still, now)

    def close(self) -> None:
        self._connection.close()

    def _is_still(self, then: int) -> bool:
        return self._version() == then

    def _version(self) -> int | None:
        """None: the file is closed, or another process puts it in order after a crash. Whoever reads it finds out."""
        try:
            (found,) = self._driver.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        return int(found)


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
        raise StoreTooNew(store, found, known)
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


def _takes_no_writes(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on")


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
            pool_pre_ping=writing,  # a restarted engine is found again without a failed call; reading, see `_read`
            # At READ COMMITTED a statement sees what is committed when it begins: for a reader BEGIN and COMMIT change nothing.
            **({} if writing else {"isolation_level": "AUTOCOMMIT"}),
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


def _sqlite(url: URL, name: str, max_bytes: int, *, writing: bool) -> Engine:
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
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count={max_bytes // page_bytes}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        due = time.monotonic() + STATEMENT_TIMEOUT_MS / 1000
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() > due, SQLITE_STEPS)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _private_file(path: Path) -> None:
    """Nobody else on the machine reads the store; SQLite gives its side files the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
