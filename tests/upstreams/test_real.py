"""Servers that nobody here wrote, through the gate, by the official SDK's client; and what the gate relays is what they sent.

`make guard` and `make upstreams` install them (scripts/upstreams). Without that, or without Chromium, these are skipped, unless
TOOLGATE_REQUIRE names `upstreams`.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from scripts.upstreams.install import PLACE
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, make_home
from tests.support import need
from tests.upstreams.homes import adopting_home, ask
from tests.upstreams.support import alive
from tests.waiting import until

TEE = Path(__file__).parent / "tee.py"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.guard, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Real:
    command: tuple[str, ...]
    tools: int
    calls: tuple[tuple[str, dict[str, Any], str], ...]
    """Tool, arguments, and a word of the answer."""
    env: dict[str, str] = field(default_factory=dict)
    refuses: bool = False
    """What it is asked for is not let through by its own rules: its refusal is what is relayed."""


def servers(folder: Path, page: str) -> dict[str, Real]:
    """`page`: the address of one that may be fetched."""
    node, python = PLACE / "node_modules" / ".bin", PLACE / "python" / "bin"
    repository = str(folder / "repository")
    found = {
        "time": Real(
            (str(python / "mcp-server-time"),), 2, (("get_current_time", {"timezone": "Europe/Berlin"}, "Berlin"),)
        ),
        "git": Real((str(python / "mcp-server-git"),), 12, (("git_log", {"repo_path": repository}, "first"),)),
        "fetch": Real(
            (str(python / "mcp-server-fetch"), "--ignore-robots-txt"),
            1,
            (("fetch", {"url": "http://127.0.0.1:9/"}, "link-local"),),
            refuses=True,
        ),
        "reaching": Real(
            (str(python / "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"),
            1,
            (("fetch", {"url": page}, "Fetched through the gate"),),
        ),
        "everything": Real(
            (str(node / "mcp-server-everything"),),
            13,
            (
                ("get-sum", {"a": 2, "b": 3}, "5"),
                ("get-structured-content", {"location": "New York"}, "temperature"),
                ("get-tiny-image", {}, "image/png"),
            ),
        ),
        "filesystem": Real(
            (str(node / "mcp-server-filesystem"), repository),
            14,
            (("read_text_file", {"path": f"{repository}/a.txt"}, "hello"),),
        ),
        "memory": Real(
            (str(node / "mcp-server-memory"),),
            9,
            (
                (
                    "create_entities",
                    {"entities": [{"name": "a", "entityType": "t", "observations": ["o"]}]},
                    "entities",  # the second time it is there already, and the list is empty
                ),
                ("read_graph", {}, "entities"),
            ),
            {"MEMORY_FILE_PATH": str(folder / "memory.json")},
        ),
    }
    if CHROMIUM is not None:
        options = ("--headless", "--isolated", "--no-sandbox", "--executable-path", CHROMIUM)
        calls = (("browser_navigate", {"url": "data:text/html,<h1>Hello there</h1>"}, "Hello there"),)
        found["playwright"] = Real((str(node / "playwright-mcp"), *options), 25, calls)
    return found


PAGE = "<html><head><title>Page</title></head><body><p>Fetched through the gate.</p></body></html>"
NAMES = ["time", "git", "fetch", "reaching", "everything", "filesystem", "memory", "playwright"]


@dataclass(frozen=True)
class World:
    home: Home
    server: Server
    real: dict[str, Real]
    folder: Path


def upstream(home: Home, *arguments: str) -> Any:
    command = [*home.command()[:1], "upstream", arguments[0], "--home", str(home.path), "--json", *arguments[1:]]
    made = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert made.returncode == 0, (arguments, made.stdout, made.stderr)
    return json.loads(made.stdout)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    need("upstreams")
    folder = tmp_path_factory.mktemp("real")
    _repository(folder / "repository")
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text(PAGE)
    with _web(folder / "page") as page:
        yield from _adopted(folder, servers(folder, page))


def _adopted(folder: Path, real: dict[str, Real]) -> Iterator[World]:
    config = {
        name: {
            "command": sys.executable,
            "args": [str(TEE), str(folder / f"{name}.tee"), *one.command],
            "env": one.env,
        }
        for name, one in real.items()
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": config}))
    home = make_home(folder / "home")
    assert {one["name"] for one in upstream(home, "import", str(folder / "mcp.json"))["added"]} == set(real)
    for name in real:
        upstream(home, "adopt", name, "--roles", "admin", "--yes")
    with home.serving("--limits-output-bytes", "4194304") as server:
        yield World(home, server, real, folder)


@contextmanager
def _web(place: Path) -> Iterator[str]:
    """The address of a page on this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(place))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/index.html"
        finally:
            server.shutdown()


def _repository(place: Path) -> None:
    place.mkdir()
    (place / "a.txt").write_text("hello\n")
    git = ["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"})


@asynccontextmanager
async def client(world: World, mode: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {world.home.keys['admin']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=2 * PATIENCE_S) as http_client:
        transport = streamable_http_client(f"http://127.0.0.1:{world.server.port}/mcp", http_client=http_client)
        async with Client(transport, mode=mode, read_timeout_seconds=2 * PATIENCE_S) as connected:
            yield connected


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_every_tool_of_every_server_is_listed(world: World, mode: str) -> None:
    async def scenario() -> list[str]:
        async with client(world, mode) as connected:
            return [tool.name for tool in (await connected.list_tools()).tools]

    listed = asyncio.run(scenario())
    for name, one in world.real.items():
        assert sum(tool.startswith(f"{name}_") for tool in listed) == one.tools, name


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_calls_by_the_official_client_are_answered(world: World, name: str, mode: str) -> None:
    if name not in world.real:
        pytest.skip("there is no Chromium")

    async def scenario() -> None:
        async with client(world, mode) as connected:
            for tool, arguments, word in world.real[name].calls:
                result = await connected.call_tool(f"{name}_{tool}", arguments)
                assert result.is_error is world.real[name].refuses, result
                assert word in result.model_dump_json()

    asyncio.run(scenario())


def _members(raw: bytes) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()}


@pytest.mark.parametrize("name", NAMES)
def test_what_the_gate_relays_is_what_the_upstream_sent_byte_for_byte(world: World, name: str) -> None:
    if name not in world.real:
        pytest.skip("there is no Chromium")
    for tool, arguments, _ in world.real[name].calls:
        served = f"{name}_{tool}"
        headers = {"Authorization": f"Bearer {world.home.keys['admin']}", "Content-Type": "application/json"}
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": served}
        headers |= {"Accept": "application/json, text/event-stream"}
        connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=2 * PATIENCE_S)
        connection.request("POST", "/mcp", json.dumps(speak.mcp_message(served, arguments, modern=True)), headers)
        relayed = _members(_members(connection.getresponse().read())["result"])
        connection.close()
        lines = (world.folder / f"{name}.tee").read_bytes().splitlines()
        sent = [_members(_members(line)["result"]) for line in lines if b'"result"' in line]
        same = [one for one in sent if one.get("content") == relayed["content"]]
        assert same, f"{served}: nothing that the upstream sent has these bytes"
        assert any(one.get("structuredContent") == relayed.get("structuredContent") for one in same)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_that_npx_started_outlives_a_killed_gate(tmp_path: Path) -> None:
    """npx starts a shell, and that the server: the death of the first would leave the others."""
    need("upstreams")
    npx = shutil.which("npx")
    assert npx is not None
    command = [npx, "--no-install", "mcp-server-everything"]
    home = adopting_home(tmp_path / "home", {"npx": {"command": command, "directory": str(PLACE)}})
    with home.serving() as server:
        status, body = ask("mrt", server.port, ("npx", "echo"), {"message": "hello"}, home.keys["admin"])
        assert status == 200, body
        started = _below(server.process.pid)
        named = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started]
        assert any(b"npm" in one for one in named)
        assert any(b"mcp-server-everything" in one and b"npm" not in one for one in named), named
        server.process.kill()
        server.process.wait()
        until(lambda: not any(alive(pid) for pid in started), "the end of all that npx started")


def _below(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_below(child)]
    return found
