"""What a server that is ready has loaded, and what still waits for the call that needs it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.homes import PATIENCE_S, environment, make_home

ALL_PACKS = ("consensus", "governance", "library", "lra")
WAITING = {
    "cryptography": "signing keys",
    "http.client": "nothing: the way out is our own",
    "pydantic": "nothing: typer asks for it from 0.29 on",
    "rich": "help and tables for people",
    "sqlalchemy": "stores",
    "sqlite3": "stores and the search index",
    "toolgate.packs.lra.build.reading": "lra build, lra export and lra serve",
    "toolgate.packs.lra.cli.making.pandoc": "lra build, lra export and lra serve",
    "toolgate.powers.net": "tools that fetch",
    "tinycss2": "judging a paper, in a worker",
    "turbohtml": "judging a paper, in a worker",
    "xml.sax": "JUnit reports",
}
"""Modules of some milliseconds and megabytes each, and what they are for."""


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def modules_loaded(
    command: Sequence[str], report: Path, *, key: str = "", asked: bytes = b""
) -> tuple[bytes, set[str]]:
    """(the first line it told, modules) of a server that became ready and was then stopped.

    `-X importtime` writes a line for each module, its name last.
    """
    with (
        report.open("wb") as lines,
        subprocess.Popen(
            [sys.executable, "-X", "importtime", *command],
            env=environment() | {"TOOLGATE_API_KEY": key},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=lines,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        overdue = threading.Timer(PATIENCE_S, server.kill)
        overdue.start()
        server.stdin.write(asked)
        server.stdin.flush()
        told = server.stdout.readline()
        server.terminate()
        assert server.wait() == 0
        overdue.cancel()
    written = report.read_text().splitlines()
    return told, {line.rpartition("|")[2].strip() for line in written if line.startswith("import time:")}


def test_a_server_with_every_pack_is_ready_before_it_loads_what_only_some_calls_need(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=ALL_PACKS)
    told, loaded = modules_loaded(home.command("serve", "--port", "0", "--json"), tmp_path / "report")
    assert b'"ready":true' in told
    assert {"toolgate.app", "toolgate.packs.lra.tools.author", "toolgate.servers.connection"} <= loaded
    assert loaded & set(WAITING) == set()


def test_a_server_on_standard_input_loads_nothing_of_http(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=ALL_PACKS)
    told, loaded = modules_loaded(home.command("stdio"), tmp_path / "report", key=home.keys["builder"], asked=PING)
    assert b'"result":{}' in told
    assert {"toolgate.app", "toolgate.servers.stdio"} <= loaded
    assert loaded.isdisjoint({"toolgate.servers.http", "toolgate.servers.connection", *WAITING})
