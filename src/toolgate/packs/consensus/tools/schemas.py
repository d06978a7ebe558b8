"""Input and output schemas of the tools, closed and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolgate.packs.consensus.domain.bounds import MAX_ARBITERS
from toolgate.packs.consensus.domain.evidence import MAX_EVIDENCE_BYTES, Level
from toolgate.packs.consensus.domain.messages import VOTE_BYTES
from toolgate.packs.consensus.domain.rounds import OUTCOMES
from toolgate.packs.consensus.gossip.exchange import MAX_EVENT_CHARACTERS, MAX_EVENTS

_MAX_VRF_HEX: Final = 8192
"""Hex digits: 4 kB is far more than any seed or input, and one hash."""
_LEVEL: Final = {"enum": [level.name for level in Level]}
_ROUND_ID: Final = {
    "description": "A decimal number as text.",
    "type": "string",
    "maxLength": 19,
    "pattern": "^(0|[1-9][0-9]*)$",
}
_EPHEMERAL: Final = {"ephemeral": {"description": "Development keys that die with the process.", "const": True}}


def _hex(digits: int, description: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": "string",
        "minLength": digits,
        "maxLength": digits,
        "pattern": "^[0-9a-f]*$",
    }


def _any_hex(description: str, digits: int = _MAX_VRF_HEX) -> dict[str, Any]:
    return {"description": description, "type": "string", "maxLength": digits, "pattern": "^([0-9a-f][0-9a-f])*$"}


def _base64(description: str, characters: int) -> dict[str, Any]:
    return {"description": description, "type": "string", "maxLength": characters, "pattern": "^[A-Za-z0-9+/]*={0,2}$"}


def _closed(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": dict(properties),
    }


def _count(description: str, maximum: int = 2**53 - 1) -> dict[str, Any]:
    return {"description": description, "type": "integer", "minimum": 0, "maximum": maximum}


_TUPLE: Final = {
    "merkle_root_hex": _hex(64, "64 lowercase hex digits."),
    "rule_version_hash_hex": _hex(64, "Of the rules in force, 64 lowercase hex digits."),
}
_SENDER: Final = _hex(64, "The arbiter, by the hash of its public key.")
_NETWORK: Final = _hex(64, "Hash of the arbiter set and its parameters.")
_STANDING: Final = {
    "epoch": _count("Checkpoints sealed so far."),
    "arbiters": _count("How many arbiters there are.", MAX_ARBITERS),
    "quorum": _count("How many must accept.", MAX_ARBITERS),
    "support": _count("How many accepted the most accepted tuple.", MAX_ARBITERS),
}

PROPOSE_IN: Final = _closed({"event": {"description": "What to agree on.", **_closed(_TUPLE, list(_TUPLE))}}, ["event"])
PROPOSE_OUT: Final = _closed(
    {
        "round_id": _ROUND_ID,
        "status": {
            "description": "QUORUM: enough arbiters accepted, and there is a certificate. PENDING: not yet.",
            "enum": ["PENDING", "QUORUM"],
        },
        "level": {"description": "How far the round has come (see consensus_finality).", **_LEVEL},
        **_STANDING,
        "network_id": _NETWORK,
        "sender_id": _SENDER,
        **_EPHEMERAL,
    },
    ["round_id", "status", "level", *_STANDING, "network_id", "sender_id"],
)

VOTE_IN: Final = _closed(
    {
        "round_id": _ROUND_ID,
        "vote": {
            "description": "What to say about which tuple.",
            **_closed(
                {**_TUPLE, "vote_type": {"description": "The vote.", "enum": ["ACCEPT", "REJECT", "ABSTAIN"]}},
                [*_TUPLE, "vote_type"],
            ),
        },
        "privKey": {
            **_hex(64, "Ed25519 seed, instead of this server's key."),
            "x-secret": True,
        },
    },
    ["round_id", "vote"],
)
VOTE_OUT: Final = _closed(
    {
        "vote_signed": {"const": True},
        "sig_b64": _base64("The signature.", 88),
        "counted": {"description": "False when the key is not an arbiter's.", "type": "boolean"},
        "sender_id": _SENDER,
        "envelope_b64": _base64("The vote as it travels: signed bytes, then the signature.", 4 * VOTE_BYTES),
        "level": _LEVEL,
        **_EPHEMERAL,
    },
    ["vote_signed", "sig_b64", "counted", "sender_id", "envelope_b64"],
)

FINALITY_IN: Final = _closed({"round_id": _ROUND_ID}, ["round_id"])
FINALITY_OUT: Final = _closed(
    {
        "round_id": _ROUND_ID,
        "level": _LEVEL,
        "evidence": _any_hex(
            "Evidence of the last rise; check it with toolgate consensus verify.", 2 * MAX_EVIDENCE_BYTES
        ),
        **_STANDING,
        "outcome": {
            "description": "SPLIT: the votes still out cannot make a quorum any more; propose again for another round.",
            "enum": list(OUTCOMES),
        },
        "silent": {
            "description": "Arbiters whose vote in this round is not known here.",
            "type": "array",
            "maxItems": MAX_ARBITERS,
            "items": _SENDER,
        },
        "network_id": _NETWORK,
        "equivocators": {
            "description": "Arbiters that contradicted themselves in this round.",
            "type": "array",
            "maxItems": MAX_ARBITERS,
            "items": _SENDER,
        },
        **_EPHEMERAL,
    },
    ["round_id", "level", *_STANDING, "outcome", "silent", "network_id", "equivocators"],
)

_EVENTS: Final = {
    "type": "array",
    "maxItems": MAX_EVENTS,
    "items": _base64("One signed message.", MAX_EVENT_CHARACTERS),
}
_STORE: Final = {"type": "string", "maxLength": 64, "pattern": "^[0-9a-f]*$"}
GOSSIP_IN: Final = _closed(
    {
        "peer_id": {
            "description": "Who asks: the sender_id of an arbiter.",
            "type": "string",
            "minLength": 1,
            "maxLength": 128,
        },
        "events": {"description": "Signed messages for us, base64.", **_EVENTS},
        "after": _count("Send messages after this cursor."),
        "store": {"description": "The store that `after` belongs to.", **_STORE},
    },
    ["peer_id"],
)
GOSSIP_OUT: Final = _closed(
    {
        "events_sent": {"description": "Signed messages for the peer, base64.", **_EVENTS},
        "events_received": {
            "description": "Hashes of the messages that were new here.",
            "type": "array",
            "maxItems": MAX_EVENTS,
            "items": _hex(64, "SHA-256 of a message."),
        },
        "rejected": {
            "description": "Messages that were not taken, and why.",
            "type": "array",
            "maxItems": MAX_EVENTS,
            "items": _closed(
                {
                    "index": _count("Its place in events.", MAX_EVENTS),
                    "code": {
                        "enum": [
                            "INVALID_INPUT",
                            "WRONG_NETWORK",
                            "NOT_ARBITER",
                            "BAD_SIGNATURE",
                            "QUOTA_EXCEEDED",
                            "TOO_MANY_OPEN_ROUNDS",
                        ]
                    },
                },
                ["index", "code"],
            ),
        },
        "cursor": _count("Ask for messages after this number next time."),
        "more": {"description": "There are more messages after the cursor.", "type": "boolean"},
        "store": {"description": "The store that the cursor belongs to.", **_STORE},
        "peer_known": {"description": "peer_id is another arbiter of this network.", "type": "boolean"},
        "note": {"description": "Why nothing was sent.", "type": "string", "maxLength": 200},
        **_EPHEMERAL,
    },
    ["events_sent", "events_received", "rejected", "cursor", "more", "store", "peer_known"],
)

_VRF_INPUT: Final = {
    "seed_hex": _any_hex("Lowercase hex; may be empty."),
    "input_hex": _any_hex("Lowercase hex; may be empty."),
}
VRF_EVAL_IN: Final = _closed(
    {
        **_VRF_INPUT,
        "priv_key_hex": {
            **_any_hex("Ed25519 seed of 32 bytes, lowercase hex; without it, this server's VRF key.", 256),
            "x-secret": True,
        },
    },
    list(_VRF_INPUT),
)
VRF_EVAL_OUT: Final = _closed(
    {
        "output_hex": _hex(128, "The random value, 64 bytes."),
        "proof_hex": _hex(160, "The proof, 80 bytes."),
        "public_key_hex": _hex(64, "The key to check it with."),
        **_EPHEMERAL,
    },
    ["output_hex", "proof_hex", "public_key_hex"],
)
VRF_VERIFY_IN: Final = _closed(
    {
        **_VRF_INPUT,
        "proof_hex": _hex(160, "The proof, 80 bytes."),
        "public_key_hex": _hex(64, "The key of whoever made it."),
    },
    [*_VRF_INPUT, "proof_hex", "public_key_hex"],
)
VRF_VERIFY_OUT: Final = _closed(
    {
        "valid": {"description": "The proof holds.", "type": "boolean"},
        "output_hex": _hex(128, "The random value it proves; absent when it proves nothing."),
        **_EPHEMERAL,
    },
    ["valid"],
)
