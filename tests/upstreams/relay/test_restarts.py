"""A call that waits for its caller's answer while the gate is started anew; and what a program logs that callers share."""

from __future__ import annotations

import json
import signal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.homes import PATIENCE_S
from tests.offers.client import HANDSHAKE, MODERN, Client
from tests.upstreams.homes import adopting_home
from tests.upstreams.relay.gates import WAYS, upstream
from tests.upstreams.relay.talking import ANSWERS, EVERYTHING, answering, call
from toolgate.powers.mcp.relay.logs import NOT_RELAYED

ERAS = (MODERN, HANDSHAKE)


@pytest.mark.parametrize(
    ("era", "way"),
    [pytest.param(*each, marks=() if each == (MODERN, "http") else pytest.mark.guard) for each in product(ERAS, WAYS)],
)
def test_what_was_asked_in_the_modern_era_is_answered_after_a_restart_and_a_held_call_is_in_doubt(
    tmp_path: Path, era: str, way: str
) -> None:
    with upstream(era, way) as table:
        home = adopting_home(tmp_path / "home", {"up": table}, asks={"up_elicit": ["elicitation"]})
        with home.serving() as server:
            client = Client(server.port, home.keys["admin"])
            asked = client.ask_modern("tools/call", call("elicit"), **EVERYTHING)["result"]
            assert asked["resultType"] == "input_required"
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(PATIENCE_S)
        with home.serving() as server:
            client = Client(server.port, home.keys["admin"])
            again = answering(call("elicit"), asked, ANSWERS["elicit"])
            result = client.ask_modern("tools/call", again, **EVERYTHING)["result"]
    if era == MODERN:
        assert json.loads(result["content"][0]["text"]) == ANSWERS["elicit"]
    else:
        assert result["_meta"]["toolgate/envelope"]["code"] == "IN_DOUBT"
        assert "does not wait for an answer" in result["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
def test_what_a_program_of_several_callers_logs_is_relayed_to_none_and_each_is_told_once(
    tmp_path: Path, era: str
) -> None:
    with upstream(era, "stdio") as table:
        home = adopting_home(tmp_path / "home", {"up": table})
        with home.serving() as server:

            def read(role: str, tool: str = "logs") -> list[Any]:
                meta = {"io.modelcontextprotocol/logLevel": "info"}
                params = {**call(tool), "_meta": meta}
                answer = Client(server.port, home.keys[role]).ask_modern("tools/call", params)
                return [note["params"]["data"] for note in answer.get("notes", ())]

            assert read("admin") == ["said info", "said error"]
            assert read("builder", "echo") == [NOT_RELAYED]
            assert [read("admin"), read("admin"), read("builder")] == [[NOT_RELAYED], [], []]
