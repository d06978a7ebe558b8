"""The address on this machine to which a browser brings the answer of a login (RFC 8252). It serves one answer and ends.

Any page in the browser can visit it, so a visit that is not ours is refused, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qsl

from toolgate.powers.oauth.flows import CALLBACK

MAX_HEAD_BYTES: Final = 16_384
READ_S: Final = 5.0
_HEAD: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
)


class Loopback:
    def __init__(self, port: int) -> None:
        self.port = port
        self._is_ours: Callable[[Mapping[str, str]], bool] = lambda _: False
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    async def answer(self, is_ours: Callable[[Mapping[str, str]], bool], seconds: float) -> Mapping[str, str]:
        """The query of the first visit that is ours. Raises: TimeoutError."""
        self._is_ours = is_ours
        async with asyncio.timeout(seconds):
            return await self._answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._judge(head)
                body = text.encode()
                writer.write(_HEAD.format(status=status, length=len(body)).encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was, it was no browser that brings an answer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _judge(self, head: bytes) -> tuple[str, str]:
        lines = head.decode("latin-1").split("\r\n")
        verb, _, rest = lines[0].partition(" ")
        path, _, query = rest.rpartition(" ")[0].partition("?")
        hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
        if verb != "GET" or path != CALLBACK or hosts != [f"127.0.0.1:{self.port}"]:
            return "404 Not Found", "There is nothing here."
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
        except ValueError:
            pairs = []
        found = dict(pairs)
        if len(found) != len(pairs) or not self._is_ours(found):
            return "400 Bad Request", "This is not the answer to a login that is under way here."
        if not self._answer.done():
            self._answer.set_result(found)
        return "200 OK", "Toolgate has the answer. You can close this page and go back to the terminal."


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[Loopback]:
    """`port`: 0 for any. Raises: OSError: it is taken."""
    made: list[Loopback] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made[0].serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=MAX_HEAD_BYTES)
    made.append(Loopback(server.sockets[0].getsockname()[1]))
    try:
        yield made[0]
    finally:
        server.close()
        await server.wait_closed()
