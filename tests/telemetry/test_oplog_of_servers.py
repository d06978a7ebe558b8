"""The operator's log of real servers: reloads and upstreams that come and go, a line for each, and no secret in any."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, make_home
from tests.upstreams.homes import toml_of
from tests.upstreams.support import STUB, lines
from tests.waiting import until
from toolgate.policy.manifest import MANIFEST_FILE

CANARY = "canary-77f0c1-of-the-upstream"
LINE = re.compile(r"(\S+Z) (debug|info|warning|error) (toolgate[\w.]*): (.+)")


@dataclass
class Told:
    """A server's life in its own words."""

    home: Home
    text: str

    def lines(self, form: str) -> list[dict[str, object]]:
        if form == "json":
            return [json.loads(line) for line in self.text.splitlines()]
        found = [LINE.fullmatch(line) for line in self.text.splitlines() if not line.startswith("note: ")]
        assert all(found), self.text
        return [dict(zip(("ts", "level", "logger", "message"), each.groups(), strict=True)) for each in found if each]


def adopting(path: Path) -> tuple[Home, Path, Path]:
    """A home whose upstream is given a secret; the file that says how it behaves, and what it wrote."""
    behaviour, log = path / "behaviour", path / "log"
    behaviour.write_text("good")
    command = [sys.executable, str(STUB), f"@{behaviour}"]
    table = {"command": command, "env": {"STUB_LOG": str(log), "TOKEN": "file:canary"}}
    home = make_home(path / "home", settings=toml_of("stub", table))
    secrets = home.path / "secrets"
    secrets.mkdir(mode=0o700, exist_ok=True)
    (secrets / "canary").write_text(CANARY)
    (secrets / "canary").chmod(0o600)
    adopt = home.command("upstream", "adopt", "stub", "--roles", "admin", "--yes")
    subprocess.run(adopt, env=environment(), check=True, capture_output=True, timeout=PATIENCE_S)
    return home, behaviour, log


def acts(home: Home, act: str) -> int:
    return sum(each.get("act") == act and each.get("stage") == "outcome" for each in home.records())


def until_another(home: Home, act: str, do: Callable[[], object]) -> None:
    """`do` it again and again until the log has one more of this act."""
    before = acts(home, act)

    def done() -> bool:
        do()
        return acts(home, act) > before

    until(done, act)


def once(home: Home, act: str, do: Callable[[], object]) -> None:
    before = acts(home, act)
    do()
    until(lambda: acts(home, act) > before, act)


def live(home: Home, server: Server, behaviour: Path, log: Path) -> None:
    """Up, down, up; reloaded, and not reloaded."""

    def call() -> None:
        speak.mrt(server.port, "stub_echo", {"text": "argument-canary"}, home.keys["admin"])

    def hang_up() -> None:
        server.process.send_signal(signal.SIGHUP)

    until_another(home, "upstream.up", call)
    behaviour.write_text("tells its token")
    with suppress(ProcessLookupError):
        os.kill(int(lines(log, "pid")[-1]), signal.SIGKILL)
    until_another(home, "upstream.down", call)
    behaviour.write_text("good")
    until_another(home, "upstream.up", call)
    once(home, "reload", hang_up)
    (home.path / "policy" / MANIFEST_FILE).write_text("{")
    once(home, "reload", hang_up)


@pytest.fixture(scope="module", params=["json", "text"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Told]:
    home, behaviour, log = adopting(tmp_path_factory.mktemp(request.param))
    with home.serving("--log-format", request.param, "--log-level", "info") as server:
        live(home, server, behaviour, log)
        server.process.terminate()
        _, written = server.process.communicate(timeout=PATIENCE_S)
    return request.param, Told(home, written.decode())


def test_an_upstream_that_comes_and_goes_is_told_each_time(told: tuple[str, Told]) -> None:
    form, found = told
    own = [line for line in found.lines(form) if line["logger"] == "toolgate.upstreams"]
    assert [line["level"] for line in own][:3] == ["info", "warning", "info"]
    assert all(str(line["message"]).startswith("upstream stub: ") for line in own)
    if form == "json":
        assert [line["event"] for line in own][:3] == ["upstream.up", "upstream.down", "upstream.up"]
        assert {line["upstream"] for line in own} == {"stub"}
        assert own[1]["reason"], "why it went"


def test_a_reload_is_told_and_one_that_was_refused_with_its_reason(told: tuple[str, Told]) -> None:
    form, found = told
    done, refused = [line for line in found.lines(form) if line["logger"] == "toolgate.reload"]
    assert (done["level"], str(done["message"]).startswith("reloaded (SIGHUP)")) == ("warning", True)
    assert (refused["level"], MANIFEST_FILE in str(refused["message"])) == ("error", True)
    assert "what was served is still served" in str(refused["message"])


def test_the_start_and_the_end_are_told_around_it(told: tuple[str, Told]) -> None:
    form, found = told
    messages = [str(line["message"]) for line in found.lines(form) if line["logger"] == "toolgate.server"]
    assert messages[0].startswith("ready: http://127.0.0.1:")
    assert messages[-1].startswith("stopped after ")


def test_no_secret_and_nothing_of_a_call_stands_in_it(told: tuple[str, Told]) -> None:
    """The upstream itself tried: it wrote its token to its own standard error before it went."""
    _, found = told
    secrets = [*found.home.keys.values(), *(key.rpartition("_")[2] for key in found.home.keys.values())]
    assert [each for each in (*secrets, CANARY, "argument-canary") if each in found.text] == []
    assert "\x1b" not in found.text
