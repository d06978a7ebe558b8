"""What somebody does to a running server, on a page or over HTTP, leaves records, as on the command line: an intent before
anything changes, then how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolgate.errors import LedgerUnavailable
from toolgate.model.clock import RandomIds
from toolgate.ownership import process_origin

if TYPE_CHECKING:
    from toolgate.model.call import Caller


class ActLog(Protocol):
    def append_act(self, stage: Literal["intent", "outcome"], facts: Mapping[str, Any]) -> None:
        """Raises: LedgerUnavailable."""
        ...


class Acts:
    """Of one person, from one address."""

    def __init__(self, ledger: ActLog, caller: Caller | None, address: str, *, way: str = "console") -> None:
        self._ledger = ledger
        origin = process_origin(way)
        who = {} if caller is None else {"key": caller.key_id, "role": caller.role}
        self._by = {"by": {**origin["by"], **who}, "from": {**origin["from"], "address": address}}

    @contextmanager
    def recorded(self, act: str, about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Around what changes something. What the block puts into the dictionary is recorded with the outcome.

        Raises: LedgerUnavailable: the block has not begun.
        """
        facts = self._facts(act)
        found: dict[str, Any] = {}
        self._ledger.append_act("intent", facts | {"about": dict(about)})
        try:
            yield found
        except BaseException as fault:
            self._end(facts | {"status": "error", "error": type(fault).__name__, "about": dict(about)})
            raise
        self._end(facts | {"status": "ok", "about": {**about, **found}})

    def told(self, act: str, *, is_ok: bool, about: Mapping[str, Any]) -> None:
        """What changes nothing: somebody came or went. Raises: LedgerUnavailable."""
        facts = self._facts(act) | {"status": "ok" if is_ok else "error", "about": dict(about)}
        self._ledger.append_act("outcome", facts)

    def _facts(self, act: str) -> dict[str, Any]:
        return {"act": act, "requestId": RandomIds().for_call(None, None).request, **self._by}

    def _end(self, facts: Mapping[str, Any]) -> None:
        """It is done or has failed, and its caller must hear of that in any case: the next start tells the log."""
        with suppress(LedgerUnavailable):
            self._ledger.append_act("outcome", facts)
