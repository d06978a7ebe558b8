"""Mending a workflow's text: a `permissions` key where there is none, a commit where a lock names one for the tag. Pure.

The text is changed line by line, never written anew from what was parsed: comments, quotes and line ends stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolgate.kit import yamldoc
from toolgate.kit.yamldoc import Mapping, YamlFault
from toolgate.packs.governance.repository.config import read_toml
from toolgate.packs.governance.workflows.workflow import read_workflow

if TYPE_CHECKING:
    from collections.abc import Mapping as Table

Pins = dict[str, str]
"""`actions/checkout@v4` -> its commit; `alpine:3.20` -> its digest."""

PINS: Final = ".toolgate/pins.toml"
"""Where the lock is, unless one is named:

    [pins]
    "actions/checkout@v4" = "8f4b7f84864484a7bf31766abe9204da3cbe65b3"
    "alpine:3.20" = "sha256:..."
"""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_USES: Final = re.compile(
    r"""^(\s*(?:-\s+)?(?:uses|image|container):\s+)(["']?)(docker://)?([^\s"'#]+)\2(\s*(?:#.*)?)$"""
)


def read_pins(data: bytes) -> Pins:
    """Raises: YamlFault: not TOML, or a value that is neither a commit nor a digest."""
    table = read_toml(data)
    pins = table.get("pins")
    if not isinstance(pins, dict) or len(table) != 1:
        raise YamlFault(1, "pins are one table [pins]")
    lines = data.decode().splitlines()
    for name, value in pins.items():
        form = _COMMIT if "@" in name else _DIGEST
        if not isinstance(value, str) or not form.fullmatch(value):
            line = next((number for number, text in enumerate(lines, 1) if name in text), 1)
            what = "a commit of 40 or 64 hex digits" if "@" in name else "sha256: and 64 hex digits"
            raise YamlFault(line, f"{name[:80]!r} must be pinned to {what}")
    return dict(pins)


def fixed(path: str, data: bytes, pins: Table[str, str]) -> tuple[bytes, list[str]]:
    """The mended text, and what was done. Raises: YamlFault: it cannot be read. UnicodeDecodeError."""
    text, changes = data.decode("utf-8-sig"), []
    lines = text.splitlines(keepends=True)
    pinned = [_pinned(line, pins) for line in lines]
    count = sum(new != old for new, old in zip(pinned, lines, strict=True))
    if count:
        changes.append(f"{count} pinned")
    if "/.github/workflows/" in f"/{path}":
        at = _where_permissions_belong(path, data)
        if at is not None:
            end = "\r\n" if lines[at - 1].endswith("\r\n") else "\n"
            pinned.insert(at - 1, f"permissions:{end}  contents: read{end}{end}")
            changes.append("permissions: contents: read")
    return "".join(pinned).encode(), changes


def _pinned(line: str, pins: Table[str, str]) -> str:
    body = line.rstrip("\r\n")
    found = _USES.match(body)
    if not found or found[4] not in pins:
        return line
    name, value, docker = found[4], pins[found[4]], found[3] or ""
    if "@" in name:
        target, version = f"{name.partition('@')[0]}@{value}", name.partition("@")[2]
        comment = found[5] if "#" in found[5] else f" # {version}"
    else:
        target, comment = f"{name}@{value}", found[5]
    return f"{found[1]}{found[2]}{docker}{target}{found[2]}{comment}{line[len(body) :]}"


def _where_permissions_belong(path: str, data: bytes) -> int | None:
    """The line of `jobs`, when some job states no permissions and nothing above does; None where they are not missing.

    A workflow that is only called has its caller's, so nothing is missing there.
    """
    workflow = read_workflow(path, data)
    only_called = {trigger.event for trigger in workflow.triggers} == {"workflow_call"}
    if workflow.permissions or only_called or all(job.permissions for job in workflow.jobs):
        return None
    root = yamldoc.read(data)
    assert isinstance(root, Mapping)
    line = root.key_line("jobs")
    text = data.decode("utf-8-sig").splitlines()[line - 1]
    return line if text.startswith("jobs:") else None
