"""How one exchange of messages travels to another arbiter: by its own gate over HTTP, or over a broker."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.model import strictjson
from toolgate.packs.consensus.gossip.exchange import MAX_EVENTS, GossipReply, GossipRequest, Quotas, answer, read_reply
from toolgate.packs.consensus.gossip.signed_requests import (
    RequestRejected,
    RequestSigner,
    RequestVerifier,
    SignedRequest,
)

if TYPE_CHECKING:
    from toolgate.model.powers import Bus, Buses, Egress, Secrets
    from toolgate.packs.consensus.arbiter.network import Peer
    from toolgate.packs.consensus.arbiter.node import Node

EXCHANGE_TIMEOUT_S: Final = 5.0
BROKER_RETRY_S: Final = 5.0
TELL_EVERY_S: Final = 60.0
"""Between two log lines about requests that were dropped."""
RPC_TOOL: Final = "mcp.tool:consensus.gossip"

_log: Final = logging.getLogger("toolgate.consensus")


class GossipWire(Protocol):
    async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
        """Raises: ToolError: the peer cannot be reached, refused, or does not answer like an arbiter."""
        ...


class HttpWire(Struct, frozen=True):
    """Through the other server's own gate: its `/rpc`, with the key it gave us."""

    net: Egress
    secrets: Secrets

    async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
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


class NatsWire:
    """Over a broker that is trusted with nothing: it can drop, delay and repeat, and that is all it can do."""

    def __init__(self, node: Node, buses: Buses, url: str) -> None:
        self.dropped: Counter[str] = Counter()
        """Requests that were refused unread, by reason."""
        self._node = node
        self._buses = buses
        self._url = url
        self._bus: Bus | None = None
        self._try_again = 0.0
        self._tell_again = 0.0
        self._quotas = Quotas()
        self._asker = RequestSigner(node.signer, node.network, node.clock)
        self._desk = RequestVerifier(node.network, node.signer.sender)

    async def open(self) -> Bus:
        """The connection; a broker that is away is asked again after a while. Raises: StoreUnavailable, StartRefused."""
        if self._bus is None:
            now = self._node.clock.monotonic()
            if now < self._try_again:
                raise StoreUnavailable("the NATS server does not answer")
            self._try_again = now + BROKER_RETRY_S
            self._bus = await self._buses.open(self._url)
            await self._bus.serve(self._subject(self._node.signer.sender), self._answer)
        return self._bus

    async def close(self) -> None:
        if self._bus is not None:
            await self._bus.close()

    async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
        body = strictjson.dumps(request.to_json())
        data = self._asker.sign(peer.sender, body)
        try:
            bus = await self.open()
            answered = await bus.request(self._subject(peer.sender), data, timeout_s=EXCHANGE_TIMEOUT_S)
            return read_reply(strictjson.loads(answered))
        except StoreUnavailable as fault:
            raise ToolError("TARGET_NOT_FOUND", str(fault), missing=True) from None
        except strictjson.JsonFault:
            raise ToolError("BAD_RESPONSE", "the peer did not answer like an arbiter") from None

    def _subject(self, sender: bytes) -> str:
        return f"toolgate.consensus.{self._node.network.id.hex()}.{sender.hex()}"

    async def _answer(self, data: bytes) -> bytes | None:
        """As `consensus_gossip` answers; the caller is the arbiter who signed the request."""
        try:
            asked = self._desk.open(data)
        except RequestRejected as fault:
            self._drop(str(fault))
            return None
        try:
            return strictjson.dumps(await self._answer_arbiter(asked))
        except (strictjson.JsonFault, TypeError, KeyError, ToolError, StoreUnavailable):
            return b"{}"  # whoever asked sees no arbiter's answer and turns to the next one

    async def _answer_arbiter(self, asked: SignedRequest) -> dict[str, Any]:
        name = asked.sender.hex()
        said = strictjson.loads(asked.body)
        request = GossipRequest(name, said["events"], said["after"], said.get("store", ""))
        sound = type(request.after) is int and 0 <= request.after < 2**53 and len(request.events) <= MAX_EVENTS
        if not (sound and all(isinstance(each, str) for each in (*request.events, request.store))):
            return {}
        return await answer(self._node, request, self._quotas, f"nats {name}")

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1
        now = self._node.clock.monotonic()
        if now >= self._tell_again:
            self._tell_again = now + TELL_EVERY_S
            counts = ", ".join(f"{number} {word}" for word, number in sorted(self.dropped.items()))
            _log.warning("NATS: requests that no arbiter signed were dropped: %s", counts)
