"""Rounds: open one, vote in it, ask how final it is, and exchange messages about all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.kit.ed25519 import SigningKey
from toolgate.model.tool import Result, Tool
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.arbiter.guard import VoteSigner
from toolgate.packs.consensus.arbiter.node import Node, network_for_reading, open_node
from toolgate.packs.consensus.arbiter.store import pack, read_replica
from toolgate.packs.consensus.domain.arbiters import MAX_ROUND, Network, sender_id
from toolgate.packs.consensus.domain.messages import KINDS, Statement, Vote
from toolgate.packs.consensus.domain.replica import merged_clock
from toolgate.packs.consensus.gossip.exchange import GossipRequest, answer
from toolgate.packs.consensus.tables import STORE
from toolgate.packs.consensus.tools import schemas
from toolgate.packs.consensus.tools.answers import KEY_FAULTS, answered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Connection

    from toolgate.model.tool import Context


async def run_propose(ctx: Context, args: dict[str, Any]) -> Result:
    node = _node(ctx)
    said = _statement(args["event"], "ACCEPT")
    stood = await node.run(
        lambda connection: engine.propose(connection, node.network, node.signer, said, node.recorded())
    )
    return answered(
        ctx,
        {
            "round_id": str(stood.round.id),
            "status": "PENDING" if stood.round.accepted() is None else "QUORUM",
            "level": stood.round.level.name,
            **_standing(stood),
            "network_id": node.network.id.hex(),
            "sender_id": node.signer.sender.hex(),
        },
    )


async def run_vote(ctx: Context, args: dict[str, Any]) -> Result:
    node = _node(ctx)
    round_id = _round_id(args)
    said = _statement(args["vote"], args["vote"]["vote_type"])
    signer = _signer_of(args["privKey"]) if "privKey" in args else node.signer
    if signer.sender not in node.network.keys and signer.sender != node.signer.sender:
        vote, counted = await _uncounted(node, signer, round_id, said), False
        level = None
    else:
        stood = await node.run(
            lambda connection: engine.cast(connection, node.network, signer, round_id, said, node.recorded())
        )
        assert stood.vote is not None
        vote, counted, level = stood.vote, True, stood.round.level.name
    data = {
        "vote_signed": True,
        "sig_b64": pack(vote.signature),
        "counted": counted,
        "sender_id": signer.sender.hex(),
        "envelope_b64": pack(vote.to_bytes()),
    }
    return answered(ctx, data | ({"level": level} if level else {}))


async def _uncounted(node: Node, signer: VoteSigner, round_id: int, said: Statement) -> Vote:
    """A stranger's key may sign, and the signature counts for nothing (ADR-0013)."""

    def sign(connection: Connection) -> Vote:
        engine.read_round(connection, node.network, round_id)
        clock = read_replica(connection, node.network).clock
        vote = Vote(node.network.id, round_id, said, signer.sender, merged_clock(clock, clock))
        return vote._replace(signature=signer.sign(vote.signed_bytes()))

    return await node.store.run(sign)


async def run_finality(ctx: Context, args: dict[str, Any]) -> Result:
    round_id = _round_id(args)

    def read(connection: Connection) -> tuple[Network, engine.RoundStanding, bytes | None]:
        network = network_for_reading(connection, ctx.settings)
        if network is None:
            raise _no_round(round_id)
        stood = engine.read_round(connection, network, round_id)
        return network, stood, engine.last_evidence(connection, network, round_id)

    network, stood, evidence = await ctx.stores.get(STORE).run(read)
    data = {
        "round_id": args["round_id"],
        "level": stood.round.level.name,
        **_standing(stood),
        "outcome": stood.round.outcome,
        "silent": [sender.hex() for sender in stood.round.silent()],
        "network_id": network.id.hex(),
        "equivocators": [proof.first.sender.hex() for proof in stood.round.equivocations()],
    }
    return answered(ctx, data | ({"evidence": evidence.hex()} if evidence else {}))


async def run_gossip(ctx: Context, args: dict[str, Any]) -> Result:
    request = GossipRequest(args["peer_id"], args.get("events", ()), args.get("after", 0), args.get("store", ""))
    return answered(ctx, await answer(_node(ctx), request, ctx.memory, ctx.caller.key_id))


def _node(ctx: Context) -> Node:
    assert ctx.keys is not None  # effect crypto
    return open_node(ctx.settings, ctx.keys, ctx.stores, ctx.clock)


def _round_id(args: Mapping[str, Any]) -> int:
    number = int(args["round_id"])
    if not 1 <= number <= MAX_ROUND:
        raise _no_round(number)
    return number


def _no_round(number: int) -> ToolError:
    return ToolError("ROUND_NOT_FOUND", f"no vote of round {number} is known here", missing=True)


def _statement(event: Mapping[str, str], kind: str) -> Statement:
    return Statement(
        bytes.fromhex(event["merkle_root_hex"]), bytes.fromhex(event["rule_version_hash_hex"]), KINDS[kind]
    )


def _signer_of(seed_hex: str) -> VoteSigner:
    key = SigningKey(bytes.fromhex(seed_hex))
    return VoteSigner(key.public_key, sender_id(key.public_key), key.sign)


def _standing(stood: engine.RoundStanding) -> dict[str, Any]:
    network = stood.round.network
    return {
        "epoch": stood.epoch,
        "arbiters": network.size,
        "quorum": network.quorum,
        "support": stood.round.support(),
    }


_SIGNING_FAULTS: Final = (*KEY_FAULTS, "KEY_BOUND_ELSEWHERE")

PROPOSE: Final = Tool(
    name="consensus_propose",
    id="consensus.propose",
    summary="Open a round for a Merkle root and a rule hash; this server's arbiter votes ACCEPT at once.",
    input_schema=schemas.PROPOSE_IN,
    output_schema=schemas.PROPOSE_OUT,
    effect="crypto",
    destructive=False,
    deadline_s=10,
    run=run_propose,
    error_codes=(
        "ALREADY_VOTED",
        "EQUIVOCATION_REFUSED",
        "NOT_ARBITER",
        "TOO_MANY_OPEN_ROUNDS",
        *_SIGNING_FAULTS,
    ),
)

VOTE: Final = Tool(
    name="consensus_vote",
    id="consensus.vote",
    summary="Sign and cast one vote in a round. An arbiter votes once.",
    input_schema=schemas.VOTE_IN,
    output_schema=schemas.VOTE_OUT,
    effect="crypto",
    destructive=False,
    deadline_s=10,
    run=run_vote,
    error_codes=(
        "ROUND_NOT_FOUND",
        "ALREADY_VOTED",
        "EQUIVOCATION_REFUSED",
        "NOT_ARBITER",
        "STALE_EPOCH",
        *_SIGNING_FAULTS,
    ),
)

FINALITY: Final = Tool(
    name="consensus_finality",
    id="consensus.finality",
    summary="How final a round is, with evidence that anybody can check offline (toolgate consensus verify).",
    input_schema=schemas.FINALITY_IN,
    output_schema=schemas.FINALITY_OUT,
    effect="read",
    deadline_s=10,
    run=run_finality,
    error_codes=("ROUND_NOT_FOUND",),
)

GOSSIP: Final = Tool(
    name="consensus_gossip",
    id="consensus.gossip",
    summary="Exchange signed messages with another arbiter: give it what it lacks, take what is new. Empty when there"
    " is no other arbiter.",
    input_schema=schemas.GOSSIP_IN,
    output_schema=schemas.GOSSIP_OUT,
    effect="crypto",
    destructive=False,
    deadline_s=10,
    run=run_gossip,
    error_codes=_SIGNING_FAULTS,
)
