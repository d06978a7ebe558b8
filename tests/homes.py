"""Deployments for tests: a home directory with its own policy, keys for every role, and a stranger's pack if wanted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolgate.app import App, build
from toolgate.config import load_settings
from toolgate.gate.keys import KeyRing
from toolgate.model.call import CALLING_ROLES, ROLES
from toolgate.model.offers import offered
from toolgate.model.tool import Tool
from toolgate.packs.loader import load_packs
from toolgate.policy import contract
from toolgate.policy.manifest import LOCK_FILE, MANIFEST_FILE, default_file

ROOT = Path(__file__).parents[1]
SITE = ROOT / "tests" / "site_packages"
TOOLGATE = str(Path(sys.executable).parent / "toolgate")
PATIENCE_S = 30.0
"""Seconds that a process may take to start, to answer or to end before a test gives up: many times what it takes, because other
work may share the machine."""

if str(SITE) not in sys.path:
    sys.path.insert(0, str(SITE))  # as good as installed: its entry point is found like any other


@dataclass(frozen=True)
class Home:
    path: Path
    keys: Mapping[str, str]
    """One key a role."""

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    def app(self, **flags: Any) -> App:
        """The whole composition in this process."""
        return build(load_settings(self.path, {key.replace("__", "."): value for key, value in flags.items()}, {}))

    def ring(self) -> KeyRing:
        return KeyRing(_key_file(self.path))

    def records(self) -> list[dict[str, Any]]:
        """Every record of every run, oldest run first. Names tell the second in which a run began, and two may begin in one."""
        folder = self.path / "runs" / "mcp_server" / "envelope_validation"
        found = sorted(path for path in folder.glob("*.jsonl") if not path.is_symlink())
        runs = [[json.loads(line) for line in path.read_text().splitlines()] for path in found]
        return [record for run in sorted(filter(None, runs), key=lambda run: run[0]["ts"]) for record in run]

    def calls(self) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["event"] in ("intent", "outcome")]

    def command(self, *arguments: str) -> list[str]:
        return [TOOLGATE, *arguments, "--home", str(self.path)]

    @contextmanager
    def serving(self, *flags: str, within: Sequence[str] = ()) -> Iterator[Server]:
        """`within`: what starts the server, such as a shell that sets a limit."""
        process = subprocess.Popen(
            [*within, *self.command("serve", "--port", "0", "--json", *flags)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield Server(process, first_line(process))
        finally:
            process.terminate()
            _, standard_error = process.communicate(timeout=PATIENCE_S)
        assert b"Traceback" not in standard_error, standard_error.decode()


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    ready: Mapping[str, Any]

    @property
    def port(self) -> int:
        return int(self.ready["url"].rpartition(":")[2])


def until_closed(port: int) -> None:
    """Wait until nobody listens there any more."""
    due = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return
        assert time.monotonic() < due, "still listening"


def environment(**more: str) -> dict[str, str]:
    """Nothing of the caller's own settings leaks in; the stranger's pack is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    path = os.pathsep.join(part for part in (str(SITE), os.environ.get("PYTHONPATH")) if part)
    return kept | {"PYTHONPATH": path} | more


def first_line(process: subprocess.Popen[bytes]) -> Mapping[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    overdue = threading.Timer(PATIENCE_S, process.kill)
    overdue.start()
    line = process.stdout.readline()
    overdue.cancel()
    assert line, process.stderr.read().decode()
    return dict(json.loads(line))


def make_home(
    path: Path,
    *,
    packs: Sequence[str] = ("governance",),
    settings: str = "",
    rows: Mapping[str, Mapping[str, Any]] | None = None,
    roles: Mapping[str, str] | None = None,
    answering: Sequence[str] = (),
) -> Home:
    """A home whose policy is the packaged one plus a row for every tool of a stranger's pack. `rows`: more for some rows.
    `roles`: custom ones, each with what it is made of; they have keys, too. `answering`: those of
    them that may answer requests for approval."""
    policy = path / "policy"
    policy.mkdir(parents=True)
    (path / "workspace").mkdir()
    (path / "toolgate.toml").write_text(f"{settings}\n[packs]\nenabled = {json.dumps(list(packs))}\n")
    loaded = load_packs(packs)
    manifest = json.loads(default_file(MANIFEST_FILE).read_bytes())
    known = {row["name"] for row in manifest["tools"]}
    manifest["tools"] += [_row(tool) for pack in loaded for tool in offered(pack) if tool.name not in known]
    for row in manifest["tools"]:
        row.update((rows or {}).get(row["name"], {}))
    if roles:
        manifest["roles"] = [
            {"name": name, "base": base, **({"answers": True} if name in answering else {})}
            for name, base in roles.items()
        ]
    (policy / MANIFEST_FILE).write_text(json.dumps(manifest))
    (policy / LOCK_FILE).write_bytes(contract.render(_locked(loaded, policy)))
    ring = KeyRing(_key_file(path))
    return Home(path, {role: ring.create(role)[1] for role in (*ROLES, *(roles or ()))})


def _key_file(path: Path) -> Path:
    return load_settings(path, {}, {}).paths.keys


def _row(tool: Tool) -> dict[str, Any]:
    roles = ["admin"] if tool.name.endswith("_admin") else list(CALLING_ROLES)
    row = {"name": tool.name, "x-tier": "experimental", "x-visibilityHint": "A test tool", "x-roles": roles}
    return row | ({"x-asks": list(tool.asks)} if tool.asks else {})


def _locked(loaded: Sequence[Any], policy: Path) -> Any:
    from toolgate.policy.bundle import load_decisions

    manifest, adrs = load_decisions(policy)
    return contract.build(loaded, manifest, adrs)


@contextmanager
def speaking(home: Home, role: str) -> Iterator[Callable[[str, dict[str, Any]], dict[str, Any]]]:
    """ask(method, params) -> result: MCP of the handshake era with a real server over a pipe."""
    process = subprocess.Popen(
        home.command("stdio"),
        env=environment(TOOLGATE_API_KEY=home.keys[role]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pipes = process.stdin, process.stdout

    def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        pipes[0].write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        pipes[0].flush()
        return dict(json.loads(pipes[1].readline())["result"])

    overdue = threading.Timer(4 * PATIENCE_S, process.kill)
    overdue.start()
    try:
        yield ask
    finally:
        overdue.cancel()
        process.communicate(timeout=PATIENCE_S)
