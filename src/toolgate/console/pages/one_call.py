"""One call: every step of the road with its result, the rule that decided, what the floor took away, and its proof."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.console.index.filters import read_filter
from toolgate.console.pages.shared import ConsolePage
from toolgate.console.proving import ProofAsked
from toolgate.console.rendering import fields
from toolgate.console.web import NotFound
from toolgate.ledger import record
from toolgate.ledger.reading.explain import rule_of

if TYPE_CHECKING:
    from toolgate.console.index.reading import Entry
    from toolgate.console.pages.shared import Desk

STEPS: Final = (
    "Authenticate",
    "Permit",
    "Admit",
    "Validate arguments",
    "Record intent",
    "Run",
    "Validate answer",
    "Floor",
    "Record outcome",
)
_STEP: Final = re.compile(r"step ([1-9])")
_RECORDED: Final = 9


class RoadStep(Struct, frozen=True):
    number: int
    name: str
    result: str
    tone: str
    """`good`, `warn`, `bad`, or `quiet` for a step that was not reached or not needed."""


def one_call(desk: Desk, request: str) -> ConsolePage:
    """Raises: NotFound: there is no such call, or it is another person's."""
    found = list(_records(desk, request))
    if not found:
        raise NotFound
    entries, records = [each[0] for each in found], [each[1] for each in found]
    last = fields(records[-1])
    outcome = next((each for each in records if "outcome" in (each.get("event"), each.get("stage"))), None)
    error = fields(_object(outcome or {}, "error"))
    values: dict[str, Any] = {
        "request": request,
        "found": last,
        "outcome": outcome,
        "is_act": last.get("event") == "act",
        "metadata": _object(last, "metadata"),
        "caller": _object(last, "caller"),
        "label": desk.people().get(_object(last, "caller").get("id", ""), ("",))[0],
        "error": error,
        "rule": rule_of(str(error.get("happening"))) if error else None,
        "steps": []
        if last.get("event") == "act"
        else list(road(outcome, has_intent=len(records) > 1 or outcome is None)),
        "clamps": last.get("clamps") if isinstance(last.get("clamps"), list) else [],
        "entry": entries[-1],
        "records": [(entry, fields(each)) for entry, each in zip(entries, records, strict=True)],
        "command": f"toolgate audit prove {request} --home {shlex.quote(str(desk.ports.home))}",
        "log_key": desk.ports.log_key,
        "back": read_filter(desk.visit.query).query(),
    }
    return ConsolePage("call", f"Call {request}", values)


def proof_of(desk: Desk, request: str) -> ProofAsked:
    """What is to be proved: the outcome, or the intent of a call that has none. Raises: NotFound."""
    with desk.index() as index:
        entries = index.of_request(request)
        if not entries:
            raise NotFound
        return ProofAsked(str(desk.ports.log), index.run_name(entries[-1]), entries[-1].seq)


def _records(desk: Desk, request: str) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """As the log itself has them."""
    with desk.index() as index:
        for entry in index.of_request(request):
            found = record.read(index.line(entry) or b"")
            if found is not None:
                yield entry, found


def road(outcome: Mapping[str, Any] | None, *, has_intent: bool) -> Iterator[RoadStep]:
    """The nine steps, as far as the record tells."""
    error = _object(outcome or {}, "error")
    failed = error.get("happening") if error else None
    # A code beside a success is told in `error`, too.
    stopped = _stopped_at(str(failed)) if failed not in (None, "ok") else None
    for number, name in enumerate(STEPS, 1):
        yield _step(number, name, outcome, stopped, has_intent=has_intent, failed=str(failed))


def _step(
    number: int, name: str, outcome: Mapping[str, Any] | None, stopped: int | None, *, has_intent: bool, failed: str
) -> RoadStep:
    if outcome is None:
        known = number <= 5
        return RoadStep(number, name, "passed" if known else "not known", "good" if known else "warn")
    if number == _RECORDED:
        return RoadStep(number, name, f"record {outcome.get('seq')}", "good")
    if stopped is not None and number == stopped:
        return RoadStep(number, name, failed, "bad")
    if stopped is not None and number > stopped:
        return RoadStep(number, name, "not reached", "quiet")
    if number == 5 and not has_intent:
        return RoadStep(number, name, "not needed: no effect", "quiet")
    if number == 8:
        taken = len(outcome.get("clamps") or ())
        return RoadStep(number, name, f"{taken} clamped" if taken else "nothing clamped", "warn" if taken else "good")
    return RoadStep(number, name, "passed", "good")


def _stopped_at(happening: str) -> int:
    """0: before the road."""
    found = _STEP.search(rule_of(happening)[0])
    return int(found[1]) if found else 0


def _object(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else fields({})
