from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.offers.client import Client
from toolgate.packs.loader import built_in

PAPER = "<!doctype html><title>Drift</title><p>Rates drift.</p>"
RECORD = "# ADR-0001: Nothing drifts\n\n**Status:** Accepted\n"


@dataclass(frozen=True)
class World:
    """A server with every pack that ships, and the fixture of the conformance suite."""

    home: Home
    port: int

    def client(self, role: str = "admin") -> Client:
        return Client(self.port, self.home.keys[role])


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = make_home(tmp_path_factory.mktemp("offers") / "home", packs=(*built_in(), "everything"))
    subprocess.run(
        home.command("consensus", "keys", "--make"),
        env=environment(),
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    write(home.workspace / "drift" / "index.html", PAPER)
    write(home.workspace / "docs" / "adr" / "ADR-0001-drift.md", RECORD)
    write(home.workspace / "drift" / "verification-receipt.json", json.dumps({"version": "1"}))
    write(home.workspace / "drift" / "private.key", "canary")
    with home.serving() as server:
        yield World(home, server.port)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
