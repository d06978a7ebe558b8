"""What a server that is ready has loaded, and what still waits for the call that needs it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from tests.homes import PATIENCE_S, TOOLGATE, environment, make_home

ALL_PACKS = ("consensus", "governance", "library", "lra")
WAITING = {
    "cryptography": "signing keys",
    "http.client": "nothing: the way out is httpcore",
    "httpcore2": "tools that fetch",
    "latex2mathml": "lra build",
    "markdown_it": "lra build",
    "pydantic": "nothing: typer asks for it from 0.29 on",
    "rich": "help and tables for people",
    "sqlalchemy": "stores",
    "sqlite3": "stores and the search index",
    "tinycss2": "judging a paper, in a worker",
    "turbohtml": "judging a paper, in a worker",
    "xml.sax": "JUnit reports",
}
"""Modules of some milliseconds and megabytes each, and what they are for."""


def modules_loaded(home: Path, report: Path) -> set[str]:
    """By a server that became ready and was then stopped: `-X importtime` writes a line for each, its name last."""
    command = [sys.executable, "-X", "importtime", TOOLGATE, "serve", "--port", "0", "--json", "--home", str(home)]
    with (
        report.open("wb") as lines,
        subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=lines) as server,
    ):
        assert server.stdout is not None
        overdue = threading.Timer(PATIENCE_S, server.kill)
        overdue.start()
        told = server.stdout.readline()
        server.terminate()
        assert server.wait() == 0
        overdue.cancel()
    assert b'"ready":true' in told
    return {
        line.rpartition("|")[2].strip() for line in report.read_text().splitlines() if line.startswith("import time:")
    }


def test_a_server_with_every_pack_is_ready_before_it_loads_what_only_some_calls_need(tmp_path: Path) -> None:
    loaded = modules_loaded(make_home(tmp_path / "home", packs=ALL_PACKS).path, tmp_path / "report")
    assert {"toolgate.app", "toolgate.packs.lra.tools_author", "uvicorn"} <= loaded
    assert loaded.isdisjoint(WAITING)
