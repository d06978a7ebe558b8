"""The good caller, in a process of its own: calls one tool at a steady pace and tells how long each answer took.

A call is due at its time whether or not the last one has been answered: a server that stalls for a tenth of a second makes
all calls of that tenth late, and each is counted. Waking up late is this process's own fault and is not.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import time
from dataclasses import dataclass, field

import uvloop

from tests.rough.cores import place_caller

PATIENCE_S = 5.0
"""Seconds until an answer is a failure."""
KEPT = 16
"""Connections that the calls go by in turn: none waits for the one before it unless that took long."""
NEW_EACH = 6
"""One call in so many comes by a new connection, in the second half of a measurement: a server that only hears its old
friends is not well. Not in the first half: when a thousand strangers come at once, who comes in their midst has to queue."""


@dataclass
class Caller:
    port: int
    key: str
    kept: list[float] = field(default_factory=list)
    """Seconds that calls took by connections that are kept."""
    new: list[float] = field(default_factory=list)
    """By new ones, connecting included."""
    failures: list[str] = field(default_factory=list)

    @property
    def request(self) -> bytes:
        body = b'{"tool":"dummy_experimental","args":{}}'
        return (
            b"POST /mrt_dispatch HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"X-MCP-API-Key: %b\r\nContent-Length: %d\r\n\r\n%b"
        ) % (self.port, self.key.encode(), len(body), body)

    async def measure(self, seconds: float, period: float) -> None:
        ways = [Way(self.port) for _ in range(KEPT)]
        await asyncio.gather(*(way.ask(self.request) for way in ways))
        start, calls = time.perf_counter(), []
        for number in range(count := int(seconds / period)):
            due = start + number * period
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            is_new = number > count / 2 and number % NEW_EACH == 0
            way, taken = (Way(self.port), self.new) if is_new else (ways[number % KEPT], self.kept)
            calls.append(asyncio.ensure_future(self.call(way, due, taken)))
        await asyncio.gather(*calls)

    async def call(self, way: Way, due: float, taken: list[float]) -> None:
        asked = due if way.free.locked() else time.perf_counter()
        async with way.free:
            fault = await way.ask(self.request)
        taken.append(time.perf_counter() - asked)
        if taken is self.new:
            way.close()
        if fault:
            self.failures.append(fault)


class Way:
    """One connection, made when it is first needed, and anew when it was lost."""

    def __init__(self, port: int) -> None:
        self.free = asyncio.Lock()
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()

    async def ask(self, request: bytes) -> str | None:
        """What went wrong, if something did."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: ([0-9]+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
        except (OSError, EOFError) as fault:
            self._streams = None
            return type(fault).__name__
        status = head.split(b" ")[1].decode()
        return None if status == "200" else status


def main() -> None:
    port, key, seconds, period = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    place_caller()
    gc.disable()
    caller = Caller(port, key)
    uvloop.run(caller.measure(seconds, period))
    print(json.dumps({"kept": caller.kept, "new": caller.new, "failures": caller.failures}))


if __name__ == "__main__":
    main()
