"""The SQL power, the same suite on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import stat
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import toolgate.powers.sql
from tests.homes import PATIENCE_S
from tests.support import let_stores_wait
from tests.waiting import until
from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.kit.sql import sql
from toolgate.model.tool import Migration
from toolgate.powers.stores import OpenStore, OpenStores, ReadOnlyStoreError, StoreTooNew, environment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy.engine import Connection

    from tests.powers.sql.postgres import Postgres

ONE = Migration("notes", 1, ["CREATE TABLE notes (id TEXT PRIMARY KEY, n BIGINT NOT NULL)"])
TWO = Migration(
    "notes", 2, ["ALTER TABLE notes ADD COLUMN colour TEXT", "INSERT INTO notes (id, n) VALUES ('made-by-two', 2)"]
)

Open = "Callable[..., OpenStores]"


@pytest.fixture(params=["sqlite", "postgresql"])
def open_stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., OpenStores]]:
    """Open the same store again and again, with these migrations."""
    urls = {}
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        urls["notes"] = server.new_database()
    opened: list[OpenStores] = []

    def open_(*migrations: Migration) -> OpenStores:
        opened.append(OpenStores(urls, tmp_path, migrations or [ONE]))
        return opened[-1]

    yield open_
    for stores in opened:
        stores.close()


def insert(identity: str, n: int = 0) -> Callable[[Connection], None]:
    def work(connection: Connection) -> None:
        connection.execute(sql("INSERT INTO notes (id, n) VALUES (:id, :n)"), {"id": identity, "n": n})

    return work


def count(connection: Connection) -> int:
    return int(connection.execute(sql("SELECT COUNT(*) FROM notes")).scalar_one())


def test_work_is_committed_when_it_returns(open_stores: Callable[..., OpenStores]) -> None:
    asyncio.run(open_stores().get("notes").run(insert("a")))
    assert asyncio.run(open_stores().get("notes").run(count)) == 1


def test_work_is_rolled_back_when_it_raises(open_stores: Callable[..., OpenStores]) -> None:
    store = open_stores().get("notes")

    def work(connection: Connection) -> None:
        insert("a")(connection)
        raise LookupError("changed my mind")

    with pytest.raises(LookupError):
        asyncio.run(store.run(work))
    assert asyncio.run(store.run(count)) == 0


def test_the_reading_handle_reads_and_cannot_write(open_stores: Callable[..., OpenStores]) -> None:
    stores = open_stores()
    asyncio.run(stores.get("notes").run(insert("a")))
    reading = stores.reading.get("notes")
    assert asyncio.run(reading.run(count)) == 1
    with pytest.raises(ReadOnlyStoreError):
        asyncio.run(reading.run(insert("b")))
    assert asyncio.run(reading.run(count)) == 1


def test_the_reading_handle_opens_a_store_nobody_has_used_yet(open_stores: Callable[..., OpenStores]) -> None:
    assert asyncio.run(open_stores().reading.get("notes").run(count)) == 0


def test_twenty_writers_on_three_handles_lose_no_increment(
    open_stores: Callable[..., OpenStores], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_stores_wait(monkeypatch)
    handles = [open_stores().get("notes") for _ in range(3)]

    def increment(connection: Connection) -> None:
        connection.execute(
            sql("INSERT INTO notes (id, n) VALUES ('c', 1) ON CONFLICT (id) DO UPDATE SET n = notes.n + 1")
        )

    async def all_at_once() -> int:
        await asyncio.gather(*(handles[i % 3].run(increment) for i in range(20) for _ in range(2)))
        return await handles[0].run(lambda c: int(c.execute(sql("SELECT n FROM notes WHERE id = 'c'")).scalar_one()))

    assert asyncio.run(all_at_once()) == 40


def test_migrations_run_once_in_order_and_keep_the_data(open_stores: Callable[..., OpenStores]) -> None:
    asyncio.run(open_stores(ONE).get("notes").run(insert("old")))
    for _ in range(2):
        assert asyncio.run(open_stores(TWO, ONE).get("notes").run(count)) == 2


def test_a_failing_migration_leaves_nothing_behind(open_stores: Callable[..., OpenStores]) -> None:
    broken = Migration("notes", 2, ["INSERT INTO notes (id, n) VALUES ('half', 1)", "INSERT INTO nowhere VALUES (1)"])
    with pytest.raises(Exception, match="nowhere"):
        asyncio.run(open_stores(ONE, broken).get("notes").run(count))
    assert asyncio.run(open_stores(ONE).get("notes").run(count)) == 0


def test_a_newer_schema_is_refused_by_name(open_stores: Callable[..., OpenStores]) -> None:
    asyncio.run(open_stores(ONE, TWO).get("notes").run(count))
    older = open_stores(ONE)
    with pytest.raises(StoreTooNew, match=r"store notes has schema version 2, this Toolgate knows 1"):
        asyncio.run(older.get("notes").run(count))
    if older.get("notes").shared:
        with pytest.raises(StartRefused, match="store notes"):
            older.start()


def test_a_store_answers_its_probe(open_stores: Callable[..., OpenStores]) -> None:
    assert asyncio.run(open_stores().get("notes").probe()) is True


def test_f7_a_statement_without_end_is_interrupted_and_the_store_goes_on(
    open_stores: Callable[..., OpenStores], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All callers of a store share its thread: work that nothing ends would be the end of the store."""
    monkeypatch.setattr(toolgate.powers.sql, "STATEMENT_TIMEOUT_MS", 200)
    store = open_stores().get("notes")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT COUNT(*) FROM n"

    def work(connection: Connection) -> None:
        insert("half")(connection)
        connection.execute(sql(endless))

    with pytest.raises(StoreUnavailable):
        asyncio.run(store.run(work))
    assert asyncio.run(store.run(count)) == 0


def test_a_sqlite_store_grows_no_larger_than_it_may_and_is_still_read(tmp_path: Path) -> None:
    most = 64 * 4096
    store = OpenStores({}, tmp_path, [ONE], max_bytes=most).get("notes")

    def fill(connection: Connection) -> None:
        for number in range(10_000):
            connection.execute(sql("INSERT INTO notes (id, n) VALUES (:id, 1)"), {"id": f"{number:01000}"})

    asyncio.run(store.run(insert("first")))
    with pytest.raises(StoreUnavailable, match="takes no writes"):
        asyncio.run(store.run(fill))
    assert (tmp_path / "stores" / "notes.sqlite3").stat().st_size <= most
    assert asyncio.run(store.read(count)) == 1, "nothing of the refused work is there"
    asyncio.run(store.run(insert("second")))
    store.close()


def test_a_constraint_is_the_callers_own_matter(open_stores: Callable[..., OpenStores]) -> None:
    from sqlalchemy.exc import IntegrityError

    store = open_stores().get("notes")
    asyncio.run(store.run(insert("a")))
    with pytest.raises(IntegrityError):
        asyncio.run(store.run(insert("a")))
    assert asyncio.run(store.probe()) is True


def test_a_cancellation_that_meets_the_result_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `asyncio.wait_for` of Python 3.11 loses it: whoever was to stop would then go on."""
    stores = OpenStores({}, tmp_path, [ONE])
    store = stores.get("notes")
    work: Future[int] = Future()
    monkeypatch.setattr(store._thread, "submit", lambda _: work)

    async def run() -> None:
        task = asyncio.create_task(store.run(count))
        await asyncio.sleep(0)  # it waits
        work.set_result(1)
        await asyncio.sleep(0)  # the loop has the result, the task has not yet been told
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    stores.close()


def test_the_sqlite_file_is_private_and_made_on_first_use_only(tmp_path: Path) -> None:
    stores = OpenStores({}, tmp_path, [ONE])
    assert list(tmp_path.iterdir()) == []
    asyncio.run(stores.get("notes").run(count))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "stores").iterdir()}
    stores.close()
    assert modes["notes.sqlite3"] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_sqlite_file_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "stores").write_text("a file where the folder should be")
    stores = OpenStores({}, tmp_path, [ONE])
    with pytest.raises(StoreUnavailable, match="store notes"):
        asyncio.run(stores.get("notes").run(count))
    assert asyncio.run(stores.get("notes").probe()) is False
    stores.close()


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/db", "sqlite://", "sqlite:///:memory:", "nonsense hunter2", ""])
def test_a_url_we_cannot_open_refuses_the_start_without_quoting_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"stores\.notes") as refused:
        OpenStores({"notes": url}, tmp_path, [ONE])
    assert "hunter2" not in str(refused.value)


def test_an_unreachable_postgresql_is_unavailable_and_says_no_address(tmp_path: Path) -> None:
    stores = OpenStores({"notes": "postgresql://u:hunter2@127.0.0.1:1/db"}, tmp_path, [ONE])
    with pytest.raises(StoreUnavailable) as fault:
        asyncio.run(stores.get("notes").run(count))
    assert str(fault.value) == "store notes does not answer"
    stores.close()


def test_migrations_with_a_gap_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="store notes: migration 2 does not follow 0"):
        OpenStores({}, tmp_path, [TWO])


def test_naming_a_statement_loads_no_engine_before_its_first_use() -> None:
    program = "import sys, toolgate.kit.sql; assert 'sqlalchemy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


NAMES = ("false_positives", "consent")
BINDING = [Migration(name, 1, [f"CREATE TABLE {name}_t (n BIGINT)"]) for name in NAMES]


def eventually(stores: OpenStores, environment: str) -> tuple[str, ...]:
    """The notes, once the environment is this."""

    def look() -> tuple[tuple[str, ...]] | None:
        found, notes = environment_of(stores)
        return (notes,) if found == environment else None

    found = until(look, f"the environment is {environment}")
    assert found is not None
    return found[0]


@contextmanager
def not_asked_by_callers(store: OpenStore) -> Iterator[None]:
    """Only the thread that watches the stores asks the engine meanwhile: no caller waits for it."""
    asking: list[str] = []
    ask = store._transact

    def noted(*arguments: Any, **more: Any) -> Any:
        asking.append(threading.current_thread().name)
        return ask(*arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_transact", noted)
        yield
    assert [name for name in asking if name != "toolgate-store-probe"] == []


def test_the_environment_is_local_on_embedded_stores(tmp_path: Path) -> None:
    stores = OpenStores({}, tmp_path, BINDING, NAMES)
    stores.start()
    assert environment_of(stores) == ("local", ())
    stores.close()


def test_the_environment_is_local_when_no_pack_has_a_binding_store(postgres: Postgres, tmp_path: Path) -> None:
    stores = OpenStores({"consent": postgres.new_database()}, tmp_path, [BINDING[1]], [])
    stores.start()
    assert environment_of(stores) == ("local", ())
    stores.close()


def test_w08_one_shared_store_of_two_is_local_and_says_why(postgres: Postgres, tmp_path: Path) -> None:
    stores = OpenStores({"consent": postgres.new_database()}, tmp_path, BINDING, NAMES)
    stores.start()
    assert environment_of(stores) == ("local", ("store false_positives is not on a shared engine",))
    stores.close()


def test_w08_a_url_alone_does_not_make_the_environment_cloud(tmp_path: Path) -> None:
    dead = "postgresql://u@127.0.0.1:1/db"
    stores = OpenStores({"consent": dead, "false_positives": dead}, tmp_path, BINDING, NAMES)
    assert environment_of(stores)[0] == "local"
    stores.start()
    environment, notes = environment_of(stores)
    assert environment == "local"
    assert notes == ("store false_positives does not answer", "store consent does not answer")
    stores.close()


def test_stopping_postgresql_turns_the_environment_local_and_starting_it_restores_cloud(
    postgres: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolgate.stores")
    url = postgres.new_database()
    stores = OpenStores({"consent": url, "false_positives": url}, tmp_path, BINDING, NAMES)
    stores.start()
    assert environment_of(stores) == ("cloud", ())
    postgres.stop()
    try:
        assert set(eventually(stores, "local")) <= {
            "store consent does not answer",
            "store false_positives does not answer",
        }
        with not_asked_by_callers(stores.get("consent")):
            assert environment_of(stores)[0] == "local"
        with pytest.raises(StoreUnavailable):
            asyncio.run(stores.get("consent").run(lambda c: c.exec_driver_sql("SELECT 1").scalar()))
    finally:
        postgres.start()
    assert eventually(stores, "cloud") == ()
    assert asyncio.run(stores.get("consent").run(lambda c: c.exec_driver_sql("SELECT 1").scalar())) == 1
    stores.close()
    said = [record.levelname for record in caplog.records if "consent" in record.getMessage()]
    assert (said[0], said[-1]) == ("WARNING", "INFO"), caplog.messages


@pytest.mark.guard
def test_an_engine_that_hangs_is_noticed_and_nobody_queues_behind_it(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.new_database()
    stores = OpenStores({"consent": url, "false_positives": url}, tmp_path, BINDING, NAMES)
    stores.start()

    def ask() -> None:
        asyncio.run(stores.get("consent").run(lambda c: c.exec_driver_sql("SELECT 1").scalar()))

    ask()
    with postgres.hanging():
        assert eventually(stores, "local"), "it says which store; which of the two is noticed first is chance"
        with pytest.raises(StoreUnavailable):  # at most the time one transaction may take
            ask()
        with not_asked_by_callers(stores.get("consent")):
            for _ in range(10):
                with pytest.raises(StoreUnavailable):
                    ask()
    eventually(stores, "cloud")
    ask()
    stores.close()


def test_a_reader_finds_a_restarted_engine_without_a_failed_call(postgres: Postgres, tmp_path: Path) -> None:
    stores = OpenStores({"notes": postgres.new_database()}, tmp_path, [ONE])
    asyncio.run(stores.get("notes").run(insert("a")))
    reading = stores.reading.get("notes")
    assert asyncio.run(reading.run(count)) == 1
    postgres.stop()
    postgres.start()
    assert asyncio.run(reading.run(count)) == 1
    postgres.stop()
    with pytest.raises(StoreUnavailable):
        asyncio.run(reading.run(count))
    postgres.start()
    assert asyncio.run(reading.run(count)) == 1
    stores.close()


def test_a_reader_of_postgresql_writes_nothing_without_a_transaction_around_it(
    postgres: Postgres, tmp_path: Path
) -> None:
    stores = OpenStores({"notes": postgres.new_database()}, tmp_path, [ONE])
    reading = stores.reading.get("notes")
    with pytest.raises(ReadOnlyStoreError):
        asyncio.run(reading.run(insert("a")))
    assert asyncio.run(reading.run(count)) == 0
    stores.close()


@pytest.mark.guard
def test_processes_that_open_a_new_store_at_once_migrate_it_once_and_lose_nothing(tmp_path: Path) -> None:
    program = f"""
import asyncio
from pathlib import Path
from toolgate.kit.sql import sql
from toolgate.model.tool import Migration
from toolgate.powers.stores import OpenStores
stores = OpenStores({{}}, Path({str(tmp_path)!r}), [Migration(*{("notes", 1, list(ONE.statements))!r})])
statement = "INSERT INTO notes (id, n) VALUES ('c', 1) ON CONFLICT (id) DO UPDATE SET n = notes.n + 1"
for _ in range(20):
    asyncio.run(stores.get("notes").run(lambda connection: connection.execute(sql(statement)) and None))
stores.close()
"""
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [process.wait(2 * PATIENCE_S) for process in processes] == [0] * 4
    stores = OpenStores({}, tmp_path, [ONE])
    assert asyncio.run(stores.get("notes").run(lambda c: c.exec_driver_sql("SELECT n FROM notes").scalar())) == 80
    stores.close()


@pytest.mark.guard
def test_processes_that_open_a_new_postgresql_store_at_once_wait_for_the_one_that_migrates_it(
    postgres: Postgres, tmp_path: Path
) -> None:
    """One of them is killed in the middle: the next begins anew. None gives up, and none migrates what is migrated."""
    url = postgres.new_database()
    slow = ["CREATE TABLE opened (n INTEGER)", "INSERT INTO opened VALUES (1)", "SELECT pg_sleep(0.3)"]
    program = f"""
import asyncio
from pathlib import Path
from toolgate.model.tool import Migration
from toolgate.powers import stores as powers
stores = powers.OpenStores({{"notes": {url!r}}}, Path({str(tmp_path)!r}), [Migration("notes", 1, {slow!r})])
print("begun", flush=True)
asyncio.run(stores.get("notes").run(lambda connection: None))
stores.close()
"""
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    processes[0].kill()
    ended = [process.wait(2 * PATIENCE_S) for process in processes]
    for process in processes:
        process.communicate()
    assert ended[1:] == [0] * 3
    stores = OpenStores({"notes": url}, tmp_path, [Migration("notes", 1, slow)])
    rows = asyncio.run(stores.get("notes").run(lambda c: c.exec_driver_sql("SELECT count(*) FROM opened").scalar()))
    stores.close()
    assert rows == 1
