"""The official SDKs of both languages and majors, and FastMCP, use a real server: every kind of answer reaches its reader.

What each client must show for each step is one table. A client may wrap a message in words of its own; it may not lose it,
nor the connection.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scripts.clients import install
from tests.clients.conftest import AT_ONCE, RUN_S, TRANSPORTS, Place, drive

pytestmark = [pytest.mark.guard, pytest.mark.timeout(2 * RUN_S)]

SHOWN = {
    "list": (True, "tools"),
    "good": (True, "hello"),
    "bad_arguments": (
        False,
        "text is missing; expected a string of 1 to 200 characters. txt is not an argument of this tool.",
    ),
    "said_no": (False, "NOT_TODAY: The shop is closed. Come back tomorrow."),
    "not_there": (False, "NOT_TODAY: There is no such shop."),
    "crashed": (False, "EXECUTION_FAILED: The tool failed."),
    "bad_output": (False, "the data does not match the output schema"),
    "role": (False, "builder may not call wire_admin"),
    "role_of_argument": (False, "builder may not call analyze_dissonance with mode=calibration"),
    "unknown": (False, "Unknown tool: wire_ecko. Did you mean wire_echo?"),
    "null": (True, "hello"),
    "afterwards": (True, "still here"),
}
SHOWN |= {"progress": (True, "")}
SHOWN |= {"too_many": (False, "2 calls of this key are running"), "others_go_on": (True, ""), "cancel": (True, "hello")}
SHOWN |= dict.fromkeys(("unavailable", "unavailable_again"), (False, "The audit log cannot be written."))


PYTHON = {
    "Python mcp 2, modern": ("", "mcp2.py", "auto"),
    "Python mcp 2, handshake": ("", "mcp2.py", "legacy"),
    "Python mcp 1": ("mcp1", "mcp1.py"),
    "FastMCP 4": ("fastmcp4", "fast.py"),
    "FastMCP 2": ("fastmcp2", "fast.py"),
}
"""Environment, driver and its words."""
TYPESCRIPT = {"TypeScript sdk 1": "sdk1.mjs", "TypeScript client 2": "client2.mjs"}
"""Both check every structured answer, failures too, against the advertised output schema."""


def driven(client: str, servers: dict[str, Any], packages: Path) -> dict[str, Any]:
    if client in TYPESCRIPT:
        driver = str(packages / "drivers" / TYPESCRIPT[client])
        return drive(["node", driver], servers, install.programs(packages))
    environment, driver, *words = PYTHON[client]
    interpreter = install.python(environment, install.PYTHON[environment]) if environment else sys.executable
    return drive([str(interpreter), str(install.DRIVERS / driver), *words], servers)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, place: Place, full: Place, packages: Path) -> Iterator[dict[str, Future[Any]]]:
    """What each client tells by transport."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = dict.fromkeys(call.params["client"] for call in calls if call and "client" in call.params)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {client: pool.submit(driven, client, _servers(place, full, client), packages) for client in chosen}


def _servers(place: Place, full: Place, client: str) -> dict[str, Any]:
    key = place.spare[[*PYTHON, *TYPESCRIPT].index(client)]
    return {way: place.where(way, key) | {"full": full.where(way)} for way in TRANSPORTS}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("client", [*PYTHON, *TYPESCRIPT])
def test_a_client_shows_every_answer_and_goes_on(told: dict[str, Future[Any]], client: str, transport: str) -> None:
    seen = told[client].result()[transport]
    assert "session" not in seen, seen["session"]
    assert {
        step: seen.get(step, "not tried")
        for step, (ok, text) in SHOWN.items()
        if step not in seen or seen[step]["ok"] is not ok or text not in seen[step]["text"]
    } == {}


@pytest.mark.parametrize("major", ["1", "2"])
def test_a_failed_call_of_every_tool_passes_the_sdks_own_check_of_its_schema(
    whole: Place, packages: Path, major: str
) -> None:
    where = {"url": whole.server.ready["mcp"], "key": whole.home.keys["admin"]}
    heard = drive(["node", str(packages / "drivers" / "every_tool.mjs"), major], where, install.programs(packages))
    assert len(heard) >= 20
    unreadable = {
        name: said for name, said in heard.items() if said["ok"] or "nosuch is not an argument" not in said["text"]
    }
    assert unreadable == {}
