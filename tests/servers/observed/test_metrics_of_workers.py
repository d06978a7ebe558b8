"""The numbers of a server of several processes: one page, whichever of them is asked, with the sum of what all of them did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces import speak
from tests.homes import Home, Server, make_home
from tests.servers.observed.test_metrics import fetched, own_port, page_of
from tests.servers.processes.workers import at, until_all_serve
from tests.waiting import until

WORKERS = 3
EACH = 7
STRANGERS = 24
"""Calls over connections of their own, which any worker may take."""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    settings = f'[metrics]\nenabled = true\nlisten = "127.0.0.1:0"\n[server]\nworkers = "{WORKERS}"\n'
    home = make_home(tmp_path_factory.mktemp("several") / "home", packs=("governance", "unruly"), settings=settings)
    with home.serving() as server:
        until_all_serve(home)
        yield home, server


def test_the_page_has_the_sum_of_what_all_workers_did(several: tuple[Home, Server]) -> None:
    home, server = several
    key, refused = home.keys["builder"], 0
    for number in range(WORKERS):
        with at(home, server, number) as client:  # its first call is one of `unruly_echo`
            for _ in range(EACH):
                assert client.call("dummy_experimental", {}, "builder")[0] == 200
            refused += client.call("dummy_experimental", {"no": "such"}, "builder")[0] == 400
    for _ in range(STRANGERS):
        assert speak.mrt(server.port, "dummy_experimental", {}, key).status == 200
    assert refused == WORKERS
    wanted = {
        ("dummy_experimental", "ok"): float(WORKERS * EACH + STRANGERS),
        ("dummy_experimental", "bad_arguments"): float(WORKERS),
        ("unruly_echo", "ok"): float(WORKERS),
    }

    def told() -> bool:
        """By each way to ask: with a key at any worker, and on the port of its own."""
        pages = [fetched(server.port, **speak.key_header(home.keys["admin"])) for _ in range(2 * WORKERS)]
        pages.append(fetched(own_port(server)))
        found = [page_of(body) for status, _, body in pages if status == 200]
        assert len(found) == len(pages)
        calls = [{key: page["toolgate_calls_total"].get(key) for key in wanted} for page in found]
        assert all((each[key] or 0) <= wanted[key] for each in calls for key in wanted), "never more than was done"
        return all(each == wanted for each in calls)

    until(told, "pages made after these calls")
    page = page_of(fetched(own_port(server))[2])
    assert page["toolgate_processes"][()] == WORKERS
    assert page["toolgate_call_duration_seconds_count"][("dummy_experimental", "ok")] == WORKERS * EACH + STRANGERS
    assert len({each["run"] for each in home.calls() if each["event"] == "outcome"}) == WORKERS, "every worker served"
