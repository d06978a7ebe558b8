"""Finding packs: by entry point, and by name only. What a pack brings is not judged here, and its tools are not imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from toolgate.errors import StartRefused
from toolgate.model.suggest import did_you_mean
from toolgate.model.tool import DOOR, PACK_NAME, Pack
from toolgate.settings import DEFAULT_PACKS, store_setting

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from toolgate.settings.spec import Spec

GROUP: Final = "toolgate.packs"


def door_of(name: str) -> Pack:
    """What the pack brings. Raises: StartRefused: it is not installed, offered twice, or cannot be imported."""
    if name in DEFAULT_PACKS:
        # Shipped with us: installed packages need not be searched, which takes longer than most commands.
        pack: Pack = import_module(f"{__package__}.{name}").PACK
        return pack
    return import_door(find_point(name, offered()))


def store_settings(packs: Sequence[str]) -> list[Spec]:
    """The setting of each store that these packs bring, from their doors alone. Raises: StartRefused."""
    return [store_setting(store.name, store.what) for name in packs for store in door_of(name).stores]


def offered() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 (30 ms, which a command of our own packs need not wait for)

    return list(entry_points(group=GROUP))


def find_point(name: str, offered: Iterable[EntryPoint]) -> EntryPoint:
    found = [point for point in offered if point.name == name]
    if not found:
        near = did_you_mean(name, [point.name for point in offered])
        fix = near or "Install the package that brings it, or take it out of packs.enabled."
        raise StartRefused(f"pack {name} is not installed.\n{fix}")
    if len(found) > 1:
        sources = ", ".join(sorted(point.dist.name if point.dist else point.value for point in found))
        raise StartRefused(f"pack {name} is offered by more than one package ({sources}).\nUninstall all but one.")
    return found[0]


def import_door(point: EntryPoint) -> Pack:
    try:
        pack = point.load()
    except Exception as fault:  # border: a stranger's module may raise anything while it is imported
        raise broken(point.name, point.value, fault) from fault
    if not isinstance(pack, Pack):
        raise StartRefused(
            f"pack {point.name}: {point.value} is not a toolgate.model.tool.Pack.\n"
            "Export PACK = Pack(...) and name it in the entry point."
        )
    if pack.name != point.name or not PACK_NAME.fullmatch(pack.name):
        raise StartRefused(
            f"pack {point.name} calls itself {pack.name!r}.\nBoth names must be the same [a-z][a-z0-9_-]*."
        )
    if pack.door != DOOR:
        raise StartRefused(
            f"pack {pack.name} was made for version {pack.door} of the door, and this Toolgate has version {DOOR}.\n"
            "Install a release of the pack, or of Toolgate, that fits the other."
        )
    return pack


def broken(name: str, place: str, fault: Exception) -> StartRefused:
    return StartRefused(
        f"pack {name} cannot be imported from {place} ({type(fault).__name__}: {fault}).\n"
        "Mend the pack, or take it out of packs.enabled."
    )
