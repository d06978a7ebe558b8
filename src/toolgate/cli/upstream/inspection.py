"""An upstream as it is now: connected, listed, scanned, compared with its pin."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.cli import output
from toolgate.enabled import enabled_packs
from toolgate.errors import StartRefused, ToolError, UpstreamFailed
from toolgate.kit.pins import PinFault, compare
from toolgate.packs.upstream.names import served_names, taken_with
from toolgate.packs.upstream.scan import Scanned, scan, shown
from toolgate.powers.mcp.failures import NotSent
from toolgate.powers.secrets import SecretSources
from toolgate.ruleset import names_taken
from toolgate.upstreams import describe, hidden_from_programs, logins_of, read_pins, read_tables

if TYPE_CHECKING:
    from toolgate.kit.findings import Finding
    from toolgate.kit.pins import Offer, Pin, PinDrift
    from toolgate.powers.mcp.table import UpstreamTable
    from toolgate.settings import Settings

from toolgate.cli.upstream.shared import table_of


class Inspection(Struct, frozen=True):
    """One upstream as it is now."""

    table: UpstreamTable
    offer: Offer
    peer: Mapping[str, Any]
    findings: Sequence[Finding]


def inspect(settings: Settings, name: str) -> Inspection:
    """Connect, list and scan. Raises: StartRefused: it does not answer; the text has a program's last words."""
    table = table_of(settings, name)
    secrets = SecretSources(settings.paths.secrets, os.environ)
    try:
        with _waiting(f"connecting to {name} ..."):
            offer, peer = asyncio.run(describe(table, secrets, hidden_from_programs(settings), logins_of(settings)))
    except (UpstreamFailed, NotSent) as fault:
        raise StartRefused(f"{name} does not answer ({fault.reason}): {fault}") from None
    except ToolError as fault:
        raise StartRefused(f"{name} cannot be reached: {fault.text}.\nCheck its address.") from None
    taken = sorted(set().union(*_taken(settings, name)))
    scanned = Scanned(name, offer, table.prefix, tuple(taken), table.command, table.url)
    return Inspection(table, offer, peer, scan(scanned))


def _taken(settings: Settings, name: str) -> tuple[set[str], set[str]]:
    """Names and kinds of addresses here that are not this upstream's: (our own, those that other upstreams want)."""
    own = names_taken(enabled_packs(settings))
    tables = read_tables(settings)
    pins = read_pins(settings.paths.policy, tables.keys() - {name})
    wanted = (taken_with(other, tables[other].prefix, pin.places(), own) for other, pin in pins.items())
    return own, set().union(*wanted)


def served_by(settings: Settings, inspected: Inspection, pin: Pin) -> tuple[dict[str, str], dict[str, str]]:
    """(what of a pin is served under which name, what cannot be served and why)."""
    definitions = {place: item.definition for place, item in pin.places().items()}
    return served_names(pin.upstream, inspected.table.prefix, definitions, *_taken(settings, pin.upstream))


def drift_of(pin: Pin, inspected: Inspection) -> PinDrift:
    return compare(pin, inspected.offer, inspected.peer)


def findings_about(inspected: Inspection, found: PinDrift) -> list[Finding]:
    """What was found about the places that changed or are new."""
    places = {shown(place) for place in (*found.changed, *found.added)}
    return [finding for finding in inspected.findings if finding.extra.get("tool") in places]


@contextmanager
def pinning(name: str) -> Iterator[None]:
    """Around what makes a pin. Raises: StartRefused."""
    try:
        yield
    except PinFault as fault:
        raise StartRefused(f"{name} cannot be pinned: {fault}.\nLook at it: toolgate upstream try {name}") from None


@contextmanager
def _waiting(text: str) -> Iterator[None]:
    output.progress(text)
    try:
        yield
    finally:
        output.progress("")
