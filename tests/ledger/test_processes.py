"""Several real processes on one log, and a person who watches it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, environment, make_home
from tests.ledger import world
from toolgate.cli.main import main
from toolgate.ledger import LOG_PATH
from toolgate.ledger.files import runs_in


def test_an_http_and_a_stdio_server_share_a_log_and_each_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving() as server, speak.stdio(home) as peer:
        for number in range(20):
            assert speak.mrt(server.port, "unruly_write", {"name": f"http-{number}"}, home.keys["admin"]).status == 200
            assert peer.rpc("unruly_write", {"name": f"stdio-{number}"}).envelope is not None
        assert main(["audit", "verify", "--home", str(home.path)]) == 0, "while both run"
    assert main(["audit", "verify", "--home", str(home.path)]) == 0
    assert "verified: 2 runs" in capsys.readouterr().out
    by_transport = {one["run"]: one["transport"] for one in home.calls()}
    assert sorted(by_transport.values()) == ["http", "stdio"]
    assert {name.id for name in runs_in(home.path / "runs" / LOG_PATH)} == set(by_transport)
    assert not any(one["event"] == "recovered" for one in home.records())


def test_a_person_sees_records_as_they_are_written(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    log = home.path / "runs" / LOG_PATH
    with world.opened(log, run_id="watched") as ledger:
        command = home.command("audit", "tail", "-f", "-n", "1", "--json")
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as watcher:
            try:
                assert watcher.stdout is not None
                assert json.loads(watcher.stdout.readline())["event"] == "checkpoint", "it has begun to watch"
                ledger.append(world.numbered(world.OUTCOME, "seen"))
                assert json.loads(watcher.stdout.readline())["requestId"] == "request-seen"
            finally:
                watcher.send_signal(2)
                assert watcher.wait(PATIENCE_S) == 0
