"""What a client carries for us, sealed: the state of a call that asked something, and the session of the handshake era.

Neither is kept in a table. Both open only for the key of the caller they were made for, so a text that was stolen, planted or
guessed is worth nothing without that key; and both end.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate.errors import Ending, Refusal
from toolgate.kit.seal import NotSealed, seal, unseal
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.gate.admit import Ticket
    from toolgate.model.call import Caller
    from toolgate.model.clock import Clock, IdSource
    from toolgate.model.tool import Level

SESSION_S: Final = 86_400
"""A day; a client whose session has ended greets again."""
STATE_S: Final = 3600
"""For a person to answer a question."""
MAX_SUBSCRIPTIONS: Final = 32
MAX_SUBSCRIBED: Final = 4096
"""Characters of all addresses of one session: they travel in a header."""
_OPENED: Final = 1024
"""Sessions whose opening is remembered, to save the work. Forgetting one changes nothing."""
_SESSION, _STATE = "session", "state"


class SealedSession(Struct):
    """What a client of the handshake era has told us. Over HTTP it is opened from each request's own header."""

    id: str
    owner: str
    ends: float
    level: Level | None = None
    """From which level on it wants to read what tools log."""
    uris: tuple[str, ...] = ()
    """What it is subscribed to."""
    capabilities: tuple[str, ...] = ()
    """What it can be asked, as it has said."""

    def subscribe(self, uri: str) -> None:
        """Raises: Refusal."""
        if uri in self.uris:
            return
        if len(self.uris) == MAX_SUBSCRIPTIONS or sum(map(len, self.uris)) + len(uri) > MAX_SUBSCRIBED:
            text = (
                f"A session holds {MAX_SUBSCRIPTIONS} subscriptions of {MAX_SUBSCRIBED} characters; unsubscribe first."
            )
            raise Refusal(Ending.TOO_MANY, text)
        self.uris = (*self.uris, uri)

    def unsubscribe(self, uri: str) -> None:
        self.uris = tuple(each for each in self.uris if each != uri)


class Seals(Struct, frozen=True):
    key: Callable[[], bytes]
    """Of this home, shared by its processes; made when it is first needed."""
    clock: Clock
    ids: IdSource
    _opened: dict[tuple[str, str], tuple[str, float, Level | None, tuple[str, ...], tuple[str, ...]]] = field(
        default_factory=dict
    )

    def new_session(self, caller: Caller) -> SealedSession:
        """An id that a client chose is never taken."""
        return SealedSession(self.ids.for_call(None, None).request, caller.key_id, self.clock.wall() + SESSION_S)

    def sealed(self, session: SealedSession) -> str:
        content = [session.id, session.ends, session.level, session.uris, session.capabilities]
        return seal(self.key(), content, _SESSION, session.owner)

    def session(self, text: str, caller: Caller) -> SealedSession:
        """Raises: Refusal NO_SESSION: whoever is told so greets again."""
        found = self._opened.get((text, caller.key_id))
        if found is None:
            try:
                name, ends, level, uris, capabilities = unseal(self.key(), text, _SESSION, caller.key_id)
            except (NotSealed, strictjson.JsonFault, ValueError):
                raise _no_session() from None
            if len(self._opened) >= _OPENED:
                self._opened.clear()
            found = self._opened[text, caller.key_id] = (name, ends, level, tuple(uris), tuple(capabilities))
        if found[1] <= self.clock.wall():
            raise _no_session()
        return SealedSession(found[0], caller.key_id, *found[1:])

    def state_of(self, ticket: Ticket, state: Any) -> str:
        """Opens for this caller, this tool (an upstream's: as it was approved) and these arguments only, secret ones included."""
        return seal(self.key(), [self.clock.wall() + STATE_S, state], *_purpose(ticket))

    def state(self, ticket: Ticket, text: str) -> Any:
        """Raises: Refusal STATE_REFUSED."""
        try:
            ends, state = unseal(self.key(), text, *_purpose(ticket))
        except (NotSealed, strictjson.JsonFault, ValueError):
            raise _refused("requestState is not one that this call was given; call again without it.") from None
        if ends <= self.clock.wall():
            raise _refused("requestState is too old; call again without it.")
        return state


def _purpose(ticket: Ticket) -> tuple[str | bytes, ...]:
    arguments = sha256(strictjson.dumps_sorted(ticket.call.arguments)).digest()
    foreign = ticket.grant.tool.foreign
    return _STATE, ticket.caller.key_id, ticket.grant.tool_id, arguments, "" if foreign is None else foreign.pin


def _refused(text: str) -> Refusal:
    return Refusal(Ending.STATE_REFUSED, text, reason="invalid_request_state")


def _no_session() -> Refusal:
    return Refusal(Ending.NO_SESSION, "Session not found: send initialize again.", reason="no_session")
