from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.clients import install
from scripts.clients.drivers.steps import SLOTS
from tests.homes import Home, Server, environment, make_home
from tests.support import need
from toolgate.packs.loader import built_in

RUN_S = 150.0
"""Seconds for all steps of one client: each has a bound of its own, and none of them should need it."""


TRANSPORTS = ("http", "stdio")
AT_ONCE = 2
"""Clients that run side by side: most of what they do is starting."""
SPARE_KEYS = 10
LOG_BLOCKS = 24
"""Blocks of 512 bytes that the audit log of a full server may have: some forty records."""


@dataclass(frozen=True)
class Place:
    """A server to point clients at, over both transports."""

    home: Home
    server: Server
    spare: Sequence[str] = ()
    """Further keys of builders: a key has few slots, and clients that run side by side need one each."""
    within: Sequence[str] = ()
    """What starts the server of a pipe, to hold it to a limit."""

    def where(self, transport: str, key: str = "") -> dict[str, Any]:
        key = key or self.home.keys["builder"]
        if transport == "http":
            return {"url": self.server.ready["mcp"], "key": key}
        return {"command": [*self.within, *self.home.command("stdio")], "env": environment(TOOLGATE_API_KEY=key)}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = make_home(
        tmp_path_factory.mktemp("clients") / "home",
        packs=("governance", "wiretest"),
        settings=f"[limits]\nconcurrency_per_caller = {SLOTS}\n",
    )
    spare = [home.ring().create("builder")[1] for _ in range(SPARE_KEYS)]
    with home.serving() as server:
        yield Place(home, server, spare)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with every pack that ships with Toolgate."""
    home = make_home(tmp_path_factory.mktemp("whole") / "home", packs=built_in())
    with home.serving() as server:
        yield Place(home, server)


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server whose audit log is soon full: a real limit on a real process."""
    home = make_home(tmp_path_factory.mktemp("full") / "home", packs=("governance", "wiretest"))
    within = ("sh", "-c", f'ulimit -f {LOG_BLOCKS}; exec "$@"', "sh")
    with home.serving(within=within) as server:
        yield Place(home, server, within=within)


@pytest.fixture(scope="session")
def packages() -> Path:
    """The npm packages of the guard; a missing one fails by its name."""
    need("node")
    return install.guard_packages()


def drive(command: list[str], where: Mapping[str, Any], variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a driver to its end; what it tells, by step."""
    done = subprocess.run(
        command,
        input=json.dumps(where),
        env=variables,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    assert lines, done.stderr[-3000:]
    return dict(json.loads(lines[-1]))
