"""What an arbiter does between calls: exchange messages with the others, accept their checkpoints, seal on schedule."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate.errors import SettingsError, StartRefused, StoreUnavailable, ToolError
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.arbiter.network import Peer, network_of, peers_of
from toolgate.packs.consensus.arbiter.node import Node, open_node
from toolgate.packs.consensus.arbiter.store import read_replica
from toolgate.packs.consensus.domain import vrf
from toolgate.packs.consensus.gossip.exchange import (
    MAX_EVENTS,
    GossipReply,
    GossipRequest,
    PeerState,
    keep_peer_state,
    page_after,
    peer_state,
    take_in,
)
from toolgate.packs.consensus.gossip.wires import GossipWire, HttpWire, NatsWire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Connection

    from toolgate.model.tool import ServiceContext

MAX_PAGES: Final = 64
"""Exchanges with one peer in one turn: a late joiner reads 16 000 messages, then the others get their turn."""
MAX_PENALTY_TURNS: Final = 16
"""Turns a lying or silent peer is left alone at most; doubled with each failure, so that a dead peer costs little."""
MAX_REREAD_TURNS: Final = 256
"""Turns between two readings of a peer's whole log for what there was no room for; doubled each time it was in vain."""
TURN_S: Final = 1.0
"""What a turn waits for its exchanges. One that takes longer goes on by itself, and no later turn waits for it."""


_log: Final = logging.getLogger("toolgate.consensus")


class Gossip(Struct):
    """The loop of one node."""

    node: Node
    peers: list[Peer]
    wires: list[GossipWire]
    settings: dict[str, Any]
    stopping: bool = False
    """Beside cancelling the task: `asyncio.wait_for` of Python 3.11 may lose a cancellation that comes with a result."""
    _turn: int = 0
    _next: int = 0
    _penalty: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Peer -> (turn from which it is asked again, turns of the last penalty)."""
    _reread: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Peer -> (turn from which its log may be read again, turns of the last wait)."""
    _under_way: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    """Exchanges of this turn, and those of earlier ones that have not ended: such a peer is not asked again meanwhile."""
    _fault: str = ""
    """What the last turn failed of; told once."""
    _epoch: int = -1
    _epoch_since: float = 0.0

    async def run(self) -> None:
        try:
            while not self.stopping:
                await self._try_turn()
                await asyncio.sleep(self.settings["gossip_ms"] / 1000)
        finally:
            await self.leave()

    async def _try_turn(self) -> None:
        try:
            await self.turn()
            self._fault = ""
        except Exception as fault:  # noqa: BLE001 (border: a fault in one turn must not silence an arbiter for good)
            # The store or our key may be away for a while: the next turn asks again, and says nothing new.
            if self._fault != str(fault):
                self._fault = str(fault)
                _log.warning("gossip waits: %s: %s", type(fault).__name__, fault)

    async def turn(self) -> None:
        """One round of exchanges, then what follows from what was learnt."""
        self._turn += 1
        begun = {peer.sender: asyncio.create_task(self._with(peer), name="gossip") for peer in self._chosen()}
        self._under_way |= begun
        if begun:
            await asyncio.wait(begun.values(), timeout=TURN_S)
        ended = {sender: task for sender, task in self._under_way.items() if task.done()}
        for sender in ended:
            del self._under_way[sender]
        for fault in [task.exception() for task in ended.values()]:
            if fault is not None:
                raise fault
        await self._keep_epochs()

    async def leave(self) -> None:
        """End the exchanges that are still under way."""
        tasks = list(self._under_way.values())
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _chosen(self) -> list[Peer]:
        """The next ones in turn, without those that failed lately or are slow. No randomness: everybody comes round."""
        ready = [
            peer
            for peer in self.peers
            if self._penalty.get(peer.sender, (0, 0))[0] <= self._turn and peer.sender not in self._under_way
        ]
        count = min(self.settings["fanout"], len(ready))
        chosen = [ready[(self._next + offset) % len(ready)] for offset in range(count)]
        self._next += count
        return chosen

    async def _with(self, peer: Peer) -> None:
        try:
            for _ in range(MAX_PAGES):
                if not await self._exchange(peer):
                    break
        except ToolError as fault:
            _, last = self._penalty.get(peer.sender, (0, 0))
            turns = min(2 * last or 1, MAX_PENALTY_TURNS)
            self._penalty[peer.sender] = (self._turn + turns, turns)
            await self._note(peer, fault.code)
        else:
            self._penalty.pop(peer.sender, None)

    async def _note(self, peer: Peer, fault: str) -> None:
        """For `toolgate consensus status`: why nothing comes from this peer."""
        node, name = self.node, peer.sender.hex()

        def note(connection: Connection) -> None:
            state = peer_state(connection, node.network, name)
            if state.fault != fault:
                keep_peer_state(connection, node.network, name, state._replace(fault=fault))

        await node.run(note)

    async def _exchange(self, peer: Peer) -> bool:
        """Push and pull one page each; True when there is more to do. Raises: ToolError."""
        node, name = self.node, peer.sender.hex()

        def prepare(connection: Connection) -> tuple[PeerState, Any]:
            state = peer_state(connection, node.network, name)
            return state, page_after(connection, node.network, state.pushed, source=name)

        state, page = await node.run(prepare)
        request = GossipRequest(node.signer.sender.hex(), page.events, state.pulled, state.store)
        reply = await self._ask(peer, request)
        taken = await take_in(node, reply.events, source=name, allowance=MAX_EVENTS)
        if taken.lied:
            raise ToolError("BAD_RESPONSE", "the peer sent a message that is not what it says")
        full = "QUOTA_EXCEEDED" in reply.rejected
        pushed = state.pushed if full else page.cursor
        if reply.store != state.store:
            # The peer has another store than we knew: it may have lost what we told it.
            pushed = 0 if state.store else pushed
        new = PeerState(reply.store, reply.cursor, pushed, deferred=state.deferred or taken.deferred)
        if not reply.more and not taken.deferred:
            new = self._after_a_whole_log(peer, new)
        if new != state:  # an idle network writes nothing
            await node.run(lambda connection: keep_peer_state(connection, node.network, name, new))
        # A page without a message leads nowhere, whatever its cursor says; the next turn asks again.
        read_on = reply.more and bool(reply.events) and (reply.cursor > state.pulled or reply.store != state.store)
        return read_on or (page.more and not full)

    def _after_a_whole_log(self, peer: Peer, state: PeerState) -> PeerState:
        """Something was left out of it: read it again, there may be room now. A liar's overflow is there each time, so wait."""
        if not state.deferred:
            self._reread.pop(peer.sender, None)
            return state
        due, last = self._reread.get(peer.sender, (0, 0))
        if self._turn < due:
            return state
        turns = min(2 * last or 1, MAX_REREAD_TURNS)
        self._reread[peer.sender] = (self._turn + turns, turns)
        return state._replace(pulled=0, deferred=False)

    async def _ask(self, peer: Peer, request: GossipRequest) -> GossipReply:
        """By the first wire that works."""
        fault = ToolError("TARGET_NOT_FOUND", "there is no way to this arbiter", missing=True)
        for wire in self.wires:
            try:
                return await wire.exchange(peer, request)
            except ToolError as caught:
                fault = caught
        raise fault

    async def _keep_epochs(self) -> None:
        """Accept checkpoints of others, and propose our own when it is our turn. The clock is here, not in the domain."""
        node, period = self.node, self.settings["seal_every_s"]
        epoch = (await node.run(lambda connection: read_replica(connection, node.network))).epoch
        now = node.clock.monotonic()
        if epoch != self._epoch:
            self._epoch, self._epoch_since = epoch, now
        age = now - self._epoch_since
        # Without this a single liar could rush epochs, and with them the dispute window, as fast as it can sign.
        if age >= period / 2:
            await node.run(lambda conn: engine.accept_checkpoints(conn, node.network, node.signer, node.recorded()))
        if period and node.signer.sender in node.network.keys:
            # The arbiter whose turn it is seals first; each next one a period later, should it be away.
            distance = (node.network.index_of(node.signer.sender) - epoch) % node.network.size
            if age >= period * (1 + distance):
                self._epoch_since = now
                await self._seal()

    async def _seal(self) -> None:
        node = self.node
        try:
            await node.run(lambda connection: engine.seal(connection, node.network, node.signer, node.recorded()))
        except ToolError as fault:
            if fault.code != "NOTHING_TO_SEAL":
                raise


def check_start(ctx: ServiceContext) -> None:
    """Raises: StartRefused: an unsound library, a bad arbiter set, no NATS client, or other arbiters and no key of our own."""
    try:
        vrf.require_sound_library()
    except vrf.UnsoundLibrary as fault:
        raise StartRefused(str(fault)) from None
    if has_work(ctx.settings):
        network_of(ctx.settings, None)
        _open_node(ctx)
        if "nats" in ctx.settings:
            ctx.secrets.read(ctx.settings["nats"])
            ctx.buses.require_client()


def has_work(settings: Mapping[str, Any]) -> bool:
    """Without other arbiters and without a schedule there is nobody to talk to and nothing to do in time."""
    return bool(settings["arbiters"] or settings["seal_every_s"])


def _open_node(ctx: ServiceContext) -> Node:
    try:
        return open_node(ctx.settings, ctx.keys, ctx.stores, ctx.clock)
    except ToolError as fault:
        raise SettingsError(f"packs.consensus: {fault.text}.") from None


class GossipService:
    """Starts and stops the loop with the server."""

    def __init__(self) -> None:
        self._gossip: Gossip | None = None
        self._task: asyncio.Task[None] | None = None
        self._nats: NatsWire | None = None

    async def start(self, ctx: ServiceContext) -> None:
        """Raises: StartRefused, as `check_start`."""
        if not has_work(ctx.settings):
            return
        node = _open_node(ctx)
        wires: list[GossipWire] = [HttpWire(ctx.net, ctx.secrets)]
        if "nats" in ctx.settings:
            self._nats = NatsWire(node, ctx.buses, ctx.secrets.read(ctx.settings["nats"]))
            with suppress(StoreUnavailable):  # away now: asked again between turns, HTTP carries on meanwhile
                await self._nats.open()
            wires.insert(0, self._nats)
        peers = peers_of(ctx.settings, node.signer.sender)
        self._gossip = Gossip(node, peers, wires, dict(ctx.settings))
        self._task = asyncio.create_task(self._gossip.run(), name="consensus-gossip")

    async def stop(self) -> None:
        if self._task is not None and self._gossip is not None:
            self._gossip.stopping = True
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._nats is not None:
            await self._nats.close()
            self._nats = None
