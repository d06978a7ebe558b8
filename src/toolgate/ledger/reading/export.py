"""Records for other programs: JSON lines as they are, or a table for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from toolgate.model import strictjson

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "ts": ("ts",),
    "event": ("event",),
    "requestId": ("requestId",),
    "toolId": ("metadata", "toolId"),
    "act": ("act",),
    "stage": ("stage",),
    "user": ("by", "user"),
    "host": ("from", "host"),
    "callerId": ("caller", "id"),
    "callerRole": ("caller", "role"),
    "refusedKey": ("refusedKey", "id"),
    "askedTool": ("askedTool",),
    "clientAddress": ("clientAddress",),
    "clientRequestId": ("clientRequestId",),
    "traceparent": ("traceparent",),
    "transport": ("transport",),
    "face": ("face",),
    "status": ("status",),
    "happening": ("error", "happening"),
    "code": ("error", "code"),
    "reason": ("error", "reason"),
    "decision": ("decision",),
    "tier": ("tier",),
    "environment": ("environment",),
    "durationMs": ("durationMs",),
    "inputBytes": ("inputBytes",),
    "outputBytes": ("outputBytes",),
    "argumentsDigest": ("argumentsDigest",),
    "run": ("run",),
    "seq": ("seq",),
}


def _to_jsonl(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (strictjson.dumps(found).decode() + "\n" for found in records)


def _to_csv(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield _row(list(_COLUMNS))
    for found in records:
        yield _row([_cell(found, path) for path in _COLUMNS.values()])


def _cell(found: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = found
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    text = "" if value is None else str(value)
    # A spreadsheet runs a cell that begins like a formula.
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _row(cells: list[str]) -> str:
    """The writer quotes what is in its own end of line: with LF alone a CR would stand bare, and begin a row of its own."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


FORMS: Final[Mapping[str, Callable[[Iterable[Mapping[str, Any]]], Iterator[str]]]] = {
    "jsonl": _to_jsonl,
    "csv": _to_csv,
}
