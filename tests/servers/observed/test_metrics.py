"""The page of numbers of a real server: with a key beside the gate, without one on a port of its own."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.faces.speak import key_header, mrt
from tests.homes import Home, Server, make_home
from tests.waiting import until

Page = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    home = make_home(tmp_path_factory.mktemp("metrics") / "home", packs=("governance", "unruly"))
    with home.serving("--metrics-enabled", "--metrics-listen", "127.0.0.1:0") as server:
        yield home, server


def fetched(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type") or "", answer.read()
    finally:
        connection.close()


def own_port(server: Server) -> int:
    return int(server.ready["metrics"].removesuffix("/metrics").rpartition(":")[2])


def page_of(body: bytes) -> Page:
    found: Page = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def told_of_both(port: int, key: str) -> bytes | None:
    """The page, if it was made after the calls below: it may be a second old."""
    status, kind, body = fetched(port, **key_header(key))
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    calls = page_of(body).get("toolgate_calls_total", {})
    wanted = {("dummy_experimental", "ok"): 1.0, ("none", "unknown_tool"): 1.0}
    return body if wanted.items() <= calls.items() else None


def test_a_key_that_may_reads_the_numbers_of_the_calls_before(shown: tuple[Home, Server]) -> None:
    home, server = shown
    key = home.keys["builder"]
    assert mrt(server.port, "dummy_experimental", {}, key).status == 200
    assert mrt(server.port, "no_such_tool_of_mine", {}, key).status == 400
    body = until(lambda: told_of_both(server.port, home.keys["admin"]), "a page made after these calls")
    page = page_of(body)
    assert page["toolgate_call_duration_seconds_count"][("dummy_experimental", "ok")] == 1
    assert sum(page["toolgate_clamps_total"].values()) >= 1
    assert page["toolgate_decisions_total"][("warn", "local", "experimental")] == 1
    assert page["toolgate_connections"][()] >= 1
    assert page["toolgate_slots_limit"][()] == 128
    assert page["toolgate_ledger_writable"][()] == 1
    assert page["toolgate_ledger_records_total"][()] >= 3
    assert page["toolgate_processes"][()] == 1
    assert b"no_such_tool_of_mine" not in body
    assert all(secret.encode() not in body for secret in home.keys.values())


@pytest.mark.parametrize("role", ["builder", "committer", None])
def test_other_keys_and_none_are_refused_and_recorded(shown: tuple[Home, Server], role: str | None) -> None:
    home, server = shown
    key = None if role is None else home.keys[role]
    status, _, body = fetched(server.port, **key_header(key))
    assert status == (401 if role is None else 403)
    assert b"toolgate_calls" not in body
    refused = [one for one in home.calls() if one["route"] == "/metrics"]
    assert refused[-1]["error"]["happening"] == ("missing_key" if role is None else "insufficient_role")
    assert refused[-1]["face"] == "metrics"


def test_the_port_of_its_own_needs_no_key_and_has_nothing_else(shown: tuple[Home, Server]) -> None:
    _, server = shown
    port = own_port(server)
    status, _, body = fetched(port)
    assert status == 200
    assert "toolgate_build" in page_of(body)
    assert [fetched(port, path)[0] for path in ("/", "/mcp", "/healthz", "/metrics/")] == [404] * 4
    assert fetched(port, method="DELETE")[0] == 405


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "10.1.2.3:9464"}, 200),
        ({"Host": "[::1]:9464"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "evil.example:9464"}, 403),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
def test_a_name_that_somebody_leads_here_is_not_served(
    shown: tuple[Home, Server], headers: dict[str, str], expected: int
) -> None:
    _, server = shown
    assert fetched(own_port(server), **headers)[0] == expected


def test_without_the_setting_there_is_no_page(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    app = home.app()
    try:
        assert app.telemetry is None
        assert app.road.ledger is app.ledger
    finally:
        app.ledger.close()
