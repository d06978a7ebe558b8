"""What was read of rounds and messages is answered again, and never once somebody has changed the store or the key."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import toolgate.powers.keys
from tests.homes import PATIENCE_S
from tests.packs.consensus.nodes import TOOLS, Office, ballot, event
from toolgate.errors import ToolError
from toolgate.model.clock import SystemClock
from toolgate.packs.consensus.arbiter.known import MAX_ANSWERS
from toolgate.packs.consensus.arbiter.store import unpack
from toolgate.packs.consensus.domain.messages import decode_vote

if TYPE_CHECKING:
    from collections.abc import Callable

STRANGER = "11" * 32
ELSEWHERE = """
import sys
from pathlib import Path
from tests.packs.consensus.nodes import Office, ballot, event
office = Office(Path(sys.argv[1]), make_keys=False)
"""


@pytest.fixture(autouse=True)
def old_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test does not wait for the disk's clock."""
    monkeypatch.setattr(toolgate.powers.keys, "SETTLED_NS", -1)


def elsewhere(office: Office, work: str) -> None:
    """Another process does it, in the same home."""
    program = f"{ELSEWHERE}{work}\noffice.close()"
    subprocess.run([sys.executable, "-c", program, str(office.home)], check=True, timeout=2 * PATIENCE_S)


def at_once(office: Office, tool: str, **args: Any) -> Any:
    answer: Any = TOOLS[tool].at_once
    found = answer(SystemClock(), office.known, args)
    return None if found is None else found.data


def warm(office: Office, tool: str, **args: Any) -> Any:
    """A store that this process has not opened has no mark: the second call is remembered."""
    for _ in range(2):
        answer = office.call(tool, **args)
    assert at_once(office, tool, **args) == answer
    return answer


def test_finality_that_another_process_changes_is_told_anew_at_once(office: Office) -> None:
    office.call("consensus_propose", event=event())
    before = warm(office, "consensus_finality", round_id="1")
    elsewhere(office, "office.call('consensus_propose', event=event(2))")
    assert at_once(office, "consensus_finality", round_id="1") is None
    assert office.call("consensus_finality", round_id="1") == before
    assert office.call("consensus_finality", round_id="2")["level"] == "QUORUM"


def test_finality_rises_at_once_when_messages_come_in(four: list[Office]) -> None:
    four[0].call("consensus_propose", event=event())
    number = four[0].call("consensus_propose", event=event(2))["round_id"]
    assert warm(four[0], "consensus_finality", round_id=number)["support"] == 1
    told = four[0].call("consensus_gossip", peer_id=four[1].node().signer.sender.hex())["events_sent"]
    four[1].call("consensus_gossip", peer_id=four[0].node().signer.sender.hex(), events=told)
    four[1].call("consensus_vote", round_id=number, vote=ballot(2))
    back = four[1].call("consensus_gossip", peer_id=four[0].node().signer.sender.hex())["events_sent"]
    four[0].call("consensus_gossip", peer_id=four[1].node().signer.sender.hex(), events=back)
    assert four[0].call("consensus_finality", round_id=number)["support"] == 2


def test_gossip_that_brings_nothing_is_answered_again_and_has_what_another_process_added(four: list[Office]) -> None:
    asker = four[1].node().signer.sender.hex()
    four[0].call("consensus_propose", event=event())
    assert len(warm(four[0], "consensus_gossip", peer_id=asker)["events_sent"]) == 1
    work = f"office.settings['arbiters'] = {four[0].settings['arbiters']!r}\n"
    elsewhere(four[0], f"{work}office.call('consensus_propose', event=event(2))")
    assert at_once(four[0], "consensus_gossip", peer_id=asker) is None
    assert len(four[0].call("consensus_gossip", peer_id=asker)["events_sent"]) == 2


def test_gossip_that_brings_messages_is_never_answered_from_memory(four: list[Office]) -> None:
    asker = four[1].node().signer.sender.hex()
    told = warm(four[0], "consensus_gossip", peer_id=asker)
    assert at_once(four[0], "consensus_gossip", peer_id=asker, events=[]) == told
    assert at_once(four[0], "consensus_gossip", peer_id=asker, events=["x"]) is None
    assert at_once(four[0], "consensus_gossip", peer_id=asker, after=1, store=told["store"]) is None


def _remove(office: Office) -> None:
    (office.home / "secrets" / "arbiter.key").unlink()


def _move(office: Office) -> None:
    office.keys.bind("arbiter.key", "another-store", replace=True)


@pytest.mark.parametrize(("change", "code"), [(_remove, "KEY_NOT_FOUND"), (_move, "KEY_BOUND_ELSEWHERE")])
def test_gossip_is_refused_at_once_when_the_key_is_gone_or_votes_elsewhere(
    office: Office, change: Callable[[Office], None], code: str
) -> None:
    office.call("consensus_propose", event=event())
    warm(office, "consensus_gossip", peer_id="p")
    change(office)
    assert at_once(office, "consensus_gossip", peer_id="p") is None
    assert office.refusal("consensus_gossip", peer_id="p") == code


def _logical(answer: dict[str, Any]) -> int:
    return decode_vote(unpack(answer["envelope_b64"])).logical


def test_a_strangers_signature_has_the_clock_that_another_process_moved(office: Office) -> None:
    office.call("consensus_propose", event=event())
    args = {"round_id": "1", "privKey": STRANGER, "vote": ballot()}
    first, second = (office.call("consensus_vote", **args) for _ in range(2))
    assert office.known.rounds.get(1) is not None
    assert first == second
    elsewhere(office, "office.call('consensus_propose', event=event(2))")
    assert office.known.rounds.get(1) is None
    assert _logical(office.call("consensus_vote", **args)) > _logical(first)


def test_our_own_key_is_never_taken_for_a_strangers(office: Office) -> None:
    office.call("consensus_propose", event=event())
    args = {"round_id": "1", "vote": ballot()}
    for _ in range(2):
        office.call("consensus_vote", privKey=STRANGER, **args)
    own = office.keys.seed("arbiter.key", use="voting").hex()
    assert office.call("consensus_vote", privKey=own, **args)["counted"] is True
    with pytest.raises(ToolError, match="has voted"):
        office.call("consensus_vote", privKey=own, **args)


def test_what_is_remembered_is_bounded(office: Office) -> None:
    office.call("consensus_propose", event=event())
    for number in range(MAX_ANSWERS + 3):
        office.call("consensus_gossip", peer_id=f"p{number}")
    assert len(office.known.pages._kept) == MAX_ANSWERS


def test_a_round_that_is_not_there_is_looked_for_again(office: Office) -> None:
    assert office.refusal("consensus_finality", round_id="1") == "ROUND_NOT_FOUND"
    elsewhere(office, "office.call('consensus_propose', event=event())")
    assert office.call("consensus_finality", round_id="1")["support"] == 1
