"""The tools of document 004, with its inputs and outputs, and what more than one arbiter needs beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.kit.ed25519 import SigningKey
from toolgate.model.tool import Result, Tool
from toolgate.packs.consensus import engine, schemas
from toolgate.packs.consensus.domain import vrf
from toolgate.packs.consensus.domain.arbiters import MAX_ROUND, Network, sender_id
from toolgate.packs.consensus.domain.messages import KINDS, Statement, Vote
from toolgate.packs.consensus.domain.replica import merged_clock
from toolgate.packs.consensus.gossip import Quotas, Request, answer
from toolgate.packs.consensus.guard import Signer
from toolgate.packs.consensus.node import Node, key_name, network_for_reading, open_node, public_key_of
from toolgate.packs.consensus.store import glance, pack
from toolgate.packs.consensus.tables import STORE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Connection

    from toolgate.model.powers import SigningKeys
    from toolgate.model.tool import Context

_quotas: Final = Quotas()
"""What each caller's gossip has cost this process lately."""


async def _propose(ctx: Context, args: dict[str, Any]) -> Result:
    node = _node(ctx)
    said = _statement(args["event"], "ACCEPT")
    stood = await node.run(
        lambda connection: engine.propose(connection, node.network, node.signer, said, node.recorded())
    )
    return _answer(
        ctx,
        {
            "round_id": str(stood.round.id),
            "status": stood.round.level.name,
            **_standing(stood),
            "network_id": node.network.id.hex(),
            "sender_id": node.signer.sender.hex(),
        },
    )


async def _vote(ctx: Context, args: dict[str, Any]) -> Result:
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
    return _answer(ctx, data | ({"level": level} if level else {}))


async def _uncounted(node: Node, signer: Signer, round_id: int, said: Statement) -> Vote:
    """A stranger's key may sign, and the signature counts for nothing (decision 77)."""

    def sign(connection: Connection) -> Vote:
        engine.look(connection, node.network, round_id)
        clock = glance(connection, node.network).clock
        vote = Vote(node.network.id, round_id, said, signer.sender, merged_clock(clock, clock))
        return vote._replace(signature=signer.sign(vote.signed_bytes()))

    return await node.store.run(sign)


async def _finality(ctx: Context, args: dict[str, Any]) -> Result:
    round_id = _round_id(args)

    def look(connection: Connection) -> tuple[Network, engine.Standing, bytes | None]:
        network = network_for_reading(connection, ctx.settings)
        if network is None:
            raise _no_round(round_id)
        stood = engine.look(connection, network, round_id)
        return network, stood, engine.last_evidence(connection, network, round_id)

    network, stood, evidence = await ctx.stores.get(STORE).run(look)
    data = {
        "round_id": args["round_id"],
        "level": stood.round.level.name,
        **_standing(stood),
        "outcome": stood.round.outcome,
        "network_id": network.id.hex(),
        "equivocators": [proof.first.sender.hex() for proof in stood.round.equivocations()],
    }
    return _answer(ctx, data | ({"evidence": evidence.hex()} if evidence else {}))


async def _gossip(ctx: Context, args: dict[str, Any]) -> Result:
    request = Request(args["peer_id"], args.get("events", ()), args.get("after", 0), args.get("store", ""))
    return _answer(ctx, await answer(_node(ctx), request, _quotas, ctx.caller.key_id))


def _vrf_eval(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.keys is not None  # effect crypto
    seed = bytes.fromhex(args["priv_key_hex"]) if "priv_key_hex" in args else _vrf_seed(ctx.settings, ctx.keys)
    if len(seed) != vrf.SEED_BYTES:
        raise ToolError("INVALID_KEY", f"priv_key_hex holds {len(seed)} bytes; an Ed25519 seed has {vrf.SEED_BYTES}")
    if _is_voting_key(ctx.settings, ctx.keys, vrf.public_key_of(seed)):
        raise ToolError("INVALID_KEY", "this is the voting key; a VRF key must be another one")
    made = vrf.prove(seed, _alpha(args))
    return _answer(
        ctx,
        {
            "output_hex": made.output.hex(),
            "proof_hex": made.proof.hex(),
            "public_key_hex": made.public_key.hex(),
        },
    )


def _vrf_verify(ctx: Context, args: dict[str, Any]) -> Result:
    output = vrf.verify(bytes.fromhex(args["public_key_hex"]), _alpha(args), bytes.fromhex(args["proof_hex"]))
    return _answer(ctx, {"valid": output is not None} | ({"output_hex": output.hex()} if output else {}))


def _alpha(args: Mapping[str, Any]) -> bytes:
    try:
        return vrf.alpha_of(bytes.fromhex(args["seed_hex"]), bytes.fromhex(args["input_hex"]))
    except vrf.VrfFault as fault:
        raise ToolError("INVALID_INPUT", str(fault)) from None


def _vrf_seed(settings: Mapping[str, Any], keys: SigningKeys) -> bytes:
    name = key_name(settings, "vrf_key", keys)
    public_key_of(keys, name)
    return keys.seed(name)


def _is_voting_key(settings: Mapping[str, Any], keys: SigningKeys, public_key: bytes) -> bool:
    if public_key.hex() in {arbiter["public_key"] for arbiter in settings["arbiters"]}:
        return True
    try:
        return keys.public_key(key_name(settings, "voting_key", keys)) == public_key
    except ToolError:  # no voting key here: then this is not it
        return False


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


def _signer_of(seed_hex: str) -> Signer:
    key = SigningKey(bytes.fromhex(seed_hex))
    return Signer(key.public_key, sender_id(key.public_key), key.sign)


def _standing(stood: engine.Standing) -> dict[str, Any]:
    network = stood.round.network
    return {
        "epoch": stood.epoch,
        "arbiters": network.size,
        "quorum": network.quorum,
        "support": stood.round.support(),
    }


def _answer(ctx: Context, data: dict[str, Any]) -> Result:
    return Result(data=data | ({"ephemeral": True} if ctx.settings["ephemeral"] else {}))


_SIGNING_FAULTS: Final = ("KEY_NOT_FOUND", "INVALID_KEY_FORMAT", "INVALID_KEY", "KEY_BOUND_ELSEWHERE", "IO_ERROR")

TOOLS: Final = (
    Tool(
        name="consensus_propose",
        id="consensus.propose",
        summary="Open a round for a Merkle root and a rule hash. This server's arbiter votes ACCEPT at once; status says"
        " how far the round has come (QUORUM when it is the only arbiter).",
        input_schema=schemas.PROPOSE_IN,
        output_schema=schemas.PROPOSE_OUT,
        effect="crypto",
        deadline_s=10,
        run=_propose,
        error_codes=("NOT_ARBITER", "TOO_MANY_OPEN_ROUNDS", *_SIGNING_FAULTS),
    ),
    Tool(
        name="consensus_vote",
        id="consensus.vote",
        summary="Sign and cast one vote in a round. An arbiter votes once: a repeated vote is ALREADY_VOTED, a vote for"
        " another tuple is refused before anything is signed.",
        input_schema=schemas.VOTE_IN,
        output_schema=schemas.VOTE_OUT,
        effect="crypto",
        deadline_s=10,
        run=_vote,
        error_codes=(
            "ROUND_NOT_FOUND",
            "ALREADY_VOTED",
            "EQUIVOCATION_REFUSED",
            "NOT_ARBITER",
            "STALE_EPOCH",
            *_SIGNING_FAULTS,
        ),
    ),
    Tool(
        name="consensus_finality",
        id="consensus.finality",
        summary="How final a round is: PENDING, SOFT, QUORUM, HARD or ABSOLUTE, with evidence that anybody can check"
        " offline (toolgate consensus verify).",
        input_schema=schemas.FINALITY_IN,
        output_schema=schemas.FINALITY_OUT,
        effect="read",
        deadline_s=10,
        run=_finality,
        error_codes=("ROUND_NOT_FOUND",),
    ),
    Tool(
        name="consensus_gossip",
        id="consensus.gossip",
        summary="Exchange signed messages with another arbiter: give it what it lacks, take what is new. Empty when there"
        " is no other arbiter.",
        input_schema=schemas.GOSSIP_IN,
        output_schema=schemas.GOSSIP_OUT,
        effect="crypto",
        deadline_s=10,
        run=_gossip,
        error_codes=_SIGNING_FAULTS,
    ),
    Tool(
        name="vrf_eval",
        id="consensus.vrf_eval",
        summary="Draw a random value that anybody can check: output and proof of RFC 9381"
        " (ECVRF-EDWARDS25519-SHA512-TAI), with the given key or this server's VRF key.",
        input_schema=schemas.VRF_EVAL_IN,
        output_schema=schemas.VRF_EVAL_OUT,
        effect="crypto",
        deadline_s=10,
        run=_vrf_eval,
        error_codes=("INVALID_KEY", "KEY_NOT_FOUND", "INVALID_KEY_FORMAT"),
    ),
    Tool(
        name="vrf_verify",
        id="consensus.vrf_verify",
        summary="Check a proof of vrf_eval: whether it is valid, and which output it proves.",
        input_schema=schemas.VRF_VERIFY_IN,
        output_schema=schemas.VRF_VERIFY_OUT,
        effect="read",
        deadline_s=10,
        run=_vrf_verify,
    ),
)
