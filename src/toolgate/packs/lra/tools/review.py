"""The reviewer's tools: lra_serve, lra_sign, lra_verify. Their schemas are the contract; the work is in the modules they call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.model.threads import in_thread
from toolgate.model.tool import Result, Tool
from toolgate.packs.lra.deployed import drafts, registry
from toolgate.packs.lra.devsite import overlay
from toolgate.packs.lra.receipts import sign
from toolgate.packs.lra.settings import DEFAULT_KEY, KEY_USE, PATH_PATTERN

if TYPE_CHECKING:
    from toolgate.model.powers import JobInfo, SigningKeys
    from toolgate.model.tool import Context

MAX_SITES: Final = 4
"""Dev servers of one caller."""
DEFAULT_PORT: Final = 8080
RECEIPT_NAME: Final = "verification-receipt.json"
MAX_RECEIPTS: Final = 1000
"""Signed receipts of one project that are counted by name; the log holds more."""
ALLOW_ADVICE: Final = (
    'to allow it, write allow = ["{pair}"] under [packs.lra] in toolgate.toml and start the server again'
)
AUTHORITY_ADVICE: Final = "name its file as ca_file under [packs.lra] in toolgate.toml"
WRITERS: Final = frozenset({"committer", "admin"})
"""Who may leave a receipt in the workspace (ADR-0012)."""
EGRESS_CODES: Final = (
    "TARGET_NOT_FOUND",
    "TIMEOUT",
    "ADDRESS_REFUSED",
    "RESPONSE_TOO_LARGE",
    "INVALID_TARGET",
    "BAD_RESPONSE",
    "TLS_FAILED",
)
FILE_CODES: Final = ("FILE_NOT_FOUND", "IO_ERROR", "INVALID_PATH", "FILE_TOO_LARGE")

_PARENT_SEGMENT: Final = r"(^|/|\\|%2[fF]|%5[cC])(\.|%2[eE]){2}($|/|\\|[?#;]|%2[fF]|%5[cC])"
"""A `..` segment, also percent-encoded (ADR-0011)."""


def _path(description: str) -> dict[str, Any]:
    """A path in the workspace (ADR-0011)."""
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": 1024,
        "pattern": PATH_PATTERN,
        "x-reason": "invalid_path",
        "description": description,
    }


def _target(description: str) -> dict[str, Any]:
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": 1024,
        "not": {"pattern": _PARENT_SEGMENT},
        "x-name": "target",
        "description": description,
    }


_TEXT: Final = {"type": "string", "maxLength": 2048}
_DIGEST: Final = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "maxLength": 71}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_OPEN_RECEIPT: Final = {
    "type": "object",
    "description": "The receipt itself; its fields are in docs/guides/receipts.md.",
}


# -- lra_serve -----------------------------------------------------------------------------------------------


_SITE: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "url", "port", "path", "stop_with"],
    "properties": {
        "id": {"type": "string", "maxLength": 64},
        "url": {"type": "string", "maxLength": 128},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "path": {"type": "string", "maxLength": 1024},
        "stop_with": {
            "description": "The arguments of lra_serve that end it.",
            "type": "object",
            "additionalProperties": False,
            "required": ["stop"],
            "properties": {"stop": {"type": "string", "maxLength": 64}},
        },
        "caller": {"description": "The key that started it, where it is not yours.", "type": "string", "maxLength": 64},
    },
}
MAX_LISTED: Final = 64
"""Dev servers of all callers: as many as a server runs."""


async def run_serve(ctx: Context, args: dict[str, Any]) -> Result:
    if ctx.jobs is None:
        raise ToolError("UNAVAILABLE", "this server does not run dev servers")
    if args.get("list"):
        return Result(data={"running": [_site_json(ctx, info) for info in ctx.jobs.list("site")]})
    if "stop" in args:
        if not await ctx.jobs.stop(args["stop"]):
            raise ToolError(
                "SERVER_NOT_FOUND",
                "you have no dev server with this id; list: true shows those you may stop",
                missing=True,
            )
        return Result(data={"stopped": args["stop"]})
    path = args.get("path", ".")
    await in_thread(_require_directory, ctx, path)
    info = await ctx.jobs.start("site", overlay.site(path, args.get("port", DEFAULT_PORT)), limit=MAX_SITES)
    return Result(data=_site_json(ctx, info))


def _require_directory(ctx: Context, path: str) -> None:
    if path != "." and not ctx.files.is_dir(path):
        raise ToolError("FILE_NOT_FOUND", f"Cannot read {path}: no such project directory", missing=True)


def _site_json(ctx: Context, info: JobInfo) -> dict[str, Any]:
    owner = {} if info.owner == ctx.caller.key_id else {"caller": info.owner}
    return {"id": info.id, **info.details, "stop_with": {"stop": info.id}, **owner}


LRA_SERVE: Final = Tool(
    name="lra_serve",
    title="LRA serve",
    id="lra.serve",
    summary=(
        "Start a development server with live reload on 127.0.0.1, for one paper or all of the workspace. "
        "Answers at once with its address and id."
    ),
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "port": {
                "type": "integer",
                "minimum": 1024,
                "maximum": 65535,
                "default": DEFAULT_PORT,
                "description": "TCP port.",
            },
            "path": _path("Project directory; without it, all papers."),
            "list": {"type": "boolean", "description": "Only show your running servers (an admin: all)."},
            "stop": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Stop the server with this id."},
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **_SITE["properties"],  # type: ignore[dict-item] # a literal of mixed types, indexed
            "running": {"type": "array", "maxItems": MAX_LISTED, "items": _SITE},
            "stopped": {"type": "string", "maxLength": 64},
        },
    },
    effect="write",
    destructive=False,
    deadline_s=10,
    run=run_serve,
    text=overlay.text,
    error_codes=("ADDRESS_IN_USE", "TOO_MANY_JOBS", "SERVER_NOT_FOUND", "UNAVAILABLE", *FILE_CODES),
)


# -- lra_sign ------------------------------------------------------------------------------------------------


def run_sign(ctx: Context, args: dict[str, Any]) -> Result:
    if ctx.keys is None or ctx.writer is None:
        raise ToolError("UNAVAILABLE", "this server signs nothing")
    sign.read_receipt(ctx.files, args["receipt"])  # a missing receipt is named before a missing key
    even_failed = args.get("even_failed", False)
    seed = _seed(ctx.keys, args.get("key", DEFAULT_KEY))
    done = sign.sign_file(
        ctx.writer, args["receipt"], seed, _seconds(ctx), args.get("formats", ()), even_failed=even_failed
    )
    return Result(data={"signed": done.nested, "files": list(done.files), "log_size": done.log_size})


def _seed(keys: SigningKeys, key: str) -> bytes:
    """`~/.lra/NAME` is NAME in the server's key directory, unless it is a file of its own: then it is that key or none."""
    name = key.removeprefix(sign.HOME_PREFIX)
    try:
        return keys.seed(name, use=KEY_USE, named=key if key != name else "")
    except ToolError as fault:
        raise sign.with_advice(fault, name, keys.place) from None


def _seconds(ctx: Context) -> str:
    """UTC, whole seconds: the form of LRA-1.0's timestamps."""
    return rfc3339(ctx.clock.wall())[:19] + "Z"


def _signed_text(data: Mapping[str, Any]) -> str:
    return strictjson.dumps_pretty(data["signed"]).decode()


LRA_SIGN: Final = Tool(
    name="lra_sign",
    title="LRA sign",
    id="lra.sign",
    summary=(
        "Sign a verification receipt of the workspace with an Ed25519 key of the server, and add it to the "
        "paper's receipt log."
    ),
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["receipt"],
        "properties": {
            "receipt": _path("Receipt file in the workspace."),
            "key": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": r"^(~/\.lra/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
                "default": DEFAULT_KEY,
                "x-reason": "invalid_path",
                "description": "Name of a key of the server, or ~/.lra/NAME.",
            },
            "even_failed": {
                "type": "boolean",
                "default": False,
                "description": "Also sign a failed verification.",
            },
            "formats": {
                "type": "array",
                "maxItems": 2,
                "uniqueItems": True,
                "items": {"enum": list(sign.DETACHED), "maxLength": 16},
                "description": "Detached signatures to write as well.",
            },
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["signed", "files", "log_size"],
        "properties": {
            "signed": {
                "type": "object",
                "additionalProperties": False,
                "required": ["receipt", "signature", "public_key", "timestamp", "signed_at"],
                "properties": {
                    "receipt": _OPEN_RECEIPT,
                    "signature": {"type": "string", "pattern": "^[0-9a-f]{128}$", "maxLength": 128},
                    "public_key": {"type": "string", "pattern": "^ed25519:[0-9a-f]{64}$", "maxLength": 72},
                    "timestamp": {"type": "string", "maxLength": 40},
                    "signed_at": {"type": "string", "maxLength": 40},
                },
            },
            "files": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 1100}},
            "log_size": _COUNT,
        },
    },
    effect="crypto",
    destructive=False,
    deadline_s=10,
    run=run_sign,
    text=_signed_text,
    error_codes=(
        "RECEIPT_NOT_FOUND",
        "INVALID_RECEIPT",
        "KEY_NOT_FOUND",
        "INVALID_KEY_FORMAT",
        "WRONG_KEY_USE",
        "NOT_VERIFIED",
        "ALREADY_SIGNED",
        "LOG_FULL",
        "LOG_BUSY",
        "UNAVAILABLE",
        *FILE_CODES,
    ),
)


# -- lra_verify ----------------------------------------------------------------------------------------------


async def run_verify(ctx: Context, args: dict[str, Any]) -> Result:
    from toolgate.packs.lra.deployed.visit import verify_deployed  # noqa: PLC0415 (the HTML parser, 40 ms, once a paper is verified)

    if ctx.net is None or ctx.writer is None:
        raise ToolError("UNAVAILABLE", "this server fetches nothing")
    target = args.get("target", args.get("path", ""))
    if args.get("path", target) != target:
        raise ToolError("CONFLICTING_ARGUMENTS", "target and path name different papers; give one of them")
    known = await _registry(ctx, target)
    if "receipt" in args:
        await in_thread(_refuse_signed, ctx, args["receipt"])
    options = {"run": args.get("run", False), "progress": ctx.progress, "ca_file": str(ctx.settings.get("ca_file", ""))}
    try:
        seen = await verify_deployed(ctx.net, ctx.compute, target, known, _seconds(ctx), **options)
    except ToolError as fault:
        raise drafts.advised(fault, target, ALLOW_ADVICE, AUTHORITY_ADVICE) from None
    written = await in_thread(_receipt_path, ctx, args, seen.url)
    if written is not None:
        await in_thread(ctx.writer.write_bytes, written, strictjson.dumps_pretty(seen.receipt))
    data = {
        "target": target,
        "verified": seen.passed,
        "tier": seen.examined.tier,
        "integrity": seen.receipt["integrity"],
        "target_hash": seen.examined.target_hash,
        "artifact_root": seen.examined.root,
        "claims_found": len(seen.receipt["claims"]),
        "steps": [step.as_json() for step in seen.steps],
        "receipt": dict(seen.receipt),
        "receipt_path": written,
    }
    return Result(data=data, exit_code=0 if seen.passed else 1)


def _refuse_signed(ctx: Context, path: str) -> None:
    """What somebody signed stays as it is. Raises ToolError ALREADY_SIGNED."""
    found = sign.is_signed(ctx.files, path) if ctx.files.is_file(path) else None
    if found is not None:
        raise ToolError("ALREADY_SIGNED", f"{path} is signed ({found}) and is not overwritten; name another file")


async def _registry(ctx: Context, target: str) -> registry.Registry:
    """What the registry knows of the target: an absent one nothing; a malformed one is an error, never ignored."""
    path = str(ctx.settings["registry"])
    try:
        data = await in_thread(ctx.files.read_bytes, path, max_bytes=registry.MAX_BYTES)
    except ToolError as fault:
        if fault.missing:
            return registry.Registry()
        raise
    return await ctx.compute(registry.about, (data, target))


def _receipt_path(ctx: Context, args: Mapping[str, Any], url: str) -> str | None:
    """Where the receipt goes: where it was asked for, or into the project of the same name, if the caller may write."""
    if "receipt" in args:
        return str(args["receipt"])
    name = _last_segment(url)
    if ctx.caller.acts_as not in WRITERS or name is None:
        return None
    try:
        return _free_receipt(ctx, name) if ctx.files.is_file(f"{name}/index.html") else None
    except ToolError:
        return None  # a segment that cannot be a directory of the workspace names no project of it


def _free_receipt(ctx: Context, project: str) -> str | None:
    """The project's receipt file; beside one that is signed, the next number: what was signed stays as it is."""
    for number in range(1, MAX_RECEIPTS + 1):
        path = f"{project}/{RECEIPT_NAME}" if number == 1 else f"{project}/{RECEIPT_NAME.replace('.', f'-{number}.')}"
        if sign.is_signed(ctx.files, path) is None:
            return path
    return None


def _last_segment(url: str) -> str | None:
    """`https://host/papers/NAME/` and `.../NAME/index.html` name NAME, percent-decoded; a bare host names nothing."""
    segments = [part for part in url.partition("?")[0].partition("#")[0].split("/")[3:] if part]
    if segments[-1:] == ["index.html"]:
        segments.pop()
    name = unquote(segments[-1]) if segments else ""
    return name if name and "/" not in name else None


def _verify_text(data: Mapping[str, Any]) -> str:
    from toolgate.packs.lra.deployed import verify  # noqa: PLC0415 (as above)

    report = verify.text(data["target"], data["steps"])
    if data["receipt_path"] is None:
        return report
    return f"{report}\nVerification receipt generated and written to:\n{data['receipt_path']}\n"


LRA_VERIFY: Final = Tool(
    name="lra_verify",
    title="LRA verify",
    id="lra.verify",
    summary=(
        "Fetch a deployed paper, hash its files, check claims, evidence and tier, and compare it with the "
        "registry. Gives a verification receipt."
    ),
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "x-needs-one": ["target", "path"],
        "properties": {
            "target": _target("URL of a deployed paper, or sha256:HASH of one in the registry."),
            "path": _target("Older name of target."),
            "receipt": _path("Workspace file to write the receipt to."),
            "run": {"type": "boolean", "default": False, "description": "Run the WASM evidence of each claim."},
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": [
            "target",
            "verified",
            "tier",
            "integrity",
            "target_hash",
            "artifact_root",
            "claims_found",
            "steps",
            "receipt",
            "receipt_path",
        ],
        "properties": {
            "target": _TEXT,
            "verified": {"type": "boolean"},
            "tier": {"enum": ["NONE", "BRONZE", "SILVER", "GOLD"], "maxLength": 8},
            "integrity": {"enum": ["match", "mismatch", "not_in_registry"], "maxLength": 16},
            "target_hash": _DIGEST,
            "artifact_root": _DIGEST,
            "claims_found": _COUNT,
            "steps": {
                "type": "array",
                "maxItems": 400,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["status", "text"],
                    "properties": {"status": {"enum": ["PASS", "FAIL", "INFO"], "maxLength": 4}, "text": _TEXT},
                },
            },
            "receipt": _OPEN_RECEIPT,
            "receipt_path": {"type": ["string", "null"], "maxLength": 1100},
        },
    },
    effect="network",
    deadline_s=20,
    run=run_verify,
    text=_verify_text,
    error_codes=(
        *("CONFLICTING_ARGUMENTS", "REGISTRY_MALFORMED", "ALREADY_SIGNED", "UNAVAILABLE"),
        *(*EGRESS_CODES, *FILE_CODES),
    ),
    argument_roles={"receipt": WRITERS},
)

TOOLS: Final = (LRA_SERVE, LRA_SIGN, LRA_VERIFY)
