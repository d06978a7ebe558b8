"""One answer over HTTP as it arrives: a message, or server-sent events, as far as MCP uses them. Linear and bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from toolgate.model.mcpwire import NOTHING
from toolgate.powers import wire
from toolgate.powers.mcp.messages import MalformedMessage, Notification, Response, UpstreamRequest

if TYPE_CHECKING:
    from toolgate.powers.mcp.bounds import Bounds
    from toolgate.powers.mcp.transport import Inbox

_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A line ends with CRLF, LF or CR; a CR at the end of a piece may be half of the first."""
_MARK: Final = b"\xef\xbb\xbf"


class Events:
    """The data of each message event."""

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


class Catch:
    """Takes one HTTP answer as it arrives: a message, or a stream of them until the one that answers."""

    def __init__(
        self,
        number: int,
        inbox: Inbox,
        on_message: Callable[[Notification | UpstreamRequest], None],
        bounds: Bounds,
        opened: Callable[[], None] | None = None,
    ) -> None:
        """`opened`: told when the answer has begun."""
        self._number = number
        self._inbox = inbox
        self._on_message = on_message
        self._bounds = bounds
        self._opened = opened
        self.again()

    def again(self) -> None:
        self.enough = False
        self.status = 0
        self.headers: Mapping[str, str] = NOTHING
        self.answer: Response | None = None
        self.fault: MalformedMessage | None = None
        self._events: Events | None = None
        self._body: bytes | bytearray = b""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        if self._opened is not None:
            self._opened()
        if wire.media_type(headers) == "text/event-stream":
            self._events = Events(self._bounds.message_bytes)

    def take(self, data: bytes) -> None:
        try:
            if self._events is None:
                self._keep(data)
                return
            for event in self._events.feed(data):
                self._read(event)
        except MalformedMessage as fault:
            self.fault = fault
            raise wire.ConnectionBroken from fault

    def _keep(self, data: bytes) -> None:
        """Most answers are one piece, and then nothing is copied."""
        if len(self._body) + len(data) > self._bounds.message_bytes:
            raise MalformedMessage("answer_too_large", f"the answer is larger than {self._bounds.message_bytes} bytes")
        if not self._body:
            self._body = data
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += data

    def end(self) -> None:
        """All of it has come."""
        body, self._body = self._body, b""
        try:
            if body and self._number and self._is_json():
                self._read(bytes(body))
        except MalformedMessage as fault:
            if self.status < 400:  # an error page may be anything
                self.fault = fault

    def _is_json(self) -> bool:
        if wire.media_type(self.headers) == "application/json":
            return True
        if self.status >= 400:
            return False
        raise MalformedMessage("not_a_message", "the answer is neither JSON nor a stream of events")

    def _read(self, data: bytes) -> None:
        self.hear(self._inbox.read(data))

    def hear(self, message: Response | Notification | UpstreamRequest | None) -> None:
        """One message of the answer, read. Raises: MalformedMessage."""
        if isinstance(message, Response):
            self._take_answer(message)
        elif message is not None:
            self._on_message(message)

    def _take_answer(self, answer: Response) -> None:
        if self.answer is not None:
            raise MalformedMessage("unasked_answer", "a second answer came to one request")
        if answer.id != self._number and not (answer.error is not None and answer.id == -1):
            raise MalformedMessage("wrong_id", "an answer carries an id that was never sent")
        self.answer = Response(self._number, answer.result, answer.raw, answer.error, self.status)
        self.enough = self._events is not None
