"""`toolgate stop-calls` and `toolgate resume`: the stop button."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.options import Home, Json, home_at, seconds_of
from toolgate.errors import ExitCode
from toolgate.gate.authority.stops import STOPS_FILE, Stop, Stops, new_stop

if TYPE_CHECKING:
    from toolgate.settings import Settings

ToolGlob = Annotated[
    str | None, typer.Option("--tool", metavar="GLOB", help="Calls of these tools: a name, or a pattern like 'git_*'.")
]
CallerId = Annotated[
    str | None, typer.Option("--caller", metavar="ID", help="Calls of this key; `toolgate keys list` shows the ids.")
]
UpstreamName = Annotated[
    str | None, typer.Option("--upstream", metavar="NAME", help="Calls of the tools of this upstream.")
]


def stop_calls(
    tool: ToolGlob = None,
    caller: CallerId = None,
    upstream: UpstreamName = None,
    everything: Annotated[bool, typer.Option("--all", help="Every call.")] = False,
    span: Annotated[
        str | None, typer.Option("--for", metavar="1h", help="How long: 30m, 1h, 2d; else until resumed.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Told to callers and kept in the log.")] = "",
    home: Home = None,
    json: Json = False,
) -> None:
    """Stop calls at once, on every server of this home: in force when this command returns, and after a restart.

    What runs already goes on to its end. Several options together stop calls that fit all of them. Without any, shows what
    is stopped.
    """
    settings = home_at(home)
    if (tool, caller, upstream) == (None, None, None) and not everything:
        _show(_stops(settings).in_force(), json=json)
        return
    if everything and (tool, caller, upstream) != (None, None, None):
        raise typer.BadParameter("give --all, or what to stop", param_hint="--all")
    now = time.time()
    until = None if span is None else now + seconds_of(span, "--for")
    try:
        stop = new_stop(tool=tool, caller=caller, upstream=upstream, reason=reason, since=now, until=until)
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--reason") from None
    with recorded(settings, "calls.stop", stop.as_json()):
        _stops(settings).add(stop)
    if json:
        output.answer_json(stop.as_json())
    else:
        output.say(f"stopped: {stop.scope()} {stop.ending()} ({stop.id}); end it: toolgate resume {stop.id}")


def resume(
    stop_id: Annotated[str | None, typer.Argument(metavar="ID", help="As `toolgate stop-calls` shows it.")] = None,
    tool: ToolGlob = None,
    caller: CallerId = None,
    upstream: UpstreamName = None,
    everything: Annotated[bool, typer.Option("--all", help="End every stop.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Let stopped calls through again: those of one stop by its id, of the same options, or of all stops."""
    settings = home_at(home)
    stops = _stops(settings)
    selected = (tool, caller, upstream) != (None, None, None)
    if sum([stop_id is not None, selected, everything]) != 1:
        raise typer.BadParameter("give an id, the options of the stop, or --all", param_hint="ID")
    ended = [
        stop
        for stop in stops.in_force()
        if everything or stop.id == stop_id or (selected and stop.selects(tool, caller, upstream))
    ]
    if not ended and not everything:
        output.fault("There is no such stop in force.\n`toolgate stop-calls` shows those that are.")
        raise typer.Exit(ExitCode.FAILED)
    with recorded(settings, "calls.resume", {"stops": [stop.as_json() for stop in ended]}):
        stops.remove(frozenset(stop.id for stop in ended))
    if json:
        output.answer_json([stop.as_json() for stop in ended])
    else:
        output.say("\n".join(f"resumed: {stop.scope()} ({stop.id})" for stop in ended) or "nothing was stopped")


def _stops(settings: Settings) -> Stops:
    return Stops(settings.paths.keys.parent / STOPS_FILE)


def _show(found: list[Stop], *, json: bool) -> None:
    if json:
        output.answer_json([stop.as_json() for stop in found])
        return
    rows = [[stop.id, stop.scope(), stop.since, stop.until or "resumed", stop.reason] for stop in found]
    output.table(["id", "stopped", "since", "until", "reason"], rows)
    if not found:
        output.note("Nothing is stopped.")
