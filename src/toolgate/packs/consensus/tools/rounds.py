"""Rounds: open one, vote in it, ask how final it is, and exchange messages about all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.kit.ed25519 import SigningKey
from toolgate.model.tool import Result, Tool
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.arbiter.guard import VoteSigner
from toolgate.packs.consensus.arbiter.known import MAX_ANSWER_CHARACTERS, ArbiterMemory, RoundKnown
from toolgate.packs.consensus.arbiter.node import Node, key_name, network_for_reading, open_node
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

    from toolgate.model.clock import Clock
    from toolgate.model.powers import Unchanged
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
    round_id = _round_id(args)
    said = _statement(args["vote"], args["vote"]["vote_type"])
    signer = _signer_of(args["privKey"]) if "privKey" in args else None
    known: ArbiterMemory = ctx.memory
    seen = known.rounds.get(round_id) if signer is not None else None
    if signer is not None and seen is not None and _is_stranger(seen, signer):
        return _voted(ctx, signer, _signed_for(signer, seen, round_id, said), None)
    marks = _marks(ctx)
    node = _node(ctx)
    if signer is not None and _is_stranger(RoundKnown(node.network, node.signer.sender, 0), signer):
        seen = await _round_of(node, round_id)
        known.rounds.put(round_id, seen, *marks)
        return _voted(ctx, signer, _signed_for(signer, seen, round_id, said), None)
    voter = signer or node.signer
    stood = await node.run(
        lambda connection: engine.cast(connection, node.network, voter, round_id, said, node.recorded())
    )
    assert stood.vote is not None
    return _voted(ctx, voter, stood.vote, stood.round.level.name)


def _voted(ctx: Context, signer: VoteSigner, vote: Vote, level: str | None) -> Result:
    """`level`: of the round; None: the vote does not count in it."""
    data = {
        "vote_signed": True,
        "sig_b64": pack(vote.signature),
        "counted": level is not None,
        "sender_id": signer.sender.hex(),
        "envelope_b64": pack(vote.to_bytes()),
    }
    return answered(ctx, data | ({"level": level} if level else {}))


def _is_stranger(seen: RoundKnown, signer: VoteSigner) -> bool:
    """A stranger's key may sign, and the signature counts for nothing (ADR-0013)."""
    return signer.sender not in seen.network.keys and signer.sender != seen.own


async def _round_of(node: Node, round_id: int) -> RoundKnown:
    """Raises: ToolError ROUND_NOT_FOUND."""

    def read(connection: Connection) -> int:
        engine.read_round(connection, node.network, round_id)
        return read_replica(connection, node.network).clock

    return RoundKnown(node.network, node.signer.sender, await node.store.run(read))


def _signed_for(signer: VoteSigner, seen: RoundKnown, round_id: int, said: Statement) -> Vote:
    vote = Vote(seen.network.id, round_id, said, signer.sender, merged_clock(seen.clock, seen.clock))
    return vote._replace(signature=signer.sign(vote.signed_bytes()))


async def run_finality(ctx: Context, args: dict[str, Any]) -> Result:
    round_id = _round_id(args)
    mark = ctx.stores.get(STORE).mark()

    def read(connection: Connection) -> tuple[Network, engine.RoundStanding, bytes | None]:
        network = network_for_reading(connection, ctx.settings)
        if network is None:
            raise _no_round(round_id)
        stood = engine.read_round(connection, network, round_id)
        return network, stood, engine.last_evidence(connection, network, round_id)

    known: ArbiterMemory = ctx.memory
    network, stood, evidence = await known.reading.read(round_id, ctx.stores.get(STORE).run, read)
    data = {
        "round_id": args["round_id"],
        "level": stood.round.level.name,
        **_standing(stood),
        "outcome": stood.round.outcome,
        "silent": [sender.hex() for sender in stood.round.silent()],
        "network_id": network.id.hex(),
        "equivocators": [proof.first.sender.hex() for proof in stood.round.equivocations()],
    }
    told = answered(ctx, data | ({"evidence": evidence.hex()} if evidence else {}))
    if evidence is None or 2 * len(evidence) <= MAX_ANSWER_CHARACTERS:
        known.finality.put(args["round_id"], told.data, mark)
    return told


def finality_again(_clock: Clock, known: ArbiterMemory, args: dict[str, Any]) -> Result | None:
    data = known.finality.get(args["round_id"])
    return None if data is None else Result(data=data)


async def run_gossip(ctx: Context, args: dict[str, Any]) -> Result:
    request = _request_of(args)
    known: ArbiterMemory = ctx.memory
    marks = _marks(ctx)
    told = answered(ctx, await answer(_node(ctx), request, known.quotas, ctx.caller.key_id))
    if not request.events and sum(map(len, told.data["events_sent"])) <= MAX_ANSWER_CHARACTERS:
        known.pages.put((request.peer_id, request.after, request.store), told.data, *marks)
    return told


def gossip_again(_clock: Clock, known: ArbiterMemory, args: dict[str, Any]) -> Result | None:
    """To who brings nothing and asks what it asked before: nothing is kept and nothing is signed."""
    request = _request_of(args)
    data = None if request.events else known.pages.get((request.peer_id, request.after, request.store))
    return None if data is None else Result(data=data)


def _request_of(args: Mapping[str, Any]) -> GossipRequest:
    return GossipRequest(args["peer_id"], args.get("events", ()), args.get("after", 0), args.get("store", ""))


def _marks(ctx: Context) -> tuple[Unchanged | None, Unchanged | None]:
    """Of the store and of our voting key: what is remembered with them is as good as read."""
    assert ctx.keys is not None  # effect crypto
    return ctx.stores.get(STORE).mark(), ctx.keys.mark(key_name(ctx.settings, "voting_key", ctx.keys))


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
    at_once=finality_again,
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
    at_once=gossip_again,
    error_codes=_SIGNING_FAULTS,
)
