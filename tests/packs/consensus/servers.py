"""Real arbiter servers for tests: processes that can be killed, paused and cut off, one home each."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.homes import TOOLGATE, Home, environment, make_home
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.domain.arbiters import Network
from toolgate.packs.consensus.settings import DEFAULTS, key_uses
from toolgate.packs.consensus.tables import MIGRATIONS, STORE
from toolgate.powers.keys import KeyDirectory
from toolgate.powers.stores import OpenStores

PATIENCE_S = 30.0
"""Seconds for a process to start or to answer on a busy machine."""


class Link:
    """One way from one server to another, through this process: it can be cut, and the other side may move."""

    def __init__(self) -> None:
        self.target: int | None = None
        self.cut = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near:
            if self.cut or self.target is None:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=PATIENCE_S)
            except OSError:
                return
            with far:
                pair = {near, far}
                self._open |= pair
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()
                self._open -= pair

    def shut(self) -> None:
        self.cut = True
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        self.cut = False

    def close(self) -> None:
        self.shut()
        self._server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@dataclass
class Arbiter:
    """One home, its server process, and the ways to the others."""

    name: str
    home: Home
    links: dict[str, Link] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def keys(self) -> KeyDirectory:
        return KeyDirectory(self.home.path / "secrets")

    @property
    def public_key(self) -> str:
        return self.keys.public_key("arbiter.key").hex()

    def start(self, incoming: list[Link]) -> None:
        errors = (self.home.path / "stderr.txt").open("ab")
        self.process = subprocess.Popen(
            [TOOLGATE, "serve", "--port", "0", "--json", "--home", str(self.home.path)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        errors.close()
        assert self.process.stdout is not None
        overdue = threading.Timer(PATIENCE_S, self.process.kill)
        overdue.start()
        line = self.process.stdout.readline()
        overdue.cancel()
        assert line, (self.home.path / "stderr.txt").read_text()
        self.port = int(json.loads(line)["url"].rpartition(":")[2])
        for link in incoming:
            link.target = self.port

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=PATIENCE_S)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def signal(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)

    def call(self, tool: str, timeout_s: float = PATIENCE_S, **arguments: Any) -> dict[str, Any]:
        """The tool's data, or `{"error": code}`; an OSError when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        body = {
            "jsonrpc": "2.0",
            "id": "1",
            "method": "mcp.tool.invoke",
            "params": {"tool": f"mcp.tool:consensus.{tool}", "input": arguments},
        }
        try:
            connection.request(
                "POST",
                "/rpc",
                json.dumps(body),
                {"Content-Type": "application/json", "X-MCP-API-Key": self.home.keys["committer"]},
            )
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "error" in answer:
            return {"error": answer["error"]}
        return dict(answer["result"]["data"])

    def status(self, network: Network) -> engine.ArbiterStatus:
        """From its store, whether its process lives or not."""
        stores = OpenStores({}, self.home.path / "state", MIGRATIONS)
        try:
            return asyncio.run(stores.reading.get(STORE).run(lambda connection: engine.status(connection, network)))
        finally:
            stores.close()


def make_arbiter(path: Path, settings: str = "") -> Arbiter:
    home = make_home(path, packs=["governance", "consensus"], settings="")
    (path / "secrets").mkdir(mode=0o700, exist_ok=True)
    arbiter = Arbiter(path.name, home)
    for name, use in key_uses(DEFAULTS).items():
        arbiter.keys.generate(name, use=use)
    configure(arbiter, settings)
    return arbiter


def configure(arbiter: Arbiter, settings: str, hosts: list[str] | None = None) -> None:
    (arbiter.home.path / "toolgate.toml").write_text(
        f"[server]\nallowed_hosts = {json.dumps(hosts or [])}\n"
        f'[packs]\nenabled = ["governance", "consensus"]\n[packs.consensus]\n{settings}\n'
    )


def make_twin(path: Path, original: Arbiter) -> Arbiter:
    """The same key in another home, with a store and a guard of its own."""
    twin = make_arbiter(path)
    for name in ("arbiter.key", "vrf.key", "arbiter.pub", "vrf.pub"):
        shutil.copy(original.home.path / "secrets" / name, path / "secrets" / name)
    return twin


def connect(arbiters: list[Arbiter], council: list[Arbiter], more: str = "") -> None:
    """Give each of `arbiters` a link and a key to each of the `council` that is not itself."""
    for one in arbiters:
        for other in council:
            if other.public_key != one.public_key:
                one.links[other.name] = Link()
                secret = one.home.path / "secrets" / f"peer-{other.name}"
                secret.write_text(other.home.keys["committer"])
                secret.chmod(0o600)
    for one in arbiters:
        incoming = [other.links[one.name] for other in arbiters if one.name in other.links]
        entries = [f"  {{ {_entry(one, other)} }}," for other in council]
        hosts = [f"127.0.0.1:{link.port}" for link in incoming]
        configure(one, "arbiters = [\n" + "\n".join(entries) + f"\n]\n{more}\n", hosts)


def _entry(one: Arbiter, other: Arbiter) -> str:
    entry = f'public_key = "{other.public_key}"'
    if other.name in one.links:
        port = one.links[other.name].port
        entry += f', url = "http://127.0.0.1:{port}", api_key = "file:peer-{other.name}"'
    return entry
