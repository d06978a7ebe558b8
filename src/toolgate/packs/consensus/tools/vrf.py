"""A random value that anybody can check: draw one, and check one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.model.tool import Tool
from toolgate.packs.consensus.arbiter.node import key_name, public_key_of
from toolgate.packs.consensus.domain import vrf
from toolgate.packs.consensus.settings import USES
from toolgate.packs.consensus.tools import schemas
from toolgate.packs.consensus.tools.answers import KEY_FAULTS, answered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolgate.model.powers import SigningKeys
    from toolgate.model.tool import Context, Result


def run_eval(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.keys is not None  # effect crypto
    seed = _given_seed(ctx, args["priv_key_hex"]) if "priv_key_hex" in args else _vrf_seed(ctx.settings, ctx.keys)
    made = vrf.prove(seed, _alpha(args))
    return answered(
        ctx,
        {
            "output_hex": made.output.hex(),
            "proof_hex": made.proof.hex(),
            "public_key_hex": made.public_key.hex(),
        },
    )


def run_verify(ctx: Context, args: dict[str, Any]) -> Result:
    output = vrf.verify(bytes.fromhex(args["public_key_hex"]), _alpha(args), bytes.fromhex(args["proof_hex"]))
    return answered(ctx, {"valid": output is not None} | ({"output_hex": output.hex()} if output else {}))


def _alpha(args: Mapping[str, Any]) -> bytes:
    try:
        return vrf.alpha_of(bytes.fromhex(args["seed_hex"]), bytes.fromhex(args["input_hex"]))
    except vrf.VrfFault as fault:
        raise ToolError("INVALID_INPUT", str(fault)) from None


def _given_seed(ctx: Context, key_hex: str) -> bytes:
    assert ctx.keys is not None  # effect crypto
    seed = bytes.fromhex(key_hex)
    if len(seed) != vrf.SEED_BYTES:
        raise ToolError("INVALID_KEY", f"priv_key_hex holds {len(seed)} bytes; an Ed25519 seed has {vrf.SEED_BYTES}")
    _refuse_voting_key(ctx.settings, ctx.keys, vrf.public_key_of(seed))
    return seed


def _vrf_seed(settings: Mapping[str, Any], keys: SigningKeys) -> bytes:
    name = key_name(settings, "vrf_key", keys)
    _refuse_voting_key(settings, keys, public_key_of(keys, name))
    return keys.seed(name, use=USES["vrf_key"])


def _refuse_voting_key(settings: Mapping[str, Any], keys: SigningKeys, public_key: bytes) -> None:
    if _is_voting_key(settings, keys, public_key):
        raise ToolError("INVALID_KEY", "this is the voting key; a VRF key must be another one")


def _is_voting_key(settings: Mapping[str, Any], keys: SigningKeys, public_key: bytes) -> bool:
    if public_key.hex() in {arbiter["public_key"] for arbiter in settings["arbiters"]}:
        return True
    try:
        return keys.public_key(key_name(settings, "voting_key", keys)) == public_key
    except ToolError:  # no voting key here: then this is not it
        return False


VRF_EVAL: Final = Tool(
    name="vrf_eval",
    title="VRF eval",
    id="consensus.vrf_eval",
    summary="Draw a random value that anybody can check: output and proof of RFC 9381 (ECVRF-EDWARDS25519-SHA512-TAI).",
    input_schema=schemas.VRF_EVAL_IN,
    output_schema=schemas.VRF_EVAL_OUT,
    effect="crypto",
    destructive=False,
    idempotent=True,
    deadline_s=10,
    run=run_eval,
    error_codes=KEY_FAULTS,
)

VRF_VERIFY: Final = Tool(
    name="vrf_verify",
    title="VRF verify",
    id="consensus.vrf_verify",
    summary="Check a proof of vrf_eval: whether it is valid, and which output it proves.",
    input_schema=schemas.VRF_VERIFY_IN,
    output_schema=schemas.VRF_VERIFY_OUT,
    effect="read",
    deadline_s=10,
    run=run_verify,
)
