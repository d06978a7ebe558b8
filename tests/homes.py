"""Deployments for tests: a home directory with its own policy, keys for every role, and a stranger's pack if wanted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolgate.app import App, build
from toolgate.config import load_settings
from toolgate.gate.keys import KeyRing
from toolgate.model.call import ROLES
from toolgate.packs.loader import load_packs
from toolgate.policy import contract
from toolgate.policy.manifest import LOCK_FILE, MANIFEST_FILE, default_file

ROOT = Path(__file__).parents[1]
SITE = ROOT / "tests" / "site"
TOOLGATE = str(Path(sys.executable).parent / "toolgate")
PATIENCE_S = 10.0
"""Seconds that a process may take to start, to answer or to end before a test gives up."""

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
        """Every record of every run, oldest run first."""
        folder = self.path / "runs" / "mcp_server" / "envelope_validation"
        found = sorted(path for path in folder.glob("*.jsonl") if not path.is_symlink())
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]

    def calls(self) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["event"] in ("intent", "outcome")]

    def command(self, *arguments: str) -> list[str]:
        return [TOOLGATE, *arguments, "--home", str(self.path)]

    @contextmanager
    def serving(self, *flags: str) -> Iterator[Server]:
        process = subprocess.Popen(
            self.command("serve", "--port", "0", "--json", *flags),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield Server(process, _first_line(process))
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


def _first_line(process: subprocess.Popen[bytes]) -> Mapping[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    overdue = threading.Timer(PATIENCE_S, process.kill)
    overdue.start()
    line = process.stdout.readline()
    overdue.cancel()
    assert line, process.stderr.read().decode()
    return dict(json.loads(line))


def make_home(path: Path, *, packs: Sequence[str] = ("governance",), settings: str = "") -> Home:
    """A home whose policy is the packaged one plus a row for every tool of a stranger's pack."""
    policy = path / "policy"
    policy.mkdir(parents=True)
    (path / "workspace").mkdir()
    (path / "toolgate.toml").write_text(f"{settings}\n[packs]\nenabled = {json.dumps(list(packs))}\n")
    loaded = load_packs(packs)
    manifest = json.loads(default_file(MANIFEST_FILE).read_bytes())
    known = {row["name"] for row in manifest["tools"]}
    manifest["tools"] += [_row(tool.name) for pack in loaded for tool in pack.tools if tool.name not in known]
    (policy / MANIFEST_FILE).write_text(json.dumps(manifest))
    (policy / LOCK_FILE).write_bytes(contract.render(_locked(loaded, policy)))
    ring = KeyRing(_key_file(path))
    return Home(path, {role: ring.create(role)[1] for role in ROLES})


def _key_file(path: Path) -> Path:
    return load_settings(path, {}, {}).paths.keys


def _row(name: str) -> dict[str, Any]:
    roles = ["admin"] if name.endswith("_admin") else list(ROLES)
    return {"name": name, "x-tier": "experimental", "x-visibilityHint": "A test tool", "x-roles": roles}


def _locked(loaded: Sequence[Any], policy: Path) -> Any:
    from toolgate.policy.bundle import load_decisions

    manifest, adrs = load_decisions(policy)
    return contract.build(loaded, manifest, adrs)
