"""A deployment to talk to, a reference to compare it with, and ways to send both exactly the same bytes."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from toolgate.policy.manifest import MANIFEST_FILE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SITE = HERE / "site"
TOOLGATE = str(Path(sys.executable).parent / "toolgate")
PATIENCE_S = 10.0
"""Seconds that a process may take to start or to answer before the test gives up."""
TOOLS = ("dummy_experimental", "wire_admin", "wire_echo", "wire_fail", "wire_progress", "wire_steps", "wire_wait")


def environment(**more: str) -> dict[str, str]:
    """The test pack is installed, as far as a server can tell; nothing of the caller's own settings leaks in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    return kept | {"PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT)])} | more


@dataclass
class Deployment:
    """A home directory with a policy of its own that knows seven tools, and a key for each role."""

    home: Path
    keys: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, home: Path, settings: str = "") -> Deployment:
        policy = home / "policy"
        policy.mkdir(parents=True)
        (home / "workspace").mkdir()
        (home / "toolgate.toml").write_text(f'{settings}\n[packs]\nenabled = ["governance", "wiretest"]\n')
        (policy / MANIFEST_FILE).write_text(json.dumps(_manifest()))
        made = cls(home)
        made.run("contract", "build")
        made.keys = {role: made.create_key(role) for role in ("builder", "admin")}
        return made

    def command(self, *arguments: str) -> list[str]:
        return [TOOLGATE, *arguments, "--home", str(self.home)]

    def run(self, *arguments: str) -> str:
        command = self.command(*arguments)
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create_key(self, role: str) -> str:
        return str(json.loads(self.run("keys", "create", "--role", role, "--json"))["key"])

    @contextmanager
    def serving(self, *flags: str) -> Iterator[dict[str, str]]:
        """A running HTTP server; gives what it says about itself in its first line."""
        with running(self.command("serve", "--port", "0", "--json", *flags), environment()) as ready:
            yield ready

    def stdio(self, role: str = "admin") -> StdioPeer:
        return StdioPeer(self.command("stdio"), environment(TOOLGATE_API_KEY=self.keys[role]))


def _manifest() -> dict[str, Any]:
    def row(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "x-pack": "governance" if name == "dummy_experimental" else "wiretest",
            "x-tier": "experimental",
            "x-visibilityHint": "Wire tests",
            "x-roles": ["admin"] if name == "wire_admin" else ["builder", "committer", "admin"],
        }

    return {"version": "1.0.0", "tools": [row(name) for name in TOOLS]}


@contextmanager
def running(command: Sequence[str], env: dict[str, str]) -> Iterator[dict[str, str]]:
    """A server process that prints one JSON line when it is ready. It must end by itself when told to."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        overdue = threading.Timer(PATIENCE_S, process.kill)
        overdue.start()
        line = process.stdout.readline()
        overdue.cancel()
        assert line, f"{command[0]} did not start: {process.stderr.read()}"
        drains = [threading.Thread(target=pipe.read, daemon=True) for pipe in (process.stdout, process.stderr)]
        for drain in drains:
            drain.start()
        try:
            yield json.loads(line)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            for drain in drains:
                drain.join(PATIENCE_S)


@contextmanager
def reference_serving() -> Iterator[str]:
    with running([sys.executable, str(HERE / "reference_server.py"), "http"], environment()) as ready:
        yield ready["url"]


def reference_stdio() -> StdioPeer:
    return StdioPeer([sys.executable, str(HERE / "reference_server.py"), "stdio"], environment())


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
