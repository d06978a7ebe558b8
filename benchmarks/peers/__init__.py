"""The servers we compare with, each in a virtual environment of its own, at its best.

`async def` tools, uvloop and httptools, access log off, JSON answers. The versions are pinned so that two runs compare.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "bench"
SCRIPTS = Path(__file__).parent
SERVER = ("uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0")


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        return CACHE / self.name / "bin" / "python"

    def command(self, script: str, *arguments: str) -> list[str]:
        return [str(self.python), str(SCRIPTS / script), *arguments]


SDK = Peer("sdk", ("mcp==2.3.0", *SERVER))
FASTMCP = Peer("fastmcp", ("fastmcp==4.1.2", *SERVER))
"""4.1.3 and 4.1.4 ask for a release of certifi that the package index did not have when this was pinned."""
ASGI = Peer("asgi", (*SERVER, "orjson==3.13.0"))
PEERS = (SDK, FASTMCP, ASGI)
CONTEXTFORGE = Peer("contextforge", ("mcp-contextforge-gateway==1.0.7.post20260921",))
"""A gateway: it forwards each call to another server. Left out where it does not install."""


def install(peer: Peer) -> None:
    """Make the environment, unless it already holds exactly these versions. Raises: CalledProcessError."""
    done = CACHE / peer.name / "installed"
    wanted = "\n".join(peer.packages)
    if done.exists() and done.read_text() == wanted:
        return
    print(f"installing {', '.join(peer.packages)} into {CACHE.name}/{peer.name} ...", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(CACHE / peer.name)], check=True)
    pip = [str(peer.python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *peer.packages], check=True)
    done.write_text(wanted)
