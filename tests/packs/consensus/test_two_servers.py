"""Two real servers on one home: one key, one guard, never two signatures that contradict each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import Home, make_home
from toolgate.packs.consensus import PACK
from toolgate.packs.consensus.settings import DEFAULTS
from toolgate.powers.keys import KeyDirectory

pytestmark = pytest.mark.guard
ROUNDS = 16


def tuple_of(number: int) -> dict[str, str]:
    return {"merkle_root_hex": f"{number:064x}", "rule_version_hash_hex": "bb" * 32}


def ask(home: Home, port: int, tool: str, arguments: Any) -> speak.Heard:
    return speak.mrt(port, tool, arguments, home.keys["admin"])


def test_servers_that_share_a_home_share_the_signer_guard(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("consensus",), settings="[limits]\nconcurrency_per_caller = 64\n")
    for name, use in PACK.keys(DEFAULTS).items():
        KeyDirectory(home.path / "secrets", workspace=home.workspace).generate(name, use=use)
    with home.serving() as first, home.serving() as second:
        ports = (first.port, second.port)

        def propose(number: int) -> speak.Heard:
            return ask(home, ports[number % 2], "consensus_propose", {"event": tuple_of(number)})

        def vote(of: tuple[str, int, int]) -> speak.Heard:
            round_id, number, port = of
            ballot = {**tuple_of(number), "vote_type": "ACCEPT"}
            return ask(home, port, "consensus_vote", {"round_id": round_id, "vote": ballot})

        with ThreadPoolExecutor(ROUNDS) as pool:
            opened = [one.envelope["data"]["round_id"] for one in pool.map(propose, range(ROUNDS)) if one.envelope]
            assert sorted(map(int, opened)) == list(range(1, ROUNDS + 1)), "no round number was given twice"
            asked = [(round_id, number, port) for number, round_id in enumerate(opened) for port in ports]
            heard = list(pool.map(vote, asked))
            conflicting = list(pool.map(vote, [(round_id, number + 1, port) for round_id, number, port in asked]))
    for number in range(ROUNDS):
        pair = heard[2 * number : 2 * number + 2]
        assert sorted(one.status or 0 for one in pair) == [200, 400], "one server adopts the vote, the other is told so"
        assert {one.reason for one in pair} == {None, "already_voted"}
    assert {one.reason for one in conflicting} == {"equivocation_refused"}, "and neither ever signs another tuple"
