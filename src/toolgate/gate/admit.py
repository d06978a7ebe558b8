"""Steps 2 and 3: a caller's call becomes a ticket, or a refusal. Nothing has run yet.

2. permit: is the tool in the manifest, live, and does this role hold it, and its key's scopes? Absence denies. `tools/list`
   asks the same table, so a caller is shown exactly what it may call. Then: has an operator stopped such calls
   (`authority/stops.py`)?
3. admit: how many calls of one caller run at once, and how fast they may come. Refused at once, never queued.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import Ending, Refusal
from toolgate.gate.authority.stops import NO_STOPS, Stops
from toolgate.gate.keys import without_keys
from toolgate.gate.redact import kept, redacted
from toolgate.kit.conditions.approval import ANSWERER
from toolgate.model import strictjson
from toolgate.model.call import NO_ORIGIN, SHOWN, Call, Caller, Origin, Wire
from toolgate.model.envelope import L0_ONLY_CODES
from toolgate.model.mcpwire import NOTHING
from toolgate.model.suggest import did_you_mean
from toolgate.model.tool import COMMON_CODES, ID_PREFIX

if TYPE_CHECKING:
    from toolgate.gate.execute import Execution
    from toolgate.gate.idempotency import KeyClaim
    from toolgate.gate.shared import SharedLimits
    from toolgate.gate.validate import SecretPaths, ToolIO
    from toolgate.kit.conditions.rules import CallRules
    from toolgate.model.call import CallerBounds, Environment, Tier
    from toolgate.model.clock import Clock, Ids, IdSource
    from toolgate.model.tool import Kind, Tool
    from toolgate.settings.limits import LimitSettings

MAX_NAME: Final = 128
"""Characters of an unknown tool's name that the log keeps."""
SECONDS_A_MINUTE: Final = 60.0
KNOWN_CALLERS: Final = 4096
"""Callers of whom a rate is remembered before those that have waited long enough are forgotten."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)


class Ticket(Struct, eq=False):
    """A call that passed steps 1-3. It owns one slot of its caller until the handler has ended."""

    caller: Caller
    call: Call
    grant: Grant
    ids: Ids
    started: float
    digest: str
    input_bytes: int
    slots: Lender | None
    """Where its slot goes back to; None when it has, or when it needs none."""
    origin: Origin = NO_ORIGIN
    kept: Mapping[str, Any] | None = None
    """What the log keeps of its arguments."""
    is_held: bool = False
    """Its answer waits for `Ledger.flush`, and so may its record."""
    state: Any = None
    """What an earlier call like it gave its client to keep, opened."""
    answers: Mapping[str, Any] = NOTHING
    """To what that call asked; nobody's else."""
    goes_on: str | None = None
    """The request that is held for these answers, if one is."""
    holds: bool = False
    """It asked something and is held until the answer comes."""
    claim: KeyClaim | None = None
    """Of its idempotency key, which is its own."""
    repeats: str | None = None
    """The request that had the key first."""
    execution: Execution | None = None
    cancelled: bool = False
    is_intended: bool = False
    """Its intent is on disk: it may have an effect."""
    asked_id: Any = None
    """The id of the message that asked for it."""

    def is_answer_to(self, asked_id: str | int, wire: Wire) -> bool:
        return self.asked_id == asked_id and type(self.asked_id) is type(asked_id) and self.call.wire == wire

    def release(self) -> None:
        if self.slots is not None:
            self.slots.give_back(self.caller)
            self.slots = None

    def leave(self) -> None:
        """The caller's connection ended. A call that it can ask for again goes on: the answer is kept for that."""
        if self.call.idempotency_key is None or self.grant.tool.effect == "read":
            self.cancel()

    def cancel(self) -> None:
        """The caller does not want it any more: a waiting handler is cancelled, a thread finishes what it began."""
        self.cancelled = True
        if self.execution is not None:
            self.execution.cancel()


class SlotLimits(TypedDict):
    """What `Slots.limit` takes."""

    per_caller: int
    total: int
    may_exceed: bool


class RateLimits(TypedDict):
    """What `Rate.limit` takes."""

    per_minute: int
    may_exceed: bool


class Lender(Protocol):
    """Who lends slots."""

    def give_back(self, caller: Caller) -> None: ...


class Admission(Struct, frozen=True):
    permits: Permits
    slots: Slots
    rate: Rate
    clock: Clock
    ids: IdSource
    shared: SharedLimits | None = None
    """Where several processes share the limits: those whom this one would let in are asked about there."""
    stops: Stops = NO_STOPS

    def enter(self, caller: Caller, call: Call, origin: Origin = NO_ORIGIN, *, is_held: bool = False) -> Ticket:
        """Steps 2 and 3. Raises: Refusal."""
        started = self.clock.monotonic()
        grant = self.permits.permit(caller, call.tool)  # 2
        if started >= self.stops.due:
            self.stops.check(caller, grant, started)
        arguments = call.arguments
        if type(arguments) is dict and (None in arguments.values() or grant.io.optional.below):
            call = _without_nulls(call, arguments, grant)
            arguments = call.arguments
        self.rate.take(caller, started)  # 3
        slots = None
        if grant.tool.inline and grant.tool.effect == "read":
            self.slots.check(caller)  # it ends before another call can begin: it must find a free slot, and holds none
        else:
            slots = self.slots
            slots.take(caller)
        found = grant.recorded(arguments) if grant.keep or grant.facts is not None else None
        secrets = grant.io.secrets
        digest, size = arguments_digest(secrets, arguments)
        # Deterministic ids are made of the arguments; where one is secret, of their digest, which leaves it out.
        ids = self.ids.for_call(grant.tool_id, digest if secrets else arguments)
        return Ticket(caller, call, grant, ids, started, digest, size, slots, origin, found, is_held)


def _without_nulls(call: Call, arguments: dict[str, Any], grant: Grant) -> Call:
    kept = grant.io.optional.without_nulls(arguments)
    return call if kept is arguments else replace(call, arguments=kept)


def arguments_digest(secrets: SecretPaths, arguments: Any) -> tuple[str, int]:
    """What the log knows of arguments: the SHA-256 over their sorted JSON with secrets replaced, and the length of it
    without that."""
    text = strictjson.dumps_sorted(arguments)
    shown = redacted(secrets, arguments) if secrets else arguments
    return sha256(text if shown is arguments else strictjson.dumps_sorted(shown)).hexdigest(), len(text)


class Grant(Struct, frozen=True):
    """One live tool with its manifest row: everything the road needs to know about it, built once at start-up."""

    tool: Tool
    pack: str
    tier: Tier
    roles: frozenset[str]
    hint: str
    io: ToolIO
    tool_id: str
    """The canonical id, joined once."""
    codes: frozenset[str]
    """Every code that may pass step 7."""
    keep: Sequence[str] = ()
    """Arguments that the log keeps."""
    facts: Mapping[str, Any] | None = None
    """What each record of a call says besides: of an adopted tool, whose it is and under which pin it runs."""
    asks: frozenset[str] = frozenset()
    """What it may ask of a client in the middle of a call: what it declares and its row allows."""
    rules: CallRules | None = None
    """What its row refuses although the role holds it."""

    @property
    def row(self) -> str:
        """The name of its row in the manifest."""
        return self.tool.row or self.tool.name

    def is_held_by(self, caller: Caller) -> bool:
        """By its role, and within its key's scopes."""
        return caller.role in self.roles and (caller.bounds is None or caller.bounds.covers(self.row))

    @property
    def is_adopted(self) -> bool:
        """A tool of an upstream."""
        return self.tool.foreign is not None

    def recorded(self, arguments: Any) -> Mapping[str, Any] | None:
        """The fields that the log keeps for this call beyond those of every call."""
        found = kept(self.keep, arguments) if self.keep else None
        return found if self.facts is None else {**self.facts, **(found or {})}


_TOLD: Final[tuple[Kind, ...]] = ("tool", "prompt", "resource")
"""Kinds of what a caller may call that a handler is told of."""


class Held(Struct, frozen=True):
    """What one caller holds. Implements `toolgate.faces.face.Visible`."""

    permits: Permits
    caller: Caller
    environment: Environment

    def __call__(self, kind: Kind = "tool", /) -> list[Grant]:
        return self.permits.visible(self.caller, kind)


class Permits:
    """`bases`: the deployment's own roles, and the built-in role that each was made of. `answerers`: roles that may answer
    requests for approval. `environment`: by the settings."""

    def __init__(
        self,
        grants: Iterable[Grant],
        bases: Mapping[str, str] | None = None,
        answerers: frozenset[str] = frozenset({ANSWERER}),
        environment: Environment = "local",
    ) -> None:
        self.bases = bases or {}
        self.environment = environment
        self.answerers = answerers
        self._by_name = {grant.tool.name: grant for grant in sorted(grants, key=lambda grant: grant.tool.name)}
        self._name_by_id = {grant.tool_id: grant.tool.name for grant in self._by_name.values() if not grant.tool.row}

    def permit(self, caller: Caller, tool_name: str) -> Grant:
        """Raises: Refusal: UNKNOWN_TOOL, INSUFFICIENT_ROLE."""
        grant = self._by_name.get(tool_name)
        if grant is None:
            asked = {"askedTool": recorded_name(tool_name)}
            raise Refusal(Ending.UNKNOWN_TOOL, self._unknown(caller, tool_name), recorded=asked)
        if caller.role not in grant.roles:
            raise insufficient_role(caller, tool_name)
        if caller.bounds is not None and not caller.bounds.covers(grant.row):
            raise out_of_scope(caller.bounds, tool_name)
        return grant

    def _unknown(self, caller: Caller, name: str) -> str:
        """Only what the caller may call is suggested."""
        by_id = name.startswith(ID_PREFIX)
        near = did_you_mean(name, [grant.tool_id if by_id else grant.tool.name for grant in self.visible(caller)])
        said = f"Unknown tool: {printable_name(name)}"
        return f"{said}. {near}" if near else said

    def visible(self, caller: Caller, kind: Kind = "tool") -> list[Grant]:
        held = [grant for grant in self._by_name.values() if grant.tool.kind == kind and caller.role in grant.roles]
        return held if caller.bounds is None else [grant for grant in held if grant.is_held_by(caller)]

    def of(self, caller: Caller) -> Held:
        return Held(self, caller, self.environment)

    def holdings(self, caller: Caller) -> list[dict[str, Any]]:
        """What this caller may call, as a handler is told of it."""
        return [
            {
                "name": grant.tool.name.rpartition(":")[2],
                "kind": kind,
                "tier": grant.tier,
                "hint": grant.hint,
                "summary": grant.tool.summary,
                "effect": grant.tool.effect,
            }
            for kind in _TOLD
            for grant in self.visible(caller, kind)
        ]

    def short_name(self, tool_id: str) -> str:
        """`mcp.tool:notes.add` -> `notes_add`. An unknown id stays as it is: `permit` will not know it either."""
        return self._name_by_id.get(tool_id, tool_id)

    def known(self, tool_name: str) -> Grant | None:
        """For the log, which names the tool whether or not the caller may call it."""
        return self._by_name.get(tool_name)

    def all(self) -> list[Grant]:
        return list(self._by_name.values())


class Slots:
    """Concurrency in memory. A slot is released exactly once, when the handler has ended."""

    def __init__(self, *, per_caller: int, total: int, may_exceed: bool = False) -> None:
        """`may_exceed`: a key's own limit may be above that of all."""
        self.limit(per_caller=per_caller, total=total, may_exceed=may_exceed)
        self._held: dict[str, int] = {}
        self._all = 0

    def limit(self, *, per_caller: int, total: int, may_exceed: bool = False) -> None:
        """From the next call on. Who holds more than that keeps it."""
        self.per_caller, self.total, self.may_exceed = per_caller, total, may_exceed

    def most_of(self, caller: Caller) -> int:
        """How many one caller may hold."""
        if caller.bounds is None:
            return self.per_caller
        return own_limit(caller.bounds.concurrency, self.per_caller, may_exceed=self.may_exceed)

    def check(self, caller: Caller) -> None:
        """Raises: Refusal TOO_MANY: there is no free one."""
        most = self.per_caller if caller.bounds is None else self.most_of(caller)
        if self._held.get(caller.key_id, 0) >= most:
            raise too_many(most)
        if self._all >= self.total:
            raise Refusal(Ending.TOO_MANY, f"{self.total} calls are running on this server; try again shortly.")

    def take(self, caller: Caller) -> None:
        """Raises: Refusal TOO_MANY."""
        self.check(caller)
        self._held[caller.key_id] = self._held.get(caller.key_id, 0) + 1
        self._all += 1

    def give_back(self, caller: Caller) -> None:
        self._all -= 1
        held = self._held[caller.key_id] - 1
        if held:
            self._held[caller.key_id] = held
        else:
            del self._held[caller.key_id]

    def held(self) -> int:
        return self._all

    def most_of_a_caller(self) -> int:
        return max(self._held.values(), default=0)


class Rate:
    """A burst of `per_minute` calls, then one every 60/`per_minute` seconds (GCRA). Zero: no limit."""

    def __init__(self, *, per_minute: int, may_exceed: bool = False, counts: bool = True) -> None:
        """`may_exceed`: as of `Slots`. `counts`: False where an engine counts for all processes."""
        self._counts = counts
        self.limit(per_minute=per_minute, may_exceed=may_exceed)
        self._due: dict[str, float] = {}
        """Per key, the second at which its bucket is full again. A key whose second has passed is as good as unknown."""
        self._many = KNOWN_CALLERS

    def limit(self, *, per_minute: int, may_exceed: bool = False) -> None:
        self.per_minute, self._may_exceed = per_minute, may_exceed
        self._interval = SECONDS_A_MINUTE / per_minute if per_minute else 0.0

    def interval_of(self, bounds: CallerBounds) -> float:
        """Seconds between two calls of a key with bounds, beyond its burst; 0: no limit."""
        per_minute = own_limit(bounds.per_minute, self.per_minute, may_exceed=self._may_exceed) if self._counts else 0
        return SECONDS_A_MINUTE / per_minute if per_minute else 0.0

    def take(self, caller: Caller, now: float) -> None:
        """`now` in monotonic seconds. Raises: Refusal TOO_FAST, with the seconds to wait."""
        interval = self._interval if caller.bounds is None else self.interval_of(caller.bounds)
        if not interval:
            return
        due = max(self._due.get(caller.key_id, now), now) + interval
        wait = due - now - SECONDS_A_MINUTE
        if wait > 1e-9:  # rounding of a sum of intervals is not a fault of the caller
            raise too_fast(wait)
        self._due[caller.key_id] = due
        if len(self._due) > self._many:
            self._due = {key: second for key, second in self._due.items() if second > now}
            self._many = max(
                KNOWN_CALLERS, 2 * len(self._due)
            )  # so a call pays for two callers at most, not for all of them


def slot_limits(limits: LimitSettings) -> SlotLimits:
    return {
        "per_caller": limits.concurrency_per_caller,
        "total": limits.concurrency_total,
        "may_exceed": limits.keys_may_exceed,
    }


def rate_limits(limits: LimitSettings) -> RateLimits:
    return {"per_minute": limits.rate_per_minute, "may_exceed": limits.keys_may_exceed}


def own_limit(own: int | None, common: int, *, may_exceed: bool) -> int:
    """Of a key with a limit of its own, which is never above the common one unless it may exceed it. Common 0: no limit."""
    if own is None:
        return common
    return own if may_exceed or not common else min(own, common)


def too_many(per_caller: int) -> Refusal:
    return Refusal(Ending.TOO_MANY, f"{per_caller} calls of this key are running; wait for one to end.")


def too_fast(wait_s: float) -> Refusal:
    return Refusal(Ending.TOO_FAST, "Rate limit exceeded; wait and try again.", retry_after_s=int(wait_s) + 1)


def sayable_codes(tool: Tool, tier: Tier) -> frozenset[str]:
    """What the tool declares, and what every tool may say.

    An experimental tool may not declare a binding code; if it returns one anyway, the floor takes it away and shows that it did.
    """
    codes = COMMON_CODES.union(tool.error_codes)
    return codes | L0_ONLY_CODES if tier == "experimental" else codes


def permit_arguments(caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Some arguments are held by fewer roles than their tool (`receipt`, `mode=calibration`). Raises: Refusal."""
    for key, roles in tool.argument_roles.items():
        name, _, value = key.partition("=")
        if name in arguments and (not value or arguments[name] == value) and caller.role not in roles:
            raise insufficient_role(caller, f"{tool.name} with {key}")


def printable_name(name: str) -> str:
    """A tool name as the caller wrote it, if it could be one; what could never be a name is not echoed."""
    return name if _NAME.fullmatch(name) else "(not a tool name)"


def recorded_name(name: str) -> str:
    """A name that is not a tool's, as the log keeps it: cut, in ASCII without control characters, and never a key."""
    return without_keys(name)[:MAX_NAME].encode("unicode_escape").decode()


def insufficient_role(caller: Caller, what: str) -> Refusal:
    text = f"API key role is not allowed: {caller.role} may not call {what}."
    return Refusal(Ending.INSUFFICIENT_ROLE, text, role=caller.role)


def out_of_scope(bounds: CallerBounds, what: str) -> Refusal:
    text = f"API key scope is not wide enough: this key may use {bounds.told_scopes()}, and not {what}."
    recorded = {"keyScopes": list(bounds.scopes[:SHOWN])}
    return Refusal(Ending.INSUFFICIENT_ROLE, text, recorded=recorded, reason="out_of_scope")
