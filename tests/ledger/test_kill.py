"""kill -9 under mixed load, a hundred times: what was answered is in the log, what was done was announced.

The client keeps its own history; the checker joins it with the log and with the files that the calls left behind.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.homes import Home, make_home
from tests.ledger import world
from toolgate.cli.main import main
from toolgate.gate.admit import arguments_digest
from toolgate.kit.merkle import leaf_hash
from toolgate.ledger import LOG_PATH
from toolgate.ledger.files import runs_in
from toolgate.ledger.reading.query import lines_of_run

CLIENTS = 4


@dataclass
class History:
    """What the clients know: answers they read to the end, and files they asked for."""

    answered: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    one_more: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


def calls(home: Home, name: str, chance: random.Random) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Reads, effects and refusals of several kinds, without end."""
    key = {"X-MCP-API-Key": home.keys["admin"], "Content-Type": "application/json"}
    number = 0
    while True:
        number += 1
        yield chance.choice(
            [
                ({"tool": "unruly_echo", "args": {"n": number % 10}}, key),
                ({"tool": "unruly_write", "args": {"name": f"{name}-{number}"}}, key),
                ({"tool": "unruly_write", "args": {"name": f"{name}-{number}"}}, key),
                ({"tool": "unruly_write", "args": {}}, key),
                ({"tool": "unruly_nothing", "args": {}}, key),
                ({"tool": "unruly_admin", "args": {}}, key | {"X-MCP-API-Key": home.keys["builder"]}),
            ]
        )


def client(home: Home, port: int, name: str, history: History) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=world.PATIENCE_S)) as connection:
        ask(home, connection, name, history)


def ask(home: Home, connection: http.client.HTTPConnection, name: str, history: History) -> None:
    for body, headers in calls(home, name, random.Random(name)):
        try:
            if "name" in body["args"]:
                history.asked.append(body["args"]["name"])
            connection.request("POST", "/mrt_dispatch", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return  # the server is dead: no answer
        history.answered.append(answer)
        history.one_more.release()


def one_life(home: Home, round_: int, chance: random.Random, history: History) -> None:
    """Start, load, kill."""
    with home.serving("--ledger-checkpoint-records", "16") as server:
        threads = [
            threading.Thread(target=client, args=(home, server.port, f"{round_}-{number}", history))
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for _ in range(chance.randrange(5, 150)):
            assert history.one_more.acquire(timeout=world.PATIENCE_S)
        threading.Event().wait(chance.uniform(0, 0.005))  # anywhere in a call, not only right after an answer
        server.process.kill()
        for thread in threads:
            thread.join()


def check(home: Home, history: History, kills: int) -> None:
    directory = home.path / "runs" / LOG_PATH
    lines = {name.id: list(lines_of_run(segments)) for name, segments in runs_in(directory).items()}
    records = [json.loads(line) for found in lines.values() for line in found]
    for answer in history.answered:
        place = answer.get("audit")
        if place is None:
            assert answer["ok"] is False, "only a refusal may be counted instead of written"
            continue
        line = lines[place["run"]][place["seq"]]
        found = json.loads(line)
        identity = answer.get("request_id") or answer["envelope"]["requestId"]
        assert (leaf_hash(line).hex(), found["event"], found["requestId"]) == (place["leaf"], "outcome", identity)
    outcomes = [one["requestId"] for one in records if one["event"] == "outcome"]
    assert len(outcomes) == len(set(outcomes)), "each once"
    intents = {one["argumentsDigest"] for one in records if one["event"] == "intent"}
    done = [path.name for path in (home.path / "workspace").iterdir() if not path.name.startswith(".")]
    assert done
    for name in done:
        assert name in history.asked
        assert arguments_digest((), {"name": name})[0] in intents, f"{name} was written without an intent"
    recovered = [one["recovered"] for one in records if one["event"] == "recovered"]
    assert len(recovered) == kills
    unknown = {one["requestId"] for found in recovered for one in found["unfinished"]}
    announced = {one["requestId"] for one in records if one["event"] == "intent"}
    assert unknown == announced - set(outcomes)


def live_and_die(tmp_path: Path, kills: int) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    history, chance = History(), random.Random(kills)
    for round_ in range(kills):
        one_life(home, round_, chance, history)
    with home.serving():
        pass
    assert len(history.answered) >= 5 * kills
    check(home, history, kills)
    assert main(["audit", "verify", "--home", str(home.path)]) == 0


def test_three_kills_lose_nothing(tmp_path: Path) -> None:
    live_and_die(tmp_path, 3)


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    live_and_die(tmp_path, 100)
