"""Two logs, compared (ADR-0005): without what must differ between two servers, record by record, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from toolgate.ledger import record
from toolgate.ledger.lines import lines_in
from toolgate.model import strictjson

VOLATILE: Final = frozenset(
    {"ts", "traceId", "spanId", "requestId", "durationMs", "transport", "route", "seq", "prev", "run"}
    | {"clientAddress", "clientRequestId", "traceparent", "tracestate"}
)
"""What two servers cannot have in common. Everything else must be equal, byte counts too."""
UNREPEATABLE: Final = VOLATILE - {"traceId", "spanId", "requestId"}
"""What one server cannot repeat with deterministic ids: a golden keeps the ids."""
CALL_EVENTS: Final = frozenset({"intent", "outcome"})
"""Checkpoints and recoveries follow the clock, not the calls."""


def calls_in(path: Path) -> Iterator[dict[str, Any]]:
    """The records of calls in one file, as written. Raises: OSError, SegmentDamaged, ValueError: a line is not JSON."""
    for lines, rest in lines_in(path):
        for line in [*lines, rest] if rest else lines:
            found = record.read(line)
            if found is None:
                raise ValueError(f"{path.name} holds a line that is not a JSON object")
            if found.get("event", "outcome") in CALL_EVENTS:
                yield found


def projected(found: Mapping[str, Any], without: frozenset[str] = VOLATILE) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in without}


def golden_lines(records: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """The form in which a golden is kept: sorted keys, one record a line."""
    return (strictjson.dumps_sorted(projected(found, UNREPEATABLE)) + b"\n" for found in records)


def differences(left: Iterator[Mapping[str, Any]], right: Iterator[Mapping[str, Any]]) -> list[str]:
    """One line for each value that differs: `record 3: metadata.toolId: "a" | "b"`. Empty: the logs agree."""
    found: list[str] = []
    for number, (ours, theirs) in enumerate(zip_longest(left, right), start=1):
        if ours is None or theirs is None:
            found.append(f"record {number}: only in the {'first' if theirs is None else 'second'}")
            continue
        found += [f"record {number}: {line}" for line in _differences(projected(ours), projected(theirs), ())]
    return found


def _differences(one: Any, other: Any, path: Sequence[str]) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _differences(one.get(name, _ABSENT), other.get(name, _ABSENT), (*path, name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, (*path, str(index)))
    elif type(one) is not type(other) or one != other:
        yield f"{'.'.join(path)}: {_shown(one)} | {_shown(other)}"


_ABSENT: Final = object()


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else strictjson.dumps(value).decode()
