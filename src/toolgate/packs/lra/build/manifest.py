"""Which files a build wrote, so that the next one replaces those and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

NAME: Final = ".lra-build.json"
MAX_BYTES: Final = 4 * 1024 * 1024


class BuildManifest(NamedTuple):
    source: str
    """The source file, from the directory of the paper."""
    files: dict[str, str]
    """SHA-256 of what was written, by path."""


def of(source: str, files: Mapping[str, bytes]) -> bytes:
    digests = {name: _digest(data) for name, data in sorted(files.items())}
    return json.dumps({"source": source, "files": digests}, ensure_ascii=False, indent=2).encode() + b"\n"


def parse(data: bytes | None) -> BuildManifest:
    """An empty one when there is none that can be read: then nothing is known to be ours."""
    try:
        found = json.loads(data or b"{}")
        files = {str(name): str(digest) for name, digest in found.get("files", {}).items()}
        return BuildManifest(str(found.get("source", "")), files)
    except (ValueError, AttributeError, RecursionError):
        return BuildManifest("", {})


class BuildChange(NamedTuple):
    replaced: list[str]
    """Files there that no build wrote, or that were edited since: a person's work."""
    stale: list[str]
    """What an earlier build wrote, this one does not, and nobody touched."""


def compare(old: BuildManifest, new: Mapping[str, bytes], there: Callable[[str], bytes | None]) -> BuildChange:
    """What writing `new` would do to the directory. `there` gives a file that is in it now."""
    replaced = []
    for name, data in new.items():
        now = there(name)
        if now is not None and now != data and old.files.get(name) != _digest(now):
            replaced.append(name)
    stale = []
    for name, digest in old.files.items():
        now = there(name) if name not in new else None
        if now is not None and _digest(now) == digest:
            stale.append(name)
    return BuildChange(replaced, stale)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
