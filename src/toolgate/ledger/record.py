"""The lines of the log: one JSON object each, the fields of document 002's golden first, chain fields last.

Every line ends with `"run":"...","seq":n,"prev":"..."}`: a verifier finds the chain without reading the JSON, and a
person with a pager can follow it. `prev` is the leaf hash of the line before (null on the first).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.model.record import Entry

AGENT_ID: Final = "mcp_server"
TASK_ID: Final = "envelope_validation"
SCHEMA_VERSION: Final = "0.1.0"
"""Version of the record's shape."""

MARK_INTENT: Final = b'"event":"intent"'
MARK_CHECKPOINT: Final = b'"event":"checkpoint"'
"""How a reader finds these records without decoding each line. No text of a caller gets into a record, and quotation
marks inside a JSON text are escaped, so nothing else can look like this."""


METHOD: Final = "mcp.tool.invoke"
_THOUSANDTHS: Final = tuple(f"{number:03d}" for number in range(1000))
"""Text of the digits behind the point: finding the shortest one for a double costs more than the rest of the line."""


def call_line(
    entry: Entry,
    step: int,
    run: str,
    seq: int,
    prev: str | None,
    *,
    deterministic: bool,
    suppressed: int = 0,
) -> bytes:
    """The line of one event on the road.

    What repeats from call to call is encoded once and kept. What differs is written between as text: ids, digests, times
    and numbers of our own making, in which nothing needs an escape (a third of the cost of encoding an object).
    """
    caller, wire, ids = entry.caller, entry.wire, entry.ids
    digest = f'"{entry.arguments_digest}"' if entry.arguments_digest else "null"
    milliseconds, rest = divmod(int(entry.duration_ms * 1000), 1000)
    changing = (
        f'{{"ts":"{entry.timestamp}","stepId":{step},"requestId":"{ids.request}","traceId":"{ids.trace}",'
        f'"spanId":"{ids.span}","durationMs":{milliseconds}.{_THOUSANDTHS[rest]},"inputBytes":{entry.input_bytes},'
        f'"outputBytes":{entry.output_bytes},"error":{_json(entry.error) if entry.error else "null"},'
        f'"argumentsDigest":{digest},'
        f'"clamps":{_json([clamp.as_json() for clamp in entry.clamps]) if entry.clamps else "[]"}'
    )
    if suppressed:
        changing += f',"suppressed":{suppressed}'
    repeating = _repeating(
        entry.event,
        wire.transport,
        wire.face,
        wire.route,
        entry.status,
        entry.tool_id,
        caller.key_id if caller else None,
        caller.role if caller else None,
        entry.tier,
        entry.environment,
        entry.decision,
        deterministic,
    )
    linked = f'"{prev}"' if prev else "null"
    return f'{changing}{repeating},"run":"{run}","seq":{seq},"prev":{linked}}}'.encode()


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


@lru_cache(maxsize=4096)
def _repeating(  # noqa: PLR0913, PLR0917 (the key of the cache: every field that repeats)
    event: str,
    transport: str,
    face: str,
    route: str,
    status: str,
    tool_id: str | None,
    caller_id: str | None,
    role: str | None,
    tier: str | None,
    environment: str | None,
    decision: str | None,
    deterministic: bool,  # noqa: FBT001
) -> str:
    metadata = {"schemaVersion": SCHEMA_VERSION, "deterministic": deterministic, "toolId": tool_id, "promptId": None}
    fields = {
        "agentId": AGENT_ID,
        "taskId": TASK_ID,
        "event": event,
        "transport": transport,
        "face": face,
        "route": route,
        "method": METHOD,
        "status": status,
        "attempt": 0,
        "metadata": metadata,
        "caller": None if caller_id is None else {"id": caller_id, "role": role},
        "tier": tier,
        "environment": environment,
        "decision": decision,
    }
    return "," + _json(fields)[1:-1]


def checkpoint_body(wall: float, *, size: int, root: bytes, note: str, more: Mapping[str, Any]) -> bytes:
    """A signed statement about all records before this one.

    `more`: `previous` and `retired` on a run's first record, `final` on its last, `suppressed` when a flood was counted.
    """
    return orjson.dumps({**_head(wall, "checkpoint"), "size": size, "root": root.hex(), "note": note, **more})


def recovered_body(wall: float, dead: Mapping[str, Any]) -> bytes:
    """What a start found of a run that ended without a word."""
    return orjson.dumps({**_head(wall, "recovered"), "recovered": dead})


def with_chain(body: bytes, run: str, seq: int, prev: str | None) -> bytes:
    """The line as it is written and hashed, without its line break, from an encoded object."""
    linked = f'"{prev}"' if prev else "null"
    return body[:-1] + f',"run":"{run}","seq":{seq},"prev":{linked}}}'.encode()


def chain_suffix(seq: int, prev: str | None) -> bytes:
    """How line `seq` must end."""
    return f',"seq":{seq},"prev":"{prev}"}}'.encode() if prev else f',"seq":{seq},"prev":null}}'.encode()


def request_id_of(line: bytes) -> bytes:
    """The request id of a call's line, without decoding it; empty when there is none."""
    start = line.find(b'"requestId":"')
    return line[start + 13 : line.find(b'"', start + 13)] if start >= 0 else b""


def request_mark(request_id: str) -> bytes:
    """What a line of this request contains."""
    return b'"requestId":' + orjson.dumps(request_id)


def is_checkpoint(line: bytes) -> bool:
    return MARK_CHECKPOINT in line


def read(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None when it is not one."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def unfinished(intents: Mapping[bytes, int]) -> Sequence[dict[str, Any]]:
    """Intents without outcome, as `recovered` lists them: nobody knows whether their effect happened."""
    return [{"requestId": request.decode(errors="replace"), "seq": seq} for request, seq in intents.items()]


def _head(wall: float, event: str) -> dict[str, Any]:
    return {"ts": rfc3339(wall), "agentId": AGENT_ID, "taskId": TASK_ID, "event": event}
