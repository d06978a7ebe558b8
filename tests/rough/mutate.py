"""Streams of bytes that are nearly HTTP: rows of the smuggling corpus, joined, bent and broken by a seed."""

from __future__ import annotations

import random
from itertools import pairwise

from tests.servers.smuggling import Client, rows

TOKENS = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\r\n ", b"\t", b" ", b":", b": ", b",", b";", b'"', b"\x00"),
    *(b"\x0b", b"\xff"),
    *(b"0", b"1", b"-1", b"+1", b"0x1", b"ffffffff", b"fffffffffffffffff", b"0\r\n\r\n", b"1\r\na\r\n"),
    *(b"5;a=b\r\n", b"20\r\n"),
    *(b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Content-Length: 1048577\r\n", b"Content-Length:"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"chunked", b"identity", b"gzip"),
    *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: Upgrade\r\n", b"Upgrade: h2c\r\n"),
    *(b"Upgrade: x\r\n",),
    *(b"Expect: 100-continue\r\n", b"Host: evil.test\r\n", b"Host: \r\n", b"X-MCP-API-Key: x\r\n", b"Origin: null\r\n"),
    *(b"GET ", b"HEAD ", b"POST ", b"PUT ", b"CONNECT ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b" HTTP/1.1"),
    *(b" HTTP/1.0", b" HTTP/2"),
    *(b"/", b"/mcp", b"/rpc", b"/mrt_dispatch", b"/healthz", b"/readyz", b"*", b"#", b"?", b"http://", b"%00"),
    *(b"{", b"}", b"[]"),
)
LONGEST = 20_000
"""Bytes of a stream: more only makes fewer of them."""


class Mutator:
    def __init__(self, client: Client) -> None:
        self._corpus = [row.data for row in rows(client).values() if len(row.data) <= LONGEST]
        self._good = [client.post(), client.get(), client.chunked(body=b"2\r\n{}\r\n0\r\n\r\n"), client.post(key=False)]

    def stream(self, seed: int) -> bytes:
        chance = random.Random(seed)
        parts = [
            chance.choice(self._corpus if chance.random() < 0.7 else self._good) for _ in range(chance.randint(1, 4))
        ]
        data = b"".join(parts)
        for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
            data = _bent(data, chance)
        return data[:LONGEST]

    def cuts(self, seed: int, data: bytes) -> list[bytes]:
        chance = random.Random(seed)
        most = chance.choice((1, 2, 5, 40))
        places = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(most))})
        return [data[a:b] for a, b in pairwise(places)]


def _bent(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    to = min(at + chance.choice((1, 1, 2, 4, 16, 64)), len(data))
    match chance.randrange(7):
        case 0:
            return data[:at] + chance.choice(TOKENS) + data[at:]
        case 1:
            return data[:at] + chance.choice(TOKENS) + data[to:]
        case 2:
            return data[:at] + data[to:]
        case 3:
            return data[:at] + data[at:to] * chance.choice((2, 3, 50)) + data[to:]
        case 4:
            return data[:at] + chance.randbytes(to - at) + data[to:]
        case 5:
            return data[: at or 1]
        case _:
            start = chance.randrange(len(data) + 1)
            return data[:at] + data[start : start + (to - at)] + data[at:]
