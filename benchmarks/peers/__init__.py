"""The servers we compare with, each in a virtual environment of its own, at its best.

`async def` tools, uvloop and httptools, access log off, JSON answers. The versions are pinned so that two runs compare.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "bench"
SCRIPTS = Path(__file__).parent
INSTALL_S = 240.0
"""Seconds that the packages of one peer may take to come."""
SERVER = ("uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0")


@dataclass(frozen=True, slots=True)
class Peer:
    label: str
    """What the tables call it."""
    name: str
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        return CACHE / self.name / "bin" / "python"

    def command(self, script: str, *arguments: str) -> list[str]:
        return [str(self.python), str(SCRIPTS / script), *arguments]


SDK = Peer("SDK", "sdk", ("mcp==2.3.0", *SERVER))
FASTMCP = Peer("FastMCP", "fastmcp", ("fastmcp==4.1.2", *SERVER))
"""4.1.3 and 4.1.4 ask for a release of certifi that the package index did not have when this was pinned."""
ASGI = Peer("empty ASGI", "asgi", (*SERVER, "orjson==3.13.0"))
PEERS = (SDK, FASTMCP, ASGI)
CONTEXTFORGE = Peer("ContextForge", "contextforge", ("mcp-contextforge-gateway==1.0.7.post20260921",))
"""A gateway: it forwards each call to another server. Left out where it does not install."""
MCP_PROXY = Peer("mcp-proxy", "mcp-proxy", ("mcp-proxy==0.13.0",))
"""Streamable HTTP in front of a program on its pipes."""
RELAYS = (SDK, FASTMCP, ASGI, CONTEXTFORGE, MCP_PROXY)
"""Whom `benchmarks.upstreams` needs: those that relay, and what they are compared with."""


def install_all(wanted: Sequence[Peer] = PEERS) -> dict[str, str]:
    """Side by side. Returns which are not there, and why."""
    with ThreadPoolExecutor(len(wanted)) as pool:
        reasons = dict(zip(wanted, pool.map(install, wanted), strict=True))
    return {peer.label: reason for peer, reason in reasons.items() if reason is not None}


def install(peer: Peer) -> str | None:
    """Make the environment, unless it already holds exactly these versions. Returns why it is not there, or None."""
    done = CACHE / peer.name / "installed"
    wanted = "\n".join(peer.packages)
    if done.exists() and done.read_text() == wanted:
        return None
    sys.stderr.write(f"installing {', '.join(peer.packages)} into {CACHE.name}/{peer.name} ...\n")
    try:
        make_environment(CACHE / peer.name)
        pip_install(peer.python, *peer.packages)
    except subprocess.CalledProcessError:
        return "does not install here"
    except subprocess.TimeoutExpired:
        return f"did not install within {INSTALL_S:g} s"
    done.write_text(wanted)
    return None


def make_environment(folder: Path) -> None:
    """A new virtual environment in place of what is there. Raises: CalledProcessError."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)


def pip_install(python: Path, *arguments: str) -> None:
    """Into the environment of this interpreter, by our own pip. Raises: CalledProcessError, TimeoutExpired."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *arguments], check=True, timeout=INSTALL_S)
