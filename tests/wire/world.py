"""The reference to compare with, and ways to send it and our server exactly the same bytes."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.homes import PATIENCE_S, Home, environment

HERE = Path(__file__).parent
PACKS = ("governance", "wiretest")


@contextmanager
def reference_serving() -> Iterator[str]:
    """The address of the same tools on the official SDK."""
    command = [sys.executable, str(HERE / "reference_server.py"), "http"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, "the reference did not start"
            yield json.loads(line)["url"]
        finally:
            process.kill()


def reference_stdio() -> StdioPeer:
    return StdioPeer([sys.executable, str(HERE / "reference_server.py"), "stdio"], environment())


def our_stdio(home: Home, role: str = "admin") -> StdioPeer:
    return StdioPeer(home.command("stdio"), environment(TOOLGATE_API_KEY=home.keys[role]))


@dataclass(frozen=True)
class Reply:
    """An HTTP answer, reduced to what a client may rely on."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str | None:
        found = self.headers.get("content-type")
        return found.partition(";")[0].strip().lower() if found and self.body else None

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.media_type == "application/json" else None


def post(url: str, body: bytes, headers: Sequence[tuple[str, str]], method: str = "POST") -> Reply:
    """Send exactly these headers (beside Content-Length), in this order: repeated ones and odd blanks arrive as given."""
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.putrequest(method, "/mcp", skip_host=True, skip_accept_encoding=True)
        if not any(name.lower() == "host" for name, _ in headers):
            connection.putheader("Host", f"{host}:{port}")
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        answered = {name.lower(): value for name, value in response.getheaders()}
        # An event stream that nobody ends would be read for ever; that it is one is all a test asks.
        endless = method == "GET" and answered.get("content-type", "").startswith("text/event-stream")
        return Reply(response.status, answered, b"" if endless else response.read())
    finally:
        connection.close()


class StdioPeer:
    """A server on a pipe. One line in; the lines it caused come back, in the order they were written."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._lines: Queue[bytes] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """The next message. Raises: AssertionError: none came, or the server ended."""
        try:
            line = self._lines.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError("no answer came in time") from None
        assert line, "the server ended"
        return json.loads(line)

    def exchange(self, line: bytes, sync: dict[str, Any], *, answered: bool) -> list[Any]:
        """Every message that `line` caused. `sync` is a harmless request whose answer says that no more will come.

        With `answered`, the line's own answer is awaited before, because calls may be overtaken by greetings.
        """
        self.send(line)
        caused = [self.receive()] if answered else []
        self.send(json.dumps(sync).encode())
        while (message := self.receive()).get("id") != sync["id"]:
            caused.append(message)
        return caused

    def close(self) -> int:
        """End of input; the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()
        return code
