"""What this server promises and what it has written down, for the caller who asks: the contract, and one's own records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.model.offers import Resource
from toolgate.model.tool import Result

if TYPE_CHECKING:
    from toolgate.model.tool import Context

SHOWN_RECORDS: Final = 50
"""The latest of one's own."""
SEARCHED_RECORDS: Final = 1000
"""Of one's own, those among which one call is looked for."""


def contract(ctx: Context, args: dict[str, Any]) -> Result:  # noqa: ARG001 (it takes none)
    """As far as the caller holds it: what others hold is not told."""
    assert ctx.contract is not None
    held = {_row_name(holding) for holding in ctx.holdings()}
    tools = [tool for tool in ctx.contract.get("tools", ()) if tool["name"] in held]
    bound = {tool["x-adr"] for tool in tools}
    return _json(
        {
            "schemaVersion": ctx.contract.get("schemaVersion"),
            "digest": ctx.contract.get("digest"),
            "adrs": [adr for adr in ctx.contract.get("adrs", ()) if adr["id"] in bound],
            "tools": tools,
        }
    )


def _row_name(held: Mapping[str, Any]) -> str:
    return str(held["name"] if held["kind"] == "tool" else f"{held['kind']}:{held['name']}")


def own_records(ctx: Context, args: dict[str, Any]) -> Result:  # noqa: ARG001 (it takes none)
    assert ctx.records is not None
    return _json({"records": ctx.records(SHOWN_RECORDS)})


def own_record(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.records is not None
    found = [record for record in ctx.records(SEARCHED_RECORDS) if record.get("requestId") == args["request_id"]]
    if not found:
        raise ToolError(
            "RECORD_NOT_FOUND", f"none of your last {SEARCHED_RECORDS} records is of this call", missing=True
        )
    return _json({"records": found})


def _json(value: Any) -> Result:
    return Result(data={"text": strictjson.dumps_pretty(value).decode(), "mimeType": "application/json"})


RESOURCES: Final = (
    Resource(
        name="contract",
        id="governance.contract",
        uri="toolgate://contract",
        summary="What every tool promises that your key holds: schemas, tier, roles, effect, error codes.",
        run=contract,
        mime_type="application/json",
    ),
    Resource(
        name="own_records",
        id="governance.own_records",
        uri="audit://mine",
        summary=f"Your own latest {SHOWN_RECORDS} records in the audit log, newest last. Reading it is recorded, too.",
        run=own_records,
        mime_type="application/json",
    ),
    Resource(
        name="own_record",
        id="governance.own_record",
        uri="audit://mine/{request_id}",
        summary="The records of one of your own latest calls, by its request id.",
        run=own_record,
        mime_type="application/json",
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["request_id"],
            "properties": {
                "request_id": {
                    "type": "string",
                    "maxLength": 64,
                    "pattern": "^[A-Za-z0-9-]+$",
                    "description": "As the answer to the call had it.",
                }
            },
        },
        error_codes=("RECORD_NOT_FOUND",),
    ),
)
