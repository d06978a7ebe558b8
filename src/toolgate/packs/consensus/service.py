"""What an arbiter does between calls: exchange messages with the others, accept their checkpoints, seal on schedule."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, field

from toolgate.errors import SettingsError, StartRefused, StoreUnavailable, ToolError
from toolgate.model import strictjson
from toolgate.packs.consensus import engine
from toolgate.packs.consensus.domain import vrf
from toolgate.packs.consensus.gossip import (
    MAX_EVENTS,
    PeerState,
    Quotas,
    Reply,
    Request,
    answer,
    keep_peer_state,
    page_after,
    peer_state,
    read_reply,
    take_in,
)
from toolgate.packs.consensus.node import Node, open_node
from toolgate.packs.consensus.settings import Peer, network_of, peers_of
from toolgate.packs.consensus.store import glance

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from toolgate.model.powers import Bus, Buses, Egress, Secrets
    from toolgate.model.tool import ServiceContext

EXCHANGE_TIMEOUT_S: Final = 5.0
MAX_PAGES: Final = 64
"""Exchanges with one peer in one turn: a late joiner reads 16 000 messages, then the others get their turn."""
MAX_PENALTY_TURNS: Final = 16
"""Turns a lying or silent peer is left alone at most; doubled with each failure, so that a dead peer costs little."""
BROKER_RETRY_S: Final = 5.0
RPC_TOOL: Final = "mcp.tool:consensus.gossip"


_log: Final = logging.getLogger("toolgate.consensus")


class Wire(Protocol):
    async def exchange(self, peer: Peer, request: Request) -> Reply:
        """Raises: ToolError: the peer cannot be reached, refused, or does not answer like an arbiter."""
        ...


class HttpWire(Struct, frozen=True):
    """Through the other server's own gate: its `/rpc`, with the key it gave us."""

    net: Egress
    secrets: Secrets

    async def exchange(self, peer: Peer, request: Request) -> Reply:
        if peer.url is None or peer.api_key is None:
            raise ToolError("TARGET_NOT_FOUND", "the settings give no url or api_key for this arbiter", missing=True)
        body = {
            "jsonrpc": "2.0",
            "id": "gossip",
            "method": "mcp.tool.invoke",
            "params": {"tool": RPC_TOOL, "input": request.to_json()},
        }
        headers = {"Content-Type": "application/json", "X-MCP-API-Key": self.secrets.read(peer.api_key)}
        fetched = await self.net.fetch(
            f"{peer.url}/rpc",
            method="POST",
            headers=headers,
            body=strictjson.dumps(body),
            max_bytes=strictjson.MAX_BYTES,
            timeout_s=EXCHANGE_TIMEOUT_S,
        )
        try:
            return read_reply(strictjson.loads(fetched.body)["result"]["data"])
        except (strictjson.JsonFault, TypeError, KeyError):
            raise ToolError("BAD_RESPONSE", f"the peer answered {fetched.status} and no result") from None


class NatsWire(Struct):
    """Over a broker that is trusted with nothing: it can drop, delay and repeat, and that is all it can do."""

    node: Node
    buses: Buses
    url: str
    _bus: Bus | None = None
    _try_again: float = 0.0
    _quotas: Quotas = field(default_factory=Quotas)

    async def open(self) -> Bus:
        """The connection; a broker that is away is asked again after a while. Raises: StoreUnavailable, StartRefused."""
        if self._bus is None:
            now = self.node.clock.monotonic()
            if now < self._try_again:
                raise StoreUnavailable("the NATS server does not answer")
            self._try_again = now + BROKER_RETRY_S
            self._bus = await self.buses.open(self.url)
            await self._bus.serve(self._subject(self.node.signer.sender), self._answer)
        return self._bus

    async def close(self) -> None:
        if self._bus is not None:
            await self._bus.close()

    async def exchange(self, peer: Peer, request: Request) -> Reply:
        data = strictjson.dumps(request.to_json())
        try:
            bus = await self.open()
            answered = await bus.request(self._subject(peer.sender), data, timeout_s=EXCHANGE_TIMEOUT_S)
            return read_reply(strictjson.loads(answered))
        except StoreUnavailable as fault:
            raise ToolError("TARGET_NOT_FOUND", str(fault), missing=True) from None
        except strictjson.JsonFault:
            raise ToolError("BAD_RESPONSE", "the peer did not answer like an arbiter") from None

    def _subject(self, sender: bytes) -> str:
        return f"toolgate.consensus.{self.node.network.id.hex()}.{sender.hex()}"

    async def _answer(self, data: bytes) -> bytes:
        """As `consensus_gossip` answers. The quota is per claimed sender: NATS says no more about who asks."""
        try:
            asked = strictjson.loads(data)
            request = Request(asked["peer_id"], asked["events"], asked["after"], asked.get("store", ""))
            sound = type(request.after) is int and 0 <= request.after < 2**53 and len(request.events) <= MAX_EVENTS
            if not (sound and all(isinstance(each, str) for each in (*request.events, request.peer_id))):
                return b"{}"
            return strictjson.dumps(await answer(self.node, request, self._quotas, f"nats {request.peer_id[:64]}"))
        except (strictjson.JsonFault, TypeError, KeyError, ToolError, StoreUnavailable):
            return b"{}"  # whoever asked sees no arbiter's answer and turns to the next one


class Gossip(Struct):
    """The loop of one node."""

    node: Node
    peers: list[Peer]
    wires: list[Wire]
    settings: dict[str, Any]
    stopping: bool = False
    """Beside cancelling the task: `asyncio.wait_for` of Python 3.11 may lose a cancellation that comes with a result."""
    _turn: int = 0
    _next: int = 0
    _penalty: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Peer -> (turn from which it is asked again, turns of the last penalty)."""
    _fault: str = ""
    """What the last turn failed of; told once."""
    _epoch: int = -1
    _epoch_since: float = 0.0

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self.turn()
                self._fault = ""
            except Exception as fault:  # noqa: BLE001 (border: a fault in one turn must not silence an arbiter for good)
                # The store or our key may be away for a while: the next turn asks again, and says nothing new.
                if self._fault != str(fault):
                    self._fault = str(fault)
                    _log.warning("gossip waits: %s: %s", type(fault).__name__, fault)
            await asyncio.sleep(self.settings["gossip_ms"] / 1000)

    async def turn(self) -> None:
        """One round of exchanges, then what follows from what was learnt."""
        self._turn += 1
        # Collected, not raised at once: a gather that fails while it is cancelled forgets that it was cancelled.
        for result in await asyncio.gather(*(self._with(peer) for peer in self._chosen()), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        await self._keep_epochs()

    def _chosen(self) -> list[Peer]:
        """The next ones in turn, without those that failed lately. No randomness: everybody comes round."""
        ready = [peer for peer in self.peers if self._penalty.get(peer.sender, (0, 0))[0] <= self._turn]
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
        request = Request(node.signer.sender.hex(), page.events, state.pulled, state.store)
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
        if new.deferred and not reply.more and not taken.deferred:
            new = new._replace(pulled=0, deferred=False)  # there may be room now for what there was none for
        if new != state:  # an idle network writes nothing
            await node.run(lambda connection: keep_peer_state(connection, node.network, name, new))
        read_on = reply.more and (reply.cursor > state.pulled or reply.store != state.store)
        return read_on or (page.more and not full)

    async def _ask(self, peer: Peer, request: Request) -> Reply:
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
        epoch = (await node.run(lambda connection: glance(connection, node.network))).epoch
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


class GossipService:
    """Starts and stops the loop with the server."""

    def __init__(self) -> None:
        self._gossip: Gossip | None = None
        self._task: asyncio.Task[None] | None = None
        self._nats: NatsWire | None = None

    async def start(self, ctx: ServiceContext) -> None:
        """Raises: StartRefused: an unsound library, a bad arbiter set, or other arbiters and no key of our own."""
        try:
            vrf.require_sound_library()
        except vrf.UnsoundLibrary as fault:
            raise StartRefused(str(fault)) from None
        if not ctx.settings["arbiters"] and not ctx.settings["seal_every_s"]:
            return  # nobody to talk to and nothing to do in time
        network_of(ctx.settings, None)
        try:
            node = open_node(ctx.settings, ctx.keys, ctx.stores, ctx.clock)
        except ToolError as fault:
            raise SettingsError(f"packs.consensus: {fault.text}.") from None
        wires: list[Wire] = [HttpWire(ctx.net, ctx.secrets)]
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
