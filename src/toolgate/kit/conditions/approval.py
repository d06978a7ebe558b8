"""What becomes of a call that a person must approve: plain values, and what keeps them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

MAX_WAITING: Final = 100
"""Requests of one caller that wait for an answer: more than a person reads."""


class ApprovalRequest(Struct, frozen=True):
    """What an approver sees, and what a grant is bound to."""

    id: str
    binding: str
    """A keyed digest over caller, tool, pin, policy and all arguments, secret ones included."""
    caller: str
    label: str
    tool: str
    pin: str
    policy: str
    rule: str
    needed: int
    """Approvers."""
    shown: str
    """The arguments as JSON, as they would run, secret ones masked."""
    created: float
    expires: float


class ApprovalClaim(Struct, frozen=True):
    """What the store says about a call: its grant was spent, or it waits, or it was refused."""

    state: Literal["spent", "new", "pending", "refused", "too_many"]
    id: str
    expired: tuple[str, ...] = ()
    """Requests for the same call that ended without being used."""


class ApprovalStore(Protocol):
    def claim(self, request: ApprovalRequest, now: float) -> Coroutine[Any, Any, ApprovalClaim]:
        """Spend the grant of such a call, or find the request that waits, or keep this one. Raises: StoreUnavailable."""
        ...


def is_same_person(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Id and label of two keys: a label names a person, so two keys of one label are one approver."""
    return one[0] == other[0] or (bool(one[1]) and one[1].casefold() == other[1].casefold())
