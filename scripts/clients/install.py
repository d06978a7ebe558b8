"""Fetch the clients that Toolgate is tried with, by pinned name, into a cache: one environment or npm folder for each.

A client that cannot be had fails by its name, with the reason. Nothing of a package runs while it is installed, but for what
fetches the programs of Node, Claude Code and opencode.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.clients.limited import run
from tests.support import one_at_a_time

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "clients"
DRIVERS = HERE / "drivers"
INSTALL_S = 900.0
MAX_REASON = 2000
"""Characters of what an installer said that are told."""
PYTHON: Mapping[str, Sequence[str]] = {
    "mcp1": ("mcp==1.30.0",),
    "fastmcp2": ("fastmcp==2.14.7",),
    "fastmcp4": ("fastmcp==4.1.2",),
}
"""The Python clients of `make guard`, each with its own dependencies; major 2 of the official SDK is in ours."""
AGENTS: Mapping[str, Sequence[str]] = {
    "agno": ("agno[mcp]==3.1.10", "openai"),
    "autogen": ("autogen-ext[mcp]==0.7.5", "autogen-agentchat", "mcp<2"),
    "google-adk": ("google-adk[mcp]==2.13.0",),
    "langchain": ("langchain-mcp-adapters==0.3.2",),
    "llama-index": ("llama-index-tools-mcp==0.6.0",),
    "mcp-use": ("mcp-use==1.7.1",),
    "openai-agents": ("openai-agents==0.24.0",),
    "pydantic-ai": ("pydantic-ai-slim[mcp]==2.66.0",),
    "semantic-kernel": ("semantic-kernel[mcp]==1.45.0",),
    "smolagents": ("smolagents[mcp]==1.26.0", "mcpadapt", "mcp<2"),
    "strands": ("strands-agents==1.62.0",),
}
"""The agent libraries of `make clients` in Python. The first requirement is the library itself."""
NPM: Mapping[str, Mapping[str, str]] = {
    "ai-sdk": {"@ai-sdk/mcp": "2.0.97", "zod": "4.4.3"},
    "claude-code": {"@anthropic-ai/claude-code": "2.1.325"},
    "codex": {"@openai/codex": "0.169.0"},
    "gemini": {"@google/gemini-cli": "0.61.0"},
    "langchain-js": {
        "@langchain/mcp-adapters": "1.1.4",
        "@langchain/core": "1.2.13",
        "@langchain/langgraph": "1.4.13",
        "zod": "4.4.3",
    },
    "mastra": {"@mastra/mcp": "2.0.0", "@mastra/core": "1.71.0", "zod": "4.4.3"},
    "mcp-remote": {"mcp-remote": "0.15.1"},
    "mcporter": {"mcporter": "0.12.3"},
    "openai-agents-js": {"@openai/agents": "0.20.0", "zod": "4.4.3"},
    "opencode": {"opencode-ai": "1.18.33"},
}
"""The agent libraries and programs of `make clients` on npm. The first package is the client itself."""
FETCHES_ITSELF = frozenset({"node", "@anthropic-ai/claude-code", "opencode-ai"})
"""Packages whose program is put into place by their own install script."""
PEERS: Mapping[str, Sequence[str]] = {"git": ("mcp-server-git==2026.10.19",)}
"""Servers that `make tokens` counts beside ours."""


class CannotInstall(Exception):
    """A client is not to be had. Names it."""


def python(name: str, requirements: Sequence[str], cache: Path = CACHE) -> Path:
    """The interpreter of an environment that has these packages. Raises: CannotInstall."""
    place, wanted = cache / "py" / name, "\n".join(requirements)
    stamp, interpreter = place / "installed.txt", place / "bin" / "python"
    with one_at_a_time(f"clients-{name}"):
        if not stamp.is_file() or stamp.read_text() != wanted:
            print(f"installing {name} into {place} ...", file=sys.stderr, flush=True)
            shutil.rmtree(place, ignore_errors=True)
            _run(name, [sys.executable, "-m", "venv", str(place)])
            pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run(name, [*pip, *requirements])
            stamp.write_text(wanted)
    return interpreter


def guard_packages(cache: Path = CACHE) -> Path:
    """The folder with the npm packages of `make guard`, Node 22 among them. Raises: CannotInstall."""
    return _npm("npm", (HERE / "package.json").read_bytes(), cache)


def npm(name: str, dependencies: Mapping[str, str], cache: Path = CACHE) -> Path:
    """A folder with these npm packages, their programs in `node_modules/.bin`, and our drivers. Raises: CannotInstall."""
    package = {"name": f"toolgate-{name}", "private": True, "type": "module", "dependencies": dict(dependencies)}
    return _npm(name, json.dumps(package).encode(), cache)


def _npm(name: str, package: bytes, cache: Path) -> Path:
    place = cache / name
    stamp = place / "installed.json"
    with one_at_a_time(f"clients-{name}"):
        if not stamp.is_file() or stamp.read_bytes() != package:
            _npm_install(name, package, place)
            stamp.write_bytes(package)
        _copy_drivers(place / "drivers")
    return place


def _npm_install(name: str, package: bytes, place: Path) -> None:
    program = shutil.which("npm")
    if program is None:
        raise CannotInstall("npm is not on this machine. Install Node (any version with npm), then try again.")
    print(f"installing npm packages into {place} ...", file=sys.stderr, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "package.json").write_bytes(package)
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    # A peer that a client does not need, and a registry lacks, must not stop it: what it does need is named.
    flags = ("--ignore-scripts", "--legacy-peer-deps", "--no-package-lock")
    _run(name, [program, "install", *flags, *quiet], cwd=place)
    for each in sorted(FETCHES_ITSELF & json.loads(package)["dependencies"].keys()):
        _run(each, [program, "rebuild", each, *quiet], cwd=place)


def npm_version(place: Path, package: str) -> str:
    return str(json.loads((place / "node_modules" / package / "package.json").read_text())["version"])


def _copy_drivers(place: Path) -> None:
    """A program in JavaScript finds the packages beside it."""
    place.mkdir(exist_ok=True)
    for driver in DRIVERS.glob("*.mjs"):
        target = place / driver.name
        if not target.is_file() or _digest(target) != _digest(driver):
            shutil.copyfile(driver, target)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def programs(*places: Path, **more: str) -> dict[str, str]:
    """An environment in which the programs of these npm folders come first, with a home of their own in the first."""
    home = places[0] / "home"
    home.mkdir(exist_ok=True)
    folders = [str(place / "node_modules" / ".bin") for place in places]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path, "HOME": str(home), "NO_COLOR": "1"} | more


def _run(name: str, command: Sequence[str], cwd: Path | None = None) -> None:
    done = run(command, INSTALL_S, cwd=cwd)
    if done.code is None:
        raise CannotInstall(f"{name} cannot be installed: it took more than {INSTALL_S:.0f} s")
    if done.code != 0:
        raise CannotInstall(f"{name} cannot be installed:\n{done.said[-MAX_REASON:]}")
