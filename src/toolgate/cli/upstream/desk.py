"""What the console shows and approves of an upstream that changed: the same inspection, the same pin, as `toolgate upstream`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.cli.upstream.files import policy_of, rows_for, write_pin, write_rows
from toolgate.cli.upstream.inspection import Inspection, drift_of, findings_about, inspect, pinning, served_by
from toolgate.cli.upstream.shared import pin_at
from toolgate.console.pages.changes import fitting
from toolgate.console.ports import FieldChange, UpstreamChange
from toolgate.errors import StartRefused
from toolgate.kit.pins import approve as approved
from toolgate.kit.pins import digest_of
from toolgate.model import strictjson
from toolgate.model.threads import in_thread
from toolgate.packs.upstream.scan import not_servable, shown

if TYPE_CHECKING:
    from toolgate.kit.pins import Pin, PinDrift
    from toolgate.settings import Settings


MAX_NAMED: Final = 100
"""Names and findings that a page tells one by one."""
_TOO_LONG: Final = "This is too much to be shown whole on a page, so nothing is approved here. In a terminal:"


class PinDesk(Struct, frozen=True):
    """Implements `toolgate.console.ports.UpstreamChanges`. Each look connects to the upstream anew, in a thread."""

    settings: Settings

    async def look(self, name: str) -> UpstreamChange:
        return await in_thread(self._look, name)

    async def approve(self, name: str, digest: str, recorded: Callable[[Mapping[str, Any]], Any]) -> str:
        return await in_thread(self._approve, name, digest, recorded)

    def _look(self, name: str) -> UpstreamChange:
        pin, inspected, found = self._found(name)
        if not found:
            return UpstreamChange("", ())
        rows, blocked = _judged(pin, inspected, found)
        return UpstreamChange(self._fresh(pin, inspected).digest, rows, _notes(inspected, found), blocked)

    def _approve(self, name: str, digest: str, recorded: Callable[[Mapping[str, Any]], Any]) -> str:
        """Raises: StartRefused: it is not what was shown any more, or may not be served."""
        policy = policy_of(self.settings)
        pin, inspected, found = self._found(name)
        if not found:
            return f"{name} is as it was approved."
        fresh, (_, blocked) = self._fresh(pin, inspected), _judged(pin, inspected, found)
        if fresh.digest != digest:
            raise StartRefused(f"{name} has changed since this page was made.\nLook again before you approve it.")
        if blocked:
            raise StartRefused(blocked)
        names, _ = served_by(self.settings, inspected, fresh)
        rows = rows_for(policy, name, names.values(), {})
        about = {"upstream": name, "pin": fresh.digest, "before": pin.digest, "diff": digest_of(found.as_json())}
        with recorded(about):
            write_pin(policy, fresh)
            write_rows(policy, rows)
        return "Approved. A running server takes it over: toolgate reload. Tools that are new are served once they have roles."

    def _found(self, name: str) -> tuple[Pin, Inspection, PinDrift]:
        """Raises: StartRefused, SettingsError."""
        pin, inspected = pin_at(self.settings, name), inspect(self.settings, name)
        return pin, inspected, drift_of(pin, inspected)

    def _fresh(self, pin: Pin, inspected: Inspection) -> Pin:
        """Raises: StartRefused."""
        with pinning(pin.upstream):
            return approved(pin, inspected.offer, inspected.peer, None)


def _judged(pin: Pin, inspected: Inspection, found: PinDrift) -> tuple[list[FieldChange], str]:
    """What a page shows of the difference, and why it cannot be approved there."""
    rows, is_all = fitting(list(_rows(pin, inspected, found)))
    too_long = "" if is_all else f"{_TOO_LONG} toolgate upstream approve {pin.upstream}."
    return rows, _blocked(pin, inspected) or too_long


def _rows(pin: Pin, inspected: Inspection, found: PinDrift) -> Iterator[FieldChange]:
    was, now = pin.places(), inspected.offer.places()
    for place, fields in sorted(found.changed.items()):
        for each in fields:
            yield FieldChange(place, each, _text(was[place].definition.get(each)), _text(now[place].get(each)))
    for place in sorted(found.added):
        for each, value in now[place].items():
            yield FieldChange(place, each, "", _text(value))


def _notes(inspected: Inspection, found: PinDrift) -> list[str]:
    notes = list(_all_notes(inspected, found))
    more = len(notes) - MAX_NAMED
    return notes if more <= 0 else [*notes[:MAX_NAMED], f"… and {more} more"]


def _all_notes(inspected: Inspection, found: PinDrift) -> Iterator[str]:
    if found.peer:
        yield "Another program or address than the approved one."
    for word, names in (("Gone", found.gone), ("New", found.added), ("Differs", found.about)):
        yield from (f"{word}: {shown(name)}" for name in names)
    for finding in findings_about(inspected, found):
        if finding.severity != "info":
            yield f"{finding.severity}: {finding.rule}, {finding.message}"


def _blocked(pin: Pin, inspected: Inspection) -> str:
    """Why it cannot be approved here."""
    blocked = not_servable(inspected.findings)
    bad = [name for name in inspected.offer.places() if shown(name) in blocked and name not in pin.declined]
    return f"{shown(bad[0])} has a critical finding, so nothing is approved here." if bad else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else strictjson.dumps_pretty(_ordered(value)).decode()


def _ordered(value: Any) -> Any:
    """Names in one order: a pin has them sorted, an offer as its server sent them, and neither order means anything."""
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return [_ordered(each) for each in value] if isinstance(value, list) else value
