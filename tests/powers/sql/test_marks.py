"""A mark of a store holds exactly as long as nobody, in this process or another, has changed the store."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.homes import PATIENCE_S
from toolgate.kit.sql import sql
from toolgate.model.tool import Migration
from toolgate.powers.stores import OpenStores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.engine import Connection

    from tests.powers.sql.postgres import Postgres

NOTES = Migration("notes", 1, ["CREATE TABLE notes (n BIGINT NOT NULL)"])


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[OpenStores]:
    made = OpenStores({}, tmp_path, [NOTES])
    yield made
    made.close()


def insert(connection: Connection) -> None:
    connection.execute(sql("INSERT INTO notes (n) VALUES (1)"))


def count(connection: Connection) -> int:
    return int(connection.execute(sql("SELECT COUNT(*) FROM notes")).scalar_one())


def run(store: Any, work: Any) -> Any:
    return asyncio.run(store.run(work))


def test_a_store_that_is_not_open_has_no_mark(stores: OpenStores) -> None:
    assert stores.get("notes").mark() is None


def test_a_mark_holds_while_others_read(stores: OpenStores) -> None:
    store = stores.get("notes")
    run(store, insert)
    mark = store.mark()
    assert mark is not None
    assert run(stores.reading.get("notes"), count) == run(store, count) == 1
    assert mark()


@pytest.mark.parametrize("reading", [False, True])
def test_a_mark_ends_with_a_commit_of_this_process(stores: OpenStores, reading: bool) -> None:
    store = stores.get("notes")
    run(store, count)
    mark = (stores.reading if reading else stores).get("notes").mark()
    assert mark is not None
    run(store, insert)
    assert not mark()
    again = store.mark()
    assert again is not None
    assert again()
    assert not mark(), "it never holds again"


def test_a_mark_ends_with_a_commit_of_another_process(stores: OpenStores, tmp_path: Path) -> None:
    store = stores.get("notes")
    run(store, count)
    for _ in range(3):
        mark = store.mark()
        assert mark is not None
        assert mark()
        program = (
            f"import sqlite3; c = sqlite3.connect({str(tmp_path / 'stores' / 'notes.sqlite3')!r});"
            " c.execute('INSERT INTO notes VALUES (2)'); c.commit()"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
        assert not mark()


def test_a_mark_outlives_what_was_rolled_back(stores: OpenStores) -> None:
    store = stores.get("notes")
    run(store, count)
    mark = store.mark()
    assert mark is not None

    def fail(connection: Connection) -> None:
        insert(connection)
        raise LookupError

    with pytest.raises(LookupError):
        run(store, fail)
    assert mark()


def test_a_mark_of_a_closed_store_does_not_hold(stores: OpenStores) -> None:
    store = stores.get("notes")
    run(store, count)
    mark = store.mark()
    assert mark is not None
    stores.close()
    assert not mark()
    assert store.mark() is None


def test_a_mark_waits_for_no_writer_and_ends_when_that_commits(stores: OpenStores, tmp_path: Path) -> None:
    store = stores.get("notes")
    run(store, count)
    mark = store.mark()
    assert mark is not None
    writer = sqlite3.connect(tmp_path / "stores" / "notes.sqlite3", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("INSERT INTO notes VALUES (2)")
    assert mark()
    writer.execute("COMMIT")
    assert not mark()
    writer.close()


def test_postgresql_has_no_mark_because_asking_would_be_reading(postgres: Postgres, tmp_path: Path) -> None:
    stores = OpenStores({"notes": postgres.new_database()}, tmp_path, [NOTES])
    run(stores.get("notes"), insert)
    assert stores.get("notes").mark() is None
    stores.close()
