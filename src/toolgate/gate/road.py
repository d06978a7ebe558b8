"""The road: every call, over every face, takes these nine steps in this order.

    1. authenticate   a key becomes a Caller, or a refusal. Nothing about tools is told to the unauthenticated.
    2. permit         deny by default: is the tool in the manifest, live, and does this role hold it?
    3. admit          concurrency and rate per caller; refused at once, never queued. Nothing has run yet.
    4. validate in    JSON Schema, fail-closed; every argument fault has a stable reason.
    5. intent         for a tool with an effect, the record is on disk before the handler starts. No record, no action.
    6. run            deadline, cancellation; any exception becomes a typed outcome.
    7. validate out   the same rigour for what the tool returns.
    8. floor          tier x environment clamps; pure, total, last.
    9. outcome        the record of the result is written before the answer leaves: here, or by a server that holds it.

A status line must be known before a protocol layer speaks, so the road is cut after step 3: `enter` gives a ticket that
owns the caller's slot, and nothing can `travel` without one. A refusal of steps 1-3 is written down by `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from toolgate.errors import Happening, LedgerUnavailable, Refusal
from toolgate.gate.execute import Execution, Outcome, bad_output, error_result, settle
from toolgate.gate.floor import DECISIONS, normalize_response
from toolgate.gate.permit import Grant, Permits, permit_arguments
from toolgate.model import strictjson
from toolgate.model.call import Call, Caller, Wire
from toolgate.model.clock import Clock, Ids, IdSource, rfc3339
from toolgate.model.envelope import Answer, Envelope
from toolgate.model.record import Entry, Ledger, Place

if TYPE_CHECKING:
    from toolgate.gate.admit import Rate, Slots
    from toolgate.gate.explain import Fault
    from toolgate.gate.validate import SecretPaths
    from toolgate.model.call import Environment
    from toolgate.model.tool import Context, Tool


class Ticket(Struct, eq=False):
    """A call that passed steps 1-3. It owns one slot of its caller until the handler has ended."""

    caller: Caller
    call: Call
    grant: Grant
    ids: Ids
    started: float
    digest: str
    input_bytes: int
    slots: Slots | None
    """Where its slot goes back to; None when it has."""
    execution: Execution | None = None
    cancelled: bool = False

    def release(self) -> None:
        if self.slots is not None:
            self.slots.give_back(self.caller)
            self.slots = None

    def cancel(self) -> None:
        """The caller went away: a waiting handler is cancelled, a thread finishes what it began."""
        self.cancelled = True
        if self.execution is not None:
            self.execution.cancel()


class Road(Struct, frozen=True):
    authenticate: Callable[[bytes | None], Caller]
    """Step 1. Raises: Refusal."""
    permits: Permits
    slots: Slots
    rate: Rate
    ledger: Ledger
    environment: Callable[[], tuple[Environment, tuple[str, ...]]]
    context_for: Callable[[Grant, Ticket], Context]
    digest: Callable[[SecretPaths, Any], tuple[str, int]]
    """(secret paths, arguments) -> (SHA-256 of the arguments with secrets replaced, their length in bytes)."""
    clock: Clock
    ids: IdSource
    max_output_bytes: int
    under_way: set[Ticket] = field(default_factory=set)

    def enter(self, caller: Caller, call: Call) -> Ticket:
        """Steps 2 and 3. Raises: Refusal."""
        started = self.clock.monotonic()
        grant = self.permits.permit(caller, call.tool)  # 2
        self.rate.take(caller, started)  # 3
        self.slots.take(caller)
        digest, size = self.digest(grant.io.secrets, call.arguments)
        # Deterministic ids are made of the arguments; where one is secret, of their digest, which leaves it out.
        ids = self.ids.for_call(grant.tool_id, digest if grant.io.secrets else call.arguments)
        return Ticket(caller, call, grant, ids, started, digest, size, self.slots)

    async def travel(self, ticket: Ticket) -> Answer:
        """Steps 4-9. Always an answer; always a record, unless the answer says that none could be written."""
        tool = ticket.grant.tool
        acts = tool.effect != "read"
        self.under_way.add(ticket)
        try:
            faults = self._validate_in(ticket)  # 4
            if faults:
                acts, outcome = False, _bad_arguments(faults)
            else:
                if acts:
                    await self._intend(ticket)  # 5
                context = self.context_for(ticket.grant, ticket)
                if tool.inline:
                    outcome = settle(tool.run, context, ticket.call.arguments)  # 6
                else:
                    ticket.execution = Execution(tool, on_end=ticket.release, cancelled=ticket.cancelled)
                    outcome = await ticket.execution.run(context, ticket.call.arguments)  # 6
        except Refusal as refusal:
            return self.refuse(refusal, ticket.call.wire, ticket.caller, ticket.call, ids=ticket.ids)
        finally:
            self.under_way.discard(ticket)
            if ticket.execution is None:
                ticket.release()  # no handler holds it any more
        if not faults:
            outcome = self._validate_out(ticket, outcome)  # 7
        environment, notes = self.environment()
        envelope = normalize_response(  # 8
            outcome.result,
            tier=ticket.grant.tier,
            environment=environment,
            request_id=ticket.ids.request,
            timestamp=rfc3339(self.clock.wall()),
            notes=notes,
        )
        try:
            place = self.ledger.append(self._outcome(ticket, outcome, envelope, acted=acts))  # 9
            if acts:
                await self.ledger.durable(place)
        except LedgerUnavailable:
            unknown = {"effect": "unknown"} if acts else None
            return Answer(
                Happening.UNAVAILABLE, tool.name, ticket.ids.request, envelope.timestamp, unknown, _NOT_WRITTEN
            )
        return _answered(ticket, outcome, envelope, place)

    def unrecorded(self) -> Answer:
        """What is left to say when a record that was gathered could not be written."""
        ids, now = self.ids.for_call(None, None), rfc3339(self.clock.wall())
        return Answer(Happening.UNAVAILABLE, None, ids.request, now, text=_NOT_WRITTEN)

    def cancel_all(self) -> None:
        """The server stops and has waited long enough: what waits is cancelled, and recorded as that."""
        for ticket in list(self.under_way):
            ticket.cancel()

    def refuse(
        self,
        refusal: Refusal,
        wire: Wire,
        caller: Caller | None = None,
        call: Call | None = None,
        *,
        ids: Ids | None = None,
    ) -> Answer:
        """Write down a refusal that happened before a handler could start, and make it an answer."""
        grant = self.permits.known(call.tool) if call else None
        tool_id = grant.tool_id if grant else None
        arguments = call.arguments if call else None
        digest, size = self.digest(grant.io.secrets if grant else (), arguments) if call else (None, 0)
        ids = ids or self.ids.for_call(tool_id, arguments)
        timestamp = rfc3339(self.clock.wall())
        entry = Entry(
            event="outcome",
            wire=wire,
            ids=ids,
            timestamp=timestamp,
            tool_id=tool_id,
            status="error",
            caller=caller,
            tier=grant.tier if grant else None,
            error=_error_of(refusal.happening, None, refusal.details.get("reason")),
            arguments_digest=digest,
            input_bytes=size,
        )
        tool = call.tool if call else None
        try:
            audit = self.ledger.append(entry).as_json()
        except LedgerUnavailable:
            return Answer(Happening.UNAVAILABLE, tool, ids.request, timestamp, text=_NOT_WRITTEN)
        details = dict(refusal.details)
        wait = details.pop("retry_after_s", None)
        return Answer(
            refusal.happening,
            tool,
            ids.request,
            timestamp,
            details or None,
            refusal.text,
            retry_after_s=wait,
            audit=audit,
        )

    def _validate_in(self, ticket: Ticket) -> Sequence[Fault]:
        """Step 4: what is wrong with the arguments. Raises: Refusal: this role may not pass one of them."""
        arguments = ticket.call.arguments
        if not ticket.grant.io.input.is_valid(arguments):
            return ticket.grant.io.input.explain(arguments)
        if ticket.grant.tool.argument_roles:
            permit_arguments(ticket.caller, ticket.grant.tool, arguments)
        return ()

    async def _intend(self, ticket: Ticket) -> None:
        """Step 5. Raises: Refusal UNAVAILABLE."""
        try:
            place = self.ledger.append(self._intent(ticket))
            await self.ledger.durable(place)
        except LedgerUnavailable:
            raise Refusal(Happening.UNAVAILABLE, _NOT_WRITTEN) from None

    def _validate_out(self, ticket: Ticket, outcome: Outcome) -> Outcome:
        """Step 7. What a failed tool says besides its code is bounded and strict, but has no schema of its own."""
        data, decision = outcome.result.data, outcome.result.decision
        try:
            outcome.data_json = strictjson.encode_checked(data)
        except strictjson.JsonFault:
            return bad_output("the data is not strict JSON")
        if len(outcome.data_json) > self.max_output_bytes:
            return bad_output(f"the data is larger than {self.max_output_bytes} bytes")
        if decision is not None and decision not in DECISIONS:
            return bad_output("the decision is not block, warn or pass")
        if outcome.happening is not Happening.OK:
            return outcome
        if not ticket.grant.io.output.is_valid(data):
            return bad_output("the data does not match the output schema")
        if ticket.call.wants_text:
            try:
                outcome.stdout = _text_of(ticket.grant.tool, data)
            except Exception:  # noqa: BLE001 (the border: a pack's text function is a handler too)
                return bad_output("the text form could not be made")
        return outcome

    def _intent(self, ticket: Ticket) -> Entry:
        return Entry(
            event="intent",
            wire=ticket.call.wire,
            ids=ticket.ids,
            timestamp=rfc3339(self.clock.wall()),
            tool_id=ticket.grant.tool_id,
            status="ok",
            caller=ticket.caller,
            tier=ticket.grant.tier,
            arguments_digest=ticket.digest,
            input_bytes=ticket.input_bytes,
            duration_ms=(self.clock.monotonic() - ticket.started) * 1000,
            durable=True,
        )

    def _outcome(self, ticket: Ticket, outcome: Outcome, envelope: Envelope, *, acted: bool) -> Entry:
        good = outcome.happening is Happening.OK
        # A code beside a success (a circuit breaker that opened) is an event, too.
        error = None if good and not envelope.code else _error_of(outcome.happening, envelope.code, outcome.reason)
        return Entry(  # by position: names of so many fields cost six times as much, and every call makes one
            "outcome",
            ticket.call.wire,
            ticket.ids,
            envelope.timestamp,
            ticket.grant.tool_id,
            "ok" if good else "error",
            ticket.caller,
            envelope.tier,
            envelope.environment,
            envelope.decision,
            envelope.clamps,
            error,
            ticket.digest,
            ticket.input_bytes,
            len(outcome.data_json),
            (self.clock.monotonic() - ticket.started) * 1000,
            acted,
        )


def _answered(ticket: Ticket, outcome: Outcome, envelope: Envelope, place: Place) -> Answer:
    return Answer(
        outcome.happening,
        ticket.grant.tool.name,
        ticket.ids.request,
        envelope.timestamp,
        None if outcome.happening is Happening.OK else _details_of(outcome),
        outcome.text,
        envelope,
        outcome.data_json,
        outcome.stdout,
        outcome.result.exit_code,
        place.as_json(),
    )


def _text_of(tool: Tool, data: Any) -> str:
    if tool.text is not None:
        return tool.text(data)
    return "" if data is None else strictjson.dumps_pretty(data).decode()


_NOT_WRITTEN = "The audit log cannot be written."


def _bad_arguments(faults: Sequence[Fault]) -> Outcome:
    """What no tool has seen needs no step 7: the data is ours."""
    reason = faults[0].reason
    data = {"reason": reason, "errors": [fault.as_json() for fault in faults]}
    result = error_result("INVALID_INPUT", reason, data)
    return Outcome(Happening.BAD_ARGUMENTS, result, reason, data_json=strictjson.dumps(data))


def _error_of(happening: Happening, code: str | None, reason: str | None) -> dict[str, str | None]:
    """What the log keeps of a failure: which rule decided. Never a text, never a value."""
    return {"happening": happening, "code": code, "reason": reason}


def _details_of(outcome: Outcome) -> dict[str, Any]:
    if outcome.text is None or outcome.happening is Happening.TOOL_FAILED:
        return {"reason": outcome.reason}
    return {"reason": outcome.reason, "text": outcome.text}
