"""Calls that a person must approve: what waits, one request with its arguments, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.pages.shared import ConsolePage
from toolgate.console.rendering import WholeText
from toolgate.console.web import NotFound
from toolgate.errors import StoreUnavailable
from toolgate.gate.authority.answers import GivenAnswer, UnknownApproval, answer_request, person_of
from toolgate.kit.conditions.approval import Answer, Person, VoteRefused, is_same_person, reason_fault
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.console.pages.shared import Desk
    from toolgate.console.ports import Ports
    from toolgate.ledger.acts import Acts
    from toolgate.model.call import Caller

ENDED: Final = 50
"""Requests that were answered, spent or expired, of one page."""
MAX_PRETTY: Final = 256 * 1024
"""Characters of indented arguments; deeply nested ones are mostly blanks."""
SILENT: Final = "The store of approvals does not answer, so calls that need one are refused."


async def seen_requests(desk: Desk) -> list[dict[str, Any]]:
    """Newest first: everybody's, or one's own. Raises: StoreUnavailable."""
    rows = await desk.ports.approvals.all()
    return [_with_state(row, desk.now_ms) for row in rows if _sees(desk, row)]


async def waiting_requests(desk: Desk) -> Sequence[Mapping[str, Any]] | None:
    """For the overview, of those who may see them all. None: the store does not answer."""
    if not desk.session.sees_all or all(grant.rules is None for grant in desk.ports.grants()):
        return ()
    try:
        return [row for row in await seen_requests(desk) if row["state"] == "pending"]
    except StoreUnavailable:
        return None


async def approvals(desk: Desk) -> ConsolePage:
    try:
        rows = await seen_requests(desk)
    except StoreUnavailable:
        return _silent()
    values = {
        "waiting": [row for row in rows if row["state"] == "pending"],
        "ended": [row for row in rows if row["state"] != "pending"][:ENDED],
        "now": desk.now,
    }
    return ConsolePage("approvals", "Approvals", values)


async def one_approval(desk: Desk, approval: str, fault: str = "", status: int = 200) -> ConsolePage:
    """Raises: NotFound."""
    try:
        found = await desk.ports.approvals.get(approval)
    except StoreUnavailable:
        return _silent()
    if found is None or not _sees(desk, found):
        raise NotFound
    own, request = _person(desk), _with_state(found, desk.now_ms)
    values = {
        "request": request,
        "arguments": _whole(found["shown"]),
        "is_own": is_same_person(Person(found["caller"], found["label"], found["owner"]), own),
        "has_answered": any(is_same_person(_voter(vote), own) for vote in found["votes"]),
        "may_answer": answers(desk.session.caller, desk.ports),
        "answerers": found["roles"].replace(",", " or ") or " or ".join(sorted(desk.ports.answerers())),
        "fault": fault,
        "now": desk.now,
    }
    return ConsolePage("approval", "Approval", values, status)


async def answer(desk: Desk, acts: Acts, approval: str, verdict: Answer) -> ConsolePage | None:
    """None: it counts. Else the page that says why not. Raises: NotFound, LedgerUnavailable."""
    reason = desk.visit.form.get("reason", "").strip()
    fault = reason_fault(reason)
    if fault is not None:
        return await one_approval(desk, approval, f"Give another reason: {fault}.", 400)
    given = GivenAnswer(approval, _person(desk), verdict, reason)
    try:
        await answer_request(desk.ports.approvals, given, desk.now, acts.recorded)
    except StoreUnavailable:
        return _silent()
    except UnknownApproval:
        raise NotFound from None
    except VoteRefused as refused:
        return await one_approval(desk, approval, str(refused), 409)
    return None


def _person(desk: Desk) -> Person:
    return person_of(desk.session.caller)


def _voter(vote: Mapping[str, Any]) -> Person:
    return Person(vote["approver"], vote["label"], vote["owner"])


def answers(caller: Caller, ports: Ports) -> bool:
    """May it answer requests? A key that is held to some tools may not."""
    return caller.role in ports.answerers() and not caller.is_scoped


def _sees(desk: Desk, row: Mapping[str, Any]) -> bool:
    caller = desk.session.caller
    return desk.session.sees_all or answers(caller, desk.ports) or row["caller"] == caller.key_id


def _with_state(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """A request that nobody asked about again does not know yet that its time is over."""
    is_over = row["state"] in ("pending", "approved") and row["expires"] <= now_ms
    return {**row, "state": "expired"} if is_over else row


def _whole(shown: str) -> WholeText:
    """Indented, unless that makes too much of it. What a store holds is bounded, so nothing is cut."""
    pretty = strictjson.dumps_pretty(strictjson.loads(shown.encode(), max_values=None)).decode()
    return WholeText(pretty if len(pretty) <= MAX_PRETTY else shown)


def _silent() -> ConsolePage:
    return ConsolePage("fault", "No answer", {"fault": SILENT}, 503)
