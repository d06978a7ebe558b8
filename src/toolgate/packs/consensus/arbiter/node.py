"""This server as an arbiter: the settings' network, our voting key, and the store both are kept to."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit.sql import sql
from toolgate.model.clock import rfc3339
from toolgate.packs.consensus.arbiter.guard import VoteSigner
from toolgate.packs.consensus.arbiter.network import network_of
from toolgate.packs.consensus.arbiter.store import find_store_id, store_id
from toolgate.packs.consensus.domain.arbiters import Network, sender_id
from toolgate.packs.consensus.settings import USES
from toolgate.packs.consensus.tables import STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.engine import Connection

    from toolgate.model.clock import Clock
    from toolgate.model.powers import SigningKeys, Store, Stores

Out = TypeVar("Out")
TEMPORARY: Final = "temporary-"
"""Before the names of keys that die with the process."""


class Node(Struct, frozen=True):
    network: Network
    signer: VoteSigner
    store: Store
    clock: Clock
    key_name: str
    keys: SigningKeys
    ephemeral: bool

    def recorded(self) -> str:
        """Wall time for people. No decision reads it."""
        return rfc3339(self.clock.wall())

    async def run(self, work: Callable[[Connection], Out]) -> Out:
        """One transaction in which our voting key may sign: only in the store that the key is bound to.

        Raises: ToolError KEY_BOUND_ELSEWHERE: this store may not know what the key has signed.
        """

        def guarded(connection: Connection) -> Out:
            self._require_bound(find_store_id(connection))
            return work(connection)

        try:
            return await self.store.run(guarded)
        except _UnnamedStore:
            await self.name_store()
            return await self.store.run(guarded)

    async def name_store(self) -> str:
        """Which store this is. A new one is given a name, committed before a key is bound to it."""
        fresh = f"{self.clock.wall()!r} {self.clock.monotonic()!r} {self.network.id.hex()}"
        return await self.store.run(lambda connection: store_id(connection, sha256(fresh.encode()).hexdigest()[:32]))

    def _require_bound(self, ours: str | None) -> None:
        if ours is None:
            raise _UnnamedStore
        if self.keys.bind(self.key_name, ours) != ours:
            raise ToolError(
                "KEY_BOUND_ELSEWHERE",
                f"the key {self.key_name} votes from another store; sign there, or move it here for good with"
                " `toolgate consensus keys --adopt` once that store is gone and gossip has caught up",
            )


class _UnnamedStore(Exception):
    """The store was never used."""


def open_node(settings: Mapping[str, Any], keys: SigningKeys, stores: Stores, clock: Clock) -> Node:
    """Raises: ToolError KEY_NOT_FOUND, INVALID_KEY_FORMAT, INVALID_KEY; SettingsError."""
    name = key_name(settings, "voting_key", keys)
    public_key = public_key_of(keys, name)
    if settings["voting_key"] == settings["vrf_key"]:
        raise ToolError("INVALID_KEY", "voting_key and vrf_key are one key; name two in [packs.consensus]")
    network = network_of(settings, public_key)
    assert network is not None  # our own key is known
    use = USES["voting_key"]
    signer = VoteSigner(public_key, sender_id(public_key), lambda message: keys.sign(name, message, use=use))
    return Node(network, signer, stores.get(STORE), clock, name, keys, settings["ephemeral"])


def key_name(settings: Mapping[str, Any], which: str, keys: SigningKeys) -> str:
    name: str = settings[which]
    if settings["ephemeral"]:
        name = TEMPORARY + name
        keys.temporary(name, use=USES[which])
    return name


def public_key_of(keys: SigningKeys, name: str) -> bytes:
    try:
        return keys.public_key(name)
    except ToolError as fault:
        if fault.code != "KEY_NOT_FOUND":
            raise
        raise ToolError(
            "KEY_NOT_FOUND",
            f"the key {name} is not in the key directory; make it with `toolgate consensus keys --make`",
        ) from None


def network_for_reading(connection: Connection, settings: Mapping[str, Any]) -> Network | None:
    """For tools that hold no key: the settings' arbiters, else the set that this store used last."""
    named = network_of(settings, None)
    if named is not None:
        return named
    row = connection.execute(
        sql("SELECT public_keys, dispute_window FROM consensus_network ORDER BY used DESC, id LIMIT 1")
    ).first()
    return Network([bytes.fromhex(key) for key in row.public_keys.split()], row.dispute_window) if row else None
