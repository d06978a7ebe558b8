"""Memory of the server while good and hostile callers use it at once.

    python -m benchmarks.mixed [--seconds S] [--connections N] [--only KIND ...] [--commit COMMIT] [--out FILE]

A deployment with all packs, and clients that do one thing after another, drawn by chance but the same in every run: calls of
every tool over the three routes, large bodies, chunked bodies, pipelines, garbage, hanging up too early. Tells the server's
memory as it goes and when everybody has left. `--only` shows which kind costs; `--commit` measures an older commit instead of
this tree.
Exit 1: the server ended or wrote to standard error, or its audit log does not verify. Exit 2: there is no such commit, or it
cannot be built. Memory never fails a run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import checkouts, machine, ours
from benchmarks.load import header
from benchmarks.servers import PATIENCE_S, Target

SAMPLES: Final = 12
"""Times that memory is told during the load."""
REST_S: Final = 5.0
"""Seconds after the last client has left until memory is told for the last time."""
KEYS_A_ROLE: Final = 5
SMALL: Final = 2_000
READ, REFUSED = 1_000_000, 1_200_000
"""Bytes of a body that is read, and of one that is too large."""
CHUNK: Final = 8_000
BURST: Final = 50
"""Requests that a pipelining client sends before it reads."""
NO_FAREWELL: Final = struct.pack("ii", 1, 0)
"""Closes with RST."""
NOTES: Final = 200
TEXT: Final = "A note about phase fields and their simulation. " * 40
WORKFLOW: Final = "name: ci\non: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: make\n"
ZEROS: Final = "0" * 64
QUICK: Final = "dummy_experimental"

Calls = Sequence[tuple[str, Mapping[str, Any]]]
CALLS: Final[Calls] = (
    (QUICK, {}),
    ("library_search", {"query": "phase simulation"}),
    ("library_fetch", {"path": "notes/1.md"}),
    ("lra_init", {"project_name": "paper"}),
    ("lra_validate", {"path": "paper"}),
    ("lra_check", {"path": "paper"}),
    ("lra_serve", {"list": True}),
    ("lra_sign", {"receipt": "receipt.json"}),
    ("lra_verify", {"path": "https://127.0.0.1/nothing"}),
    ("analyze_dissonance", {"files": [".github/workflows/ci.yml"]}),
    ("check_adr_compliance", {"files": ["notes/1.md"]}),
    ("check_consent_requirements", {"orgId": "org", "checkType": "summary"}),
    ("query_fp_store", {"queryType": "fp_rate", "orgId": "org", "ruleId": "MD-001"}),
    ("validate_l0_invariants", {"checks": ["drift-magnitude"]}),
    ("vrf_eval", {"seed_hex": "00", "input_hex": "01"}),
    ("vrf_verify", {"seed_hex": "00", "input_hex": "01", "proof_hex": "0" * 160, "public_key_hex": ZEROS}),
    ("consensus_finality", {"round_id": "1"}),
    ("consensus_gossip", {"peer_id": "peer"}),
    ("consensus_propose", {"event": {"merkle_root_hex": ZEROS, "rule_version_hash_hex": ZEROS}}),
)
"""Good ones, ones that find nothing, ones that are refused: what each costs is in the server either way."""


@dataclass
class Client:
    """One connection at a time, made anew when the last was lost."""

    port: int
    key: str
    ids: Mapping[str, str]
    """What `/rpc` calls a tool."""
    chance: random.Random
    told: Counter[str]
    _open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def head(self, path: str, *more: str) -> bytes:
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Content-Type: application/json",
            "Accept: application/json",
            f"X-MCP-API-Key: {self.key}",
        ]
        return "\r\n".join([*lines, *more, "", ""]).encode()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """Over one of the three routes."""
        route = self.chance.choice(("/mrt_dispatch", "/mcp", "/rpc"))
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.chance.randrange(10**9)}
        if route == "/mcp":
            message |= {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        elif route == "/rpc":
            message |= {"method": "mcp.tool.invoke", "params": {"tool": self.ids[tool], "input": arguments}}
        else:
            message = {"tool": tool, "args": arguments}
        body = json.dumps(message).encode()
        return self.head(route, f"Content-Length: {len(body)}") + body

    def any_call(self) -> bytes:
        return self.call(*self.chance.choice(CALLS))

    def large_call(self, *sizes: int) -> bytes:
        return self.call(QUICK, {"text": "x" * self.chance.choice(sizes)})

    async def send(self, data: bytes) -> None:
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self.port)
        self._open[1].write(data)
        await self._open[1].drain()

    async def answer(self) -> None:
        """Take one answer. Raises: IncompleteReadError, OSError: the server closed the connection."""
        assert self._open is not None
        reader = self._open[0]
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(header(head, b"content-length") or 0))
        self.told[head[9:12].decode("latin-1")] += 1
        if header(head, b"connection") == "close":
            await self.leave()

    async def leave(self, *, at_once: bool = False) -> None:
        """`at_once`: the server is told of a reset, not of an end."""
        if self._open is None:
            return
        writer, self._open = self._open[1], None
        if at_once:
            with contextlib.suppress(OSError):  # the server was first
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def quick(client: Client) -> None:
    await client.send(client.call(QUICK, {}))
    await client.answer()


async def tools(client: Client) -> None:
    await client.send(client.any_call())
    await client.answer()


async def large(client: Client) -> None:
    await client.send(client.large_call(READ, REFUSED))
    await client.answer()


async def chunked(client: Client) -> None:
    size = client.chance.choice((SMALL, READ, REFUSED))
    body = json.dumps({"tool": QUICK, "args": {"text": "x" * size}}).encode()
    await client.send(client.head("/mrt_dispatch", "Transfer-Encoding: chunked"))
    for start in range(0, len(body), CHUNK):
        piece = body[start : start + CHUNK]
        await client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await client.send(b"0\r\n\r\n")
    await client.answer()


async def pipeline(client: Client) -> None:
    kind = client.chance.choice(("quick", "any", "large"))
    for _ in range(BURST):
        if kind == "quick":
            request = client.call(QUICK, {})
        else:
            request = client.any_call() if kind == "any" else client.large_call(READ // 5)
        await client.send(request)
    for _ in range(BURST):
        await client.answer()


async def garbage(client: Client) -> None:
    await client.send(client.chance.randbytes(client.chance.choice((10, SMALL, 60_000))) + b"\r\n\r\n")
    await client.answer()


async def hang_up(client: Client) -> None:
    """Before the request is whole, before its answer comes, or before the answer is read."""
    when = client.chance.choice(("body", "call", "answer"))
    request = client.any_call() if when == "call" else client.large_call(READ)
    await client.send(request[: client.chance.randrange(len(request))] if when == "body" else request)
    if when == "answer":
        assert client._open is not None
        await client._open[0].read(1)
    await client.leave(at_once=client.chance.random() < 0.5)


KINDS: Final[Mapping[str, tuple[Callable[[Client], Awaitable[None]], int]]] = {
    "quick": (quick, 30),
    "tools": (tools, 10),
    "large": (large, 3),
    "chunked": (chunked, 3),
    "pipeline": (pipeline, 3),
    "garbage": (garbage, 3),
    "hang-up": (hang_up, 3),
}
"""What a client does next, and how often."""


async def behave(client: Client, kinds: Sequence[str], goes_on: Callable[[], bool]) -> None:
    weights = [KINDS[kind][1] for kind in kinds]
    while goes_on():
        kind = client.chance.choices(kinds, weights)[0]
        client.told[kind] += 1
        try:
            await asyncio.wait_for(KINDS[kind][0](client), PATIENCE_S)
        except TimeoutError:
            client.told["no answer"] += 1
            await client.leave(at_once=True)
        except (OSError, asyncio.IncompleteReadError):
            client.told["closed"] += 1
            await client.leave(at_once=True)
    await client.leave()


@dataclass
class Memory:
    """What the kernel tells of the server, printed as it goes."""

    pid: int
    begun: float = field(default_factory=time.monotonic)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def tell(self, when: str) -> None:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        found = {
            "when": when,
            "s": round(time.monotonic() - self.begun, 1),
            "MiB": _mib(status["VmRSS"]),
            "peak MiB": _mib(status["VmHWM"]),
            "threads": int(status["Threads"]),
            "files": sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir()),
        }
        self.samples.append(found)
        print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)


def _mib(text: str) -> float:
    return round(int(text.split(maxsplit=1)[0]) / machine.KIB, 1)


async def press(clients: Sequence[Client], kinds: Sequence[str], seconds: float, memory: Memory) -> None:
    until = time.monotonic() + seconds
    work = asyncio.gather(*(behave(client, kinds, lambda: time.monotonic() < until) for client in clients))
    for _ in range(SAMPLES):
        await asyncio.sleep(seconds / SAMPLES)
        memory.tell("under load")
    await work


def furnish(server: ours.Deployment) -> tuple[list[str], dict[str, str]]:
    """A home as `toolgate init` makes it, with files to work on. Returns its callers' keys, and what /rpc calls each tool."""
    home = server.home

    def say(*arguments: str) -> Any:
        done = server.run(*arguments)
        done.check_returncode()
        return json.loads(done.stdout)

    say("init", str(home), "--json")
    create = ("keys", "create", "--json", "--home", str(home), "--role")
    roles = ("admin", "committer", "builder")
    keys = [say(*create, role)["key"] for role in roles for _ in range(KEYS_A_ROLE)]
    files = {".github/workflows/ci.yml": WORKFLOW, "receipt.json": "{}"}
    files |= {f"notes/{number}.md": f"# Note {number}\n\n{TEXT}" for number in range(NOTES)}
    for name, text in files.items():
        path = home / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    contract = json.loads((home / "policy" / "mcp-contract.json").read_bytes())
    return keys, {tool["name"]: tool["id"] for tool in contract["tools"]}


@contextlib.contextmanager
def serving(target: Target, errors: Any) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """On the server's core, this process on the load's."""
    server_core, load_core = machine.cores()
    with subprocess.Popen(
        target.command, env=os.environ | dict(target.environment), stdout=subprocess.PIPE, stderr=errors
    ) as server:
        machine.pin(server.pid, server_core)
        machine.pin(0, load_core)
        try:
            assert server.stdout is not None
            yield server, int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
        finally:
            server.terminate()


def measure(folder: Path, made: ours.Deployment, options: argparse.Namespace) -> tuple[dict[str, Any], str | None]:
    """The numbers, and what is wrong with the server, if anything is."""
    keys, ids = furnish(made)
    told: Counter[str] = Counter()
    with (folder / "errors").open("w+b") as errors:
        with serving(made.over_http(), errors) as (server, port):
            clients = [
                Client(port, keys[number % len(keys)], ids, random.Random(number), told)
                for number in range(options.connections)
            ]
            memory = Memory(server.pid)
            memory.tell("at rest")
            asyncio.run(press(clients, options.only, options.seconds, memory))
            time.sleep(REST_S)
            memory.tell("all have left")
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    fault = said or (f"the server ended with {server.returncode}" if server.returncode else None)
    try:
        made.verify()
    except ours.AuditFault as untrue:
        fault = str(untrue)
    return {"kinds": options.only, "told": dict(told), "memory": memory.samples}, fault


def deployment(home: Path, commit: str | None) -> ours.Deployment:
    """Raises: CannotBuild."""
    if commit is None:
        return ours.Deployment(home, ())
    return checkouts.older(commit).deployment(home)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--commit", metavar="COMMIT", help="an older commit instead of this tree")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the numbers go as JSON")
    options = parser.parse_args()
    machine.require_linux()
    with tempfile.TemporaryDirectory(prefix="mixed-") as name:
        try:
            made = deployment(Path(name) / "home", options.commit)
        except checkouts.CannotBuild as impossible:
            print(f"stopped: {impossible}", file=sys.stderr)
            return 2
        results, fault = measure(Path(name), made, options)
    print("  ".join(f"{what}: {count}" for what, count in results["told"].items()))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    if fault is not None:
        print(f"stopped: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
