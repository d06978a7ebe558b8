"""The one shape of a face: how calls are read from a wire, and how answers are spelt on it. A face decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct

from toolgate.errors import Ending, Refusal
from toolgate.model.call import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY

if TYPE_CHECKING:
    from toolgate.faces.reply import Reply
    from toolgate.gate.admit import Grant
    from toolgate.model.call import Call, Transport, Wire
    from toolgate.model.envelope import Answer
    from toolgate.model.tool import Kind, Level

    class Visible(Protocol):
        """What a caller holds, and in which environment it is served, by the settings: what a client was shown of a tool must
        not change whenever a store does not answer for a moment. Each answer says in which one it was given."""

        @property
        def environment(self) -> str: ...
        def __call__(self, kind: Kind = "tool", /) -> Sequence[Grant]: ...


Note = Callable[[int, "int | None", str], bytes]
"""(done, total, message) -> a message on the wire."""


LogNote = Callable[["Level", Any], bytes]
"""(level, data) -> a message on the wire."""
Wish = Literal["", "session", "level", "subscribe", "unsubscribe", "stream", "listen", "resources", "approvals"]


class Besides(Struct, frozen=True):
    """What a message asks of the road beside a call: `toolgate.gate.sessions.wishes`."""

    wish: Wish = ""
    session: str | None = None
    """The session that it says it belongs to, sealed."""
    uri: str = ""
    """To subscribe to, or no longer."""
    level: Level | None = None
    lists: frozenset[str] = frozenset()
    uris: tuple[str, ...] = ()
    """What a stream should tell of."""
    told: Callable[[str], bytes] | None = None
    """Spells a change (the name of a list, or an address) on that stream."""
    ended: bytes = b""
    """The last message of that stream, if we end it."""
    capabilities: tuple[str, ...] = ()
    """What a client that greets says it can be asked."""
    desk: tuple[str, Mapping[str, Any]] = ("", {})
    """What is to be done about approvals, and what was sent with that."""


class Asked(Struct, frozen=True):
    """What a message asks for, as its face read it; the face gets it back to spell the answer."""

    id: Any = None
    call: Call | None = None
    refusal: Refusal | None = None
    """Why it is not a call. Without a call and a refusal the face answers by itself: `Face.answer`."""
    note: Note | None = None
    """Spells a step of the call's progress, for whoever asked to hear of it."""
    trace: tuple[str, str | None] | None = None
    """`traceparent` and `tracestate` of the message itself, which stand before those of a transport."""
    cancels: str | int | None = None
    """The id of an earlier message that its sender no longer wants answered."""
    besides: Besides | None = None
    log: LogNote | None = None
    """Spells what a tool logs, for whoever reads along."""
    log_level: Level | None = None
    """From which level on, unless the session says otherwise."""
    ask: Callable[[str, Mapping[str, Any]], bytes] | None = None
    """Spells a request to the client in the middle of the call, where the protocol has such."""
    response: Mapping[str, Any] | None = None
    """It is the answer to such a request."""


_KEY_HEADER: Final = IDEMPOTENCY_HEADER.encode()
KEY_FORM: Final = "an idempotency key has 1 to 255 visible ASCII characters, and comes once"


def key_hint(headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> str | None:
    """The idempotency key that a head brings, for `checked_key`; one that comes twice is no key."""
    found = headers.get(_KEY_HEADER)
    if found is None:
        return None
    return "" if _KEY_HEADER in repeated else found.decode("latin-1")


def checked_key(hint: str | None) -> str | None:
    """Raises: Refusal."""
    if hint is not None and not IDEMPOTENCY_KEY.fullmatch(hint):
        raise Refusal(Ending.MALFORMED, f"Idempotency-Key is refused: {KEY_FORM}.", reason="invalid_idempotency_key")
    return hint


class Face(Protocol):
    route: str
    """Where HTTP serves it."""
    wires: Mapping[Transport, Wire]
    """By the transports that carry it."""

    def hints(self, headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> Any:
        """What it wants to know of an HTTP head; given to `read`, which gets None of other transports."""

    def speaks(self, message: Any) -> bool:
        """Is this message its own? Asked where several faces share a stream."""

    def unread(self, message: Any) -> Asked:
        """What a refusal answers to before the message was read; where there is no message, anything else comes in."""

    def read(self, message: Any, transport: Transport, hints: Any) -> Asked: ...

    def look(self, hints: Any) -> Any:
        """The message that a GET of its route stands for; None: it stands for nothing."""

    def answer(self, asked: Asked, visible: Visible, found: Sequence[Any] = ()) -> Reply:
        """To a message that is no call; no body where the protocol wants silence. `visible`: what its sender may call, by
        kind. `found`: what a wish has brought."""

    def render(self, asked: Asked, answer: Answer) -> Reply: ...
