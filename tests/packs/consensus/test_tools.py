"""Document 004's eighteen tests, restated, and what its tools owe to more than one arbiter."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from tests.packs.consensus.nodes import TOOLS, InputRefused, Office, ballot, event
from toolgate.kit import ed25519
from toolgate.packs.consensus import PACK
from toolgate.packs.consensus.arbiter.store import SqlRounds
from toolgate.packs.consensus.domain.evidence import decode as decode_evidence
from toolgate.packs.consensus.domain.evidence import verify
from toolgate.packs.consensus.domain.messages import decode
from toolgate.packs.faults import faults

# consensus_propose: 3


@pytest.mark.req("004-P1")
def test_proposal_of_the_only_arbiter_is_at_quorum_at_once(office: Office) -> None:
    answer = office.call("consensus_propose", event=event())
    assert (answer["status"], answer["support"], answer["quorum"], answer["arbiters"]) == ("QUORUM", 1, 1, 1)


@pytest.mark.req("004-P2")
def test_proposal_allocates_a_fresh_round_id_as_decimal_text(office: Office) -> None:
    assert [office.call("consensus_propose", event=event())["round_id"] for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.req("004-P3")
def test_proposing_another_event_allocates_another_round_id(office: Office) -> None:
    first, second = (office.call("consensus_propose", event=event(number)) for number in (1, 2))
    assert first["round_id"] != second["round_id"]


# consensus_vote: 5


@pytest.mark.req("004-V1")
def test_vote_is_signed_and_the_signature_is_base64(office: Office) -> None:
    office.call("consensus_propose", event=event())
    answer = office.call("consensus_vote", round_id="1", vote=ballot())
    assert answer["vote_signed"] is True
    assert answer["counted"] is True
    envelope = base64.b64decode(answer["envelope_b64"])
    signature = base64.b64decode(answer["sig_b64"])
    assert envelope[-64:] == signature
    assert ed25519.verify(bytes.fromhex(office.public_key), envelope[:-64], signature)


@pytest.mark.req("004-V2")
def test_second_explicit_vote_on_the_same_tuple_is_already_voted(office: Office) -> None:
    office.call("consensus_propose", event=event())
    office.call("consensus_vote", round_id="1", vote=ballot())
    assert office.refusal("consensus_vote", round_id="1", vote=ballot()) == "ALREADY_VOTED"
    assert office.refusal("consensus_vote", round_id="1", vote=ballot(kind="REJECT")) == "ALREADY_VOTED"


@pytest.mark.req("004-V3")
@pytest.mark.parametrize("round_id", ["2", "0", "9223372036854775807", "9999999999999999999"])
def test_vote_in_an_unknown_round_is_not_found(office: Office, round_id: str) -> None:
    office.call("consensus_propose", event=event())
    assert office.refusal("consensus_vote", round_id=round_id, vote=ballot()) == "ROUND_NOT_FOUND"


@pytest.mark.req("004-V4")
@pytest.mark.parametrize("bad", ["", "ab", "AB" * 32, "zz" * 32, "0x" + "ab" * 31, "ab" * 33, "ab" * 32 + "\n"])
def test_hash_that_is_not_64_lowercase_hex_digits_is_refused_by_the_schema(office: Office, bad: str) -> None:
    office.call("consensus_propose", event=event())
    for field in ("merkle_root_hex", "rule_version_hash_hex"):
        with pytest.raises(InputRefused):
            office.call("consensus_vote", round_id="1", vote={**ballot(), field: bad})
        with pytest.raises(InputRefused):
            office.call("consensus_propose", event={**event(), field: bad})


@pytest.mark.req("004-V5")
def test_callers_own_key_signs_and_counts_only_when_it_is_an_arbiters(office: Office) -> None:
    office.call("consensus_propose", event=event())
    stranger = office.call("consensus_vote", round_id="1", vote=ballot(), privKey="42" * 32)
    assert (stranger["vote_signed"], stranger["counted"]) == (True, False)
    ours = office.keys.seed("arbiter.key", use="voting").hex()
    member = office.call("consensus_vote", round_id="1", vote=ballot(), privKey=ours)
    assert (member["vote_signed"], member["counted"], member["level"]) == (True, True, "QUORUM")
    for bad in ("42" * 31, "42" * 33, "AB" * 32, ""):
        with pytest.raises(InputRefused):
            office.call("consensus_vote", round_id="1", vote=ballot(), privKey=bad)


# consensus_finality: 3


@pytest.mark.req("004-F1")
def test_finality_after_a_proposal_is_quorum(office: Office) -> None:
    office.call("consensus_propose", event=event())
    answer = office.call("consensus_finality", round_id="1")
    assert (answer["round_id"], answer["level"], answer["outcome"]) == ("1", "QUORUM", "ACCEPTED")


@pytest.mark.req("004-F2")
def test_finality_of_an_unknown_round_is_not_found(office: Office) -> None:
    assert office.refusal("consensus_finality", round_id="1") == "ROUND_NOT_FOUND"
    office.call("consensus_propose", event=event())
    assert office.refusal("consensus_finality", round_id="2") == "ROUND_NOT_FOUND"
    for bad in ("", "-1", "01", "1.0", "one", "1\n"):
        with pytest.raises(InputRefused):
            office.call("consensus_finality", round_id=bad)


@pytest.mark.req("004-F3")
def test_finality_gives_evidence_in_lowercase_hex_that_verifies_offline(office: Office) -> None:
    office.call("consensus_propose", event=event())
    evidence = office.call("consensus_finality", round_id="1")["evidence"]
    assert evidence
    assert evidence == evidence.lower()
    assert not evidence.startswith("0x")
    verify(office.node().network, decode_evidence(bytes.fromhex(evidence)))


# consensus_gossip: 2


@pytest.mark.req("004-G1", "004-D2")
def test_gossip_of_the_only_arbiter_is_empty(office: Office) -> None:
    office.call("consensus_propose", event=event())
    for peer in ("peer-1", office.node().signer.sender.hex()):
        answer = office.call("consensus_gossip", peer_id=peer, events=[])
        assert (answer["events_sent"], answer["events_received"]) == ([], [])


@pytest.mark.req("004-G2")
def test_gossip_works_without_events(office: Office) -> None:
    answer = office.call("consensus_gossip", peer_id="peer-1")
    assert (answer["events_sent"], answer["events_received"], answer["rejected"]) == ([], [], [])


# vrf_eval: 3

VRF = {"seed_hex": "aa" * 32, "input_hex": "bb" * 32, "priv_key_hex": "01" * 32}


@pytest.mark.req("004-R1")
def test_vrf_is_deterministic_and_its_proof_verifies(office: Office) -> None:
    first, second = office.call("vrf_eval", **VRF), office.call("vrf_eval", **VRF)
    assert first == second
    question = {"seed_hex": VRF["seed_hex"], "input_hex": VRF["input_hex"]}
    proof = {"proof_hex": first["proof_hex"], "public_key_hex": first["public_key_hex"]}
    assert office.call("vrf_verify", **question, **proof) == {"valid": True, "output_hex": first["output_hex"]}
    assert office.call("vrf_verify", **{**question, "input_hex": ""}, **proof) == {"valid": False}


@pytest.mark.req("004-R2")
@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_vrf_key_of_another_length_is_an_invalid_key(office: Office, length: int) -> None:
    assert office.refusal("vrf_eval", **{**VRF, "priv_key_hex": "01" * length}) == "INVALID_KEY"


@pytest.mark.req("004-R3")
@pytest.mark.parametrize("bad", ["a", "zz", "AA", "0xaa", "aa\n", " aa"])
def test_vrf_refuses_what_is_not_even_length_lowercase_hex(office: Office, bad: str) -> None:
    for field in VRF:
        with pytest.raises(InputRefused):
            office.call("vrf_eval", **{**VRF, field: bad})


# registration and mode: 2


@pytest.mark.req("004-T1")
def test_all_tools_are_offered_and_pass_the_door() -> None:
    assert list(TOOLS) == [
        "consensus_propose",
        "consensus_vote",
        "consensus_finality",
        "consensus_gossip",
        "vrf_eval",
        "vrf_verify",
    ]
    assert list(faults(PACK)) == []


@pytest.mark.req("004-M1")
def test_all_tools_are_there_whatever_the_settings_say(office: Office) -> None:
    office.settings |= {"ephemeral": True, "dispute_window": 9}
    answers = [
        office.call("consensus_propose", event=event()),
        office.call("consensus_vote", round_id="1", vote=ballot()),
        office.call("consensus_finality", round_id="1"),
        office.call("consensus_gossip", peer_id="p"),
        office.call("vrf_eval", **VRF),
        office.call("vrf_verify", seed_hex="", input_hex="", proof_hex="00" * 80, public_key_hex="00" * 32),
    ]
    assert all(answer["ephemeral"] is True for answer in answers), "development keys show in every answer"


# Beyond the document's list


def test_first_explicit_vote_adopts_the_proposals_own(office: Office) -> None:
    office.call("consensus_propose", event=event())
    first = office.call("consensus_finality", round_id="1")["evidence"]
    answer = office.call("consensus_vote", round_id="1", vote=ballot())
    assert base64.b64decode(answer["sig_b64"]).hex() in first


def test_vote_for_another_tuple_is_refused_before_signing(office: Office) -> None:
    office.call("consensus_propose", event=event(1))
    before = office.call("consensus_finality", round_id="1")
    assert office.refusal("consensus_vote", round_id="1", vote=ballot(2)) == "EQUIVOCATION_REFUSED"
    assert office.refusal("consensus_vote", round_id="1", vote=ballot(2, "ABSTAIN")) == "EQUIVOCATION_REFUSED"
    assert office.call("consensus_finality", round_id="1") == before


def test_published_vrf_example_passes_through_the_tool(office: Office) -> None:
    """RFC 9381 example 16: with an empty seed, alpha is the input itself."""
    answer = office.call(
        "vrf_eval",
        seed_hex="",
        input_hex="",
        priv_key_hex="9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    )
    assert answer["output_hex"].startswith("90cf1df3b703cce59e2a35b925d411164068269d7b2d29f3301c03dd757876ff")
    assert answer["proof_hex"].startswith("8657106690b5526245a92b003bb079ccd1a92130477671f6fc01ad16f26f723f")


def test_input_that_looks_seeded_is_refused(office: Office) -> None:
    tag = b"toolgate/consensus/vrf-alpha/1\x00".hex()
    assert office.refusal("vrf_eval", **{**VRF, "seed_hex": "", "input_hex": tag}) == "INVALID_INPUT"


def test_vrf_without_a_key_uses_the_servers_and_never_the_voting_key(office: Office) -> None:
    answer = office.call("vrf_eval", seed_hex="", input_hex="00")
    assert answer["public_key_hex"] == office.keys.public_key("vrf.key").hex()
    voting = office.keys.seed("arbiter.key", use="voting").hex()
    assert office.refusal("vrf_eval", seed_hex="", input_hex="", priv_key_hex=voting) == "INVALID_KEY"
    office.settings["vrf_key"] = "arbiter.key"
    assert office.refusal("vrf_eval", seed_hex="", input_hex="") == "INVALID_KEY"
    assert office.refusal("consensus_propose", event=event()) == "INVALID_KEY"


def test_missing_key_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    bare = Office(tmp_path / "bare", make_keys=False)
    assert bare.refusal("consensus_propose", event=event()) == "KEY_NOT_FOUND"
    assert bare.refusal("vrf_eval", seed_hex="", input_hex="") == "KEY_NOT_FOUND"
    bare.close()


def test_four_arbiters_see_the_real_level_after_a_proposal(four: list[Office]) -> None:
    answer = four[0].call("consensus_propose", event=event())
    assert (answer["level"], answer["support"], answer["quorum"]) == ("SOFT", 1, 3)


@pytest.mark.req("004-P4")
def test_d11_status_of_a_proposal_is_pending_or_quorum_and_the_level_is_beside_it(
    office: Office, four: list[Office]
) -> None:
    """Document 004 types it so: a typed client must not meet a third word."""
    alone, one_of_four = (each.call("consensus_propose", event=event()) for each in (office, four[0]))
    assert (alone["status"], alone["level"]) == ("QUORUM", "QUORUM")
    assert (one_of_four["status"], one_of_four["level"]) == ("PENDING", "SOFT")
    assert TOOLS["consensus_propose"].output_schema["properties"]["status"]["enum"] == ["PENDING", "QUORUM"]


def test_a6_gossip_says_that_a_peer_is_unknown_and_where_its_id_is_found(office: Office, four: list[Office]) -> None:
    four[0].call("consensus_propose", event=event())
    for stranger in (four[1].public_key, four[0].node().signer.sender.hex(), "peer-2"):
        answer = four[0].call("consensus_gossip", peer_id=stranger)
        assert (answer["events_sent"], answer["peer_known"]) == ([], False)
        assert "sender_id" in answer["note"]
    arbiter = four[0].call("consensus_gossip", peer_id=four[1].node().signer.sender.hex())
    assert (len(arbiter["events_sent"]), arbiter["peer_known"], "note" in arbiter) == (1, True, False)
    assert office.call("consensus_gossip", peer_id="anybody")["peer_known"] is False


def test_d17_round_that_no_vote_still_out_can_decide_is_split_and_a_new_one_is_open(four: list[Office]) -> None:
    """Nobody waits for a leader: whoever wants the tuple decided proposes it again."""
    first, other, third, _ = four
    round_id = first.call("consensus_propose", event=event())["round_id"]
    look = first.call("consensus_finality", round_id=round_id)
    assert (look["outcome"], len(look["silent"])) == ("OPEN", 3)
    for office, kind in ((other, "REJECT"), (third, "ABSTAIN")):
        _tell(first, office)
        office.call("consensus_vote", round_id=round_id, vote=ballot(kind=kind))
        _tell(office, first)
    look = first.call("consensus_finality", round_id=round_id)
    assert (look["outcome"], look["level"]) == ("SPLIT", "SOFT")
    assert look["silent"] == [four[3].node().signer.sender.hex()]
    assert _open_rounds(first) == {}, "it no longer fills its opener's share"
    again = first.call("consensus_propose", event=event())
    assert again["round_id"] != round_id
    assert first.call("consensus_finality", round_id=again["round_id"])["outcome"] == "OPEN"


def _open_rounds(office: Office) -> dict[bytes, int]:
    network = office.node().network
    return asyncio.run(office.node().store.run(lambda connection: SqlRounds(connection, network).open_counts(epoch=0)))


def _tell(teller: Office, hearer: Office) -> None:
    """One exchange: the hearer gets all that the teller knows."""
    sent = teller.call("consensus_gossip", peer_id=hearer.node().signer.sender.hex())["events_sent"]
    assert hearer.call("consensus_gossip", peer_id=teller.node().signer.sender.hex(), events=sent)["rejected"] == []


def test_key_outside_the_arbiter_set_can_look_on_but_not_vote(four: list[Office]) -> None:
    onlooker = four[3]
    arbiters = [arbiter for arbiter in onlooker.settings["arbiters"] if arbiter["public_key"] != onlooker.public_key]
    for office in four:
        office.settings["arbiters"] = arbiters
    round_id = four[0].call("consensus_propose", event=event())["round_id"]
    assert onlooker.refusal("consensus_propose", event=event()) == "NOT_ARBITER"
    sent = four[0].call("consensus_gossip", peer_id=four[1].node().signer.sender.hex())["events_sent"]
    assert onlooker.call("consensus_gossip", peer_id="anybody", events=sent)["rejected"] == []
    assert onlooker.refusal("consensus_vote", round_id=round_id, vote=ballot()) == "NOT_ARBITER"
    assert onlooker.call("consensus_finality", round_id=round_id)["level"] == "SOFT"


def test_another_arbiter_set_does_not_see_the_rounds_of_this_one(office: Office) -> None:
    office.call("consensus_propose", event=event())
    office.settings["dispute_window"] = 3
    assert office.refusal("consensus_vote", round_id="1", vote=ballot()) == "ROUND_NOT_FOUND"
    assert office.call("consensus_propose", event=event(2))["round_id"] == "1"


def test_vote_of_a_caller_names_network_round_and_sender(office: Office) -> None:
    answer = office.call("consensus_propose", event=event())
    vote = decode(base64.b64decode(office.call("consensus_vote", round_id="1", vote=ballot())["envelope_b64"]))
    assert (vote.network.hex(), vote.round, vote.sender.hex()) == (answer["network_id"], 1, answer["sender_id"])
