"""One process of a server that has several: started by its supervisor, never by a person."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate.cli import output
from toolgate.cli.main import exit_code
from toolgate.cli.serve.start import built, told_of, uncollected
from toolgate.config import load_settings
from toolgate.errors import ToolgateError
from toolgate.gate.counted import CountTable
from toolgate.ruleset import Share
from toolgate.running import Running
from toolgate.servers.http_lifecycle import serve_http
from toolgate.servers.processes.member import Member
from toolgate.servers.processes.place import WorkerPlace

if TYPE_CHECKING:
    from toolgate.settings import Settings


def main() -> None:
    """Side effects: ends the process."""
    sys.exit(output.run_program(lambda: _run(WorkerPlace.of_text(sys.argv[1]))))


def _run(place: WorkerPlace) -> int:
    try:
        return _serve(place)
    except ToolgateError as fault:
        output.fault(str(fault))
        return exit_code(fault)


def _serve(place: WorkerPlace) -> int:
    for descriptor in (place.link, place.listener, place.table):
        os.set_inheritable(descriptor, False)
    reread = partial(_settings, place)
    settings = reread()
    member = Member(place)
    with uncollected():
        table = CountTable(place.table, place.processes, place.number)
        app = built(settings, Share(place.is_owner, place.processes, table, member.owner.elsewhere))
        running = Running(app, reread)
    return serve_http(running, lambda url: member.ready(told_of(app, url)), member)


def _settings(place: WorkerPlace) -> Settings:
    flags = place.flags
    home = None if flags["home"] is None else Path(flags["home"])
    return load_settings(home, flags["values"], os.environ, chosen=flags["chosen"])
