"""Time and ids, injected everywhere: nothing in a decision reads a clock or draws a random number by itself."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from os import urandom
from typing import Any, Final, Protocol

from msgspec import Struct

from toolgate.model import strictjson

DETERMINISTIC_NAMESPACE: Final = uuid.UUID("c1fd1c20-77b7-4f73-b39c-8ed2dd2f2d8c")
"""The namespace of deterministic ids (ADR-0005): the same call gives the same ids on every transport and machine."""


class Clock(Protocol):
    """Wall time for records, monotonic time for limits and deadlines."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...


class SystemClock:
    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


THOUSANDTHS: Final = tuple(f"{number:03d}" for number in range(1000))
"""The digits behind a point: to format them anew takes longer than all the rest of a moment's text."""


def rfc3339(wall: float) -> str:
    """`2026-11-15T21:36:40.123Z`: UTC, milliseconds, cut and not rounded."""
    milliseconds = int(wall * 1000)
    second = milliseconds // 1000
    return f"{_whole_second(second)}.{THOUSANDTHS[milliseconds - second * 1000]}Z"


def from_rfc3339(text: Any) -> float:
    """Seconds since the epoch, of what `rfc3339` wrote. Raises: ValueError: it is anything else."""
    if not isinstance(text, str) or not _MOMENT.fullmatch(text):
        raise ValueError("not a moment in time")
    return datetime.fromisoformat(text).timestamp()


_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


@lru_cache(maxsize=1)
def _whole_second(second: int) -> str:
    """Thousands of calls fall into one second, and this is most of the work: 5 % of a call (benchmarks/road.py)."""
    return (_EPOCH + timedelta(seconds=second)).isoformat("T", "seconds")


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (UTC; a zone would be written out, and cost as much as all the rest)


class Ids(Struct, frozen=True):
    """What correlates one call: in the answer, in the log, in a trace."""

    request: str
    trace: str
    span: str


class IdSource(Protocol):
    def for_call(self, tool_id: str | None, arguments: Any) -> Ids: ...


class RandomIds:
    """128 random bits each; trace and span have the W3C sizes. Drawn in bulk: a system call a hundred calls, not each."""

    _BYTES: Final = 40
    _BULK: Final = 100

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def for_call(self, tool_id: str | None, arguments: Any) -> Ids:  # noqa: ARG002 (the shape of IdSource)
        if not self._drawn:
            text, width = urandom(self._BYTES * self._BULK).hex(), self._BYTES * 2
            self._drawn = [text[start : start + width] for start in range(0, len(text), width)]
        text = self._drawn.pop()
        return Ids(text[:32], text[32:64], text[64:])


class DeterministicIds:
    """UUID5 over the call itself; the n-th identical call of a run gets `#n` appended."""

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()
        """By digest: a call may be a megabyte long, and none is forgotten while the process lives."""

    def for_call(self, tool_id: str | None, arguments: Any) -> Ids:
        payload = {"toolId": tool_id, "arguments": arguments}
        call = strictjson.dumps_sorted({"route": "tool", "method": "mcp.tool.invoke", "payload": payload})
        digest = sha256(call).digest()
        self._seen[digest] += 1
        text = call.decode() + (f"#{self._seen[digest]}" if self._seen[digest] > 1 else "")
        request, trace, span = (
            str(uuid.uuid5(DETERMINISTIC_NAMESPACE, f"{kind}:{text}")) for kind in ("req", "trace", "span")
        )
        return Ids(request, trace, span)
