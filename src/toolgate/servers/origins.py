"""Where a request comes from, for the log: the peer's address, or what trusted proxies say stands behind them.

What a client writes into these headers proves nothing. So they are read from the right, where the proxy nearest to us
wrote, only as far as the addresses are those of proxies that the settings trust, and never further than `MAX_HOPS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.gate.keys import without_keys
from toolgate.model.call import NO_ORIGIN, Origin
from toolgate.model.trace import trace_context

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    Address = IPv4Address | IPv6Address
    Network = IPv4Network | IPv6Network

MAX_HOPS: Final = 16
"""Proxies in a row that are believed: more than any deployment has."""
MAX_FORWARDED: Final = 2048
"""Bytes of these headers that are looked at, from the right."""
NAMES: Final = (b"x-forwarded-for", b"forwarded", b"x-request-id", b"traceparent", b"tracestate")
"""The headers that say something of where a request comes from."""
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@-][A-Za-z0-9._:/+=@ -]{0,127}")
_FOR: Final = re.compile(rb'for=(?:"([^"\\]*)"|([^";,]*))', re.IGNORECASE)


class OriginHeaders(Struct, frozen=True):
    """What the headers of a request say, checked for their form; addresses not yet."""

    request_id: str | None
    traceparent: str | None
    tracestate: str | None
    forwarded_for: bytes | None
    forwarded: bytes | None


def read_origin_headers(headers: Sequence[tuple[bytes, bytes]]) -> OriginHeaders | None:
    """None: nothing of use. A request id or a trace parent that came twice counts as none."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in NAMES:
            found.setdefault(name, []).append(value)
    parent = _only(found, b"traceparent")
    trace = trace_context(
        parent.decode("latin-1") if parent else None, b",".join(found.get(b"tracestate", ())).decode("latin-1")
    )
    request_id = _only(found, b"x-request-id")
    said = OriginHeaders(
        request_id=_request_id(request_id) if request_id else None,
        traceparent=trace[0] if trace else None,
        tracestate=trace[1] if trace else None,
        forwarded_for=_joined(found, b"x-forwarded-for"),
        forwarded=_joined(found, b"forwarded"),
    )
    return None if said == _NOTHING else said


_NOTHING: Final = OriginHeaders(None, None, None, None, None)


def peer_origin(peername: object) -> Origin:
    """Of a connection; that of a Unix socket has no address."""
    if isinstance(peername, tuple) and peername and isinstance(peername[0], str):
        return Origin(peername[0].removeprefix("::ffff:").partition("%")[0])
    return NO_ORIGIN


class Origins:
    """`trusted`: addresses or networks of proxies, as the settings have them."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self._trusted = networks(trusted)
        self._behind = lru_cache(maxsize=1024)(self._walk)

    def of(self, said: OriginHeaders | None, peer: Origin) -> Origin:
        if said is None:
            return peer
        address = peer.address
        if self._trusted and address is not None and (said.forwarded_for or said.forwarded):
            address = self._behind(address, said.forwarded_for, said.forwarded)
        return Origin(address, said.request_id, said.traceparent, said.tracestate)

    def _walk(self, peer: str, forwarded_for: bytes | None, forwarded: bytes | None) -> str:
        """The first address from the right that is not a trusted proxy's. Two headers that differ: the peer's own."""
        found = {
            self._first_stranger(peer, hops)
            for hops in (_plain_hops(forwarded_for) if forwarded_for else None, _hops(forwarded) if forwarded else None)
            if hops is not None
        }
        return found.pop() if len(found) == 1 else peer

    def _first_stranger(self, peer: str, hops: list[bytes]) -> str:
        current = _address(peer.encode())
        believed = peer
        while current is not None and any(current in network for network in self._trusted):
            believed = str(current)
            if not hops:
                break
            current = _address(hops.pop())
        return believed if current is None else str(current)


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Raises: ValueError: one is neither an address nor a network."""
    if not texts:
        return ()
    from ipaddress import ip_network  # noqa: PLC0415 (3 ms, for servers behind a proxy)

    return tuple(ip_network(text) for text in texts)


def _only(found: Mapping[bytes, Sequence[bytes]], name: bytes) -> bytes | None:
    values = found.get(name, ())
    return values[0] if len(values) == 1 else None


def _joined(found: Mapping[bytes, Sequence[bytes]], name: bytes) -> bytes | None:
    return b",".join(found[name])[-MAX_FORWARDED:] if name in found else None


def _request_id(value: bytes) -> str | None:
    return without_keys(value.decode()) if _REQUEST_ID.fullmatch(value) else None


def _plain_hops(value: bytes) -> list[bytes]:
    return [hop.strip() for hop in value.split(b",")][-MAX_HOPS:]


def _hops(value: bytes) -> list[bytes]:
    """RFC 7239. An element without `for`, or with two, is a hop that cannot be read."""
    found = []
    for element in value.split(b",")[-MAX_HOPS:]:
        named = [_FOR.fullmatch(pair.strip()) for pair in element.split(b";") if pair.strip()[:4].lower() == b"for="]
        only = named[0] if len(named) == 1 else None
        found.append((only[1] or only[2] or b"") if only else b"")
    return found


def _address(text: bytes) -> Address | None:
    """`192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`, and nothing else."""
    from ipaddress import IPv6Address, ip_address  # noqa: PLC0415 (as above)

    bare = re.fullmatch(
        rb"\[([0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?|([0-9.]{7,15}):[0-9]{1,5}|([0-9A-Fa-f:.]{2,45})", text
    )
    if bare is None:
        return None
    try:
        found = ip_address((bare[1] or bare[2] or bare[3]).decode())
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
