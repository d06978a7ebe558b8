"""A company's network: a tracker behind TLS with the company's own certificate, and a proxy as the only way to it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from tests.powers.net.world import Seen, World, _authority, answer, redirect

PATIENCE_S = 30.0
TRACKER = "tracker.example"
CREDENTIALS = "gate:hunter2"
TICKETS = [{"id": "OPS-1", "title": "The printer"}, {"id": "OPS-2", "title": "The other printer"}]


class Company:
    """Runs on a thread of its own until `close`."""

    def __init__(self, place: Path) -> None:
        self.certificates = place / "company.pem"
        self.certificates.write_bytes(_authority()[1].public_bytes(serialization.Encoding.PEM))
        self.asked: list[str] = []
        """What the proxy was asked for: the head of each request."""
        self.elsewhere = False
        """The tracker sends its visitors to another host."""
        self._world = World()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.tracker_port: int = self._run(lambda: self._world.serve(self._answer, tls=TRACKER))
        self.proxy_port: int = self._run(self._open_proxy)

    @property
    def seen(self) -> list[Seen]:
        """What the tracker was asked."""
        return self._world.seen

    def close(self) -> None:
        self._run(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def _run(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(PATIENCE_S)

    async def _close(self) -> None:
        for server in self._world.servers:
            server.close()
        for task in self._world.talks:
            task.cancel()
        await asyncio.gather(*self._world.talks, return_exceptions=True)

    async def _answer(self, seen: Seen, _writer: asyncio.StreamWriter) -> bytes:
        if self.elsewhere:
            return redirect("https://elsewhere.example/tickets")
        return answer(json.dumps(TICKETS).encode(), kind="application/json")

    async def _open_proxy(self) -> int:
        server = await asyncio.start_server(self._tunnel, "127.0.0.1", 0)
        self._world.servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._world.talks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            if not head.startswith(f"CONNECT {TRACKER}:443 "):
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                return
            behind = await asyncio.open_connection("127.0.0.1", self.tracker_port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pour(reader, behind[1]), _pour(behind[0], writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
