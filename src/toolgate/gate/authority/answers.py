"""Requests for approval, read and answered: the same for the command line, the console and `POST /approvals/...`.

An answer leaves two records, as every act does: an intent before it is given, then how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import Ending, LedgerUnavailable, Refusal, StoreUnavailable
from toolgate.gate.admit import insufficient_role
from toolgate.kit.conditions.approval import Answer, Person, VoteRefused, reason_fault, told_request

if TYPE_CHECKING:
    from toolgate.faces.face import Asked
    from toolgate.faces.reply import Reply
    from toolgate.gate.admit import Admission, Lender
    from toolgate.gate.arrival import Arrival
    from toolgate.gate.road import Road
    from toolgate.kit.conditions.approval import ApprovalStore
    from toolgate.model.call import Caller

Recorded = Callable[[str, Mapping[str, Any]], AbstractContextManager[dict[str, Any]]]
"""(act, about) -> what records an intent, and at its end the outcome with what was put into the dictionary."""
_BOUND: Final = ("binding", "caller", "tool", "pin", "policy", "rule")
"""What an answer's record says of the request."""


READERS: Final = frozenset({"auditor"})
"""See everybody's requests, beside those who answer them."""


def person_of(caller: Caller) -> Person:
    return Person(caller.key_id, caller.label, caller.owner, caller.role)


class UnknownApproval(Exception):
    pass


class GivenAnswer(Struct, frozen=True):
    approval: str
    approver: Person
    verdict: Answer
    reason: str


async def requests(store: ApprovalStore, now: float, *, everything: bool = False) -> list[dict[str, Any]]:
    """Those that wait for an answer, newest first; or the newest of all. Raises: StoreUnavailable."""
    found = await store.all("" if everything else "pending")
    return [told_request(row) for row in found if everything or row["expires"] > now * 1000]


async def answer_request(store: ApprovalStore, given: GivenAnswer, now: float, recorded: Recorded) -> str:
    """The state of the request after it. Raises: UnknownApproval, VoteRefused, StoreUnavailable, LedgerUnavailable."""
    request = await store.get(given.approval)
    if request is None:
        raise UnknownApproval
    who = {"approver": given.approver.id, "label": given.approver.label, "role": given.approver.role}
    who |= {"owner": given.approver.owner} if given.approver.owner else {}
    about = {"approval": given.approval, **who, "reason": given.reason, **{name: request[name] for name in _BOUND}}
    with recorded(f"approvals.{given.verdict}", about) as found:
        found["state"] = await store.vote(given.approval, given.approver, given.verdict, given.reason, now)
    return str(found["state"])


# POST /approvals/... -------------------------------------------------------------------------------------------------


async def serve_approvals(road: Road, arrival: Arrival, asked: Asked) -> Reply:
    """A message to one of the addresses below /approvals, by the limits of its caller. Raises: Refusal."""
    caller, admission = arrival.caller, road.admission
    assert caller is not None
    assert asked.besides is not None
    verb, message = asked.besides.desk
    may = admission.permits.answerers | (frozenset() if verb in ("approve", "refuse") else READERS)
    if caller.is_scoped or caller.role not in may:
        raise insufficient_role(caller, f"approvals/{verb}")
    visit = _entered(admission, caller)
    try:
        if admission.shared is not None:
            await admission.shared.admit(visit)
        # A task of its own: stores bound their waiting by one, and the first step of an answer has none.
        found = await asyncio.ensure_future(_done(road, arrival, caller, verb, message))
    except StoreUnavailable:
        text = "The store of approvals does not answer."
        raise Refusal(Ending.UNAVAILABLE, text, reason="store_unavailable") from None
    except LedgerUnavailable:
        raise Refusal(Ending.UNAVAILABLE, "The audit log cannot be written, so nothing was done.") from None
    except UnknownApproval:
        raise Refusal(Ending.NOT_THERE, "There is no request with this id.", reason="unknown_approval") from None
    except VoteRefused as refused:
        raise Refusal(Ending.TOOL_SAID_NO, str(refused), reason=refused.reason) from None
    finally:
        visit.release()
    return road.answer_plainly(arrival, asked, [found])


class _Visit(Struct, eq=False):
    """An `Entrant` that is no call."""

    caller: Caller
    slots: Lender | None

    def release(self) -> None:
        if self.slots is not None:
            self.slots.give_back(self.caller)
            self.slots = None


def _entered(admission: Admission, caller: Caller) -> _Visit:
    """As one more call of its caller. Raises: Refusal."""
    admission.rate.take(caller, admission.clock.monotonic())
    admission.slots.take(caller)
    return _Visit(caller, admission.slots)


async def _done(road: Road, arrival: Arrival, caller: Caller, verb: str, message: Mapping[str, Any]) -> dict[str, Any]:
    approvals, approval = road.approvals, message.get("id", "")
    recorded = approvals.recorded(caller, arrival.origin)
    if verb in ("approve", "refuse"):
        reason = message.get("reason", "")
        fault = reason_fault(reason)
        if fault is not None:
            raise Refusal(Ending.MALFORMED, f"{fault}.", reason="invalid_reason")
        verdict: Answer = "approve" if verb == "approve" else "refuse"
        given = GivenAnswer(approval, person_of(caller), verdict, reason)
        return {"id": approval, "state": await answer_request(approvals.store, given, road.clock.wall(), recorded)}
    with recorded(f"approvals.{verb}", {"approval": approval} if approval else {}):
        if verb == "list":
            everything = message.get("all", False)
            return {"approvals": await requests(approvals.store, road.clock.wall(), everything=everything)}
        found = await approvals.store.get(approval)
        if found is None:
            raise UnknownApproval
        return told_request(found)
