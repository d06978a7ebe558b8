"""A tunnel through an HTTP proxy (CONNECT, RFC 9110 section 9.3.6): what an organisation puts between its machines and the world.

The proxy is the operator's own, so its address is not judged. It is told a host and a port, and credentials of its own; what
travels through the tunnel is TLS with the host.
"""

from __future__ import annotations

import base64
import re
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import StartRefused, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.powers.secrets import SecretSources
    from toolgate.powers.tcp import Stream
    from toolgate.settings.outward import EgressSettings

MAX_HEAD_BYTES: Final = 16_384
"""What a proxy may say before the tunnel is open; a page that explains a refusal is not read."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
_AUTHENTICATE: Final = 407


class Proxy(Struct, frozen=True):
    host: str
    port: int
    credentials: Callable[[], str] | None = None
    """USER:PASSWORD, read anew for each tunnel. Raises: StartRefused."""


def proxy_of(egress: EgressSettings, secrets: SecretSources) -> Proxy | None:
    """The proxy of the settings, if they name one."""
    if not egress.proxy:
        return None
    host, _, port = egress.proxy.removeprefix("http://").rstrip("/").rpartition(":")
    credentials = partial(secrets.read, egress.proxy_credentials) if egress.proxy_credentials else None
    return Proxy(host.strip("[]"), int(port), credentials)


async def open_tunnel(stream: Stream, proxy: Proxy, authority: str) -> None:
    """Ask for a tunnel to `authority` (host:port). Afterwards the stream speaks with the host.

    Raises: ToolError BAD_RESPONSE: the proxy says no, or is none; OSError.
    """
    await stream.send(_request(proxy, authority))
    head = b""
    while b"\r\n\r\n" not in head:
        # One byte at a time would be safe and slow; a proxy that sends more than its head is refused below.
        piece = await stream.receive(MAX_HEAD_BYTES)
        head += piece
        if not piece or len(head) > MAX_HEAD_BYTES:
            raise _said("does not speak HTTP, or broke off")
    found = _STATUS.match(head)
    if found is None:
        raise _said("does not speak HTTP, or broke off")
    status = int(found[1])
    if status == _AUTHENTICATE:
        raise _said("wants other credentials than egress.proxy_credentials holds")
    if not 200 <= status < 300:
        raise _said(f"refuses this host (status {status})")
    if not head.endswith(b"\r\n\r\n"):
        # The host speaks after we do, so these bytes are the proxy's own.
        raise _said("speaks in the host's place")


def _request(proxy: Proxy, authority: str) -> bytes:
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.credentials is not None:
        try:
            credentials = proxy.credentials()
        except StartRefused:
            raise _said("needs credentials, and egress.proxy_credentials cannot be read") from None
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(credentials.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _said(text: str) -> ToolError:
    return ToolError("BAD_RESPONSE", f"the proxy {text}", elsewhere=True)
