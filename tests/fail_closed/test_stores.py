"""PostgreSQL is broken under a real server; the page says what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from socket import AF_UNIX, SHUT_RDWR, create_server, socket
from subprocess import CalledProcessError
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fail_closed.page import READY, Table, ended, readiness
from tests.homes import Home, Server, make_home
from tests.powers.sql.postgres import Postgres, shared_postgres
from tests.waiting import until

TABLE = Table("stores")
CONSENT = {"orgId": "acme", "checkType": "required_for_operation", "tool": "query_fp_store", "operation": "fp_rate"}


class Road:
    """To a PostgreSQL over TCP, through this process: what is connected can be cut off."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._listener = create_server(("127.0.0.1", 0))
        self.user = parts.username
        self._open: set[socket] = set()
        Thread(target=self._accept, daemon=True).start()

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self._listener.getsockname()[1]}/{database}"

    def cut(self) -> None:
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket(AF_UNIX)
            try:
                far.connect(self._to)
            except OSError:
                near.close()
                far.close()
                continue
            self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket, other: socket) -> None:
        with suppress(OSError):
            while piece := one.recv(1 << 16):
                other.sendall(piece)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(SHUT_RDWR)
            end.close()
            self._open.discard(end)


class Deployment:
    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.postgres = postgres
        urls = [postgres.new_database() for _ in range(2)]
        self.names = [urlsplit(url).path.removeprefix("/") for url in urls]
        self.road = Road(urls[0])
        stores = "\n".join(
            f'{store} = "{self.road.url(name)}"'
            for store, name in zip(("false_positives", "consent"), self.names, strict=True)
        )
        self.home: Home = make_home(folder / "home", packs=("governance", "unruly"), settings=f"[stores]\n{stores}\n")
        self.server: Server

    @contextmanager
    def down(self) -> Iterator[None]:
        self.postgres.stop()
        try:
            yield
        finally:
            self.postgres.start()

    def hanging(self) -> AbstractContextManager[None]:
        return self.postgres.hanging()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self._each("SET default_transaction_read_only = on")
        self.road.cut()
        try:
            yield
        finally:
            self._each("RESET default_transaction_read_only")
            self.road.cut()

    def fail_over(self) -> None:
        """The databases are gone, with all connections; others that hold the same answer by their names."""
        for name in self.names:
            self.postgres.psql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false;")
            self.postgres.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}';")
            until(lambda name=name: self._copied(name), "the other server has everything")  # type: ignore[misc]
            self.postgres.psql(
                f"ALTER DATABASE {name} RENAME TO {name}_gone;\nALTER DATABASE {name}_new RENAME TO {name};"
            )

    def _copied(self, name: str) -> bool:
        """False: a connection of the old one has not ended yet."""
        try:
            self.postgres.psql(f"CREATE DATABASE {name}_new TEMPLATE {name};")
        except CalledProcessError:
            return False
        return True

    def _each(self, change: str) -> None:
        for name in self.names:
            self.postgres.psql(f"ALTER DATABASE {name} {change};")

    def read(self) -> str:
        return self._ended("check_consent_requirements", CONSENT)

    def write(self, nonce: str) -> str:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        checked = {"nonceValidation": {"nonce": f"nonce-0123456789-{nonce}", "timestamp": now}}
        return self._ended("validate_l0_invariants", checked)

    def other(self) -> str:
        return self._ended("unruly_echo", {})

    def _ended(self, tool: str, arguments: Any) -> str:
        return ended(self.home, self.server, tool, arguments)


FAULTS: dict[str, Callable[[Deployment], AbstractContextManager[None]]] = {
    "PostgreSQL is down, and is started again": Deployment.down,
    "PostgreSQL hangs": Deployment.hanging,
    "PostgreSQL is read-only": Deployment.read_only,
}
FAILOVER = "PostgreSQL fails over: connections end, another server answers"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    found = Deployment(tmp_path, shared_postgres())
    with found.home.serving() as found.server:
        until(lambda: readiness(found.server) == READY, "it is ready")
        yield found
    found.road.close()


@pytest.mark.guard
@pytest.mark.parametrize("fault", FAULTS)
def test_while_postgresql_is_broken_nothing_is_granted(fault: str, deployment: Deployment) -> None:
    assert (deployment.read(), deployment.write("before")) == ("`block` `CONSENT_REQUIRED`", "`pass`")
    with FAULTS[fault](deployment):
        ready = until(lambda: readiness(deployment.server).removesuffix(READY), "it is not ready")
        read, write = deployment.read(), deployment.write("during")
        assert deployment.other() == "OK"
    until(lambda: readiness(deployment.server) == READY, "it is ready")
    assert deployment.read() == "`block` `CONSENT_REQUIRED`"
    assert "pass" not in write
    calls = f"a consent that is asked for: {read}; a nonce: {write}; tools without a store: OK"
    TABLE.hold(fault, calls, ready, "`environment: local` in answers", "by itself")


@pytest.mark.guard
def test_after_a_failover_the_next_calls_find_the_new_server(deployment: Deployment) -> None:
    """What was spent before is known by the server that takes over, and nobody can spend it twice."""
    assert deployment.write("spent") == "`pass`"
    deployment.fail_over()
    until(lambda: deployment.read() == "`block` `CONSENT_REQUIRED`", "the new server is asked")
    fresh = count()
    until(lambda: deployment.write(f"fresh-{next(fresh)}") == "`pass`", "a new one is good")
    until(lambda: readiness(deployment.server) == READY, "it is ready")
    again = deployment.write("spent")
    assert "pass" not in again
    calls = (
        f"a call that meets the change may fail as when it is down; then as before: a nonce that was spent is {again}"
    )
    TABLE.hold(FAILOVER, calls, READY, "only that", "by itself, with new connections")


def test_the_page_has_a_row_for_each_fault_and_no_other() -> None:
    assert TABLE.faults() == sorted([*FAULTS, FAILOVER])
