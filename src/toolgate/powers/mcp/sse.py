"""Server-sent events, as far as MCP uses them: the data of each message event. Linear in what comes, bounded by its caller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolgate.powers.mcp.messages import MalformedMessage

_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A line ends with CRLF, LF or CR; a CR at the end of a piece may be half of the first."""
_MARK: Final = b"\xef\xbb\xbf"


class Events:
    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._rest = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._size = 0
        self._kind = b""
        self._first = True

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of every message event that is now complete. Raises: MalformedMessage: an event is too large."""
        self._rest += piece
        start = 0
        # What was searched before holds no end, except that its last byte may be a CR.
        for found in _END.finditer(self._rest, max(0, self._searched - 1)):
            line = bytes(self._rest[start : found.start()])
            start = found.end()
            event = self._line(line)
            if event:
                yield event
        del self._rest[:start]
        self._searched = len(self._rest)
        if self._size + len(self._rest) > self._max:
            raise MalformedMessage("answer_too_large", f"an event is larger than {self._max} bytes")

    def _line(self, line: bytes) -> bytes | None:
        if self._first:
            self._first, line = False, line.removeprefix(_MARK)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._max:
                raise MalformedMessage("answer_too_large", f"an event is larger than {self._max} bytes")
        elif name == b"event":
            self._kind = value
        return None  # comments, ids and retry times are not ours to act on

    def _dispatch(self) -> bytes | None:
        data, kind = b"\n".join(self._data), self._kind
        self._data.clear()
        self._size, self._kind = 0, b""
        return data if data and kind in (b"", b"message") else None
