"""What becomes of a call that a person must approve: plain values, and what keeps them."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from toolgate.model.clock import rfc3339

STORE: Final = "approvals"
MAX_WAITING: Final = 100
"""Requests of one caller that wait for an answer: more than a person reads."""
MAX_REASON: Final = 200
"""Characters."""
ANSWERER: Final = "admin"
"""The role that answers requests, beside those of a deployment that may."""
Answer = Literal["approve", "refuse"]


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
    owner: str = ""
    """Of the asker's key."""
    roles: str = ""
    """Whose answers count, with commas between; empty: those of every role that may answer."""


class Person(Struct, frozen=True):
    """Who asks or answers: a key, or a user of the machine."""

    id: str
    label: str = ""
    owner: str = ""
    role: str = "admin"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in (self.label, self.owner) if name)


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

    def vote(
        self, approval: str, approver: Person, verdict: Answer, reason: str, now: float
    ) -> Coroutine[Any, Any, str]:
        """The state after it. Raises: VoteRefused, StoreUnavailable."""
        ...

    def take_expired(self, now: float) -> Coroutine[Any, Any, list[ApprovalRequest]]:
        """Some of those whose time is over and that nobody has written down: this process does, within a minute.
        Raises: StoreUnavailable."""
        ...

    def expiry_recorded(self, approval: str) -> Coroutine[Any, Any, None]:
        """Raises: StoreUnavailable."""
        ...

    def all(self, state: str = "") -> Coroutine[Any, Any, list[dict[str, Any]]]:
        """Newest first, of one state or of all. Raises: StoreUnavailable."""
        ...

    def get(self, approval: str) -> Coroutine[Any, Any, dict[str, Any] | None]:
        """With its votes. Raises: StoreUnavailable."""
        ...


class VoteRefused(Exception):
    """An answer that does not count; the text says why. `reason` is stable."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def reason_fault(text: str) -> str | None:
    """What is wrong with what somebody gives as a reason."""
    is_good = len(text) <= MAX_REASON and (not text or text.isprintable())
    return None if is_good else f"a reason is at most {MAX_REASON} printable characters"


def told_request(row: Mapping[str, Any]) -> dict[str, Any]:
    """A request as it is shown: moments as people and programs read them."""
    found = {**row, **{name: rfc3339(row[name] / 1000) for name in ("created", "expires")}}
    if "votes" in row:
        found["votes"] = [{**vote, "voted": rfc3339(vote["voted"] / 1000)} for vote in row["votes"]]
    return found


def is_same_person(one: Person, other: Person) -> bool:
    """Labels and owners of keys name people: who has a name in common is one asker and one approver."""
    return one.id == other.id or not one.names.isdisjoint(other.names)
