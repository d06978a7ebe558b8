"""A call with an idempotency key runs once; who asks again gets the recorded answer (ADR-0027).

Between steps 4 and 5 a call with such a key claims it in a store that all processes share, and only who got the claim runs.
After step 9 the answer is kept there, sealed. Whoever finds a claim without an answer is told that the call is under way, or,
when its process is gone, that it is in doubt: a call under a key is never run a second time in silence.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from toolgate.errors import OK, Ending, Refusal, StoreUnavailable
from toolgate.gate.execute import Outcome
from toolgate.kit.seal import NotSealed, decrypt, encrypt
from toolgate.kit.sql import sql
from toolgate.model import strictjson
from toolgate.model.tool import Migration, Result

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from toolgate.gate.admit import Ticket
    from toolgate.model.clock import Clock
    from toolgate.model.powers import Store

RunState = Literal["going_on", "over", "elsewhere"]
"""Of a process, by its run of the log: it holds its lock; it is gone; nobody here can tell."""

Out = TypeVar("Out")

STORE: Final = "idempotency"
GRACE_S: Final = 30.0
"""Beyond its deadline, for a call to write its records. After that a claim without an answer is in doubt."""
TIDIED: Final = 100
"""Claims past their time that one call removes: more than it adds."""
RETRY_AFTER_S: Final = 1
_NOTHING_RAN: Final = frozenset({Ending.UPSTREAM_DOWN, Ending.UPSTREAM_DRIFT})
"""The call did not reach its upstream: its key is free again."""
_NOBODY_KNOWS: Final = frozenset({Ending.IN_DOUBT, Ending.TOOL_FAILED})
"""The handler did not end by itself, or its answer did not come."""
_log: Final = logging.getLogger("toolgate.idempotency")

_TABLE: Final = (
    "CREATE TABLE idempotency_claim (place TEXT PRIMARY KEY, caller TEXT NOT NULL, home TEXT NOT NULL,"
    " digest TEXT NOT NULL, request_id TEXT NOT NULL, run TEXT NOT NULL, state TEXT NOT NULL, due_ms BIGINT NOT NULL,"
    " ends_ms BIGINT NOT NULL, bytes BIGINT NOT NULL, answer BYTEA)"
)
_BY_CALLER: Final = "CREATE INDEX idempotency_claim_caller ON idempotency_claim (caller, bytes)"
_BY_END: Final = "CREATE INDEX idempotency_claim_ends ON idempotency_claim (ends_ms)"
MIGRATIONS: Final = (Migration(STORE, 1, (_TABLE, _BY_CALLER, _BY_END)),)


class KeyBounds(Struct, frozen=True):
    keep_s: float
    """How long a key is known."""
    keys_per_caller: int
    bytes_per_caller: int


class KeptAnswer(Struct, frozen=True, array_like=True):
    """An outcome as it stood after step 7."""

    ending: str
    reason: str | None
    text: str | None
    data: bytes
    details: bytes
    content: bytes
    relayed: bool
    """`data` is an upstream's own result, exactly as it came."""
    success: bool
    is_error: bool | None
    degraded: bool | None
    decision: str | None
    code: str | None
    message: str | None
    exit_code: int


class KeyClaim(Struct, frozen=True):
    """What a ticket holds of its key: the row of the store, and who may change it."""

    place: str
    digest: str


class Idempotency(Struct, frozen=True):
    store: Callable[[], Store]
    """Opened when a call first brings a key."""
    close: Callable[[], None]
    secret: Callable[[], bytes]
    """Of this home, shared by its processes. Raises: OSError."""
    clock: Clock
    bounds: KeyBounds
    run: str
    """Of the log, which this process writes."""
    state_of: Callable[[str], RunState]

    async def claim(self, ticket: Ticket) -> Outcome | None:
        """None: the key is this call's, which may run. Otherwise the answer of the call that had it first.

        Raises: Refusal: nothing runs.
        """
        try:
            secret = self.secret()
            claim = _claim_of(ticket, secret)
            first = await self._in_store(partial(self._take, ticket, claim, _home_of(secret)))
        except (StoreUnavailable, OSError):
            text = "Idempotency keys cannot be looked up now; nothing has run."
            raise Refusal(Ending.UNAVAILABLE, text, reason="idempotency_unavailable") from None
        if first is None:
            ticket.claim = claim
            return None
        ticket.repeats = first["request_id"]
        return self._answered(first, claim, secret)

    async def settle(self, ticket: Ticket, outcome: Outcome | None) -> None:
        """The call has ended. None: its end could not be recorded. Never raises: the answer leaves all the same, and whoever
        asks again is told that the call is in doubt."""
        claim = ticket.claim
        assert claim is not None
        try:
            ask = outcome.result.ask if outcome is not None else None
            if ask is not None and ask.holds:
                return  # it is under way, and its key is that of the call that goes on
            if outcome is not None and (outcome.ending in _NOTHING_RAN or ask is not None):
                await self.release(ticket)
                return
            kept = None
            if outcome is not None and outcome.ending not in _NOBODY_KNOWS:
                kept = encrypt(self.secret(), _encoded(outcome), STORE, claim.place, claim.digest)
            await self._in_store(partial(_keep, claim.place, ticket.ids.request, kept))
        except (StoreUnavailable, OSError) as fault:
            _log.warning("the answer of request %s is not kept: %s", ticket.ids.request, fault)

    async def release(self, ticket: Ticket) -> None:
        """Nothing ran: the key is free. Never raises, as above."""
        assert ticket.claim is not None
        try:
            await self._in_store(partial(_free, ticket.claim.place, ticket.ids.request))
        except StoreUnavailable as fault:
            _log.warning("the key of request %s stays claimed: %s", ticket.ids.request, fault)

    async def _in_store(self, work: Callable[[Connection], Out]) -> Out:
        """In a task of its own: a store needs one to give up in time, and a server may carry a call without. Raises:
        StoreUnavailable."""
        return await asyncio.get_running_loop().create_task(self._work(work))

    async def _work(self, work: Callable[[Connection], Out]) -> Out:
        return await self.store().run(work)

    def _take(self, ticket: Ticket, claim: KeyClaim, home: str, connection: Connection) -> Mapping[str, Any] | None:
        """One transaction: None when the row is now ours, else the row of whoever was first. Raises: Refusal."""
        now = self.clock.wall()
        connection.execute(sql(_TIDY), {"now": _ms(now), "most": TIDIED})
        connection.execute(sql(_EXPIRE), {"place": claim.place, "now": _ms(now)})
        row = {
            "place": claim.place,
            "caller": ticket.caller.key_id,
            "home": home,
            "digest": claim.digest,
            "request_id": ticket.ids.request,
            "run": self.run,
            "due": _ms(now + ticket.grant.tool.deadline_s + GRACE_S),
            "ends": _ms(now + self.bounds.keep_s),
        }
        if connection.execute(sql(_CLAIM), row).rowcount == 1:
            self._check_room(ticket, connection)
            return None
        if ticket.goes_on is not None:
            more = {"before": ticket.goes_on, "request_id": row["request_id"], "due": row["due"]}
            if connection.execute(sql(_GO_ON), {"place": claim.place, **more}).rowcount == 1:
                return None
        first = connection.execute(sql(_FIND), {"place": claim.place}).mappings().one()
        if first["home"] != home:
            text = "The idempotency key was used at a server with another log key, so arguments cannot be compared."
            raise _refused(Ending.UNAVAILABLE, text, "idempotency_other_home", dict(first))
        return dict(first)

    def _check_room(self, ticket: Ticket, connection: Connection) -> None:
        """Raises: Refusal: the claim just made is taken back with its transaction. A kept answer is never dropped for a new
        one: its call would run again."""
        used = connection.execute(sql(_USED), {"caller": ticket.caller.key_id}).one()
        if used[0] <= self.bounds.keys_per_caller and used[1] <= self.bounds.bytes_per_caller:
            return
        text = "This key's callers hold too many idempotency keys or kept answers; wait until some have passed."
        raise Refusal(Ending.TOO_MANY, text, reason="too_many_idempotency_keys")

    def _answered(self, first: Mapping[str, Any], claim: KeyClaim, secret: bytes) -> Outcome:
        """Raises: Refusal."""
        if not hmac.compare_digest(first["digest"], claim.digest):
            text = "The idempotency key was used with other arguments; use a new key for another call."
            raise _refused(Ending.KEY_REUSED, text, "other_arguments", first)
        if first["state"] == "open" and self._is_under_way(first):
            text = "The first call with this idempotency key is still under way; ask again for its answer."
            raise _refused(Ending.KEY_BUSY, text, "under_way", first, retry_after_s=RETRY_AFTER_S)
        if first["state"] != "done":
            text = "The first call with this idempotency key may have run; its end is not known. It is not run again."
            raise _refused(Ending.IN_DOUBT, text, "first_call_in_doubt", first)
        try:
            return _decoded(decrypt(secret, bytes(first["answer"]), STORE, claim.place, claim.digest))
        except (NotSealed, msgspec.MsgspecError, strictjson.JsonFault):
            text = "The answer kept for this idempotency key was changed; the call is not run again."
            raise _refused(Ending.IN_DOUBT, text, "kept_answer_unreadable", first) from None

    def _is_under_way(self, first: Mapping[str, Any]) -> bool:
        return self.clock.wall() * 1000 < first["due_ms"] and self.state_of(first["run"]) != "over"


_TIDY: Final = (
    "DELETE FROM idempotency_claim WHERE place IN"
    " (SELECT place FROM idempotency_claim WHERE ends_ms <= :now ORDER BY ends_ms LIMIT :most)"
)
_EXPIRE: Final = "DELETE FROM idempotency_claim WHERE place = :place AND ends_ms <= :now"
_CLAIM: Final = (
    "INSERT INTO idempotency_claim (place, caller, home, digest, request_id, run, state, due_ms, ends_ms, bytes)"
    " VALUES (:place, :caller, :home, :digest, :request_id, :run, 'open', :due, :ends, 0) ON CONFLICT (place) DO NOTHING"
)
_FIND: Final = "SELECT home, digest, request_id, run, state, due_ms, answer FROM idempotency_claim WHERE place = :place"
_USED: Final = "SELECT count(*), coalesce(sum(bytes), 0) FROM idempotency_claim WHERE caller = :caller"
_KEEP: Final = (
    "UPDATE idempotency_claim SET state = :state, bytes = :bytes, answer = :answer"
    " WHERE place = :place AND request_id = :request_id"
)
_GO_ON: Final = (
    "UPDATE idempotency_claim SET request_id = :request_id, due_ms = :due"
    " WHERE place = :place AND request_id = :before AND state = 'open'"
)
"""The claim of a call that is held for an answer becomes that of the call which brings it."""
_FREE: Final = "DELETE FROM idempotency_claim WHERE place = :place AND request_id = :request_id"


def _keep(place: str, request_id: str, answer: bytes | None, connection: Connection) -> None:
    """None: nobody knows how it ended."""
    row = {"place": place, "request_id": request_id, "answer": answer, "bytes": len(answer or b"")}
    connection.execute(sql(_KEEP), {**row, "state": "in_doubt" if answer is None else "done"})


def _free(place: str, request_id: str, connection: Connection) -> None:
    connection.execute(sql(_FREE), {"place": place, "request_id": request_id})


def _claim_of(ticket: Ticket, secret: bytes) -> KeyClaim:
    """The place is the same for every home, so that none overlooks another's claim; the digest is keyed, because arguments
    that are secret could be guessed from a plain one."""
    named = strictjson.dumps([ticket.caller.key_id, ticket.grant.tool_id, ticket.call.idempotency_key])
    arguments = strictjson.dumps_sorted(ticket.call.arguments)
    return KeyClaim(sha256(named).hexdigest(), hmac.digest(secret, named + b"\n" + arguments, "sha256").hex())


def _home_of(secret: bytes) -> str:
    return hmac.digest(secret, b"home", "sha256").hex()[:16]


def _refused(
    ending: Ending, text: str, reason: str, first: Mapping[str, Any], *, retry_after_s: int | None = None
) -> Refusal:
    more = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
    request_id = first["request_id"]
    return Refusal(ending, text, recorded={"repeats": request_id}, reason=reason, first_request_id=request_id, **more)


def _encoded(outcome: Outcome) -> bytes:
    result = outcome.result
    kept = KeptAnswer(
        outcome.ending.value,
        outcome.reason,
        outcome.text,
        outcome.data_json,
        outcome.details_json,
        strictjson.dumps(result.content),
        result.raw is not None,
        result.success,
        result.is_error,
        result.degraded,
        result.decision,
        result.code,
        result.message,
        result.exit_code,
    )
    return msgspec.msgpack.encode(kept)


def _decoded(raw: bytes) -> Outcome:
    """Raises: MsgspecError, JsonFault."""
    kept = msgspec.msgpack.decode(raw, type=KeptAnswer)
    result = Result(
        data=_loaded(kept.data),
        decision=kept.decision,  # type: ignore[arg-type]  # as it was checked when it was kept
        code=kept.code,
        message=kept.message,
        success=kept.success,
        is_error=kept.is_error,
        degraded=kept.degraded,
        details=_loaded(kept.details),
        exit_code=kept.exit_code,
        raw=kept.data if kept.relayed else None,
        content=_loaded(kept.content),
    )
    ending = OK if kept.ending == OK.value else Ending(kept.ending)
    return Outcome(ending, result, kept.reason, kept.text, kept.data, kept.details)


def _loaded(raw: bytes) -> Any:
    return strictjson.loads(raw, max_bytes=len(raw), max_values=None)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
