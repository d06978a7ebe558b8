"""A reverse proxy that serves a server below a prefix, as operators do it: the prefix is taken away, Host stays."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from tests.homes import PATIENCE_S

MAX_HEAD = 65_536


class PrefixProxy:
    """One request a connection. `target`: the port of the server, known when it serves."""

    target = 0

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> PrefixProxy:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.target), PATIENCE_S) as server:
            head = b""
            while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
                chunk = client.recv(MAX_HEAD)
                if not chunk:
                    return  # a connection that the browser opened in advance
                head += chunk
            server.sendall(self._rewritten(head))
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            _copy(server, client)

    def _rewritten(self, head: bytes) -> bytes:
        line, _, rest = head.partition(b"\r\n")
        lines = [b"connection: close", *rest.split(b"\r\n")]
        kept = [each for each in lines[1:] if not each.lower().startswith(b"connection:")]
        return b"\r\n".join([line.replace(b" " + self._prefix, b" ", 1), lines[0], *kept])


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(MAX_HEAD):
            sink.sendall(data)
    except OSError:
        return  # one of the two has gone
