"""Hostile connections, many of one kind, in a process of their own: `python -m tests.rough.hostile PORT KEY KIND COUNT`.

They go on until a line comes on standard input; then they say nothing more but stay, so that the server has to end them
by itself. At the end of standard input they leave, and what they heard is printed.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvloop

from tests.rough.cores import place_attacker
from tests.servers.smuggling import LAST, Client, chunk, length

PIECE = 65_536
"""Bytes that an attacker without end offers at once."""
AGAIN_S = 0.01
"""Until a connection that was closed comes back."""


@dataclass(frozen=True)
class Kind:
    """What one hostile connection does."""

    first: Callable[[Client], bytes] = lambda client: b""
    endless: Callable[[Client], bytes] = lambda client: b""
    """Repeated for as long as the server takes it."""
    drip: bytes = b""
    """Said every tenth of a second."""
    reads: bool = True
    half_closes: bool = False
    resets: bool = False
    """Leaves at once, without a word."""
    ends: bool = True
    """The server ends such a connection by itself, soon. Else its client was heard and may stay."""


CALL = b'{"tool":"dummy_experimental","args":{}}'
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


def repeated(request: bytes) -> bytes:
    return request * (PIECE // len(request) + 1)


def open_head(client: Client) -> bytes:
    return client.head(key=False)[:-2]


def garbage(client: Client) -> bytes:
    return random.randbytes(2000)


KINDS = {
    "burst": Kind(endless=lambda client: repeated(client.head(length(b""), key=False)), ends=False),
    "burst of health checks": Kind(endless=lambda client: repeated(client.get()), ends=False),
    "endless request line": Kind(first=lambda client: b"GET /", endless=lambda client: b"a" * PIECE),
    "endless header name": Kind(first=open_head, endless=lambda client: b"a" * PIECE),
    "endless header value": Kind(first=lambda client: open_head(client) + b"X: ", endless=lambda client: b"a" * PIECE),
    "endless headers": Kind(first=open_head, endless=lambda client: repeated(b"X: 1\r\n")),
    "endless trailers": Kind(
        first=lambda client: client.chunked(body=chunk(b"{}") + b"0\r\n", key=False),
        endless=lambda client: repeated(b"X: 1\r\n"),
    ),
    "endless chunk extension": Kind(
        first=lambda client: client.chunked(body=b"1;", key=False), endless=lambda client: b"a" * PIECE
    ),
    "endless body": Kind(
        first=lambda client: client.head(b"Content-Length: 1000000", key=False), endless=lambda client: b"a" * PIECE
    ),
    "never reads": Kind(endless=lambda client: repeated(client.head(length(b""), key=False)), reads=False),
    "CRLF once": Kind(first=lambda client: b"\r\n"),
    "CRLF again and again": Kind(drip=b"\r\n"),
    "silent": Kind(),
    "slow head": Kind(first=open_head, drip=b"X"),
    "slow body": Kind(first=lambda client: client.head(b"Content-Length: 5000", key=False), drip=b"x"),
    "garbage": Kind(first=garbage),
    "half-closed": Kind(first=lambda client: client.post(key=False), half_closes=True),
    "half-closed in a head": Kind(first=open_head, half_closes=True),
    "upgrade": Kind(
        first=lambda client: client.post(b"Upgrade: h2c", b"Connection: Upgrade", body=client.hidden, key=False) * 20,
        ends=False,
    ),
    "churn": Kind(resets=True),
    "request and gone": Kind(first=lambda client: client.post(key=False), resets=True),
}
"""Of strangers."""

KEYED = {
    "keyed burst": Kind(endless=lambda client: repeated(client.post(body=CALL)), ends=False),
    "keyed, never reads": Kind(
        endless=lambda client: repeated(client.post(line=b"POST /mcp HTTP/1.1", body=LIST)), reads=False
    ),
    "keyed, endless trailers": Kind(
        first=lambda client: client.chunked(body=chunk(b"{}") + b"0\r\n"), endless=lambda client: repeated(b"X: 1\r\n")
    ),
    "keyed, endless chunk extension": Kind(
        first=lambda client: client.chunked(body=b"1;"), endless=lambda client: b"a" * PIECE
    ),
    "keyed, chunks of one byte": Kind(
        first=lambda client: client.chunked(body=b""), endless=lambda client: repeated(b"1\r\na\r\n")
    ),
    "keyed, slow body": Kind(first=lambda client: client.head(b"Content-Length: 1000000"), drip=b"x"),
    "keyed, large bodies": Kind(
        first=lambda client: b"", endless=lambda client: client.post(body=b'"' + b"a" * 1_000_000 + b'"'), ends=False
    ),
    "keyed upgrade": Kind(
        endless=lambda client: repeated(client.post(b"Upgrade: h2c", b"Connection: Upgrade", body=CALL)), ends=False
    ),
    "keyed last chunks": Kind(endless=lambda client: repeated(client.chunked(body=LAST)), ends=False),
}
"""Of a caller with a key: what needs one to be read at all."""


class Attack:
    def __init__(self, port: int, client: Client, kind: Kind) -> None:
        self.port, self.kind = port, kind
        self.client = client
        self.endless = kind.endless(client)
        self.quiet = False
        self.opened = self.closed = 0
        self.answers: Counter[str] = Counter()

    async def keep_one(self) -> None:
        """One hostile connection, again whenever it has gone."""
        loop = asyncio.get_running_loop()
        while not self.quiet:
            try:
                _, one = await loop.create_connection(lambda: Hostile(self), "127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(AGAIN_S)
                continue
            await one.over
            await asyncio.sleep(AGAIN_S)


class Hostile(asyncio.Protocol):
    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self.over = asyncio.get_running_loop().create_future()
        self._takes = True

    def connection_made(self, transport: Any) -> None:
        self._transport, kind = transport, self._attack.kind
        self._attack.opened += 1
        if not kind.reads:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asyncio.get_running_loop().call_soon(
                transport.pause_reading
            )  # it begins to read when this method has ended
        transport.write(kind.first(self._attack.client))
        if kind.resets:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        elif kind.half_closes:
            transport.write_eof()
        elif self._attack.endless:
            self._push()
        elif kind.drip:
            self._drip()

    def data_received(self, data: bytes) -> None:
        self._attack.answers.update(status.decode() for status in re.findall(rb"HTTP/1\.1 ([0-9]{3})", data))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._takes = False

    def resume_writing(self) -> None:
        self._takes = True
        self._push()

    def connection_lost(self, exc: Exception | None) -> None:
        self._attack.closed += 1
        if not self.over.done():  # at the end of all, nobody waits for it
            self.over.set_result(None)

    def _push(self) -> None:
        if self._attack.endless and self._takes and not self._attack.quiet and not self._transport.is_closing():
            self._transport.write(self._attack.endless)
            asyncio.get_running_loop().call_soon(self._push)

    def _drip(self) -> None:
        if not self._attack.quiet and not self._transport.is_closing():
            self._transport.write(self._attack.kind.drip)
            asyncio.get_running_loop().call_later(0.1, self._drip)


async def main() -> None:
    port, key, name, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    place_attacker()
    attack = Attack(port, Client(b"127.0.0.1:%d" % port, key.encode()), (KINDS | KEYED)[name])
    loop = asyncio.get_running_loop()
    attackers = [loop.create_task(attack.keep_one()) for _ in range(count)]
    await loop.run_in_executor(None, sys.stdin.readline)
    attack.quiet = True
    await loop.run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"opened": attack.opened, "closed": attack.closed, "answers": dict(attack.answers)}), flush=True)
    for attacker in attackers:
        attacker.cancel()


if __name__ == "__main__":
    uvloop.run(main())
