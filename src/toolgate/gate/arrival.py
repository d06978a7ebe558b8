"""One message as a transport hands it to the road, and what the road tells the transport about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.gate.sessions.back_channel import give_up
from toolgate.model import strictjson
from toolgate.model.call import NO_ORIGIN, Origin
from toolgate.model.tool import LEVELS

if TYPE_CHECKING:
    from toolgate.errors import Refusal
    from toolgate.faces.face import Asked, Face, LogNote, Note
    from toolgate.gate.admit import Ticket
    from toolgate.gate.sessions.seals import SealedSession, Seals
    from toolgate.model.call import Call, Caller, Transport
    from toolgate.model.tool import Level

MAX_LOGGED: Final = 8192
"""Bytes of one thing that a tool logs."""
UNREAD: Final = object()
"""Stands for a message that nobody has decoded yet."""


def stepping_to(send: Callable[[bytes], None], spell: Note) -> Callable[[int, int | None, str], None]:
    """A tool's progress, spelt and sent."""

    def progress(done: int, total: int | None, message: str) -> None:
        send(spell(done, total, message))

    return progress


def logging_to(send: Callable[[bytes], None], spell: LogNote, level: Level) -> Callable[[Level, Any], None]:
    """What a tool logs, spelt and sent, from this level on. What cannot be sent, or is no level, is nobody's: never a fault."""
    least = LEVELS.index(level)

    def log(at: Level, data: Any) -> None:
        if at not in LEVELS or LEVELS.index(at) < least:
            return
        with suppress(strictjson.JsonFault, TypeError):
            if len(strictjson.encode_checked(data)) <= MAX_LOGGED:
                send(spell(at, data))

    return log


class Arrival(Struct):
    """Transports subclass it to react to what the road tells them."""

    face: Face
    transport: Transport
    credential: bytes | None
    key_fault: str | None = None
    """Why the key that came with it cannot be used."""
    body: bytes | None = None
    """What to decode, if `message` is not read. None: more of it came than may."""
    body_bytes: int = 0
    """How much may."""
    message: Any = UNREAD
    hints: Any = None
    fault: Refusal | None = None
    """What the transport has against it, whatever it says; told to those who have a key."""
    origin: Origin = NO_ORIGIN
    caller_id: str = ""
    """Whose key was accepted on the same connection before."""
    is_held: bool = False
    """Its answer waits until `Ledger.flush` has written its record, together with others."""
    caller: Caller | None = None
    """Set by the road once the key is accepted."""
    asked: Asked | None = None
    """Likewise, once the message is read."""
    ticket: Ticket | None = None
    """Likewise, once the call is admitted."""
    session: SealedSession | None = None
    """Of the handshake era: what its client has told us before."""
    question: asyncio.Future[Any] | None = None
    """The answer to what is asked of the sender now."""

    def know(self, caller: Caller) -> None:
        """A key was accepted that is not `caller_id`'s."""

    def cancel(self, request_id: str | int) -> None:
        """The sender no longer waits for an answer to this earlier message."""

    def with_progress(self, asked: Asked) -> Call:
        """Its call, with a way for `asked.note` to reach the sender, if there is one."""
        assert asked.call is not None
        return asked.call

    def with_log(self, call: Call, asked: Asked, level: Level) -> Call:  # noqa: ARG002 (for those who have a way)
        """The call, with a way for what its tool logs to reach the sender, from this level on."""
        return call

    def asking(self) -> Callable[[bytes], None] | None:
        """A way for requests to reach the sender while its call is under way; None: there is none."""

    def wait(self, question: asyncio.Future[Any]) -> None:
        self.question = question

    def keep_session(self, session: SealedSession, seals: Seals) -> tuple[bytes, bytes] | None:
        """The session is new or has changed: keep it where this transport keeps sessions, or have the client keep it."""

    def leave(self) -> None:
        """Called by the transport: the sender went away."""
        if self.question is not None:
            give_up(self.question)
        if self.ticket is not None:
            self.ticket.leave()

    def give_up(self) -> None:
        """Called by the transport: the sender said that it no longer wants the answer."""
        if self.question is not None:
            give_up(self.question)
        if self.ticket is not None:
            self.ticket.cancel()
