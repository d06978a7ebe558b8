"""Toolgate as an older commit has it and as this tree has it, built alike, each with what its own lock names.

Everything stays in .cache/bench: an older commit's sources and package in a folder named after it, and one environment a
lock, which all commits with this lock share. `make clean` removes it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import ours, peers
from benchmarks.field import OURS

PACKS: Final = ("bench", "governance", "library", "lra")
ECHOES: Final = ("bench_echo", "bench_thread")
"""An older commit's bench pack may have only the first."""
NOTE: Final = "# Note\n\n" + "What a person would look up. " * 100
LOCK: Final = Path("requirements") / "run.txt"


class CannotBuild(Exception):
    """There is no such commit, or it cannot be made to run here."""


@dataclass(frozen=True, slots=True)
class Checkout:
    name: str
    """What the tables call it."""
    package: Path
    """Where its package is installed, its program beside it."""
    bench: Path
    """Its own bench pack."""

    def deployment(self, home: Path) -> ours.Deployment:
        """Of this checkout's program; the home is still to be made."""
        return ours.Deployment(
            home, (), program=str(self.package / "bin" / "toolgate"), path=(self.bench, self.package)
        )

    def deploy(self, home: Path, packs: Sequence[str] = PACKS) -> ours.Deployment:
        """With the packs that are measured, made by the checkout's own commands. Raises: CannotBuild."""
        made = self.deployment(home)
        self._say(made, "init", str(home), "--json")
        (home / "toolgate.toml").write_text(f"{ours.LIMITED}\n[packs]\nenabled = {json.dumps(packs)}\n")
        echoes = [name for name in ECHOES if f'"{name}"' in (self.bench / "bench" / "__init__.py").read_text()]
        _permit(home / "policy" / "mcp-tools.policy.json", echoes)
        self._say(made, "contract", "build", "--home", str(home))
        key = self._say(made, "keys", "create", "--role", "builder", "--json", "--home", str(home))
        added = ours.add_keys(home / "keys" / "callers.json", ours.CALLERS - 1)
        workspace = home / "workspace"
        (workspace / "note.md").write_text(NOTE)
        self._say(made, "lra", "init", "paper", cwd=workspace)
        return replace(made, keys=(json.loads(key)["key"], *added))

    def _say(self, made: ours.Deployment, *command: str, cwd: Path | None = None) -> str:
        try:
            done = made.run(*command, cwd=cwd)
        except OSError as fault:
            raise CannotBuild(f"{self.name} has no program that runs: {fault.strerror}") from None
        if done.returncode != 0:
            raise CannotBuild(f"{self.name}: toolgate {command[0]} failed: {_end(done.stderr)}")
        return done.stdout


def present() -> Checkout:
    """This tree as it is now, with what is not committed yet. Raises: CannotBuild."""
    return _built(OURS, ours.ROOT, peers.CACHE / "present")


def older(commit: str) -> Checkout:
    """Raises: CannotBuild."""
    found = resolve(commit)
    folder = peers.CACHE / found
    if not (folder / "source").is_dir():
        _export(found, folder / "source")
    return _built(found, folder / "source", folder)


def resolve(commit: str) -> str:
    """The abbreviated hash of a tag, a branch, a hash or HEAD~5. Raises: CannotBuild."""
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if found.returncode != 0:
        raise CannotBuild(f"{commit} is not a commit of this repository: name a tag, a branch, a hash or HEAD~5")
    return _git("rev-parse", "--short=10", found.stdout.decode().strip()).stdout.decode().strip()


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(ours.ROOT), *arguments], capture_output=True, check=False)
    except OSError as fault:
        raise CannotBuild(f"git does not run: {fault.strerror}") from None


def _export(commit: str, source: Path) -> None:
    """All or nothing: a half-written folder would be taken for the commit next time."""
    archive = _git("archive", "--format=tar", commit)
    if archive.returncode != 0:
        raise CannotBuild(f"{commit} cannot be exported: {_end(archive.stderr.decode(errors='replace'))}")
    partial = source.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(partial, filter="data")
    partial.rename(source)


def _built(name: str, source: Path, folder: Path) -> Checkout:
    bench = source / "benchmarks" / "site"
    if not (source / LOCK).is_file() or not bench.is_dir():
        raise CannotBuild(f"{name} cannot be measured: it has no {LOCK} or no bench pack")
    environment = _environment(source / LOCK)
    package = folder / "package"
    _install_package(environment, source, package, name)
    for place in (package, bench):  # alike, also where PYTHONDONTWRITEBYTECODE is set
        subprocess.run([_python(environment), "-m", "compileall", "-q", str(place)], check=False)
    return Checkout(name, package, bench)


def _environment(lock: Path) -> Path:
    """What the lock names, installed once for every commit that has this lock. Raises: CannotBuild."""
    digest = hashlib.sha256(lock.read_bytes() + platform.python_version().encode()).hexdigest()[:10]
    folder = peers.CACHE / f"locked-{digest}"
    done = folder / "installed"
    if not done.exists():
        sys.stderr.write(f"installing {lock.name} into {folder.parent.name}/{folder.name} ...\n")
        _or_cannot(f"the lock {digest}", peers.make_environment, folder)
        _or_cannot(f"the lock {digest}", peers.pip_install, _python(folder), "--require-hashes", "-r", str(lock))
        done.touch()
    return folder


def _install_package(environment: Path, source: Path, package: Path, name: str) -> None:
    """Replaced each time: this tree may have changed, and an older commit takes a second or two."""
    shutil.rmtree(package, ignore_errors=True)
    flags = ("--no-deps", "--no-build-isolation", "--target", str(package))
    _or_cannot(name, peers.pip_install, _python(environment), *flags, str(source))


def _or_cannot(what: str, install: Any, *arguments: Any) -> None:
    try:
        install(*arguments)
    except subprocess.CalledProcessError:
        raise CannotBuild(f"{what} does not install here") from None
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{what} did not install within {peers.INSTALL_S:g} s") from None


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _permit(manifest: Path, names: Sequence[str]) -> None:
    document: dict[str, Any] = json.loads(manifest.read_bytes())
    row: Mapping[str, Any] = {
        "x-tier": "experimental",
        "x-visibilityHint": "Echoes three fields",
        "x-roles": ["admin", "committer", "builder"],
    }
    document["tools"] += [{"name": name, **row} for name in names]
    manifest.write_text(json.dumps(document))


def _end(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "without a word"
