"""NATS as a wire between servers: ask and answer by subject. Nothing is kept there (a broker may lose what it acknowledged)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StartRefused, StoreUnavailable, ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CONNECT_TIMEOUT_S: Final = 2.0
RECONNECT_WAIT_S: Final = 1.0
"""Between attempts; they never end: a broker that comes back is used again without a restart."""
LISTEN_BURST: Final = 512
LISTEN_PER_S: Final = 256
"""Requests looked at on one subject. A hundred arbiters that all ask here in the same second stay below it."""
REST_S: Final = 2.0
"""Then we stop listening for so long: the broker sends nothing meanwhile, and says at once that nobody is there."""
PENDING_MESSAGES: Final = 256
PENDING_BYTES: Final = 8 * 1024 * 1024
"""What may wait for its turn here; the library's own bounds are half a million messages and 128 MB."""
TELL_EVERY_S: Final = 60.0
"""Between two log lines about a flood."""

_log: Final = logging.getLogger("toolgate.bus")


class NatsBuses:
    def require_client(self) -> None:
        """Raises: StartRefused."""
        if find_spec("nats") is None:
            raise StartRefused("NATS is configured and not installed.\nRun: pip install 'toolgate[nats]'")

    async def open(self, url: str) -> NatsBus:
        """Raises: StoreUnavailable; StartRefused. Side effects: one connection, kept up until `close`."""
        self.require_client()
        import nats  # noqa: PLC0415 (an extra, and only for those who configure a broker)

        try:
            # The library would try the first connection for ever, too: whoever asks wants to know now.
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await nats.connect(
                    url, reconnect_time_wait=RECONNECT_WAIT_S, max_reconnect_attempts=-1, error_cb=_ignore
                )
        except (OSError, TimeoutError, nats.errors.Error):
            # The address may hold a password: it is not repeated.
            raise StoreUnavailable("the NATS server does not answer") from None
        return NatsBus(connection)


async def _ignore(_fault: Exception) -> None:
    """The library's default prints; a lost connection shows in `request`, and reconnecting goes on."""


class NatsBus:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._listeners: list[_Listener] = []

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        from nats import errors  # noqa: PLC0415 (as above)

        try:
            answer = await self._connection.request(subject, data, timeout=timeout_s)
        except errors.NoRespondersError:
            raise ToolError("TARGET_NOT_FOUND", "nobody serves this subject", missing=True) from None
        except (errors.Error, TimeoutError, OSError):
            raise ToolError("TIMEOUT", "no answer over NATS") from None
        return bytes(answer.data)

    async def serve(self, subject: str, answer: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        listener = _Listener(self._connection, subject, answer)
        await listener.open()
        self._listeners.append(listener)

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()
        await self._connection.close()


class _Listener:
    """One subject. Whoever can reach the broker can flood it, so how much we listen is ours to say."""

    def __init__(self, connection: Any, subject: str, answer: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        self._connection = connection
        self._subject = subject
        self._answer = answer
        self._subscription: Any = None
        self._rest: asyncio.Task[None] | None = None
        self._level, self._since = float(LISTEN_BURST), monotonic()
        self._dropped = 0
        self._tell_again = 0.0

    async def open(self) -> None:
        self._subscription = await self._connection.subscribe(
            self._subject, cb=self._handle, pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES
        )

    async def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            await asyncio.gather(self._rest, return_exceptions=True)

    async def _handle(self, message: Any) -> None:
        if not self._may_look():
            self._dropped += 1
            if self._rest is None:
                # A task of its own: the library ends the one we are in when it unsubscribes.
                self._rest = asyncio.create_task(self._stop_for_a_while(), name="nats-rest")
            return
        reply = await self._answer(bytes(message.data)) if message.reply else None
        if reply is not None:
            await message.respond(reply)

    def _may_look(self) -> bool:
        now = monotonic()
        self._level = min(LISTEN_BURST, self._level + (now - self._since) * LISTEN_PER_S)
        self._since = now
        if self._rest is not None or self._level < 1:
            return False
        self._level -= 1
        return True

    async def _stop_for_a_while(self) -> None:
        from nats import errors  # noqa: PLC0415 (as above)

        self._tell()
        with suppress(errors.Error):
            await self._subscription.unsubscribe()
        while self._rest is not None:
            await asyncio.sleep(REST_S)
            with suppress(errors.Error):  # no connection just now: asked again
                await self.open()
                self._rest = None

    def _tell(self) -> None:
        if monotonic() >= self._tell_again:
            self._tell_again = monotonic() + TELL_EVERY_S
            _log.warning(
                "NATS: more than %d requests a second on our subject: not listening for %g s (%d dropped so far)",
                LISTEN_PER_S,
                REST_S,
                self._dropped,
            )
