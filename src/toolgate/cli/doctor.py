"""`toolgate doctor`: is everything in place? Each check says how to mend what it finds."""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from msgspec import Struct
from msgspec.structs import asdict

from toolgate.cli import output
from toolgate.cli.options import Flags, Json, require_workspace, with_settings_flags
from toolgate.errors import ExitCode, StartRefused, ToolgateError

if TYPE_CHECKING:
    from toolgate.settings import Settings

OLDEST_PYTHON: Final = (3, 11)
STORE_NAMES: Final = ("false_positives", "consent", "consensus")


class Finding(Struct, frozen=True):
    check: str
    ok: bool
    text: str
    fix: str = ""


@with_settings_flags
def doctor(flags: Flags, json: Json = False) -> None:
    """Check that everything is in place, and say how to mend what is not. Exit 1 when something is not.

    Nothing is changed, except that stores are opened (and brought up to date) as the server would.
    """
    findings = list(examine(flags))
    healthy = all(finding.ok for finding in findings)
    if json:
        output.answer_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _show(finding)
    raise typer.Exit(ExitCode.OK if healthy else ExitCode.FAILED)


def _show(finding: Finding) -> None:
    mark = ("ok  ", "green") if finding.ok else ("FAIL", "bold red")
    output.line(mark, (f" {finding.check:<10} {finding.text}", ""))
    if finding.fix:
        output.line((f"                {finding.fix}", "bold"))


def examine(flags: Flags) -> Iterator[Finding]:
    yield _python()
    yield _packages()
    try:
        settings = flags.load()
    except StartRefused as fault:
        yield _refused("settings", fault)
        return
    yield Finding("settings", ok=True, text=str(settings.file or "defaults; there is no toolgate.toml"))
    for name, check in CHECKS.items():
        try:
            yield Finding(name, ok=True, text=check(settings))
        except ToolgateError as fault:
            yield _refused(name, fault)
        except OSError as fault:
            yield Finding(
                name, ok=False, text=f"{fault.strerror}: {fault.filename}", fix="Give the server's user access to it."
            )


def _refused(name: str, fault: ToolgateError) -> Finding:
    text, _, fix = str(fault).partition("\n")
    return Finding(name, ok=False, text=text, fix=fix)


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("python", ok=True, text=found)
    return Finding("python", ok=False, text=found, fix="Install Python 3.11 or newer.")


def _packages() -> Finding:
    """Presence of every required distribution; an extra's absence is its feature's business."""
    from importlib.metadata import PackageNotFoundError, requires, version

    missing = []
    wanted = [line for line in requires("toolgate") or () if "extra ==" not in line]
    for line in wanted:
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding("packages", ok=False, text=f"missing: {', '.join(missing)}", fix="Run: pip install toolgate")
    return Finding("packages", ok=True, text=f"{len(wanted)} installed")


def _home(settings: Settings) -> str:
    info = settings.home.stat()
    if info.st_mode & stat.S_IWOTH and not info.st_mode & stat.S_ISVTX:
        raise StartRefused(f"everyone can write to {settings.home}\nRun: chmod o-w {settings.home}")
    for name in STORE_NAMES:
        holds_password = re.match(r"[^/]*//[^/@]*:[^/@]*@", getattr(settings.stores, name))
        if holds_password and settings.sources[f"stores.{name}"] == "file" and settings.file is not None:
            _require_private(settings.file, "holds a database password")
    return str(settings.home)


def _keys(settings: Settings) -> str:
    from toolgate.gate.keys import KeyRing

    ring = KeyRing(settings.paths.keys)
    ring.check()
    return f"{len(ring.all())} in {settings.paths.keys}"


def _secrets(settings: Settings) -> str:
    if settings.paths.secrets.exists():
        _require_private(settings.paths.secrets, "holds signing keys")
    return str(settings.paths.secrets)


def _require_private(path: Path, why: str) -> None:
    if path.stat().st_mode & 0o077:
        mode = "700" if path.is_dir() else "600"
        raise StartRefused(f"{path} {why}, and others can use it\nRun: chmod {mode} {path}")


def _policy(settings: Settings) -> str:
    from toolgate.packs.loader import load_packs
    from toolgate.policy.bundle import load_policy
    from toolgate.policy.rules import check_start

    packs = load_packs(settings.packs.enabled)
    policy = load_policy(settings.paths.policy)
    check_start(packs, policy.manifest, policy.adrs, policy.lock)
    tools = sum(len(pack.tools) for pack in packs)
    return f"{tools} tools of {len(packs)} packs match manifest and contract"


def _workspace(settings: Settings) -> str:
    require_workspace(settings)
    return _writable(settings.paths.workspace)


def _log(settings: Settings) -> str:
    from toolgate.ledger import LOG_PATH

    return _writable(settings.paths.runs / LOG_PATH)


def _writable(directory: Path) -> str:
    """Really writes, into the directory or, when it is still to be made, into what it will be made in."""
    there = next(place for place in (directory, *directory.parents) if place.exists())
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"toolgate doctor")
    return str(directory)


def _stores(settings: Settings) -> str:
    configured = {name: url for name in STORE_NAMES if (url := getattr(settings.stores, name))}
    if not configured:
        return f"SQLite in {_writable(settings.paths.state)}"
    from toolgate.packs.loader import load_packs
    from toolgate.powers.sql import SqlStores

    migrations = [step for pack in load_packs(settings.packs.enabled) for step in pack.migrations]
    unused = configured.keys() - {step.store for step in migrations}
    if unused:
        raise StartRefused(f"no enabled pack uses stores.{min(unused)}\nEnable the pack, or leave the setting out.")
    stores = SqlStores(configured, settings.paths.state, migrations)
    try:
        silent = [name for name in configured if not stores.get(name).ask()]
    finally:
        stores.close()
    if silent:
        names = ", ".join(f"stores.{name}" for name in silent)
        raise StartRefused(f"no answer from {names}\nStart the database, or correct the URL.")
    return f"{', '.join(configured)} answer"


def _port(settings: Settings) -> str:
    host, port = settings.server.host, settings.server.port
    try:
        kind, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        raise StartRefused(f"server.host {host} is no address of this machine\nUse 127.0.0.1.") from None
    with socket.socket(kind, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
        except OSError as fault:
            reason = os.strerror(fault.errno or 0)
            raise StartRefused(
                f"{host} port {port}: {reason}\nStop what uses it, or choose another: --port 0"
            ) from None
    return f"{host} port {port or '(any free one)'}"


CHECKS: Final[dict[str, Callable[[Settings], str]]] = {
    "home": _home,
    "keys": _keys,
    "secrets": _secrets,
    "policy": _policy,
    "workspace": _workspace,
    "log": _log,
    "stores": _stores,
    "port": _port,
}
"""Each answers what it found, or raises what is wrong."""
