"""How fast can the load itself be? A server that does nothing: it finds the id in the request and sends ready-made bytes.

No HTTP parser and no JSON decoder. The answer is as long as Toolgate's. What the load reaches here is its own limit; a server
that comes near it was not measured, the load was.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import cast

import uvloop
from asgi import HEAD

ID_DIGITS = 10
MARK = b'"id":'
LENGTH = len(HEAD) + ID_DIGITS + 1
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % LENGTH + HEAD


class Answerer(asyncio.Protocol):
    """The load sends a request only when the last was answered, and each in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        start = data.index(MARK) + len(MARK)
        self._write(ANSWER + data[start : start + ID_DIGITS] + b"}")


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = await asyncio.get_running_loop().create_server(Answerer, sock=listener)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
