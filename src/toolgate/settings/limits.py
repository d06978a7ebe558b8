"""Settings of what callers may use: slots, rates, bytes on the wire and bytes on disk."""

from __future__ import annotations

from typing import NamedTuple

from toolgate.settings.spec import defaulted
from toolgate.settings.spec import described as _is


@defaulted
class LimitSettings(NamedTuple):
    """What one caller, and all callers together, may use."""

    concurrency_per_caller: int = _is(
        "whole",
        10,
        "how many calls of one key may run at once; the next is refused, never queued",
        "calls",
        low=1,
        high=10_000,
        sees="429 with `Retry-After`, on MCP a result with `isError`; before anything runs",
        live=True,
    )
    concurrency_total: int = _is(
        "whole",
        128,
        "how many calls of all keys may run at once in one process",
        "calls",
        low=2,
        high=100_000,
        sees="429 with `Retry-After`, on MCP a result with `isError`; before anything runs",
        why="more than one key may have, so that no key can hold all",
        live=True,
    )
    rate_per_minute: int = _is(
        "whole",
        0,
        "how many calls a key may make in a minute; 0 means no limit",
        "calls/min",
        low=0,
        high=1_000_000,
        sees="429 with `Retry-After`, on MCP a result with `isError`; before anything runs",
        live=True,
    )
    keys_may_exceed: bool = _is("switch", default=False, what="whether a key's own limits may be higher", live=True)
    url: str = _is(
        "text",
        "",
        "the Redis or Valkey server by which several processes share `concurrency_per_caller` and `rate_per_minute`, like "
        "rediss://USER:PASSWORD@HOST:PORT/0; without it each process counts for itself",
        "URL",
        secret=True,
    )
    lease_seconds: float = _is(
        "number",
        5.0,
        "how long slots of a process that is gone stay taken; also how long everyone is refused when the shared count was lost",
        "s",
        low=1,
        high=60,
        sees="503 `limits_recounted` with `Retry-After`, on MCP a result with `isError`",
        why="all processes must have the same",
    )
    concurrency_when_unreachable: str = _is(
        "text",
        "refuse",
        "while `limits.url` does not answer: refuse every call, or let each process run its share of `concurrency_per_caller`",
        choices=("refuse", "share"),
        sees="503 `limits_unreachable` within 250 ms; or 429 at the share",
    )
    rate_when_unreachable: str = _is(
        "text",
        "refuse",
        "the same for `rate_per_minute`, where that is set; a call is refused if one of its limits says so",
        choices=("refuse", "share"),
        sees="503 `limits_unreachable` within 250 ms; or 429 at the share",
    )
    body_bytes: int = _is(
        "whole",
        1_048_576,
        "the largest request body; may be lowered, not raised",
        "bytes",
        low=1024,
        high=1_048_576,
        sees="413 before the body is read",
    )
    waiting_bytes_per_caller: int = _is(
        "whole",
        16_777_216,
        "how much may wait for one key: bodies still arriving and answers it has not read, together",
        "bytes",
        low=1_048_576,
        high=1_073_741_824,
        sees="429 `too_many_bytes_waiting`; for answers not read, the connection ends",
        why="all strangers count as one key",
    )
    output_bytes: int = _is(
        "whole",
        1_048_576,
        "the largest structured output; more is INVALID_OUTPUT",
        "bytes",
        low=1024,
        high=16_777_216,
        sees="502 `INVALID_OUTPUT`",
        live=True,
    )
    text_bytes: int = _is(
        "whole",
        65_536,
        "the longest text output; more is cut, at a character",
        "bytes",
        low=1024,
        high=1_048_576,
        sees="text that ends there; `output_limit_bytes` says so",
        live=True,
    )
    write_bytes_per_caller: int = _is(
        "whole",
        67_108_864,
        "how much one key may write into the workspace in an hour, and one call at most; a file counts as 4096 bytes or more",
        "bytes",
        low=1_048_576,
        high=2**40,
        sees="500 `write_share_used` before the call's first write; `too_much_written` for a call that is too large",
        why="nobody fills the disk for others",
    )
    free_bytes: int = _is(
        "whole",
        67_108_864,
        "free space on the workspace's disk below which tools write nothing there",
        "bytes",
        low=0,
        high=2**40,
        sees="500 `disk_low` before the call's first write",
        why="the audit log needs room, too",
    )
    store_bytes: int = _is(
        "whole",
        1_073_741_824,
        "how large the SQLite file of each store grows; other engines have bounds of their own",
        "bytes",
        low=1_048_576,
        high=2**40,
        sees="500 `store_unavailable` for what would write more; reading goes on",
    )
