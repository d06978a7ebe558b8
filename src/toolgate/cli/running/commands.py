"""`toolgate status` and `toolgate reload`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, Json, home_at
from toolgate.cli.running.client import ask_all
from toolgate.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WATCH_S: Final = 2.0


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Ask again and again, until Ctrl+C.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say what the servers of a home are doing: workers, calls under way, upstreams, stores, limits, and whether what is on
    disk is what is served.

    With --json one list on one line, with an object for each server. Exit 1 when a server is not ready or does not answer.
    """
    settings = home_at(home)
    if watch:
        output.show_lines_at_once()
    while True:
        found = ask_all(settings, "status")
        if json:
            output.answer_json(found)
        else:
            for server in found:
                for line in _lines(server):
                    output.say(line)
        if not watch:
            break
        time.sleep(WATCH_S)
    raise typer.Exit(ExitCode.OK if all(server.get("ready") for server in found) else ExitCode.FAILED)


def reload(home: Home = None, json: Json = False) -> None:
    """Let the servers of a home take over what was changed: settings, policy, pins. SIGHUP does the same.

    All of it or nothing: what is wrong is named, and what was served is still served. Settings that need a restart are named,
    too. With --json one list on one line, with an object for each server. Exit 1 when a server took nothing over.
    """
    found = ask_all(home_at(home), "reload")
    if json:
        output.answer_json(found)
    else:
        for server in found:
            _say_reload(server)
    raise typer.Exit(ExitCode.OK if all(server.get("reloaded") for server in found) else ExitCode.FAILED)


def _say_reload(server: Mapping[str, Any]) -> None:
    if not server.get("reloaded"):
        output.fault(f"server {server['pid']} still serves what it served: {server.get('reason') or server['error']}")
        return
    output.say(f"server {server['pid']} reloaded: {', '.join(server['changed']) or 'nothing had changed'}")
    if server["settings"]:
        output.say(f"  taken over: {', '.join(server['settings'])}")
    if server["needRestart"]:
        output.say(f"  need a restart: {', '.join(server['needRestart'])}")
    for warning in server["warnings"]:
        output.note(f"note: {warning}")


def _lines(server: Mapping[str, Any]) -> Iterator[str]:
    if "error" in server:
        yield server["error"]
        return
    state = (
        "ready" if server["ready"] else "NOT READY: " + ", ".join(k for k, good in server["checks"].items() if not good)
    )
    yield f"server {server['pid']}  {server['url']}  {state}  since {server['began']}  version {server['version']}"
    for worker in server["workers"]:
        yield f"  worker {worker['pid']}  run {worker['run']}  {len(worker['calls'])} calls  {worker['streams']} streams"
        for call in sorted(worker["calls"], key=lambda each: -each["seconds"])[:10]:
            yield f"    {call['seconds']:>8.3f} s  {call['tool']}  {call['caller']}  {call['requestId']}"
    for upstream in server["upstreams"]:
        yield f"  upstream {upstream['name']}  {upstream['state']}  {upstream.get('reason', '')}".rstrip()
    stores, limits = server["stores"], server["limits"]
    yield f"  stores {'; '.join([stores['environment'], *stores['notes'], *stores['silent']])}"
    yield f"  limits {_limits(limits)}"
    yield f"  reload {_reload(server['reload'])}"


def _limits(limits: Mapping[str, Any]) -> str:
    rate = f"{limits['perMinute']} a minute" if limits["perMinute"] else "no rate"
    where = "shared" if limits["shared"] else "in memory"
    held = f"{limits['held']} of {limits['total']} calls, {limits['perCaller']} a key, {rate}, {where}"
    return f"{held}; {limits['fault']}" if limits["fault"] else held


def _reload(told: Mapping[str, Any]) -> str:
    parts = [f"{told['count']} so far" + (f", last {told['last']}" if told["last"] else "")]
    if told["differs"]:
        parts.append(f"on disk differs: {', '.join(told['differs'])}")
    if told["needRestart"]:
        parts.append(f"need a restart: {', '.join(told['needRestart'])}")
    if told["refused"]:
        parts.append(f"the last one was refused: {told['refused'].partition(chr(10))[0]}")
    return "; ".join(parts)
