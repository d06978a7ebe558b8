"""Four processes of one server on PostgreSQL, some of them killed on the way: what may happen once happens once."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, make_home
from tests.packs.consensus.nodes import ballot, event
from tests.packs.consensus.servers import make_arbiter
from tests.powers.sql.postgres import shared_postgres
from tests.servers.processes.workers import until_all_serve, workers
from tests.waiting import until
from toolgate.cli.main import main

PROCESSES, TIMES, ROUNDS, AT_ONCE = 4, 4, 5, 6
Found = tuple[int, dict[str, Any]]


def _home(folder: Path) -> Home:
    new = shared_postgres().new_database
    settings = (
        f'[stores]\nfalse_positives = "{new()}"\nconsent = "{new()}"\n[idempotency]\nurl = "{new()}"\n'
        "[limits]\nconcurrency_per_caller = 100\n"
    )
    return make_home(folder / "home", packs=("governance", "unruly"), settings=settings)


def _call(server: Server, key: str, tool: str, arguments: dict[str, Any], once: str | None = None) -> Found | None:
    """None: the process that had it was killed."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    headers = {"content-type": "application/json", **speak.key_header(key)}
    if once is not None:
        headers["Idempotency-Key"] = once
    try:
        connection.request("POST", "/mrt_dispatch", json.dumps({"tool": tool, "args": arguments}), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _kill_one(home: Home, chance: random.Random) -> None:
    pid = chance.choice([worker["pid"] for worker in workers(home) if worker["pid"]])
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.guard
def test_a_nonce_and_a_key_are_good_once_whichever_process_is_asked_and_killed(tmp_path: Path) -> None:
    home, chance, passed = _home(tmp_path), random.Random(20), list[str]()
    stamp, key = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), home.keys["admin"]
    repeated = 0

    def spend(nonce: str) -> Found | None:
        checked = {"nonceValidation": {"nonce": nonce, "timestamp": stamp}}
        found = _call(server, key, "validate_l0_invariants", checked)
        if found is not None and found[1].get("envelope", {}).get("decision") == "pass":
            passed.append(nonce)
        return found

    with home.serving("--workers", str(PROCESSES)) as server, ThreadPoolExecutor(2 * AT_ONCE) as threads:
        until(lambda: _is_binding(server, key, stamp), "the stores answer")
        for turn in range(ROUNDS):
            names = [f"name-0123456789-{turn}-{number}" for number in range(AT_ONCE)] * TIMES
            asked = [partial(spend, name) for name in names]
            asked += [partial(_call, server, key, "unruly_write", {"name": name}, name) for name in names]
            chance.shuffle(asked)
            answers = threads.map(lambda ask: ask(), asked)
            _kill_one(home, chance)
            repeated += sum(found is not None and "repeats" in (found[1].get("audit") or {}) for found in answers)
            until_all_serve(home)
        restarts = sum(worker["replaced"] for worker in workers(home))
    wrote = [
        record["argumentsDigest"]
        for record in home.calls()
        if record["event"] == "intent" and record["metadata"]["toolId"] == "mcp.tool:unruly.write"
    ]
    assert restarts == ROUNDS
    assert max(Counter(passed).values()) == 1, "a nonce is good once"
    assert len(passed) >= ROUNDS * AT_ONCE // 2, "most were spent by a process that lived to say so"
    assert max(Counter(wrote).values()) == 1, "a key has one effect at most"
    assert len(wrote) >= ROUNDS * AT_ONCE // 2
    assert repeated, "others got the answer of the first"
    assert main(["audit", "verify", "--home", str(home.path)]) == 0


@pytest.mark.guard
def test_a_round_is_one_proposal_s_and_an_arbiter_signs_one_ballot_of_it_in_all_processes(tmp_path: Path) -> None:
    home, chance = make_arbiter(tmp_path / "arbiter").home, random.Random(21)
    with (home.path / "toolgate.toml").open("a") as file:
        file.write(
            f'[stores]\nconsensus = "{shared_postgres().new_database()}"\n[limits]\nconcurrency_per_caller = 100\n'
        )
    key, opened, signed = home.keys["committer"], list[tuple[str, int]](), list[tuple[str, int]]()

    def propose(number: int) -> None:
        found = _call(server, key, "consensus_propose", {"event": event(number)})
        if found is not None and found[0] == 200:
            opened.append((found[1]["envelope"]["data"]["round_id"], number))

    def vote(asked: tuple[str, int]) -> None:
        found = _call(server, key, "consensus_vote", {"round_id": asked[0], "vote": ballot(asked[1])})
        if found is not None and found[0] == 200:
            signed.append(asked)

    with home.serving("--workers", str(PROCESSES)) as server, ThreadPoolExecutor(2 * AT_ONCE) as threads:
        for _ in range(ROUNDS):
            before = len(opened)
            proposed = threads.map(propose, [*range(1, AT_ONCE + 1)])
            _kill_one(home, chance)
            list(proposed)
            until_all_serve(home)
            new = opened[before:]
            asked = [*new * TIMES, *((round_id, number + 1) for round_id, number in new)]
            list(threads.map(vote, chance.sample(asked, len(asked))))
        told = [_call(server, key, "consensus_finality", {"round_id": round_id}) for round_id, _ in opened * PROCESSES]
    assert len(opened) >= ROUNDS * AT_ONCE // 3, "many were opened by a process that lived to say so"
    assert max(Counter(round_id for round_id, _ in opened).values()) == 1, "a round is one proposal's"
    assert max(Counter(signed).values()) == 1, "a ballot is signed once"
    assert set(signed) <= set(opened), "an arbiter signs what its proposal said, and no other ballot"
    assert len(signed) >= len(opened) // 2
    assert {found[1]["envelope"]["data"]["level"] for found in told if found is not None} == {"QUORUM"}
    assert main(["audit", "verify", "--home", str(home.path)]) == 0


def _is_binding(server: Server, key: str, stamp: str) -> bool:
    checked = {"nonceValidation": {"nonce": f"warm-{time.monotonic_ns()}", "timestamp": stamp}}
    found = _call(server, key, "validate_l0_invariants", checked)
    return found is not None and found[1].get("envelope", {}).get("environment") == "cloud"
