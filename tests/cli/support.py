"""Running commands: in this process for speed, as a real process where processes matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.homes import PATIENCE_S, Home
from toolgate.cli.main import main

PROGRAM = [sys.executable, "-c", "from toolgate.cli.main import run; run()"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    return kept | {"NO_COLOR": "1", "COLUMNS": "200"} | more


def without_settings(patch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("TOOLGATE_")]:
        patch.delenv(name)


def process(*arguments: str, cwd: Path, timeout: float = PATIENCE_S, **environment: str) -> Done:
    done = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Commands:
    """`toolgate ...` in this process, from a directory of the test's own."""

    def __init__(self, capfd: Any) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Done:
        self._capfd.readouterr()
        code = main(list(arguments))
        out, err = self._capfd.readouterr()
        return Done(code, out, err)


@dataclass(frozen=True)
class Managed(Home):
    """A home, and the commands of whoever looks after it, which run in this process."""

    toolgate: Commands


def managed(home: Home, capfd: pytest.CaptureFixture[str]) -> Managed:
    return Managed(home.path, home.keys, Commands(capfd))


@contextmanager
def serving(*arguments: str, cwd: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A real server; gives the process and the JSON of its first line."""
    server = subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", "--json", *arguments],
        cwd=cwd,
        env=clean_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout
        line = server.stdout.readline()
        assert line, server.stderr.read() if server.stderr else ""
        yield server, json.loads(line)
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate(timeout=PATIENCE_S)


def narrow(home: Path, names: set[str]) -> None:
    """Leave only these rows in the home's own manifest."""
    file = home / "policy" / "mcp-tools.policy.json"
    document = json.loads(file.read_text())
    document["tools"] = [row for row in document["tools"] if row["name"] in names]
    file.write_text(json.dumps(document, indent=2))
