"""A running server: what it tells its operator, and how it takes over what was changed on disk.

A reload reads everything before anything of it counts: settings, policy, pins, keys, and whatever else has a part in it. If one
of them is wrong, what is served stays as it is. Calls under way end by the rules they began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate import __version__
from toolgate.app import act_facts
from toolgate.config import FILE_NAME
from toolgate.errors import LedgerUnavailable, ToolgateError
from toolgate.gate.keys import KeyRing
from toolgate.kit.pins import FOLDER
from toolgate.model.clock import rfc3339
from toolgate.model.threads import in_thread
from toolgate.ownership import MAX_POLICY_FILES
from toolgate.ruleset import read_rules
from toolgate.settings import SPECS

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.app import App
    from toolgate.gate.admit import Ticket
    from toolgate.ruleset import Ruleset
    from toolgate.settings import Settings
    from toolgate.upstreams import Adopted

Part = Callable[["Ruleset"], Callable[[], None]]
"""What else a reload takes over (certificates, the names that HTTP answers to). It reads, may raise StartRefused, and returns
what puts the new state into service, which may not fail."""

LOOK_S: Final = 0.05
"""Between two looks whether the calls of an upstream that is not served any more have ended."""
_COUNTED: Final = frozenset({"limits.concurrency_per_caller", "limits.rate_per_minute", "limits.keys_may_exceed"})
_log: Final = logging.getLogger("toolgate.reload")


class PreparedReload(Struct, frozen=True):
    """Ruleset that were read and found good, and are not in force yet."""

    rules: Ruleset
    puts: tuple[Callable[[], None], ...]
    digests: Mapping[str, str]
    about: Mapping[str, Any]
    """For the log and the operator: what changed, and what of it needs a restart."""


class Running:
    def __init__(self, app: App, reread: Callable[[], Settings]) -> None:
        """`reread`: the settings as flags, variables and file say them now; raises SettingsError."""
        self.app, self._reread = app, reread
        self.parts: list[Part] = []
        self.upstream_states: Callable[[], Awaitable[list[dict[str, Any]]]] = self._own_states
        """Of who owns them."""
        self.url = ""
        self._began = time.time()
        self._disk = Disk()
        self._served: Mapping[str, str] = self._disk.digests(app.settings)
        self._kept: tuple[str, ...] = ()
        self._reloads, self._reloaded_at, self._refused = 0, "", ""
        self._turn = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    # Reload ----------------------------------------------------------------------------------------------------------

    async def reload(self, way: str) -> dict[str, Any]:
        """What happened, for who asked. `way`: how it was asked for."""
        async with self._turn:
            try:
                prepared = await self.prepare()
            except ToolgateError as fault:
                return self.refuse(way, str(fault))
            return self.take_over(way, prepared)

    async def prepare(self) -> PreparedReload:
        """Raises: StartRefused, and nothing has changed."""
        return await in_thread(self._read)

    def _read(self) -> PreparedReload:
        digests = self._disk.digests(self.app.settings)  # first: what is changed while we read differs afterwards
        renewed = renew(self.app.settings, self._reread())
        rules = read_rules(renewed.settings, self.app.upstreams, self.app.share)
        KeyRing(renewed.settings.paths.keys).check()
        puts = tuple(part(rules) for part in self.parts)
        changed = [name for name in digests if digests[name] != self._served[name]]
        about: dict[str, Any] = {"changed": changed, "settings": list(renewed.taken)}
        about |= {"needRestart": list(renewed.kept), "serves": dict(rules.digests)}
        return PreparedReload(rules, puts, digests, about)

    def take_over(self, way: str, prepared: PreparedReload) -> dict[str, Any]:
        """In one step of the event loop: no call sees a part of it."""
        facts = act_facts("reload", way, prepared.about, is_ok=True)
        try:
            self.app.ledger.append_act("intent", facts)
        except LedgerUnavailable as fault:
            return self.refuse(way, f"The audit log cannot be written: {fault}.")
        app, before, calls = self.app, self.app.upstreams, set(self.app.road.under_way)
        app.obey(prepared.rules)
        for put in prepared.puts:
            put()
        self._served, self._kept = prepared.digests, tuple(prepared.about["needRestart"])
        self._reloads, self._reloaded_at, self._refused = self._reloads + 1, rfc3339(time.time()), ""
        if before is not None and (left := before.left_by(app.upstreams)):
            self._retire(left, calls)
        with suppress(LedgerUnavailable):
            app.ledger.append_act("outcome", facts)
        _log.warning("reloaded (%s): %s", way, _words(prepared.about))
        return {"reloaded": True, **prepared.about, "warnings": prepared.rules.warnings}

    def refuse(self, way: str, why: str) -> dict[str, Any]:
        """What is served stays as it is."""
        self._refused = why
        with suppress(LedgerUnavailable):
            facts = act_facts("reload", way, {"reason": why.partition("\n")[0]}, is_ok=False)
            self.app.ledger.append_act("outcome", facts)
        _log.error("not reloaded (%s), what was served is still served: %s", way, why.replace("\n", " "))
        return {"reloaded": False, "reason": why}

    def _retire(self, adopted: list[Adopted], calls: set[Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._end(adopted, calls), name="retired-upstreams")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _end(self, adopted: list[Adopted], calls: set[Any]) -> None:
        """When the calls that may still use it have ended, or we stop."""
        try:
            while not calls.isdisjoint(self.app.road.under_way):
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.gather(*(each.upstream.close() for each in adopted))

    async def close(self) -> None:
        """Before the app is closed."""
        for task in list(self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)

    # What it tells ---------------------------------------------------------------------------------------------------

    def differing(self) -> list[str]:
        """What on disk is not what is served: `settings`, `policy`, `pins`, `certificate`."""
        now = self._disk.digests(self.app.settings)
        return [name for name in now if now[name] != self._served[name] or (name == "settings" and self._kept)]

    async def besides(self) -> dict[str, Any]:
        """What /readyz tells besides its checks."""
        told: dict[str, Any] = {}
        if states := await self.upstream_states():
            told["upstreams"] = states
        if stops := self.app.stops.told():
            told["stops"] = stops
        if differing := self.differing():
            told["differs"] = differing
        return told

    async def _own_states(self) -> list[dict[str, Any]]:
        return self.app.upstream_states()

    def digests(self) -> Mapping[str, str]:
        """Of the files that are served."""
        return self._served

    async def status(self) -> dict[str, Any]:
        app, now = self.app, self.app.road.clock.monotonic()
        calls = [_call_status(ticket, now) for ticket in app.road.under_way]
        streams = app.road.watch.open_streams()
        worker = {"pid": os.getpid(), "run": app.ledger.run, "calls": calls, "streams": streams}
        checks = await app.ready()
        return {
            "pid": os.getpid(),
            "version": __version__,
            "url": self.url,
            "began": rfc3339(self._began),
            "ready": all(checks.values()),
            "checks": checks,
            "workers": [worker],
            "upstreams": app.upstream_states(),
            "stores": self._stores_status(),
            "limits": self._limits_status(),
            "reload": self._reload_status(),
        }

    def _stores_status(self) -> dict[str, Any]:
        powers = self.app.powers
        environment, notes = powers.environment()
        return {"environment": environment, "notes": list(notes), "silent": list(powers.silent_stores())}

    def _limits_status(self) -> dict[str, Any]:
        admission = self.app.road.admission
        return {
            "perCaller": admission.slots.per_caller,
            "total": admission.slots.total,
            "perMinute": self.app.settings.limits.rate_per_minute,
            "held": admission.slots.held(),
            "shared": admission.shared is not None,
            "fault": self.app.limits_fault(),
        }

    def _reload_status(self) -> dict[str, Any]:
        return {
            "serves": dict(self.app.rules.digests),
            "count": self._reloads,
            "last": self._reloaded_at or None,
            "differs": self.differing(),
            "needRestart": list(self._kept),
            "refused": self._refused or None,
        }


def _call_status(ticket: Ticket, now: float) -> dict[str, Any]:
    return {
        "tool": ticket.grant.tool.name,
        "caller": ticket.caller.key_id,
        "requestId": ticket.ids.request,
        "seconds": round(now - ticket.started, 3),
    }


class Renewed(Struct, frozen=True):
    settings: Settings
    taken: tuple[str, ...]
    """Keys whose new value is in them."""
    kept: tuple[str, ...]
    """Keys that were changed, too, and need a restart."""


def renew(served: Settings, read: Settings) -> Renewed:
    """The settings that are served, with what a running server can take over of those that were read now."""
    counts_elsewhere = bool(served.limits.url)  # the engine counts by what each process told it at its start
    differing = [spec for spec in SPECS if served.value(spec.key) != read.value(spec.key)]
    taken = [spec.key for spec in differing if spec.live and not (counts_elsewhere and spec.key in _COUNTED)]
    kept = [spec.key for spec in differing if spec.key not in taken]
    tables = {
        name: getattr(served, name)._replace(**_fields_of(name, taken, read)) for name in ("server", "limits", "mcp")
    }
    if served.ledger.keep != read.ledger.keep:
        taken.append("ledger.keep")
    if served.upstreams != read.upstreams:
        taken.append("upstreams")
    kept += [name for name in ("stores", "packs") if getattr(served, name) != getattr(read, name)]
    ledger = served.ledger._replace(keep=read.ledger.keep)
    now = served._replace(**tables, ledger=ledger, upstreams=read.upstreams, file=read.file)
    return Renewed(now, tuple(taken), tuple(dict.fromkeys(kept)))


def _fields_of(table: str, keys: Sequence[str], read: Settings) -> dict[str, Any]:
    return {key.partition(".")[2]: read.value(key) for key in keys if key.startswith(f"{table}.")}


class Disk:
    """The files that a server obeys, as digests. A file is read again when its stamp has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], str]] = {}

    def digests(self, settings: Settings) -> dict[str, str]:
        """By what they hold: `settings`, `policy`, `pins` and, with TLS, `certificate`."""
        return {name: self._digest(paths) for name, paths in _obeyed_files(settings).items()}

    def _digest(self, paths: list[Path]) -> str:
        whole = sha256()
        for path in paths:
            whole.update(f"{path}\0{self._of_file(path)}\n".encode())
        return whole.hexdigest()

    def _of_file(self, path: Path) -> str:
        try:
            info = path.stat()
            stamp = (info.st_ino, info.st_dev, info.st_mtime_ns, info.st_ctime_ns, info.st_size)
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                known = self._known[path] = (stamp, sha256(path.read_bytes()).hexdigest())
        except OSError:
            return ""
        return known[1]


def _obeyed_files(settings: Settings) -> dict[str, list[Path]]:
    policy = settings.paths.policy
    files = sorted(_files_below(policy)) if policy is not None else []
    pins = [path for path in files if policy is not None and path.parent == policy / FOLDER]
    rest = [path for path in files if path not in pins]
    certificate = [path for path in (settings.server.tls_certificate, settings.server.tls_key) if path is not None]
    found = {"settings": [settings.home / FILE_NAME], "policy": rest, "pins": pins}
    return found | ({"certificate": certificate} if certificate else {})


def _files_below(policy: Path) -> Iterator[Path]:
    yield from islice((path for path in policy.rglob("*") if path.is_file()), MAX_POLICY_FILES)


def _words(about: Mapping[str, Any]) -> str:
    changed = ", ".join(about["changed"]) or "nothing had changed"
    settings = f"; settings: {', '.join(about['settings'])}" if about["settings"] else ""
    restart = f"; these need a restart: {', '.join(about['needRestart'])}" if about["needRestart"] else ""
    return changed + settings + restart
