"""The packs that the settings enable, each with its own settings, checked: what a server and a person's command both run with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
from msgspec import Struct

from toolgate.errors import SettingsError, StartRefused
from toolgate.model.suggest import did_you_mean, nearest
from toolgate.model.tool import PACK_NAME, MakeContext, Pack
from toolgate.packs.discovery import door_of
from toolgate.packs.faults import LOG_USE, defaults_of, setting_faults
from toolgate.packs.loader import load_packs, require_sound
from toolgate.settings import DEFAULT_PACKS

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles
    from toolgate.model.tool import StoreSpec
    from toolgate.powers.stores import Place
    from toolgate.settings import Settings


class Enabled(Struct, frozen=True):
    packs: tuple[Pack, ...]
    tables: Mapping[str, Mapping[str, Any]]
    """Each pack's own settings, checked, defaults filled in."""

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        return tuple(store for pack in self.packs for store in pack.stores)

    def key_uses(self, log_key: str) -> dict[str, str]:
        """Name -> use of every key that the log or a pack's settings name. Raises: SettingsError: one key, two uses."""
        uses = {log_key: LOG_USE}
        for pack in self.packs:
            for name, use in pack.keys(self.tables[pack.name]).items():
                if uses.setdefault(name, use) != use:
                    raise SettingsError(
                        f"packs.{pack.name}: the key {name} is named for {use}, and it is for {uses[name]}.\n"
                        "Name a key of its own."
                    )
        return uses

    def secrets(self) -> list[str]:
        """References to every secret that a pack declares."""
        return [source for pack in self.packs for source in pack.secrets(self.tables[pack.name])]


def enabled_packs(settings: Settings, *, also: Sequence[str] = ()) -> Enabled:
    """The packs that the settings name, those in `also`, and those that they make of data. Raises: StartRefused."""
    packs = load_packs(list(dict.fromkeys([*also, *settings.packs.enabled])))
    enabled = Enabled(packs, {pack.name: pack_settings(pack, settings) for pack in packs})
    enabled = with_made(enabled, [pack for pack in packs if pack.makes is not None], settings)
    check_stores(settings, enabled.stores)
    return enabled


def with_made(enabled: Enabled, makers: Sequence[Pack], settings: Settings, *, pinned: bool = False) -> Enabled:
    """These packs, and those that the makers make of data. `pinned`: what is made is made of pins, and its tools are foreign.

    Raises: StartRefused.
    """
    if not makers:
        return enabled
    tables = {maker.name: enabled.tables.get(maker.name, {}) for maker in makers}
    with _policy_files(settings) as policy:
        made = tuple(each for maker in makers for each in _made(maker, MakeContext(tables[maker.name], policy)))
    require_sound(made, beside=enabled.packs, pinned=pinned)
    return Enabled(
        enabled.packs + made, {**enabled.tables, **{pack.name: pack_settings(pack, settings) for pack in made}}
    )


@contextmanager
def _policy_files(settings: Settings) -> Iterator[ReadFiles | None]:
    place = settings.paths.policy
    if place is None or not place.is_dir():
        yield None
        return
    from toolgate.powers.files import ReadOnlyWorkspace, open_directory  # noqa: PLC0415 (only where packs are made of data)

    with open_directory(place) as files:
        yield ReadOnlyWorkspace(files)


def _made(maker: Pack, context: MakeContext) -> tuple[Pack, ...]:
    assert maker.makes is not None
    try:
        made = tuple(maker.makes(context))
    except StartRefused:
        raise
    except Exception as fault:  # border: a stranger's function may raise anything
        raise StartRefused(
            f"pack {maker.name} cannot make its packs ({type(fault).__name__}: {fault}).\n"
            "Mend what they are made of, or take the pack out of packs.enabled."
        ) from fault
    for each in made:
        if not isinstance(each, Pack) or not PACK_NAME.fullmatch(each.name):
            raise StartRefused(
                f"pack {maker.name} makes something that is not a pack, or is not named like one.\nMend the pack."
            )
    return made


def pack_settings(pack: Pack, settings: Settings) -> Mapping[str, Any]:
    """The pack's own table, checked against its schema, defaults filled in. Raises: SettingsError."""
    table = dict(settings.packs.tables.get(pack.name, {}))
    faults = list(jsonschema_rs.Draft202012Validator(dict(pack.settings_schema)).iter_errors(table))
    if faults:
        place = ".".join(["packs", pack.name, *(str(part) for part in faults[0].instance_path)])
        raise SettingsError(f"{place}: {faults[0].message}.\n{_about_table(pack, table)}")
    whole = defaults_of(pack) | table
    for fault in setting_faults(pack, whole):
        raise SettingsError(f"packs.{pack.name}: {fault}.\nCorrect the setting.")
    return whole


def _about_table(pack: Pack, table: Mapping[str, Any]) -> str:
    """What was meant by a name that a pack does not know; else every name that it does."""
    known = list(pack.settings_schema.get("properties", {}))
    near = [found for name in table if name not in known and (found := did_you_mean(name, known))]
    if near:
        return near[0]
    return f"The pack has {', '.join(known)}." if known else "The pack has no settings of its own."


def store_places(settings: Settings, stores: Sequence[StoreSpec]) -> dict[str, Place]:
    """Where each of these stores is, if not in the state directory. Raises: SettingsError: one is in two places."""
    from toolgate.powers.stores import TablePlace  # noqa: PLC0415 (when stores are opened)

    places: dict[str, Place] = {}
    for store in stores:
        url = settings.stores.urls.get(store.name)
        if url:
            places[store.name] = url
        table = settings.value(store.table.setting) if store.table else None
        if store.table is None or not table:
            continue
        if url:
            raise SettingsError(
                f"stores.{store.name} and {store.table.setting} are both set, for one store.\nKeep one of them."
            )
        places[store.name] = TablePlace(table, settings.awsRegion, store.table.version)
    return places


OWN_STORES: Final = frozenset({"approvals", "contract_checks"})
"""Of Toolgate itself: `toolgate.powers.approvals`, `toolgate.cli.policy.checks`."""


def check_stores(settings: Settings, declared: Sequence[StoreSpec] = ()) -> None:
    """A URL for a store that no pack has is a misspelt one; for one of a pack of ours that is switched off, it waits.

    Raises: SettingsError.
    """
    if not settings.stores.urls:
        return
    doors = [door_of(name) for name in dict.fromkeys([*DEFAULT_PACKS, *settings.packs.enabled])]
    known = sorted(
        OWN_STORES | {store.name for store in declared} | {store.name for pack in doors for store in pack.stores}
    )
    for name in sorted(settings.stores.urls.keys() - set(known)):
        raise SettingsError(f"stores.{name}: no enabled pack has a store of that name.\n{_about_stores(name, known)}")


def _about_stores(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"Did you mean stores.{near}?" if near else f"There are {', '.join(known)}."
