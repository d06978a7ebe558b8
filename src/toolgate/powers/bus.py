"""NATS as a wire between servers: ask and answer by subject. Nothing is kept there (a broker may lose what it acknowledged)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StartRefused, StoreUnavailable, ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CONNECT_TIMEOUT_S: Final = 2.0
RECONNECT_WAIT_S: Final = 1.0
"""Between attempts; they never end: a broker that comes back is used again without a restart."""


class NatsBuses:
    async def open(self, url: str) -> NatsBus:
        """Raises: StoreUnavailable; StartRefused. Side effects: one connection, kept up until `close`."""
        try:
            import nats  # noqa: PLC0415 (an extra, and only for those who configure a broker)
        except ModuleNotFoundError:
            raise StartRefused("NATS is configured and not installed.\nRun: pip install 'toolgate[nats]'") from None
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

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        from nats import errors  # noqa: PLC0415 (as above)

        try:
            answer = await self._connection.request(subject, data, timeout=timeout_s)
        except errors.NoRespondersError:
            raise ToolError("TARGET_NOT_FOUND", "nobody serves this subject", missing=True) from None
        except (errors.Error, TimeoutError, OSError):
            raise ToolError("TIMEOUT", "no answer over NATS") from None
        return bytes(answer.data)

    async def serve(self, subject: str, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        async def handle(message: Any) -> None:
            await message.respond(await answer(bytes(message.data)))

        await self._connection.subscribe(subject, cb=handle)

    async def close(self) -> None:
        await self._connection.close()
