"""Administrative acts leave records in the audit log, as calls do: an intent before anything changes, then how it ended.

Each act is a run of its own, because several servers may be writing theirs. If the log cannot be written, nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolgate.cli import output
from toolgate.errors import LedgerUnavailable
from toolgate.model.clock import RandomIds, SystemClock
from toolgate.ownership import process_origin

if TYPE_CHECKING:
    from toolgate.ledger import LocalLedger
    from toolgate.settings import Settings


@contextmanager
def recorded(settings: Settings, act: str, about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Around what changes something. What the block puts into the dictionary is recorded with the outcome.

    Raises: StartRefused, LedgerUnavailable: the log cannot be written, and the block has not begun.
    """
    with recorded_in_ledger(settings, act, about) as (_, found):
        yield found


@contextmanager
def recorded_in_ledger(
    settings: Settings, act: str, about: Mapping[str, Any]
) -> Iterator[tuple[LocalLedger, dict[str, Any]]]:
    """The same, for an act on the ledger itself."""
    from toolgate.ledger.opening import open_for_act  # signatures, 20 ms: commands that only look do not wait for them

    clock = SystemClock()
    ledger = open_for_act(settings, clock)
    facts = {"act": act, "requestId": RandomIds().for_call(None, None).request, **process_origin("command line")}
    found: dict[str, Any] = {}
    try:
        ledger.append_act("intent", facts | {"about": dict(about)})
        try:
            yield ledger, found
        except BaseException as fault:
            _tell(ledger.append_act, facts | {"status": "error", "error": type(fault).__name__})
            raise
        _tell(ledger.append_act, facts | {"status": "ok", "about": {**about, **found}})
    finally:
        ledger.close()


def _tell(append: Any, facts: Mapping[str, Any]) -> None:
    """The act is done or has failed, and its caller must hear of that in any case."""
    try:
        append("outcome", facts)
    except LedgerUnavailable:
        output.note("note: how this ended could not be written to the audit log; the next start will say so there")
