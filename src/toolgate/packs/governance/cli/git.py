"""What Git knows about a repository: its remote, and its files before a change. Nothing here fetches anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import typer

from toolgate.packs.governance.analysis.ignores import BaseFiles
from toolgate.packs.governance.repository.identity import RepositoryOrigin, remote_of
from toolgate.packs.governance.repository.model import MAX_FILE_BYTES

TIMEOUT_S: Final = 10.0
"""Seconds for Git to print one file."""


_QUIET: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
"""A repository's own configuration may name a program to fetch missing objects with: nothing is fetched."""


def origin_at(root: Path) -> RepositoryOrigin:
    """The repository by its remote, else by its place on this machine: never a name that two repositories share."""
    config = _git_directory(root) / "config"
    try:
        remote = remote_of(config.read_text(encoding="utf-8", errors="replace")[:1_000_000])
    except OSError:
        remote = None
    return RepositoryOrigin(remote or root.resolve().as_uri())


def _git_directory(root: Path) -> Path:
    """`.git`, or what it points to: worktrees and submodules keep a file there."""
    place = root / ".git"
    if place.is_file():
        pointed = place.read_text(encoding="utf-8", errors="replace").partition("gitdir:")[2].strip()
        place = (root / pointed) if pointed else place
        common = place / "commondir"
        if common.is_file():
            place = place / common.read_text(encoding="utf-8", errors="replace").strip()
    return place


def base_reader(root: Path, given: str | None) -> BaseReader:
    """`given`, else what the pull request is against, else the last commit: then the change is what is not committed yet."""
    against = os.environ.get("GITHUB_BASE_REF")
    return BaseReader(root, given or (f"origin/{against}" if against else "HEAD"), required=given is not None)


class BaseReader:
    def __init__(self, root: Path, ref: str, *, required: bool) -> None:
        if ref.startswith("-"):
            raise typer.BadParameter(f"--base: {ref} is not a commit")
        self._root = root
        self._ref = ref
        self._required = required
        self.unknown = ""
        """Why it is not known what the change added; empty when it is."""

    def __call__(self, paths: list[str]) -> BaseFiles | None:
        if not paths:
            return BaseFiles()
        if _git(self._root, "rev-parse", "--verify", "--quiet", f"{self._ref}^{{commit}}") is None:
            if self._required:
                raise typer.BadParameter(f"--base: {self._ref} is not in this clone (fetch it, or give another)")
            self.unknown = f"{self._ref} is not in this clone, so which ignores are new is not known (--base)"
            return None
        # With a dot: from the judged directory, which may be one of a larger checkout.
        found = {path: _git(self._root, "cat-file", "blob", f"{self._ref}:./{path}") for path in paths}
        unread = self._unread([path for path, data in found.items() if data is None])
        if unread:
            if self._required:
                raise typer.BadParameter(
                    f"--base: {self._ref}:{unread} cannot be read here (fetch it, or give another)"
                )
            self.unknown = f"{self._ref}:{unread} cannot be read here, so which ignores are new is not known (--base)"
            return None
        return BaseFiles({path: data for path, data in found.items() if data is not None})

    def _unread(self, paths: list[str]) -> str:
        """One of these files that the commit has and Git cannot print: a clone may lack what it was not asked for."""
        own = [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
        if not own:
            return ""
        listed = _git(self._root, "ls-tree", "-z", "--name-only", self._ref, "--", *own)
        return own[0] if listed is None else listed.decode(errors="replace").partition("\0")[0]


def is_ignored(root: Path, path: str) -> bool:
    """Git would leave this file out of every commit."""
    return _git(root, "check-ignore", "--quiet", "--", path) is not None


def _git(root: Path, *arguments: str) -> bytes | None:
    """What Git prints; None where it says no, or is not there."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(root), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (Git from the PATH, by its full name)
            command, capture_output=True, timeout=TIMEOUT_S, check=False, env=os.environ | _QUIET
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:MAX_FILE_BYTES] if done.returncode == 0 else None
