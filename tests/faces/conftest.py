from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.homes import Home, Server, make_home
from toolgate.gate.authority.stops import STOPS_FILE, Stops, new_stop
from toolgate.model.call import CallerBounds

STOPPED = "unruly_stopped"
"""A tool whose calls an operator has stopped."""
RULED = "secrets.txt"
"""A name that a rule refuses for unruly_write."""
ASKED = "release.txt"
"""A name for which it wants a person's approval."""
CUSTOM = "releaser"
"""A role of this deployment, made of committer. It alone holds unruly_guarded."""
SCOPED = "scoped"
"""A key of an admin for some tools."""
ELSEWHERE = "elsewhere"
"""A key of an admin for addresses that nobody here has."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    rules = [
        {"name": "no-secrets", "deny": f"args.name == '{RULED}'"},
        {"name": "ask", "require-approval": f"args.name == '{ASKED}'"},
    ]
    rows = {"unruly_write": {"x-rules": rules}, "unruly_guarded": {"x-roles": [CUSTOM]}}
    home = make_home(
        tmp_path_factory.mktemp("faces") / "home", packs=("unruly",), rows=rows, roles={CUSTOM: "committer"}
    )
    bounded = {
        SCOPED: CallerBounds(scopes=("unruly_guarded", "unruly_w*")),
        ELSEWHERE: CallerBounds(ranges=("192.0.2.0/24", "2001:db8::/32")),
    }
    ring = home.ring()
    keys = {name: ring.create("admin", bounds=bounds)[1] for name, bounds in bounded.items()}
    home = Home(home.path, {**home.keys, **keys})
    stop = new_stop(tool=STOPPED, caller=None, upstream=None, reason="", since=0.0, until=None)
    Stops(home.path / "keys" / STOPS_FILE).add(stop)
    return home


@pytest.fixture(scope="session")
def server(home: Home) -> Iterator[Server]:
    with home.serving() as server:
        yield server
