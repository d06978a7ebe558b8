"""Receipts of the workspace, at addresses: `receipt:///drift/verification-receipt.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.kit.paths import plain
from toolgate.model.offers import Listed, Resource, expand
from toolgate.model.tool import Result
from toolgate.packs.lra.receipts.log import DIRECTORY

if TYPE_CHECKING:
    from toolgate.model.tool import Context

URI: Final = "receipt:///{+path}"
MAX_RECEIPT_BYTES: Final = 512 * 1024
"""A hundred times the usual size."""
_RECEIPT: Final = re.compile(
    rf"(?:[^/]+/)*(?:verification-receipt(?:-[0-9]+)?\.json|{DIRECTORY}/[0-9]{{8}}\.dsse\.json)"
)
"""As `lra_verify` writes them, and as `lra_sign` adds them to a paper's log."""


def is_receipt(path: str) -> bool:
    """By its name."""
    return _RECEIPT.fullmatch(path) is not None


def read(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={"text": _bytes_of(ctx, args).decode(), "mimeType": "application/json"})


def stamp(ctx: Context, args: Mapping[str, Any]) -> str:
    return sha256(_bytes_of(ctx, args)).hexdigest()


def _bytes_of(ctx: Context, args: Mapping[str, Any]) -> bytes:
    there = ctx.files.is_file(args["path"])  # refuses what is no path inside the workspace
    path = plain(args["path"])
    if not there or not _RECEIPT.fullmatch(path):
        raise ToolError("RECEIPT_NOT_FOUND", "the workspace has no such receipt", missing=True)
    data = ctx.files.read_bytes(path, max_bytes=MAX_RECEIPT_BYTES)
    try:
        data.decode()
    except UnicodeDecodeError:
        raise ToolError("NOT_TEXT", "the receipt is not UTF-8 text") from None
    return data


def _paths(ctx: Context) -> list[str]:
    return [file.path for file in ctx.files.walk() if _RECEIPT.fullmatch(file.path)]


def listed(ctx: Context) -> list[Listed]:
    return [Listed(expand(URI, {"path": path}), path[:256]) for path in _paths(ctx)]


def completed(ctx: Context, others: Mapping[str, str]) -> Sequence[str]:  # noqa: ARG001 (one argument)
    return _paths(ctx)


RESOURCES: Final = (
    Resource(
        name="receipt",
        id="lra.receipt",
        uri=URI,
        summary="A verification receipt of the workspace, signed or not; lra_verify judges one.",
        run=read,
        mime_type="application/json",
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["path"],
            "properties": {
                "path": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "x-reason": "invalid_path",
                    "description": "Receipt file in the workspace.",
                }
            },
        },
        listed=listed,
        stamp=stamp,
        completes={"path": completed},
        error_codes=("FILE_NOT_FOUND", "FILE_TOO_LARGE", "INVALID_PATH", "IO_ERROR", "NOT_TEXT", "RECEIPT_NOT_FOUND"),
    ),
)
