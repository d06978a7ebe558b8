"""Secrets of the server's own, such as the API keys its peers gave it: from the environment or the secrets directory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from toolgate.config import read_secret
from toolgate.errors import StartRefused, WorkFailed

if TYPE_CHECKING:
    from pathlib import Path

MAX_SECRET_BYTES: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class SecretSources:
    """Reads on each use, so a replaced secret counts at once."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._environ = environ

    def read(self, source: str) -> str:
        """Raises: StartRefused: names the source and the fix, never the value."""
        kind, _, name = source.partition(":")
        if kind not in {"env", "file"} or not _NAME.fullmatch(name):
            raise StartRefused(
                f"{source!r} names no secret.\nWrite env:NAME, or file:NAME for a file in paths.secrets."
            )
        value = read_secret(name, self._environ) if kind == "env" else self._from_file(name)
        if not value:
            raise StartRefused(f"The secret {source} is not there.\n{self._how_to_give(kind, name)}")
        return value

    def _how_to_give(self, kind: str, name: str) -> str:
        if kind == "env":
            return f"Set the variable {name}, or {name}_FILE to a file that holds it, where the server starts."
        return f"Write it into {self._directory / name} (chmod 600)."

    def _from_file(self, name: str) -> str:
        try:
            descriptor = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077:
                raise StartRefused(f"The secret file:{name} is open to other users.\nRun chmod 600 on it.")
            return os.read(descriptor, MAX_SECRET_BYTES).decode("ascii", "replace").strip()
        finally:
            os.close(descriptor)


class PackSecrets:
    """The secrets that one pack declares, for its services. Any other is refused, though the server could read it."""

    __slots__ = ("_declared", "_sources")

    def __init__(self, sources: SecretSources, declared: Collection[str]) -> None:
        self._sources = sources
        self._declared = frozenset(declared)

    def read(self, source: str) -> str:
        """Raises: StartRefused."""
        if source not in self._declared:
            raise StartRefused(
                "A pack asked for a secret that it does not declare.\nName it in Pack.secrets, or mend the pack."
            )
        return self._sources.read(source)


class ToolSecrets:
    """The same for its tools: what the caller of a tool hears names nothing of this server."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: PackSecrets) -> None:
        self._secrets = secrets

    def read(self, source: str) -> str:
        """Raises: WorkFailed."""
        try:
            return self._secrets.read(source)
        except StartRefused:
            raise WorkFailed(
                "secret_unavailable", "A secret that the tool needs cannot be read; `toolgate doctor` says which."
            ) from None
