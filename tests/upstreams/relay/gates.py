"""A gate in front of a server that has every feature of the protocol, in one era of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.homes import Home, Server
from tests.offers.client import Client

WHOLE = Path(__file__).parent / "whole.py"
ERAS = ("2025-11-25", "2026-07-28")
BOTH = "both"
WAYS = ("http", "stdio")
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


@contextmanager
def whole(era: str) -> Iterator[str]:
    """The address of a server of this era."""
    with subprocess.Popen([sys.executable, str(WHOLE), era], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@contextmanager
def upstream(era: str, way: str) -> Iterator[dict[str, Any]]:
    """The settings of such a server: over HTTP, or over pipes."""
    if way == "stdio":
        yield {"command": [sys.executable, str(WHOLE), era, "stdio"]}
    else:
        with whole(era) as url:
            yield {"url": url}


class Gate:
    def __init__(self, home: Home, server: Server) -> None:
        self.home, self.server = home, server

    def client(self, role: str = "admin") -> Client:
        return Client(self.server.port, self.home.keys[role])

    def ask(self, era: str, role: str = "admin") -> Ask:
        client = self.client(role)
        return client.ask_modern if era == "2026-07-28" else client.greet().ask
