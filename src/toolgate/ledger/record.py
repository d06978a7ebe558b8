"""The lines of the log: one JSON object each, the fields of every record first, chain fields last (ADR-0005). A call's own line
is made where it is appended (`local.py`).

Every line ends with `"run":"...","seq":n,"prev":"..."}`: a verifier finds the chain without reading the JSON, and a
person with a pager can follow it. `prev` is the leaf hash of the line before (null on the first).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from toolgate.errors import Ending
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


AGENT_ID: Final = "mcp_server"
TASK_ID: Final = "envelope_validation"
MARK_INTENT: Final = b'"event":"intent"'
_MARK_ACT: Final = b'"event":"act","stage":"intent"'
MARK_CHECKPOINT: Final = b'"event":"checkpoint"'
_MARK_HANDOVER: Final = b'"event":"handover"'
_MARK_RELOAD: Final = _MARK_ACT + b',"act":"reload"'
"""How a reader finds these records without decoding each line. Quotation marks inside a JSON text are escaped, so no text
of a caller that gets into a record can look like this."""


METHOD: Final = "mcp.tool.invoke"
MAX_ID_BYTES: Final = 64
"""Ids are 32 hexadecimal digits, or a UUID with dashes."""
_NOTE: Final = b',"note":'


def statement(wall: float, *, size: int, root: bytes, more: Mapping[str, Any]) -> bytes:
    """What a checkpoint says about all records before it; its note signs the digest of these bytes.

    `more`: `began`, `previous`, `seen`, `retired`, `serves` and `handovers` on a run's first record, `final` on its last,
    `suppressed` and `suppressedOf` when a flood was counted.
    """
    return orjson.dumps({**_head(wall, "checkpoint"), "size": size, "root": root.hex(), **more})


def signed_body(stated: bytes, note: str) -> bytes:
    return stated[:-1] + _NOTE + orjson.dumps(note) + b"}"


def handover_statement(wall: float, *, former: str, successor: str, seen: Sequence[Mapping[str, Any]]) -> bytes:
    """What a handover of the log's key says; its note signs the digest of these bytes. `seen`: the last checkpoint of every
    run of the old key."""
    return orjson.dumps({**_head(wall, "handover"), "from": former, "to": successor, "seen": seen})


def is_headed(found: Mapping[str, Any]) -> bool:
    """Has it the constant fields of a record of our own?"""
    return found.get("agentId") == AGENT_ID and found.get("taskId") == TASK_ID


def statement_in(line: bytes) -> bytes:
    """The bytes that a checkpoint's note signs. In the older form the note stood before other fields, and signed none."""
    return line.rpartition(_NOTE)[0] + b"}"


def recovered_body(wall: float, dead: Mapping[str, Any]) -> bytes:
    """What a start found of a run that ended without a word."""
    return orjson.dumps({**_head(wall, "recovered"), "recovered": dead})


def act_body(wall: float, stage: str, facts: Mapping[str, Any]) -> bytes:
    """What somebody did to the deployment itself. `stage` is next to the event: see `is_intent`."""
    return orjson.dumps({**_head(wall, "act"), "stage": stage, **facts})


def with_chain(body: bytes, run: str, seq: int, prev: str | None) -> bytes:
    """The line as it is written and hashed, without its line break, from an encoded object."""
    return with_run(body, run) + chain_suffix(seq, prev)


def with_run(body: bytes, run: str) -> bytes:
    """A line up to its run; the number and the hash of the line before follow."""
    return body[:-1] + f',"run":"{run}"'.encode()


def chain_suffix(seq: int, prev: str | None) -> bytes:
    """How line `seq` must end."""
    return f',"seq":{seq},"prev":"{prev}"}}'.encode() if prev else f',"seq":{seq},"prev":null}}'.encode()


def request_id_of(line: bytes) -> bytes:
    """The request id of a call's line, without decoding it; empty when there is none, and none of ours is longer."""
    start = line.find(b'"requestId":"')
    return line[start + 13 : line.find(b'"', start + 13)][:MAX_ID_BYTES] if start >= 0 else b""


def request_mark(request_id: str) -> bytes:
    """What a line of this request contains."""
    return b'"requestId":' + orjson.dumps(request_id)


def is_intent(line: bytes) -> bool:
    """Of a call or of an act: something may have happened after it."""
    return MARK_INTENT in line or _MARK_ACT in line


def is_reload(line: bytes) -> bool:
    """Rules were replaced after it. One that was refused has no intent."""
    return _MARK_RELOAD in line


def is_handover(line: bytes) -> bool:
    return _MARK_HANDOVER in line


def is_checkpoint(line: bytes) -> bool:
    return MARK_CHECKPOINT in line


def encode(found: Mapping[str, Any]) -> bytes:
    """A record that was read, as it is written."""
    return orjson.dumps(found)


def read(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None when it is not one."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def unfinished(intents: Mapping[bytes, int]) -> Sequence[dict[str, Any]]:
    """Intents without outcome, as `recovered` lists them: nobody knows whether their effect happened."""
    return [
        {"requestId": request.decode(errors="replace"), "seq": seq, "outcome": Ending.IN_DOUBT.value}
        for request, seq in intents.items()
    ]


def _head(wall: float, event: str) -> dict[str, Any]:
    return {"ts": rfc3339(wall), "agentId": AGENT_ID, "taskId": TASK_ID, "event": event}
