"""The settings as an arbiter set, and as peers to talk to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.errors import SettingsError
from toolgate.packs.consensus.domain.arbiters import ArbiterFault, Network, sender_id

if TYPE_CHECKING:
    from collections.abc import Mapping


class Peer(Struct, frozen=True):
    """Another arbiter, and how to reach it over HTTP."""

    sender: bytes
    url: str | None
    api_key: str | None
    """Where the key is kept, not the key."""


def network_of(settings: Mapping[str, Any], own: bytes | None) -> Network | None:
    """The arbiter set of the settings; with none named, `own` alone; None when that is not known either.

    Raises: SettingsError.
    """
    keys = [bytes.fromhex(arbiter["public_key"]) for arbiter in settings["arbiters"]] or ([own] if own else [])
    if not keys:
        return None
    try:
        return Network(keys, settings["dispute_window"])
    except ArbiterFault as fault:
        raise SettingsError(
            f"packs.consensus.arbiters: {fault}.\nList every arbiter once, by its public key."
        ) from None


def peers_of(settings: Mapping[str, Any], own: bytes) -> list[Peer]:
    """Every arbiter but ourselves, in the order of the set."""
    peers = [
        Peer(sender_id(bytes.fromhex(arbiter["public_key"])), arbiter.get("url"), arbiter.get("api_key"))
        for arbiter in settings["arbiters"]
    ]
    return sorted((peer for peer in peers if peer.sender != own), key=lambda peer: peer.sender)
