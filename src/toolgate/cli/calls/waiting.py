"""How `toolgate call` waits for a person: it asks again, with the same arguments, as often as the server says."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from time import monotonic
from typing import Any, Final

from msgspec import Struct

from toolgate.cli import output
from toolgate.errors import ExitCode

TICK_S: Final = 0.2
"""Between two pictures of the spinner."""
ASK_AGAIN_S: Final = 5
"""For a server that does not say when."""
LONGEST_S: Final = 60
"""Of what a server says."""
_PICTURES: Final = "|/-\\"


class CallAnswer(Struct, frozen=True):
    """An answer as either way gives it."""

    body: dict[str, Any]
    exit_code: int
    text: str | None = None
    """A sentence for people that the body does not carry."""
    retry_after: bytes = b""
    """The header."""

    @property
    def approval(self) -> str | None:
        """The request that a person must answer."""
        found = (self.body.get("details") or {}).get("approval_id") if self.exit_code == ExitCode.WAITING else None
        return found if isinstance(found, str) else None


class PersonWait:
    """One command's wait for one request."""

    def __init__(self, *, is_wanted: bool, shows: bool) -> None:
        """`shows`: a person at a terminal sees a spinner."""
        self._is_wanted = is_wanted
        self._spins = shows and sys.stderr.isatty()
        self._request: str | None = None
        self._began = monotonic()

    def goes_on(self, told: CallAnswer) -> bool:
        """Until there is an answer. Another request's id means that ours has expired, or another call used its grant."""
        request = told.approval
        if not self._is_wanted or request is None:
            return False
        if self._request not in (None, request):
            output.note(
                f"{self._request} ended without this call; {request} waits now. Make the call again to wait for it."
            )
            return False
        return True

    def ticks(self, told: CallAnswer) -> Iterator[float]:
        """Seconds to sleep, again and again, until it is time to ask. To be left by an interrupt at any of them."""
        if self._request is None:
            self._request = told.approval
            if not self._spins:
                output.note(f"{self._request} waits for a person. An interrupt leaves it waiting.")
        ends = monotonic() + _seconds(told.retry_after)
        try:
            for picture in itertools.cycle(_PICTURES):
                now = monotonic()
                if now >= ends:
                    return
                if self._spins:
                    waited = int(now - self._began)
                    output.progress(f"{picture} {self._request} waits for a person ({waited // 60}:{waited % 60:02})")
                yield min(TICK_S, ends - now)
        finally:
            if self._spins:
                output.progress("")


def _seconds(retry_after: bytes) -> int:
    return min(max(int(retry_after), 1), LONGEST_S) if retry_after.isdigit() and len(retry_after) < 9 else ASK_AGAIN_S
