"""How a call to an upstream can fail. What the caller is told follows from the class (`errors.UpstreamFailed`)."""

from __future__ import annotations

from toolgate.errors import Ending, UpstreamFailed


def down(reason: str, text: str, *, retry_after_s: int | None = None) -> UpstreamFailed:
    """Nothing was sent: the upstream cannot be reached, or is not asked for a while."""
    return UpstreamFailed(Ending.UPSTREAM_DOWN, reason, text, retry_after_s=retry_after_s)


def fault(reason: str, text: str) -> UpstreamFailed:
    """The upstream answered, and the answer breaks the protocol or a bound."""
    return UpstreamFailed(Ending.UPSTREAM_FAULT, reason, text)


def in_doubt(reason: str, text: str) -> UpstreamFailed:
    """The call was sent and no answer came: whether it ran, only the upstream knows."""
    return UpstreamFailed(Ending.IN_DOUBT, reason, text)


def drift(reason: str, text: str) -> UpstreamFailed:
    """What the upstream offers is not what a person approved."""
    return UpstreamFailed(Ending.UPSTREAM_DRIFT, reason, text)


class NotSent(Exception):
    """A request did not leave: no byte of it reached the upstream."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Lost(Exception):
    """A request left, and its answer will not come: the connection ended or broke a rule."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Unusable(Exception):
    """The request was answered, and the answer breaks the protocol or a bound."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Incompatible(Exception):
    """The upstream speaks no version of the protocol that we do, or does not shake hands."""


class RefusedByStatus(Exception):
    """An HTTP status in place of an answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the upstream answered with status {status}")
        self.status = status


class SessionGone(Exception):
    """The upstream does not know the session any more (404 to a request that named one)."""
