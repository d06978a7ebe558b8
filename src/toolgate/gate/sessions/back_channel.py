"""Asking a client of the handshake era in the middle of its call: a request on the stream of the call, answered by a message of
its own.

What is waited for is known by the caller's key and by an id that nobody can guess: an answer that another key brings, or that
comes twice, is nobody's. The call that asked has ended by then, with a record, and holds no slot; the answers come with its
sealed state to a call that goes on, which is the same that a client of the modern era would make itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate.errors import Ending, Refusal

if TYPE_CHECKING:
    from toolgate.model.call import Caller
    from toolgate.model.clock import IdSource

WAIT_S: Final = 300.0
"""For a person to answer one question, while the connection is held open."""
MAX_ROUNDS: Final = 8
"""Times that one call may ask."""
MAX_WAITING: Final = 64
"""Questions to the clients of one key at once."""

Spelt = Callable[[str, Mapping[str, Any]], bytes]
"""(id, request) -> a message on the wire."""


Waits = Callable[[asyncio.Future[Any]], None]
"""Told what is waited for, to `give_up` if the client leaves."""


class BackChannel(Struct, frozen=True):
    """Questions that wait for an answer."""

    ids: IdSource
    _waiting: dict[tuple[str, str], asyncio.Future[Any]] = field(default_factory=dict)
    elsewhere: list[Callable[[str, Mapping[str, Any]], None]] = field(default_factory=list)
    """Where other processes serve the same port: who is given an answer that nobody waits for here, with its sender's key id."""

    async def ask(
        self,
        caller: Caller,
        requests: Mapping[str, Mapping[str, Any]],
        spell: Spelt,
        send: Callable[[bytes], None],
        wait: Waits,
    ) -> dict[str, Any]:
        """The answers, by the names of the requests. Raises: Refusal: the client refuses, leaves, or takes too long."""
        return {name: await self._ask(caller, request, spell, send, wait) for name, request in requests.items()}

    async def _ask(
        self, caller: Caller, request: Mapping[str, Any], spell: Spelt, send: Callable[[bytes], None], wait: Waits
    ) -> Any:
        if sum(1 for key_id, _ in self._waiting if key_id == caller.key_id) >= MAX_WAITING:
            raise Refusal(Ending.TOO_MANY, f"{MAX_WAITING} questions to clients of this key wait for an answer.")
        place = caller.key_id, self.ids.for_call(None, None).request
        loop = asyncio.get_running_loop()
        answer = self._waiting[place] = loop.create_future()
        timer = loop.call_later(WAIT_S, give_up, answer)
        wait(answer)
        try:
            send(spell(place[1], request))
            message = await answer
        finally:
            timer.cancel()
            del self._waiting[place]
        if message is None or "result" not in message:
            said = "did not answer in time" if message is None else "refused to answer"
            raise Refusal(Ending.CLIENT_CANNOT, f"The client {said} what the tool asks.", reason="client_refused")
        return message["result"]

    def deliver(self, caller: Caller, message: Mapping[str, Any]) -> None:
        """An answer came; one that nobody waits for is let go."""
        if not self.deliver_here(caller.key_id, message):
            for pass_on in self.elsewhere:
                pass_on(caller.key_id, message)

    def deliver_here(self, key_id: str, message: Mapping[str, Any]) -> bool:
        """Does somebody here wait for it?"""
        answer = self._waiting.get((key_id, str(message.get("id"))))
        if answer is not None and not answer.done():
            answer.set_result(message)
        return answer is not None

    def waiting(self) -> int:
        return len(self._waiting)


def give_up(answer: asyncio.Future[Any]) -> None:
    """Nobody will answer."""
    if not answer.done():
        answer.set_result(None)
