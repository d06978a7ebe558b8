"""Which repository it is: the key of what the stores remember about it. Two repositories must never share one."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

_CONTEXT: Final = re.compile(r"([A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100})(?:@([0-9a-f]{7,64}))?")
_SCP: Final = re.compile(r"(?:[^@/\s]+@)?([A-Za-z0-9.-]+):(?!//)(.+)")
_ORIGIN: Final = re.compile(r'^\[remote "origin"\]\s*$(.*?)(?=^\[|\Z)', re.MULTILINE | re.DOTALL)
_URL: Final = re.compile(r"^\s*url\s*=\s*(\S+)\s*$", re.MULTILINE)
UNNAMED: Final = "unnamed"
"""In a report, when nobody said which repository it is about: no store is asked about it."""
_CODE_HOST: Final = "github.com"
"""Its repositories are named owner/name alone, as callers and its own variables do."""


class RepositoryOrigin(Struct, frozen=True):
    """Which repository, and at which commit, as far as somebody said so."""

    repository: str = UNNAMED
    commit: str = ""

    @property
    def is_named(self) -> bool:
        return self.repository != UNNAMED


def origin_of(context: str | None, name: str | None = None) -> RepositoryOrigin:
    """`owner/name` or `owner/name@commit` and nothing else: prose with a slash in it names no repository. Else `name`."""
    match = _CONTEXT.fullmatch(context or "")
    if match:
        return RepositoryOrigin(match[1], match[2] or "")
    return RepositoryOrigin(name) if name else RepositoryOrigin()


def origin_among(context: str | None, name: str | None, otherwise: RepositoryOrigin | None) -> RepositoryOrigin:
    """As the caller names it, else as its settings do, else `otherwise`: reviews and reports must agree on one name."""
    named = origin_of(context, name)
    return otherwise if not named.is_named and otherwise else named


def remote_of(git_config: str) -> str | None:
    """The name of the repository by the remote `origin` of a Git configuration."""
    section = _ORIGIN.search(git_config)
    url = _URL.search(section[1]) if section else None
    return named_after(url[1]) if url else None


def named_after(url: str) -> str | None:
    """One name for all ways to write one address: no user, no password, no port, no `.git`."""
    scp = _SCP.fullmatch(url)
    if "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
    elif scp:
        host, path = scp[1], scp[2]
    else:
        return None
    path = path.strip("/").removesuffix(".git")
    if not host or not path or len(path) > 300:
        return None
    return path if host.lower() == _CODE_HOST else f"{host.lower()}/{path}"
