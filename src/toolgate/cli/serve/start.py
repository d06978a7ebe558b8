"""Starts a server from the settings: what `toolgate serve` and `toolgate stdio` do."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.options import Flags, note_ignored_variables, require_workspace
from toolgate.config import read_secret
from toolgate.errors import Ending, Refusal, SettingsError
from toolgate.gate.keys import KeyRing, without_keys
from toolgate.later import later
from toolgate.settings import ConsoleSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from toolgate.app import App
    from toolgate.cli.dev import DevKeys
    from toolgate.ruleset import Share
    from toolgate.settings import Settings

_health_panel: Final = later("toolgate.cli.policy.panel:health_panel")
_NO_KEY: Final = (
    "TOOLGATE_API_KEY is not set.\nMake a key (toolgate keys create --role builder) and set it where the client starts."
)


def serve(flags: Flags, *, dev: bool, json: bool) -> None:
    keys = _dev_keys(flags) if dev else None
    reread = partial(_with_console, flags, keys.home) if keys else flags.load
    settings = reread()

    def ready(told: Mapping[str, Any]) -> None:
        if json:
            output.answer_json({"ready": True, **told})
        elif keys:
            keys.announce(told["url"], partial(tell_standing, told), console=settings.console.enabled)
        else:
            output.say(f"Toolgate is ready at {told['url']}", style="bold green")
            for name in (name for name in told if name not in ("environment", "notes", "tools")):
                output.say(f"  {name:<9} {told[name]}")
            tell_standing(told)
        sys.stdout.flush()
        output.outlive_reader()

    processes = _processes(settings)
    if processes > 1:
        raise typer.Exit(_serve_several(settings, flags, keys, processes, ready))
    with uncollected():
        from toolgate.running import Running
        from toolgate.servers.http_lifecycle import serve_http

        app = built(settings)
        running = Running(app, reread)
    raise typer.Exit(serve_http(running, lambda url: ready(told_of(app, url))))


def _processes(settings: Settings) -> int:
    """Raises: SettingsError."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = cores if settings.server.workers == "auto" else int(settings.server.workers)
    if processes > 1 and settings.deterministic_ids:
        raise SettingsError(
            "deterministic_ids counts the calls of one process, and server.workers asks for several.\nUse one worker."
        )
    return processes


def _serve_several(
    settings: Settings, flags: Flags, keys: DevKeys | None, processes: int, ready: Callable[[Mapping[str, Any]], None]
) -> int:
    from toolgate.servers.http_lifecycle import serve_several

    require_workspace(settings)
    note_ignored_variables(heard(settings))
    home = keys.home if keys else flags.home
    given: dict[str, Any] = {"home": None if home is None else str(home.absolute()), "values": dict(flags.values)}
    given["chosen"] = flags.home is not None if keys else None
    if keys:
        given["values"]["console.enabled"] = settings.console.enabled  # on by default in a development home
    return serve_several(settings, given, processes, lambda told: ready({**told, "workers": processes}))


def tell_standing(told: Mapping[str, Any]) -> None:
    """Tier and environment of a server that is ready: whether anything it says can bind."""
    notes = "".join(f"; {note}" for note in told["notes"])
    output.line(("  environment ", ""), output.badge(told["environment"]), (notes, ""))
    counts = [part for tier, count in told["tools"].items() for part in ((f"  {count} ", ""), output.badge(tier))]
    output.line(("  tools     ", ""), *counts)


def told_of(app: App, url: str) -> dict[str, Any]:
    """What a server that is ready says of itself."""
    environment, notes = app.powers.environment()
    numbers = {"metrics": app.telemetry.address} if app.telemetry and app.telemetry.address else {}
    if app.settings.console.enabled:
        numbers["console"] = f"{url}/console/"
    limits = app.limits_fault()
    notes = tuple(dict.fromkeys([*notes, *app.powers.silent_stores(), *([limits] if limits else [])]))
    tiers = Counter(grant.tier for grant in app.road.admission.permits.all() if grant.tool.kind == "tool")
    return {
        **addresses(url),
        **numbers,
        "environment": environment,
        "notes": list(notes),
        "tools": dict(sorted(tiers.items())),
    }


def stdio(flags: Flags, *, dev: bool) -> None:
    settings = flags.load(_dev_keys(flags).home if dev else None)
    key = read_secret("TOOLGATE_API_KEY", os.environ)
    credential = None if key is None else os.fsencode(key)
    try:
        if credential is None:
            raise Refusal(Ending.MISSING_KEY, _NO_KEY)
        KeyRing(settings.paths.keys).authenticate(credential)
    except Refusal as refusal:
        _tell_the_client(refusal, settings)
        raise
    with uncollected():
        from toolgate.servers.lifecycle import serve_stdio

        app = built(settings)
    output.outlive_reader()
    raise typer.Exit(serve_stdio(app, settings, credential))


def _tell_the_client(refusal: Refusal, settings: Settings) -> None:
    """Clients show the answer to their greeting, and seldom what stands on standard error."""
    from toolgate.servers.lifecycle import refuse_stdio
    from toolgate.servers.stdio import first_line

    line = None if os.isatty(0) else first_line(settings.limits.body_bytes)
    if line is not None:
        refuse_stdio(built(settings), settings, refusal, line)


def addresses(url: str) -> dict[str, str]:
    return {"url": url, "mcp": f"{url}/mcp", "dispatch": f"{url}/mrt_dispatch", "rpc": f"{url}/rpc"}


def _with_console(flags: Flags, home: Path) -> Settings:
    """Those of a development home, where the console is on unless somebody has said otherwise."""
    settings = flags.load(home)
    if settings.sources["console.enabled"] != "default":
        return settings
    return settings._replace(console=ConsoleSettings(enabled=True))


@contextmanager
def uncollected() -> Iterator[None]:
    """What a start makes is not garbage: to look for some takes a tenth of the start, and later of every full collection."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _note(text: str) -> None:
    output.note(f"note: {text}")


def heard(settings: Settings) -> Callable[[str], None]:
    """Where a server's word for its operator goes. Side effects: sets the log up."""
    from toolgate.telemetry.oplog import configure

    configure(settings.log.format, settings.log.level, without_keys)
    return logging.getLogger("toolgate.start").warning if settings.log.format == "json" else _note


def built(settings: Settings, share: Share | None = None) -> App:
    from toolgate.app import build

    require_workspace(settings)
    note = heard(settings)
    if share is None:
        note_ignored_variables(note)
    app = build(settings, share=share)
    if settings.console.enabled and settings.upstreams:
        from toolgate.cli.upstream.desk import PinDesk

        app.changes = PinDesk(settings)
    if settings.console.enabled:
        app.panels = (_health_panel(settings),)
    for warning in app.warnings if share is None or share.is_owner else ():
        note(warning)
    for silent in app.powers.silent_stores():
        note(f"{silent}; it is asked again all the time, and /readyz is 503 until it does")
    return app


def _dev_keys(flags: Flags) -> DevKeys:
    from toolgate.cli.dev import prepare

    return prepare(flags.home or Path(".toolgate"), chosen=flags.home is not None)
