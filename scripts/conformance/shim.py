"""A proxy that adds the key: the conformance suite cannot send headers of its own, and our server wants one.

Bytes pass as they are, but for three header lines: the key is added, the connection ends with its answer, and this port in
Host and Origin becomes the server's (a foreign name stays foreign, so DNS rebinding is still judged by the server).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer

HEAD_END = b"\r\n\r\n"
CHUNK = 65536


class Shim(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, upstream_port: int, key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.upstream_port = upstream_port
        self.key = key.encode("ascii")

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def rewritten(self, head: bytes) -> bytes:
        first, *lines = head.split(b"\r\n")
        own, theirs = b":%d" % self.port, b":%d" % self.upstream_port
        kept = []
        for line in lines:
            name = line.partition(b":")[0].lower()
            if name in (b"host", b"origin"):
                kept.append(line.replace(own, theirs))
            elif name != b"connection":
                kept.append(line)
        return b"\r\n".join([first, *kept, b"Connection: close", b"X-MCP-API-Key: " + self.key]) + HEAD_END


class _Passage(BaseRequestHandler):
    """One connection, one request, one answer."""

    server: Shim

    def handle(self) -> None:
        head, end, body = self._until_head_ends().partition(HEAD_END)
        if not end:
            return
        with socket.create_connection(("127.0.0.1", self.server.upstream_port)) as upstream:
            upstream.sendall(self.server.rewritten(head) + body)
            upwards = threading.Thread(target=_pump, args=(self.request, upstream), daemon=True)
            upwards.start()
            _pump(upstream, self.request)
            upwards.join()

    def _until_head_ends(self) -> bytes:
        read = b""
        while HEAD_END not in read and (chunk := self.request.recv(CHUNK)):
            read += chunk
        return read


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Until one side goes away; then the other is told, so that a client that leaves takes its request along."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def shim(upstream_port: int, key: str) -> Iterator[str]:
    """The address to give to a client that has no key."""
    with Shim(upstream_port, key) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            server.shutdown()
