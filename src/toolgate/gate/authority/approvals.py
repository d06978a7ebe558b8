"""Step 4, at its end: a call that a person must approve becomes a request, and goes on when it is asked again with a grant.

A grant is for one call: of this caller, tool and pin, with exactly these arguments, under exactly this policy, until it expires.
It is spent before the intent is written, by one atomic statement: a process that dies in between has spent it for nothing,
and no effect is ever without one.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import Ending, Refusal, StoreUnavailable
from toolgate.gate.redact import redacted
from toolgate.kit.conditions.approval import MAX_WAITING, ApprovalClaim, ApprovalRequest, ApprovalStore
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.gate.admit import Ticket
    from toolgate.gate.authority.answers import Recorded
    from toolgate.kit.conditions.rules import CallRule
    from toolgate.model.call import Caller, Origin
    from toolgate.model.clock import Clock

LIFE_S: Final = 3600
"""For a person to answer, and then for the caller to ask again."""
ASK_AGAIN_S: Final = 5
MAX_SHOWN: Final = 64 * 1024
"""Bytes of arguments that a request keeps for its approver. Longer ones cannot be approved: nobody reads them."""


class Approvals(Struct, frozen=True):
    store: ApprovalStore
    key: Callable[[], bytes]
    clock: Clock
    new_id: Callable[[], str]
    record: Callable[[str, Mapping[str, Any]], bool]
    """Of an act of the server itself. False: the log cannot be written."""
    recorded: Callable[[Caller, Origin], Recorded]
    """Of what a caller does about requests."""
    tell: Callable[[ApprovalRequest], None] | None = None
    """Somebody hears of each new request. Never waits, never raises."""

    async def require(self, ticket: Ticket, rule: CallRule) -> None:
        """Returns if a grant was spent for this call; the record of the call names it. Raises: Refusal."""
        request = self._request(ticket, rule)
        try:
            # A task of its own: stores bound their waiting by one, and the first step of an answer has none.
            claim = await asyncio.ensure_future(self.store.claim(request, request.created))
        except StoreUnavailable:
            raise Refusal(
                Ending.UNAVAILABLE, "The store of approvals does not answer.", reason="store_unavailable"
            ) from None
        if claim.expired:
            with suppress(StoreUnavailable):  # then a server that looks again writes them down
                await asyncio.ensure_future(self.record_expired())
        if claim.state == "spent":
            ticket.kept = {**(ticket.kept or {}), "approval": claim.id}
            return
        if claim.state == "new":
            self.record("approvals.request", _recorded(request))
            if self.tell is not None:
                self.tell(request)
        raise _refusal(claim, request)

    async def record_expired(self) -> int:
        """Write down requests and grants whose time is over, so many at most. How many were taken: not more than a store
        hands out at once. Raises: StoreUnavailable."""
        taken = await self.store.take_expired(self.clock.wall())
        for request in taken:
            if self.record("approvals.expire", _recorded(request)):
                await self.store.expiry_recorded(request.id)
        return len(taken)

    def _request(self, ticket: Ticket, rule: CallRule) -> ApprovalRequest:
        grant, caller, arguments = ticket.grant, ticket.caller, ticket.call.arguments
        pin = grant.tool.foreign.pin if grant.tool.foreign is not None else ""
        policy = grant.rules.digest if grant.rules is not None else ""
        bound = strictjson.dumps_sorted([caller.key_id, grant.tool.name, pin, policy, arguments])
        shown = strictjson.dumps_sorted(redacted(grant.io.secrets, arguments)).decode()
        if len(shown) > MAX_SHOWN:
            text = f"This call needs an approval, and nobody reads more than {MAX_SHOWN} bytes of arguments."
            raise Refusal(Ending.RULE_DENIED, text, reason="too_long_to_approve", rule=rule.source.name)
        now = self.clock.wall()
        return ApprovalRequest(
            id=self.new_id(),
            binding=hmac.digest(self.key(), bound, "sha256").hex(),
            caller=caller.key_id,
            label=caller.label,
            owner=caller.owner,
            tool=grant.tool.name,
            pin=pin,
            policy=policy,
            rule=rule.source.name,
            needed=rule.source.approvers,
            roles=",".join(rule.source.answered_by),
            shown=shown,
            created=now,
            expires=now + LIFE_S,
        )


def _refusal(claim: ApprovalClaim, request: ApprovalRequest) -> Refusal:
    rule, about = request.rule, {"approval": claim.id, "rule": request.rule}
    if claim.state == "refused":
        text = "A person has refused this call."
        return Refusal(
            Ending.RULE_DENIED, text, recorded=about, reason="approval_refused", rule=rule, approval_id=claim.id
        )
    if claim.state == "too_many":
        return Refusal(
            Ending.TOO_MANY, f"{MAX_WAITING} calls of this key wait for an approval.", reason="too_many_waiting"
        )
    text = f"A person must approve this call ({claim.id}); then make the same call again."
    return Refusal(
        Ending.APPROVAL_REQUIRED,
        text,
        recorded=about,
        reason="approval_required",
        rule=rule,
        approval_id=claim.id,
        retry_after_s=ASK_AGAIN_S,
    )


def _recorded(request: ApprovalRequest) -> dict[str, Any]:
    """For the log, which holds no arguments: the binding stands for them."""
    names = ("binding", "caller", "tool", "pin", "policy", "rule", "needed")
    return {"approval": request.id, **{name: getattr(request, name) for name in names}}
