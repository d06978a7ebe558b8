"""Redis or Valkey as the engine of shared limits: one connection, one script, one question at a time (ADR-0024)."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from hashlib import sha1, sha256
from importlib.util import find_spec
from os import urandom
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.model.limits import LimitClaim, Ruling, Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_S: Final = 0.2
"""An engine that has not answered by then counts as gone. With the way to the client, a refusal is out within 250 ms."""
PREFIX: Final = "toolgate:1:"
"""Before every key; the number is that of the script's data."""
HEAD: Final = 3
EACH: Final = 4
"""Numbers that the script answers: of the process, and of each claim."""
CALLER_CHARACTERS: Final = 32
"""128 bits of a digest: who reads the engine learns no key's id, and no two callers meet."""
MINUTE_US: Final = 60_000_000

_BAD_PASSWORD: Final = ("AUTH ", "Authentication ", "invalid username-password", "WRONGPASS", "NOAUTH")
"""How a server's refusal begins when the URL's password is wrong, missing or too many."""
_NO_URL: Final = (
    "limits.url is not the address of a Redis or Valkey server.\n"
    "Give redis://HOST:PORT/0 or rediss://..., or leave it out."
)
"""The value is not repeated: it may hold a password."""
_SCRIPT: Final = Path(__file__).with_name("limits.lua")


class RedisEngine:
    def __init__(self, url: str, *, per_caller: int, per_minute: int, lease_s: float) -> None:
        """Raises: StartRefused: the URL is none, or the client is not installed. Nothing is opened yet."""
        if find_spec("redis") is None or find_spec("hiredis") is None:
            raise StartRefused(
                "limits.url is set, and no client for it is installed.\nRun: pip install 'toolgate[redis]'"
            )
        self._kind, self._options = _connection_of(url)
        self._connect()
        self._script = _SCRIPT.read_bytes()
        self._digest = sha1(self._script, usedforsecurity=False).hexdigest()  # how Redis names a script
        self._bounds = (round(lease_s * 1_000_000), per_caller, _interval_us(per_minute))
        self._name = urandom(8).hex()
        self._generation = 0
        self._connection: Any = None

    async def join(self, running: Sequence[LimitClaim], *, again: bool) -> Standing:
        await self.close()
        self._connection = self._connect()
        self._generation += 1  # what is still under way on an older connection no longer counts
        words: list[Any] = ["again" if again else "first"]
        for claim in running:
            words += (_hidden(claim.caller), claim.running)
        standing, _ = _read(await self._run("EVAL", self._script, "join", words))
        return standing

    async def ask(self, claims: Sequence[LimitClaim]) -> tuple[Standing, Sequence[Ruling]]:
        words: list[Any] = []
        for claim in claims:
            words += (_hidden(claim.caller), claim.running, claim.to_hold, claim.to_pass)
            # Nothing says: as every caller.
            words += (
                b"" if claim.per_caller is None else claim.per_caller,
                b"" if claim.per_minute is None else _interval_us(claim.per_minute),
            )
        standing, rulings = _read(await self._run("EVALSHA", self._digest, "ask", words))
        if standing.is_known and len(rulings) != len(claims):
            raise StoreUnavailable("the engine of the limits gives an answer that is none")
        return standing, rulings

    async def leave(self) -> None:
        try:
            if self._connection is not None:
                await self._run("EVALSHA", self._digest, "leave", [])
        finally:
            await self.close()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
            self._connection = None

    async def _run(self, command: str, script: str | bytes, act: str, words: list[Any]) -> Any:
        """Raises: StoreUnavailable, and the connection is given up: nobody knows what became of the question."""
        from hiredis import pack_command  # noqa: PLC0415 (an extra, and only for those who configure it)
        from redis.exceptions import RedisError  # noqa: PLC0415 (as above)

        connection, began = self._connection, monotonic()
        if connection is None:
            raise StoreUnavailable("the engine of the limits is not connected")
        try:
            async with asyncio.timeout(ANSWER_S):
                if act == "join":
                    await connection.connect()
                who = (act, self._name, self._generation)
                packed = pack_command((command, script, 1, PREFIX + "state", PREFIX, *who, *self._bounds, *words))
                await connection.send_packed_command(packed, check_health=False)
                answer = await connection.read_response()
            if monotonic() - began > ANSWER_S:  # this process stood still, and meanwhile its lease may have expired
                raise TimeoutError
        except (RedisError, OSError, TimeoutError) as fault:
            await self.close()
            raise StoreUnavailable(_in_our_words(fault)) from None
        except BaseException:
            await self.close()
            raise
        return answer

    def _connect(self) -> Any:
        """A connection that is not open yet. Raises: StartRefused."""
        try:
            return self._kind(**self._options)
        except (TypeError, ValueError):
            raise StartRefused(_NO_URL) from None


def _connection_of(url: str) -> tuple[Any, dict[str, Any]]:
    """Raises: StartRefused."""
    from redis.asyncio.connection import Connection, parse_url  # noqa: PLC0415 (as above)

    scheme, colon, rest = url.partition(":")
    scheme = {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme)
    try:
        options: dict[str, Any] = dict(parse_url(scheme + colon + rest))
    except ValueError:
        raise StartRefused(_NO_URL) from None
    kind = options.pop("connection_class", Connection)
    # The bounds in time are ours, one for each question as a whole; RESP 2 is what every version speaks.
    return kind, {
        **options,
        "socket_timeout": None,
        "socket_connect_timeout": ANSWER_S,
        "protocol": 2,
        "driver_info": None,
    }


def _in_our_words(fault: Exception) -> str:
    """The client's own text may hold addresses; the first word of a server's refusal is its kind."""
    from redis.exceptions import ResponseError  # noqa: PLC0415 (as above)

    text = str(fault)
    kind = text.partition(" ")[0]
    if text.startswith(_BAD_PASSWORD):
        return "the engine of the limits refuses our password"
    if isinstance(fault, TimeoutError):
        return "the engine of the limits does not answer"
    if isinstance(fault, ResponseError):
        return f"the engine of the limits refuses the question ({kind if kind.isupper() else type(fault).__name__})"
    return "the engine of the limits cannot be reached"


def _interval_us(per_minute: int) -> str:
    return repr(float(MINUTE_US / per_minute if per_minute else 0))


@lru_cache(maxsize=4096)
def _hidden(caller: str) -> str:
    return sha256(b"toolgate limits " + caller.encode()).hexdigest()[:CALLER_CHARACTERS]


def _read(answer: Any) -> tuple[Standing, list[Ruling]]:
    """Raises: StoreUnavailable."""
    if not isinstance(answer, list) or len(answer) < HEAD or set(map(type, answer)) != {int}:
        raise StoreUnavailable("the engine of the limits gives an answer that is none")
    known, processes, wait_ms = answer[:HEAD]
    rulings = [
        Ruling(in_time, held, bool(room), pause_ms / 1000)
        for in_time, held, room, pause_ms in zip(*[iter(answer[HEAD:])] * EACH, strict=False)
    ]
    return Standing(bool(known), processes, wait_ms / 1000), rulings
