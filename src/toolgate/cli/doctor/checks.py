"""What `toolgate doctor` looks at. Each check says how to mend what it finds."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import typer
from msgspec import Struct
from msgspec.structs import asdict

from toolgate.app import Powers, open_limits_engine, open_stores
from toolgate.approving import open_approvals, open_webhook
from toolgate.cli import output
from toolgate.cli.options import Flags, require_workspace
from toolgate.config import ignored_variables, require_home
from toolgate.enabled import OWN_STORES, enabled_packs, store_places
from toolgate.errors import ExitCode, StartRefused, StoreUnavailable, ToolgateError
from toolgate.gate.admit import Permits
from toolgate.gate.authority.stops import STOPS_FILE, Stops
from toolgate.gate.keys import KeyRing
from toolgate.gate.redact import check_kept
from toolgate.ledger import LOG_PATH
from toolgate.ledger.files import KEY_FILE, load_or_create_key
from toolgate.ledger.handover import kept_notes
from toolgate.model.clock import SystemClock
from toolgate.model.offers import offered
from toolgate.observing import open_traces
from toolgate.ownership import check_owners
from toolgate.policy.bundle import load_decisions
from toolgate.powers.secrets import SecretSources
from toolgate.powers.stores import Place, TablePlace, environment_of
from toolgate.ruleset import governed, open_upstreams
from toolgate.servers.http_lifecycle import open_certificate
from toolgate.servers.tls.certificate import SOON_DAYS

if TYPE_CHECKING:
    from toolgate.enabled import Enabled
    from toolgate.settings import Settings

OLDEST_PYTHON: Final = (3, 11)


class DoctorFinding(Struct, frozen=True):
    check: str
    ok: bool
    text: str
    fix: str = ""


def doctor(flags: Flags, *, json: bool) -> None:
    findings = list(examine(flags))
    healthy = all(finding.ok for finding in findings)
    if json:
        output.answer_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _show(finding)
    raise typer.Exit(ExitCode.OK if healthy else ExitCode.FAILED)


def _show(finding: DoctorFinding) -> None:
    mark = ("ok  ", "green") if finding.ok else ("FAIL", "bold red")
    first, comma, rest = finding.text.partition(",")
    output.line(mark, (f" {finding.check:<11} ", ""), output.badge(first), (comma + rest, ""))
    if finding.fix:
        output.line((f"                 {finding.fix}", "bold"))


def examine(flags: Flags) -> Iterator[DoctorFinding]:
    yield _python()
    yield _packages()
    try:
        settings = flags.load()
    except StartRefused as fault:
        yield _refused("settings", fault)
        return
    ignored = [f"{name} is not a setting, and is ignored" for name in ignored_variables(os.environ)]
    place = str(settings.file or "defaults; there is no toolgate.toml")
    yield DoctorFinding("settings", ok=True, text="; ".join([place, *ignored]))
    told: set[str] = set()
    for name, check in CHECKS.items():
        try:
            yield DoctorFinding(name, ok=True, text=check(settings))
        except ToolgateError as fault:
            if str(fault) not in told:  # what stands in the way of several checks is told by the first
                yield _refused(name, fault)
            told.add(str(fault))
        except OSError as fault:
            yield DoctorFinding(
                name, ok=False, text=f"{fault.strerror}: {fault.filename}", fix="Give the server's user access to it."
            )


def _refused(name: str, fault: ToolgateError) -> DoctorFinding:
    text, _, fix = str(fault).partition("\n")
    return DoctorFinding(name, ok=False, text=text, fix=fix)


def _python() -> DoctorFinding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return DoctorFinding("python", ok=True, text=found)
    return DoctorFinding("python", ok=False, text=found, fix="Install Python 3.11 or newer.")


def _packages() -> DoctorFinding:
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
        return DoctorFinding(
            "packages", ok=False, text=f"missing: {', '.join(missing)}", fix="Run: pip install toolgate"
        )
    return DoctorFinding("packages", ok=True, text=f"{len(wanted)} installed")


def _home(settings: Settings) -> str:
    require_home(settings)
    check_owners(settings, os.environ)
    urls = {f"stores.{name}": url for name, url in settings.stores.urls.items()}
    urls |= {"limits.url": settings.limits.url, "idempotency.url": settings.idempotency.url}
    for key, url in urls.items():
        holds_password = re.match(r"[^/]*//[^/@]*:[^/@]*@", url)
        if holds_password and settings.sources[key] == "file" and settings.file is not None:
            _require_private(settings.file, "holds a database password")
    return str(settings.home)


def _keys(settings: Settings) -> str:
    ring = KeyRing(settings.paths.keys)
    ring.check()
    return f"{len(ring.all())} in {settings.paths.keys}"


def _stops(settings: Settings) -> str:
    """What an operator has stopped is no fault, but whoever looks for one should see it."""
    found = Stops(settings.paths.keys.parent / STOPS_FILE).in_force()
    told = "; ".join(f"{stop.scope()} {stop.ending()}" for stop in found)
    return f"calls are stopped: {told} (toolgate resume ends it)" if told else "none"


def _secrets(settings: Settings) -> str:
    if settings.paths.secrets.exists():
        _require_private(settings.paths.secrets, "holds signing keys")
    if settings.egress.proxy_credentials:
        SecretSources(settings.paths.secrets, os.environ).read(settings.egress.proxy_credentials)
    return str(settings.paths.secrets)


def _require_private(path: Path, why: str) -> None:
    if path.stat().st_mode & 0o077:
        mode = "700" if path.is_dir() else "600"
        raise StartRefused(f"{path} {why}, and others can use it\nRun: chmod {mode} {path}")


def _policy(settings: Settings) -> str:
    enabled, _, warnings = governed(settings, open_upstreams(settings) if settings.upstreams else None)
    tools = sum(len(pack.tools) for pack in enabled.packs)
    return "; ".join([f"{tools} tools of {len(enabled.packs)} packs match manifest and contract", *warnings])


def _packs(settings: Settings) -> str:
    """Each pack's own settings, the keys and secrets they name, and what the pack itself says before it starts anything."""
    enabled = enabled_packs(settings)
    secrets = SecretSources(settings.paths.secrets, os.environ)
    named = enabled.secrets()
    for source in named:
        secrets.read(source)
    _ask_packs(settings, enabled)
    return f"settings of {', '.join(enabled.tables)}" + (f"; {len(named)} secrets are there" if named else "")


def _ask_packs(settings: Settings, enabled: Enabled) -> None:
    """With the powers that a server would hand them. Raises: StartRefused."""
    if not settings.paths.workspace.is_dir():
        return  # the check of the workspace says so
    powers = Powers(settings, enabled, SystemClock(), {}, Permits(()))
    try:
        powers.check_packs()
    finally:
        asyncio.run(powers.close())


def _upstreams(settings: Settings) -> str:
    """Each with a reason code. None is started: `toolgate upstream status` asks them."""
    if not settings.upstreams:
        return "none"
    from toolgate.upstreams import examine

    found = asyncio.run(examine(settings, SecretSources(settings.paths.secrets, os.environ)))
    told = ", ".join(f"{name} {reason}" for name, reason in found.items())
    if all(reason in ("adopted", "not_adopted") for reason in found.values()):
        return told
    raise StartRefused(
        f"{told}\nLook at one: toolgate upstream diff NAME; adopt one again: toolgate upstream adopt NAME --roles ..."
    )


def _workspace(settings: Settings) -> str:
    require_workspace(settings)
    return _writable(settings.paths.workspace)


def _log(settings: Settings) -> str:
    enabled = enabled_packs(settings)
    check_kept(settings.ledger.keep, {tool.name: tool for pack in enabled.packs for tool in offered(pack)})
    key = settings.paths.secrets / KEY_FILE
    if key.exists():
        load_or_create_key(key, "")
        kept_notes(key)
    return _writable(settings.paths.runs / LOG_PATH)


def _metrics(settings: Settings) -> str:
    from toolgate.servers.observed.page import require_client

    if not settings.metrics.are_shown:
        return "not shown"
    require_client()
    return settings.metrics.listen or "/metrics, to keys of the role admin"


def _traces(settings: Settings) -> str:
    if not settings.traces.endpoint:
        return "not sent"
    open_traces(settings, "", str)
    return f"{settings.traces.sample:.0%} to {settings.traces.endpoint}"


def _approvals(settings: Settings) -> str:
    if not settings.approvals.webhook:
        return "no webhook"
    open_webhook(settings, SystemClock(), lambda: open_approvals(settings))
    return f"new requests are told to {urlsplit(settings.approvals.webhook).hostname}"


def _answerers(settings: Settings) -> str:
    """Who answers requests; and of which role a rule waits for although nobody has a key of it."""
    manifest, now = load_decisions(settings.paths.policy)[0], time.time()
    named = {role for row in manifest.rows.values() for rule in row.rules for role in rule.answered_by}
    held = {key.role for key in KeyRing(settings.paths.keys).all() if key.state(now) == "live"}
    lacking = "".join(f", nobody has a key of {role}" for role in sorted(named - held))
    return f"requests for approval are answered by {' and '.join(sorted(manifest.answerers))}{lacking}"


def _writable(directory: Path) -> str:
    """Really writes, into the directory or, when it is still to be made, into what it will be made in."""
    there = next(place for place in (directory, *directory.parents) if place.exists())
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"toolgate doctor")
    return str(directory)


def _stores(settings: Settings) -> str:
    enabled = enabled_packs(settings)
    configured = store_places(settings, enabled.stores)
    unused = settings.stores.urls.keys() - configured.keys() - OWN_STORES
    if unused:
        raise StartRefused(f"no enabled pack uses stores.{min(unused)}\nEnable the pack, or leave the setting out.")
    if not configured:
        return f"SQLite in {_writable(settings.paths.state)}"
    stores = open_stores(settings, enabled)
    try:
        silent = [store for store in map(stores.get, configured) if not store.ask()]
    finally:
        stores.close()
    if silent:
        tables = {store.name: store.table.setting for store in enabled.stores if store.table}
        names = ", ".join(tables[store.name] if store.in_table else f"stores.{store.name}" for store in silent)
        raise StartRefused(
            f"no answer from {names}: {'; '.join(str(store.fault) for store in silent)}\n"
            "Start the database, or correct the setting."
        )
    return ", ".join(f"{name} in {_kind(place)}" for name, place in configured.items()) + " answer"


def _kind(place: Place) -> str:
    if isinstance(place, TablePlace):
        return "DynamoDB"
    return "PostgreSQL" if place.startswith("postgres") else "SQLite"


def _limits(settings: Settings) -> str:
    """Joins as a server would, and leaves: whoever may do that may do the rest."""
    if not settings.limits.url:
        return "counted in each process"
    engine = open_limits_engine(settings.limits)

    async def ask() -> int:
        standing = await engine.join([], again=False)
        await engine.leave()
        return standing.processes - 1

    try:
        return f"shared by limits.url, which answers; {asyncio.run(ask())} processes use it now"
    except StoreUnavailable as fault:
        raise StartRefused(f"{fault}\nStart it, or correct limits.url.") from None


def environment_now(settings: Settings) -> str:
    """`local` or `cloud` as a server started now would find it, and why. Neither is a fault."""
    enabled = enabled_packs(settings)
    binding = [store.name for store in enabled.stores if store.binding]
    if not binding:
        return "local, where nothing blocks: no enabled pack has a binding store"
    if not store_places(settings, enabled.stores).keys() & set(binding):
        missing = " and ".join(f"stores.{name}" for name in binding)
        return f"local, where nothing blocks: {missing} are not set"

    stores = open_stores(settings, enabled)
    try:
        stores.start()
        environment, notes = environment_of(stores)
    finally:
        stores.close()
    if environment == "cloud":
        return "cloud, where authoritative tools can block: every binding store is shared and answers"
    return f"local, where nothing blocks: {'; '.join(notes)}"


def _tls(settings: Settings) -> str:
    certificate = open_certificate(settings)
    if certificate is None:
        return "none: plain HTTP"
    days = certificate.days_left(datetime.now(UTC))
    soon = ", which is soon: renew it, then reload" if days <= SOON_DAYS else ""
    return f"{settings.server.tls_certificate} is good for {days} more days{soon}"


def _port(settings: Settings) -> str:
    host, port = settings.server.host, settings.server.port
    try:
        kind, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        raise StartRefused(f"server.host {host} is not an address of this machine\nUse 127.0.0.1.") from None
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
    "stops": _stops,
    "secrets": _secrets,
    "approvals": _approvals,
    "packs": _packs,
    "policy": _policy,
    "answers": _answerers,
    "upstreams": _upstreams,
    "workspace": _workspace,
    "log": _log,
    "stores": _stores,
    "limits": _limits,
    "metrics": _metrics,
    "traces": _traces,
    "environment": environment_now,
    "tls": _tls,
    "port": _port,
}
"""Each answers what it found, or raises what is wrong."""
