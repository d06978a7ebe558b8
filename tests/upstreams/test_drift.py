"""A server that is not as it was approved, in the running gate: what is refused, what goes on, and what the log is told."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.homes import PATIENCE_S, Home, Server, environment
from tests.offers.client import HANDSHAKE, MODERN, Client
from tests.upstreams.homes import NoSecrets, Swapping, adopting_home, ask
from tests.upstreams.support import lines
from tests.waiting import until
from toolgate.errors import UpstreamFailed
from toolgate.kit.pins import Offer, pin_of
from toolgate.powers.mcp.table import read_table
from toolgate.powers.mcp.upstream import UpstreamEvent
from toolgate.upstreams import MAX_NAMED, MAX_TOLD, Adopted

TOOL: dict[str, Any] = {"description": "Says what it was told.", "inputSchema": {"type": "object"}}


@pytest.fixture
def swapping(tmp_path: Path) -> Swapping:
    return Swapping(tmp_path)


def adopted(swapping: Swapping, before: str, after: str) -> Home:
    """Adopted as it was before; from now on it behaves otherwise."""
    swapping.behave(before)
    home = adopting_home(swapping.log.parent / "home", {"stub": swapping.table()})
    swapping.log.unlink()
    swapping.behave(after)
    return home


def call(home: Home, server: Server, tool: str) -> tuple[int, dict[str, Any]]:
    return ask("mrt", server.port, ("stub", tool), {"text": "x"}, home.keys["admin"])


def told(home: Home, act: str) -> list[dict[str, Any]]:
    return [one["about"] for one in home.records() if one.get("act") == act]


def test_a_tool_that_changed_on_the_second_page_is_refused(swapping: Swapping) -> None:
    home = adopted(swapping, "two pages", "two pages, the second otherwise")
    with home.serving() as server:
        status, body = call(home, server, "other")
        assert (status, body["error_code"]) == (409, "upstream_drift")
        assert call(home, server, "echo")[0] == 200
    drifted = {"upstream": "stub", "tools": {"other": "changed_description"}, "count": 1}
    assert told(home, "upstream.drifted") == [drifted]
    assert lines(swapping.log, "call") == ["echo"]


def test_a_child_that_died_and_came_back_otherwise_is_refused(swapping: Swapping) -> None:
    home = adopted(swapping, "good", "die on call")
    with home.serving() as server:
        assert call(home, server, "echo")[0] == 504  # it was as approved, and died of the call
        swapping.behave("described otherwise")
        seen: list[int] = []

        def is_back() -> bool:
            seen.append(call(home, server, "echo")[0])
            return seen[-1] != 503

        until(is_back, "the child is started again")
        assert seen[-1] == 409
        assert call(home, server, "other")[0] == 200
    drifted = {"upstream": "stub", "tools": {"echo": "changed_description"}, "count": 1}
    assert told(home, "upstream.drifted") == [drifted]
    assert lines(swapping.log, "call") == ["echo", "other"]


UNAPPROVED: dict[str, dict[str, Any]] = {
    "one more tool": {"new": ["third"], "count": 1, "differs": []},
    "other instructions": {"new": [], "count": 0, "differs": ["server", "instructions"]},
    "many new tools": {"new": [f"new{number:04}" for number in range(MAX_NAMED)], "count": 1000, "differs": []},
}


@pytest.mark.parametrize("behaviour", UNAPPROVED)
def test_what_is_new_and_not_approved_is_told_to_the_log_and_not_served(swapping: Swapping, behaviour: str) -> None:
    home = adopted(swapping, "good", behaviour)
    with home.serving() as server:
        assert call(home, server, "echo")[0] == 200
        assert call(home, server, "third")[0] == 400
        assert call(home, server, "echo")[0] == 200
    assert lines(swapping.log, "call") == ["echo", "echo"]
    assert told(home, "upstream.unapproved") == [{"upstream": "stub", **UNAPPROVED[behaviour]}]
    assert told(home, "upstream.drifted") == []


def watched(heard: list[UpstreamEvent], *names: str, url: str = "https://example.org/mcp") -> Adopted:
    """An upstream that was adopted with these tools."""
    table = read_table("stub", {"url": "https://example.org/mcp"})
    pin = pin_of("stub", {"url": url, "private": False}, offer(*names))
    return Adopted(table, pin, NoSecrets(), None, lambda _, event: heard.append(event), lambda _: None)


def judging(heard: list[UpstreamEvent]) -> Callable[..., dict[str, str]]:
    """What the gate does with each list of an upstream that was adopted with the tool `echo`."""
    return watched(heard, "echo")._judge


def offer(*names: str, instructions: str | None = None) -> Offer:
    return Offer("2025-11-25", {}, instructions, {name: {"name": name, **TOOL} for name in names})


def test_each_list_is_told_once_however_often_it_comes_back() -> None:
    heard: list[UpstreamEvent] = []
    judge = judging(heard)
    for _ in range(3):
        for offered in (
            offer("echo"),
            offer("echo", "a"),
            offer("echo", "b"),
            offer("echo", instructions="x"),
            offer("echo", instructions="y"),
        ):
            assert judge(offered) == {}
    assert [(event.kind, event.details["new"], event.details["differs"]) for event in heard] == [
        ("unapproved", ["a"], []),
        ("unapproved", ["b"], []),
        ("unapproved", [], ["instructions"]),
        ("unapproved", [], ["instructions"]),
    ]


def test_a_server_that_invents_tools_without_end_does_not_fill_the_log() -> None:
    heard: list[UpstreamEvent] = []
    judge = judging(heard)
    for number in range(MAX_TOLD * 2):
        judge(offer("echo", f"{number:x}" * 10_000))
    assert len(heard) == MAX_TOLD
    assert max(len(name) for event in heard for name in event.details["new"]) <= 200


def test_a_server_that_changes_to_and_fro_is_told_once() -> None:
    heard: list[UpstreamEvent] = []
    made = watched(heard, "echo", "other")
    for tool in ("echo", "other") * 3:
        made._heard(UpstreamEvent("drifted", {"tools": {tool: "changed_description"}}))
    assert [event.details for event in heard] == [
        {"tools": {"echo": "changed_description"}, "count": 1},
        {"tools": {"other": "changed_description"}, "count": 1},
    ]


def test_many_tools_that_changed_do_not_fill_the_log() -> None:
    heard: list[UpstreamEvent] = []
    names = [f"t{number:04}" for number in range(MAX_TOLD * 2)]
    made = watched(heard, *names)
    for first in range(len(names)):
        made._heard(UpstreamEvent("drifted", {"tools": dict.fromkeys(names[first:], "removed")}))
    assert len(heard) == MAX_TOLD
    assert max(len(event.details["tools"]) for event in heard) == MAX_NAMED
    assert heard[0].details["count"] == len(names)


def test_a_program_that_stays_replaced_is_told_once_however_often_it_is_met() -> None:
    heard: list[UpstreamEvent] = []
    made = watched(heard, "echo", url="https://example.org/another")
    for _ in range(3):
        with pytest.raises(UpstreamFailed, match="not the program or address that was approved"):
            asyncio.run(made._checked())
    assert [event.details for event in heard] == [{"tools": {"echo": "program_changed"}, "count": 1}]


@contextmanager
def listening(client: Client, era: str) -> Iterator[Iterator[dict[str, Any]]]:
    """What a client of this era hears about lists."""
    if era == MODERN:
        with client.listening(toolsListChanged=True) as heard:
            assert next(heard)["params"]["notifications"] == {"toolsListChanged": True}
            yield heard
    else:
        with client.greet().stream() as heard:
            yield heard


def description(client: Client) -> str:
    (tool,) = [each for each in client.ask_modern("tools/list")["result"]["tools"] if each["name"] == "stub_echo"]
    return str(tool["description"])


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
def test_a_client_hears_of_a_list_that_changed_and_again_when_it_was_approved(swapping: Swapping, era: str) -> None:
    home = adopted(swapping, "good", "changes")
    changed = "notifications/tools/list_changed"
    with home.serving() as server:
        client = Client(server.port, home.keys["admin"])
        before = description(client)
        with listening(client, era) as heard:
            assert call(home, server, "echo")[0] == 200  # the list changes after it
            assert next(heard)["method"] == changed
            assert call(home, server, "echo")[0] == 409
            assert description(client) == before  # clients read what was approved, whatever it offers

            swapping.behave("described otherwise")
            for act in (("upstream", "approve", "stub", "--yes"), ("reload",)):
                command = home.command(*act)
                subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=PATIENCE_S)
            assert changed in (note["method"] for note in heard)
            assert description(client) == before + "\nSays it twice."
            assert call(home, server, "echo")[0] == 200
