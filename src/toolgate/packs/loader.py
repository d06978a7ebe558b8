"""Packs by name: ours come by the same door as a stranger's, and only when they are named.

A pack that is not named is never imported. What is imported is judged before anything of it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolgate.errors import StartRefused
from toolgate.model.tool import Pack
from toolgate.packs.discovery import broken, find_point, import_door, offered
from toolgate.packs.faults import clashes, faults

_SOUND: Final[dict[str, Pack]] = {}
"""Packs that were judged before in this process, by name: a pack does not change, and some commands load all of them often."""


def built_in() -> tuple[str, ...]:
    """Names of the packs that ship with Toolgate itself."""
    points = offered()
    return tuple(sorted({point.name for point in points if point.dist is not None and point.dist.name == "toolgate"}))


def load_packs(names: Sequence[str]) -> tuple[Pack, ...]:
    """Import and judge the named packs, in the order of the names.

    Raises: StartRefused: a pack is not installed, offered twice, cannot be imported, or breaks a rule of the door.
    """
    points = offered()
    packs = tuple(import_door(find_point(name, points)) for name in names)
    for pack in packs:
        _load_parts(pack)
    require_sound(
        [pack for pack in packs if _SOUND.get(pack.name) is not pack],
        beside=[pack for pack in packs if _SOUND.get(pack.name) is pack],
    )
    _SOUND.update((pack.name, pack) for pack in packs)
    return packs


def require_sound(packs: Sequence[Pack], *, beside: Sequence[Pack] = (), pinned: bool = False) -> None:
    """`beside`: packs that were judged before. `pinned`: these were made of pins.

    Raises: StartRefused: one of them breaks a rule of the door, or two packs claim the same thing.
    """
    found = [f"pack {pack.name}{fault}" for pack in packs for fault in faults(pack, pinned=pinned)]
    found += clashes([*beside, *packs])
    if found:
        raise StartRefused("; ".join(found) + ".\nMend the pack, or take it out of packs.enabled.")


def _load_parts(pack: Pack) -> None:
    """What the pack leaves for later (`toolgate.model.tool.later`) is imported now, so that a fault in it is named here."""
    try:
        for part in (pack.tools, pack.prompts, pack.resources, pack.limits, pack.commands, pack.migrations):
            len(part)
    except Exception as fault:  # border: as above
        raise broken(pack.name, "a module of its own", fault) from fault
