"""The road: every call, over every face and transport, takes these nine steps in this order.

    1. authenticate   a key becomes a Caller, or a refusal. Nothing about tools is told to the unauthenticated.
    2. permit         deny by default: is the tool in the manifest, live, and does this role hold it? Is it not stopped?
    3. admit          concurrency and rate per caller; refused at once, never queued. Nothing has run yet.
    4. validate in    JSON Schema, fail-closed; every argument fault has a stable reason. Then the rules of the tool's row.
                      A call whose idempotency key was used before ends here, with the answer it had (`idempotency.py`).
    5. intent         for a tool with an effect, the record is on disk before the handler starts. No record, no action.
    6. run            deadline, cancellation; any exception becomes a typed outcome.
    7. validate out   the same rigour for what the tool returns.
    8. floor          tier x environment clamps; pure, total, last.
    9. outcome        the record of the result is written before the answer leaves: here, or by a server that holds it.

`carry` is the one entrance: a transport hands it an arrival and gets the reply to send. Within it, a call that passed
steps 1-3 has a ticket, which owns the caller's slot, and nothing can `travel` without one. A refusal of steps 1-3 is
written down by `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from toolgate.errors import OK, Ending, LedgerUnavailable, Refusal
from toolgate.gate.admit import Admission, Grant, Permits, Ticket, arguments_digest, permit_arguments
from toolgate.gate.arrival import UNREAD
from toolgate.gate.authority.approvals import Approvals
from toolgate.gate.authority.rules import judge
from toolgate.gate.execute import UNNAMED, Execution, Outcome, error_result, settle, settle_at_once, validated
from toolgate.gate.floor import envelope_json, normalize_response
from toolgate.gate.sessions.asking import approval_question, can_wait, fitting, is_approval, kept_of
from toolgate.gate.sessions.back_channel import MAX_ROUNDS, BackChannel, Spelt
from toolgate.gate.sessions.seals import Seals
from toolgate.gate.sessions.watch import Watch
from toolgate.gate.sessions.wishes import fulfil, subscribed
from toolgate.model import strictjson
from toolgate.model.call import NO_ORIGIN, Call, Caller, Origin, Wire, no_progress
from toolgate.model.clock import Clock, Ids, RandomIds, rfc3339
from toolgate.model.envelope import Answer
from toolgate.model.offers import Addresses
from toolgate.model.record import Ledger, LedgerEntry

if TYPE_CHECKING:
    from toolgate.faces.face import Asked
    from toolgate.faces.reply import Reply
    from toolgate.gate.arrival import Arrival
    from toolgate.gate.explain import ValueFault
    from toolgate.gate.idempotency import Idempotency
    from toolgate.gate.keys import Authenticate
    from toolgate.kit.conditions.rules import CallRule
    from toolgate.model.call import Environment
    from toolgate.model.envelope import Envelope
    from toolgate.model.tool import Ask, Context, Result

MAX_TOLD: Final = 3
"""Faults of arguments that a message tells in words: a reader mends those first. All of them are in the details."""
MAX_COUNTS: Final = 16
"""Numbers of an answer that its record has."""
SHARED_CONTEXTS: Final = 1024
"""Contexts of inline tools that are kept, of the first tools and callers: to drop one for the next caller costs more than to make
one."""
LOCAL: Final[tuple[Environment, tuple[str, ...]]] = ("local", ())


class Road(Struct, frozen=True):
    authenticate: Authenticate
    """Step 1. Raises: Refusal."""
    admission: Admission
    """Steps 2 and 3."""
    ledger: Ledger
    environment: Callable[[], tuple[Environment, tuple[str, ...]]] | None
    """None: no shared store is configured, so it is local."""
    context_for: Callable[[Grant, Ticket], Context]
    clock: Clock
    max_output_bytes: int
    seals: Seals
    """What clients carry for us."""
    watch: Watch
    """Who hears of changes."""
    addresses: Addresses
    """Of resources."""
    idempotency: Idempotency
    """Which calls were already made."""
    approvals: Approvals
    """Who lets calls through that a person must approve."""
    under_way: set[Ticket] = field(default_factory=set)
    back_channel: BackChannel = field(default_factory=lambda: BackChannel(RandomIds()))
    """Questions to clients that wait for an answer."""
    _shared: dict[tuple[str, str], Context] = field(default_factory=dict)
    """By tool and caller; see `_context`."""

    async def carry(self, arrival: Arrival) -> Reply:
        """All nine steps for one message. A reply without a body: the protocol wants silence."""
        face = arrival.face
        try:
            caller = self._identify(arrival)  # 1
            if arrival.fault is not None:
                return self.turn_away(arrival, arrival.fault)
            message = arrival.message
            if message is UNREAD:
                if arrival.body is None:
                    raise _too_large(arrival)
                message = strictjson.loads(arrival.body, max_bytes=arrival.body_bytes)
            asked = arrival.asked = face.read(message, arrival.transport, arrival.hints)
            if asked.besides is not None and asked.besides.session is not None:
                arrival.session = self.seals.session(asked.besides.session, caller)
            if asked.call is None:
                return await self._answer_without_call(arrival, asked)
            if asked.trace is not None:
                arrival.origin = replace(arrival.origin, traceparent=asked.trace[0], tracestate=asked.trace[1])
            call = asked.call if asked.note is None else arrival.with_progress(asked)
            ticket = self.admission.enter(caller, call, arrival.origin, is_held=arrival.is_held)  # 2, 3
        except Refusal as refusal:
            return self.turn_away(arrival, refusal)
        except strictjson.JsonFault as fault:
            return self.turn_away(arrival, malformed(fault))
        arrival.ticket = ticket
        ticket.asked_id = asked.id
        if ticket.grant.tool.logs or asked.ask is not None:
            self._let_speak(arrival, asked, ticket)
        answer = await self.travel(ticket)  # 4-9
        if answer.asks is not None and asked.ask is not None:
            return await self._bridged(arrival, asked, answer)
        if asked.besides is not None and ticket.grant.tool.kind == "subscription":
            return self._subscribed(arrival, ticket, answer)
        return face.render(asked, answer)

    async def _bridged(self, arrival: Arrival, asked: Asked, answer: Answer) -> Reply:
        """A call that asked a client of the handshake era: its answers come on a way of their own, and the call goes on with
        them. Each round is a call on the whole road."""
        ticket = arrival.ticket
        assert ticket is not None
        assert asked.ask is not None
        try:
            for _ in range(MAX_ROUNDS):
                answers = await self._answered(arrival, asked.ask, answer)
                before, answer = answer, await self._go_on(arrival, asked, ticket, answer, answers)
                if answer.ending is Ending.STATE_REFUSED and ticket.holds:
                    await self._go_on(arrival, asked, ticket, before, {})  # an upstream waits, and is told
                if answer.asks is None:
                    return arrival.face.render(asked, answer)
                assert arrival.ticket is not None
                ticket = arrival.ticket
            raise Refusal(Ending.CLIENT_CANNOT, f"The tool asked more than {MAX_ROUNDS} times.", reason="client_cannot")
        except Refusal as refusal:
            return self.turn_away(arrival, refusal)

    async def _go_on(
        self, arrival: Arrival, asked: Asked, ticket: Ticket, answer: Answer, answers: dict[str, Any]
    ) -> Answer:
        """The call that brings the answers to what this one asked. Raises: Refusal."""
        assert answer.asks is not None
        call = replace(ticket.call, answers=answers, state=answer.asks["requestState"])
        arrival.ticket = following = self.admission.enter(ticket.caller, call, ticket.origin, is_held=ticket.is_held)
        following.asked_id = asked.id
        return await self.travel(following)

    async def _answered(self, arrival: Arrival, spell: Spelt, answer: Answer) -> dict[str, Any]:
        """What the client says. Raises: Refusal: it does not answer, or cannot."""
        ticket, send = arrival.ticket, arrival.asking()
        assert ticket is not None
        assert answer.asks is not None
        try:
            if send is None:
                raise Refusal(Ending.CLIENT_CANNOT, _NO_STREAM, reason="client_cannot")
            requests = answer.asks["inputRequests"]
            return await self.back_channel.ask(ticket.caller, requests, spell, send, arrival.wait)
        except Refusal:
            if not ticket.holds:
                raise
            return {}  # an upstream is in the middle of the call, and is told

    def _let_speak(self, arrival: Arrival, asked: Asked, ticket: Ticket) -> None:
        """What its tool logs goes to who wants to read it, by the session's level or by the message's own; and it may ask what
        the client said in its session that it can be asked."""
        session = arrival.session
        level = (self.watch.level_of(session) if session is not None else None) or asked.log_level
        if ticket.grant.tool.logs and asked.log is not None and level is not None:
            ticket.call = arrival.with_log(ticket.call, asked, level)
        if asked.ask is not None and session is not None and session.capabilities:
            ticket.call = replace(ticket.call, capabilities=frozenset(session.capabilities), era="handshake")

    def _subscribed(self, arrival: Arrival, ticket: Ticket, answer: Answer) -> Reply:
        assert arrival.asked is not None
        try:
            return subscribed(self, arrival, ticket, answer, arrival.face.render(arrival.asked, answer))
        except Refusal as refusal:
            return self.turn_away(arrival, refusal)

    def before_body(self, arrival: Arrival) -> Reply | None:
        """The answer to a message that is refused whatever its body says; None: the body may be read."""
        try:
            self._identify(arrival)  # 1
        except Refusal as refusal:
            return self.turn_away(arrival, refusal)
        return None if arrival.fault is None else self.turn_away(arrival, arrival.fault)

    def turn_away(self, arrival: Arrival, refusal: Refusal) -> Reply:
        """Refuse what did not get through steps 1-3, in the words of its face."""
        face = arrival.face
        asked = arrival.asked or face.unread(arrival.message)
        wire, origin = face.wires[arrival.transport], arrival.origin
        answer = self.refuse(refusal, wire, arrival.caller, asked.call, origin=origin, is_held=arrival.is_held)
        return face.render(asked, answer)

    def _identify(self, arrival: Arrival) -> Caller:
        """Step 1. Raises: Refusal."""
        if arrival.key_fault is not None:
            raise Refusal(Ending.INVALID_KEY, arrival.key_fault)
        caller = arrival.caller = self.authenticate(arrival.credential, arrival.origin.address)
        if caller.key_id != arrival.caller_id:
            arrival.know(caller)
        return caller

    async def _answer_without_call(self, arrival: Arrival, asked: Asked) -> Reply:
        """To a message that is no call. Raises: Refusal."""
        if asked.refusal is not None:
            return self.turn_away(arrival, asked.refusal)
        if asked.besides is not None and asked.besides.wish:
            return await fulfil(self, arrival, asked, asked.besides)
        if asked.cancels is not None:
            arrival.cancel(asked.cancels)
        if asked.response is not None and arrival.caller is not None:
            self.back_channel.deliver(arrival.caller, asked.response)
        return self.answer_plainly(arrival, asked)

    def answer_plainly(self, arrival: Arrival, asked: Asked, found: Sequence[Any] = ()) -> Reply:
        """Let the face answer by itself, with what was found for it."""
        assert arrival.caller is not None
        return arrival.face.answer(asked, self.admission.permits.of(arrival.caller), found)

    def unrecorded(self, arrival: Arrival) -> Reply:
        """What to send in place of an answer that was held when the log failed."""
        call = arrival.asked.call if arrival.asked is not None else None
        grant = self.admission.permits.known(call.tool) if call is not None else None
        answer = self._not_written(adopted=grant is not None and grant.is_adopted)
        return arrival.face.render(arrival.asked or arrival.face.unread(arrival.message), answer)

    async def travel(self, ticket: Ticket) -> Answer:
        """Steps 4-9. Always an answer; always a record, unless the answer says that none could be written."""
        call, ids = ticket.call, ticket.ids
        try:
            outcome = await self._run(ticket)  # 4-7
        except Refusal as refusal:
            if ticket.claim is not None:
                await self.idempotency.release(ticket)
            origin, is_held = ticket.origin, ticket.is_held
            answer = self.refuse(refusal, call.wire, ticket.caller, call, ids=ids, origin=origin, is_held=is_held)
            return self._to_wait(ticket, answer) if answer.ending is Ending.APPROVAL_REQUIRED else answer
        entry, envelope = self._conclude(ticket, outcome)  # 8
        encoded, audit = envelope_json(envelope, outcome.data_json, outcome.details_json), None
        try:
            append = self.ledger.append if outcome.was_tried else self.ledger.append_refusal
            place = append(entry, is_held=ticket.is_held)  # 9
            if entry.durable and place is not None:
                await self.ledger.durable(place)
        except LedgerUnavailable:
            return await self._withheld(ticket, entry)
        if ticket.claim is not None:
            await self.idempotency.settle(ticket, outcome)
        if place is not None:
            audit = asdict(place)
            if ticket.repeats is not None:
                audit["repeats"] = ticket.repeats
            encoded = b'%b,"audit":%b}' % (encoded[:-1], strictjson.dumps(audit))
        return Answer(  # 15 names at most: for more, Python makes a dict at each call
            outcome.ending,
            call.tool,
            ids.request,
            entry.timestamp,
            details=None if outcome.ending is OK else _details_of(outcome),
            text=outcome.text,
            envelope=envelope,
            envelope_json=encoded,
            stdout=outcome.stdout,
            exit_code=outcome.result.exit_code,
            audit=audit,
            retry_after_s=outcome.retry_after_s,
            adopted=ticket.grant.tool.foreign is not None,
            content=outcome.result.content,
            asks=None if outcome.result.ask is None else self._asks(ticket, outcome.result.ask),
            relayed=outcome.data_json if outcome.result.raw is not None else None,
        )

    async def _withheld(self, ticket: Ticket, entry: LedgerEntry) -> Answer:
        """In place of an answer whose record could not be written."""
        if ticket.claim is not None:
            await self.idempotency.settle(ticket, None)
        unknown = {"effect": "unknown"} if entry.durable else None
        adopted = ticket.grant.is_adopted
        return Answer(
            Ending.UNAVAILABLE,
            ticket.call.tool,
            ticket.ids.request,
            entry.timestamp,
            unknown,
            _NOT_WRITTEN,
            adopted=adopted,
        )

    def _asks(self, ticket: Ticket, ask: Ask) -> dict[str, Any]:
        ticket.holds = ask.holds
        return {"inputRequests": ask.requests, "requestState": self.seals.state_of(ticket, kept_of(ask, ticket))}

    def _to_wait(self, ticket: Ticket, answer: Answer) -> Answer:
        """A client that can carry a state is asked to call again when a person has approved; the state is no grant."""
        if answer.details is None or not can_wait(ticket.call):
            return answer
        ask = approval_question(answer.details["approval_id"], answer.text or "")
        return replace(answer, asks=self._asks(ticket, ask))

    def _resume(self, ticket: Ticket, text: str) -> None:
        """The call goes on where an earlier one asked something. Raises: Refusal STATE_REFUSED."""
        state, asked, goes_on = self.seals.state(ticket, text)
        answers = fitting(ticket.call.answers, asked)
        if not is_approval(state):  # that one is the gate's own, and says nothing to the tool
            ticket.state, ticket.answers, ticket.goes_on = state, answers, goes_on

    async def _run(self, ticket: Ticket) -> Outcome:
        """Steps 4-7, and the rest of 3. Raises: Refusal: nothing has run."""
        grant, call = ticket.grant, ticket.call
        tool = grant.tool
        self.under_way.add(ticket)
        try:
            if self.admission.shared is not None:
                await self.admission.shared.admit(ticket)  # 3, among all processes that share the limits
            if not grant.io.input.is_valid(call.arguments):  # 4
                return _bad_arguments(grant.io.input.explain(call.arguments))
            if tool.argument_roles:
                permit_arguments(ticket.caller, tool, call.arguments)
            if call.state is not None:
                self._resume(ticket, call.state)
            outcome = asking = None
            if grant.rules is not None:
                asking = judge(grant.rules, ticket, self.environment, self.clock)  # 4, on what will run
            if asking is None and tool.at_once is not None:
                outcome = settle_at_once(tool.at_once, self._context(ticket), call.arguments)  # 6
            elif asking is None and tool.inline and tool.effect == "read":
                outcome = settle(tool.run, self._context(ticket), call.arguments)  # 6
            if outcome is None:
                outcome = await self._run_handler(ticket, asking)  # 5, 6
        finally:
            self.under_way.discard(ticket)
            if ticket.execution is None and ticket.slots is not None:
                ticket.release()  # no handler holds it any more
        if ticket.repeats is not None and outcome.ending is not OK:
            return outcome  # it was judged when it was kept
        return validated(outcome, grant, call, self.max_output_bytes)  # 7

    async def _run_handler(self, ticket: Ticket, asking: CallRule | None) -> Outcome:
        """Steps 5 and 6, and the end of 4: what was answered before needs no approval again. Raises: Refusal: nothing has run."""
        tool, arguments = ticket.grant.tool, ticket.call.arguments
        has_effect = tool.effect != "read"
        if has_effect and ticket.call.idempotency_key is not None:
            kept = await self.idempotency.claim(ticket)
            if kept is not None:
                return kept
        if asking is not None:
            await self.approvals.require(ticket, asking)
        if has_effect:
            await self._intend(ticket)  # 5
        if tool.inline:
            return settle(tool.run, self._context(ticket), arguments)  # 6
        ticket.execution = Execution(tool, on_end=ticket.release, cancelled=ticket.cancelled)
        return await ticket.execution.run(self.context_for(ticket.grant, ticket), arguments)  # 6

    def _conclude(self, ticket: Ticket, outcome: Outcome) -> tuple[LedgerEntry, Envelope]:
        """Step 8, and what step 9 writes down about it."""
        grant, said = ticket.grant, outcome.result
        environment, notes = self.environment() if self.environment is not None else LOCAL
        envelope = normalize_response(  # 8
            said,
            tier=grant.tier,
            environment=environment,
            request_id=ticket.ids.request,
            timestamp=rfc3339(self.clock.wall()),
            notes=notes,
        )
        if envelope.code is None and said.code is not None and outcome.reason is not None:
            outcome.reason = UNNAMED  # it was made of the code that the floor has taken away
        ok = outcome.ending is OK
        # A code beside a success (a circuit breaker that opened) is an event, too.
        error = None if ok and not envelope.code else _error_of(outcome.ending, envelope.code, outcome.reason)
        entry = LedgerEntry(
            "outcome",
            ticket.call.wire,
            ticket.ids,
            envelope.timestamp,
            grant.tool_id,
            "ok" if ok else "error",
            ticket.caller,
            envelope.tier,
            envelope.environment,
            decision=envelope.decision,
            clamps=envelope.clamps,
            error=error,
            arguments_digest=ticket.digest,
            input_bytes=ticket.input_bytes,
            output_bytes=len(outcome.data_json if envelope.details is None else outcome.details_json),
            duration_ms=(self.clock.monotonic() - ticket.started) * 1000,
            durable=ticket.is_intended,
            origin=ticket.origin,
            more=_told(ticket, said) if ticket.repeats or said.ask or said.counts else ticket.kept,
        )
        return entry, envelope

    def _context(self, ticket: Ticket) -> Context:
        """Of a handler that has no deadline and ends before the next one begins: a caller's calls of it share one, unless they
        report progress."""
        if ticket.call.progress is not no_progress or ticket.grant.asks or ticket.grant.tool.logs:
            return self.context_for(ticket.grant, ticket)
        place = (ticket.grant.tool_id, ticket.caller.key_id)
        shared = self._shared.get(place)
        if shared is None or shared.caller is not ticket.caller:
            shared = self.context_for(ticket.grant, ticket)
            if len(self._shared) < SHARED_CONTEXTS or place in self._shared:
                self._shared[place] = shared
        return shared

    def _not_written(self, *, adopted: bool) -> Answer:
        ids, now = self.admission.ids.for_call(None, None), rfc3339(self.clock.wall())
        return Answer(Ending.UNAVAILABLE, None, ids.request, now, text=_NOT_WRITTEN, adopted=adopted)

    def obeying(self, permits: Permits, addresses: Addresses, max_output_bytes: int) -> Road:
        """The same road by other rules. A call under way ends by those it began with."""
        admission = replace(self.admission, permits=permits)
        return replace(self, admission=admission, addresses=addresses, max_output_bytes=max_output_bytes, _shared={})

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
        origin: Origin = NO_ORIGIN,
        is_held: bool = False,
    ) -> Answer:
        """Write down a refusal that happened before a handler could start, and make it an answer."""
        grant = self.admission.permits.known(call.tool) if call else None
        tool_id = grant.tool_id if grant else None
        arguments = call.arguments if call else None
        digest, size = arguments_digest(grant.io.secrets if grant else (), arguments) if call else (None, 0)
        ids = ids or self.admission.ids.for_call(tool_id, arguments)
        timestamp = rfc3339(self.clock.wall())
        entry = LedgerEntry(
            event="outcome",
            wire=wire,
            ids=ids,
            timestamp=timestamp,
            tool_id=tool_id,
            status="error",
            caller=caller,
            tier=grant.tier if grant else None,
            error=_error_of(refusal.ending, None, refusal.details.get("reason")),
            arguments_digest=digest,
            input_bytes=size,
            origin=origin,
            more=_together(refusal.recorded, grant.recorded(arguments) if grant else None),
        )
        tool, adopted = call.tool if call else None, grant is not None and grant.is_adopted
        try:
            place = self.ledger.append_refusal(entry, is_held=is_held)
        except LedgerUnavailable:
            return Answer(Ending.UNAVAILABLE, tool, ids.request, timestamp, text=_NOT_WRITTEN, adopted=adopted)
        details = dict(refusal.details)
        wait = details.pop("retry_after_s", None)
        return Answer(
            refusal.ending,
            tool,
            ids.request,
            timestamp,
            details or None,
            refusal.text,
            retry_after_s=wait,
            adopted=adopted,
            # Where a record stands tells how much others do: nothing for someone without a key.
            audit=asdict(place) if place and caller else None,
        )

    async def _intend(self, ticket: Ticket) -> None:
        """Step 5. Raises: Refusal UNAVAILABLE."""
        try:
            place = self.ledger.append(self._intent(ticket))
            await self.ledger.durable(place)
        except LedgerUnavailable:
            raise Refusal(Ending.UNAVAILABLE, _NOT_WRITTEN) from None
        ticket.is_intended = True

    def _intent(self, ticket: Ticket) -> LedgerEntry:
        return LedgerEntry(
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
            origin=ticket.origin,
            more=ticket.kept,
        )


def _asked(ask: Ask) -> dict[str, Any]:
    """What the log keeps of a question to the client: its kind, never its words."""
    return {"asked": sorted({each["method"] for each in ask.requests.values()})}


def _told(ticket: Ticket, said: Result) -> Mapping[str, Any] | None:
    """What few records say besides."""
    asked = None if said.ask is None else _asked(said.ask)
    repeats = None if ticket.repeats is None else {"repeats": ticket.repeats}
    counts = {"counts": dict(islice(said.counts.items(), MAX_COUNTS))} if said.counts else None
    return _together(_together(asked or repeats, counts), ticket.kept)


def _together(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return {**one, **other} if one and other else one or other


_NO_STREAM: Final = "The tool asks its client something, and this client takes no stream of events."
_NOT_WRITTEN = "The audit log cannot be written."


def _bad_arguments(faults: Sequence[ValueFault]) -> Outcome:
    """No tool has seen these arguments, so step 7 does not apply: the details are our own."""
    reason, text = faults[0].reason, " ".join(fault.text for fault in faults[:MAX_TOLD])
    if len(faults) > MAX_TOLD:
        text += f" ({len(faults) - MAX_TOLD} more)"
    details = {"reason": reason, "errors": [fault.as_json() for fault in faults]}
    result = error_result("INVALID_INPUT", text, details)
    encoded = strictjson.dumps(details)
    return Outcome(Ending.BAD_ARGUMENTS, result, reason, text, details_json=encoded, was_tried=False)


def _too_large(arrival: Arrival) -> Refusal:
    text = f"The body is larger than {arrival.body_bytes} bytes."
    return Refusal(Ending.TOO_LARGE, text, reason="body_too_large")


def malformed(fault: strictjson.JsonFault) -> Refusal:
    """For a body that is not strict JSON."""
    return Refusal(Ending.MALFORMED, f"Parse error: {fault}", reason=fault.reason)


def _error_of(ending: Ending, code: str | None, reason: str | None) -> dict[str, str | None]:
    """What the log keeps of a failure: which rule decided. Never a text, never a value."""
    return {"happening": ending, "code": code, "reason": reason}


def _details_of(outcome: Outcome) -> dict[str, Any]:
    if outcome.text is None or outcome.ending is Ending.TOOL_FAILED:
        return {"reason": outcome.reason}
    return {"reason": outcome.reason, "text": outcome.text}
