"""The fixture server of the SDK, which the authors of the suite test with: fetched with the source of `mcp`, and adopted.

It is somebody else's server, so it is judged twice: as it is, and through the gate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from socket import create_connection, create_server
from time import monotonic, sleep

from toolgate.policy.manifest import MANIFEST_FILE

NAME = "fixture"
MODULE = "mcp_everything_server"
ASKS = ["elicitation", "sampling", "roots"]
FETCH_S, START_S = 300, 60


def fetch(cache: Path) -> Path:
    """Where the fixture's package lies: out of the source distribution of the SDK that is installed here."""
    release = f"mcp-{version('mcp')}"
    folder = cache / release / "examples" / "servers" / "everything-server"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "mcp"]
        command += ["--dest", str(cache), release.replace("-", "==", 1)]
        subprocess.run(command, check=True, timeout=FETCH_S)
        with tarfile.open(cache / f"{release}.tar.gz") as archive:
            archive.extractall(cache, filter="data")
    return folder


@contextmanager
def serving_fixture(folder: Path) -> Iterator[str]:
    """Its address."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", MODULE, "--port", str(port), "--log-level", "ERROR"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port, process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    due = monotonic() + START_S
    while monotonic() < due and process.poll() is None:
        try:
            create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            sleep(0.1)
        else:
            return
    raise SystemExit("the fixture server did not start")


def add_fixture(home: Path, url: str) -> None:
    """Its address, without a prefix: the suite asks for names and addresses of its own."""
    settings = home / "toolgate.toml"
    settings.write_text(f'{settings.read_text()}\n[upstreams.{NAME}]\nurl = "{url}"\nprefix = ""\n')


def let_it_ask(home: Path) -> None:
    """Rows of adopted tools allow no questions unless a person says so; here the suite is that person."""
    file = home / "policy" / MANIFEST_FILE
    manifest = json.loads(file.read_text())
    for row in manifest["tools"]:
        if row.get("x-pack") == f"upstream-{NAME}" and not row["name"].startswith("resource:"):
            row["x-asks"] = ASKS
    file.write_text(json.dumps(manifest))
