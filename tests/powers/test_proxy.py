"""Through a company's proxy: what it is asked for, what goes around it, and what it may do to us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.powers.net.test_rules import HELLO, refused
from tests.powers.net.world import ANYWHERE, PUBLIC, World, client_tls, world
from toolgate.errors import StartRefused
from toolgate.model.tool import Hosts
from toolgate.powers.net import PackEgress
from toolgate.powers.proxy import MAX_HEAD_BYTES, Proxy

PROXY = "10.9.9.9"
"""Where the proxy is: a private address, as proxies have."""
API = Hosts(named=["api.test"])
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Tunnels:
    """A proxy that opens every tunnel that it is asked for, to the server that the world has behind it."""

    def __init__(self, w: World, behind: int) -> None:
        self.heads: list[str] = []
        self._world, self._behind = w, behind

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n")
        await asyncio.gather(self._pour(reader, far_writer), self._pour(far_reader, writer))

    async def _pour(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()

    @property
    def asked(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]


async def listen(w: World, handler: Handler) -> None:
    """Put a proxy into the world."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        w.talks.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    w.servers.append(server)
    w.names["proxy.corp"] = [PROXY]
    w.routes[(PROXY, 3128)] = server.sockets[0].getsockname()[1]


def through(w: World, hosts: Hosts, credentials: Callable[[], str] | None = None) -> PackEgress:
    return w.egress(hosts=hosts, proxy=Proxy("proxy.corp", 3128, credentials), tls=client_tls())


def run(probe: Callable[[World], Awaitable[Any]]) -> None:
    async def inside() -> None:
        async with world() as w:
            await probe(w)

    asyncio.run(inside())


def test_a_host_that_the_pack_names_is_left_to_the_proxy_to_resolve() -> None:
    async def probe(w: World) -> None:
        tunnels = Tunnels(w, await w.serve(HELLO, tls="api.test"))
        await listen(w, tunnels)
        got = await through(w, API).fetch("https://api.test/")
        assert (got.status, got.body) == (200, b"<p>hello</p>")
        assert tunnels.asked == ["api.test:443"]
        assert w.resolved == ["proxy.corp"]
        assert w.connected == [(PROXY, 3128)]
        assert got.chain[0].address == PROXY, "the peer that we were connected to"

    run(probe)


def test_a_host_that_a_caller_chose_is_resolved_here_and_the_tunnel_goes_to_the_checked_address() -> None:
    async def probe(w: World) -> None:
        tunnels = Tunnels(w, await w.serve(HELLO, tls="good.test"))
        await listen(w, tunnels)
        w.names |= {"good.test": [PUBLIC], "inside.test": ["10.0.0.7"]}
        egress = through(w, ANYWHERE)
        assert (await egress.fetch("https://good.test/")).status == 200
        await refused(egress.fetch("https://inside.test/"), "ADDRESS_REFUSED", "private")
        await refused(egress.fetch("https://unknown.test/"), "TARGET_NOT_FOUND")
        assert tunnels.asked == [f"{PUBLIC}:443"]

    run(probe)


def test_a_private_pair_is_reached_directly_and_nothing_else_that_is_plain_or_undeclared() -> None:
    async def probe(w: World) -> None:
        tunnels = Tunnels(w, await w.serve(HELLO, tls="api.test"))
        await listen(w, tunnels)
        w.names["arbiter.corp"] = ["10.0.0.8"]
        w.routes[("10.0.0.8", 8000)] = await w.serve(HELLO)
        egress = through(w, Hosts(private=["arbiter.corp:8000"]))
        assert (await egress.fetch("http://arbiter.corp:8000/")).status == 200
        await refused(egress.fetch("https://api.test/"), "ADDRESS_REFUSED", "does not declare")
        await refused(through(w, API).fetch("http://api.test/"), "ADDRESS_REFUSED")
        assert tunnels.heads == []

    run(probe)


def test_credentials_are_read_for_each_tunnel_and_only_the_proxy_gets_them() -> None:
    async def probe(w: World) -> None:
        tunnels = Tunnels(w, await w.serve(HELLO, tls="api.test"))
        await listen(w, tunnels)
        given = iter(["gate:one", "gate:two"])
        egress = through(w, API, lambda: next(given))
        await egress.fetch("https://api.test/")
        await egress.fetch("https://api.test/")
        sent = [line for head in tunnels.heads for line in head.splitlines() if line.startswith("Proxy-")]
        assert sent == ["Proxy-Authorization: Basic Z2F0ZTpvbmU=", "Proxy-Authorization: Basic Z2F0ZTp0d28="]
        assert all("proxy-authorization" not in seen.headers for seen in w.seen)

    run(probe)


def test_credentials_that_are_gone_are_said_to_be_and_nothing_is_sent() -> None:
    def gone() -> str:
        raise StartRefused("The secret file:proxy is not there.")

    async def probe(w: World) -> None:
        tunnels = Tunnels(w, await w.serve(HELLO, tls="api.test"))
        await listen(w, tunnels)
        fault = await refused(
            through(w, API, gone).fetch("https://api.test/"), "BAD_RESPONSE", "egress.proxy_credentials"
        )
        assert "file:proxy" not in fault.text
        assert tunnels.heads == []

    run(probe)


SAID = {
    "wants other credentials": (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 3\r\n\r\nCANARY",
        "credentials",
    ),
    "refuses": (b"HTTP/1.1 403 Forbidden\r\n\r\nCANARY", "refuses this host (status 403)"),
    "is a web server": (b"HTTP/1.1 302 Found\r\nLocation: http://CANARY/\r\n\r\n", "refuses this host (status 302)"),
    "speaks another protocol": (b"220 mail.CANARY ESMTP\r\n\r\n", "does not speak HTTP"),
    "says nothing": (b"", "broke off"),
    "never ends its head": (b"HTTP/1.1 200 OK\r\n" + b"X: CANARY\r\n" * (MAX_HEAD_BYTES // 10), "does not speak HTTP"),
    "speaks for the host": (b"HTTP/1.1 200 OK\r\n\r\nCANARY", "speaks in the host's place"),
}


@pytest.mark.parametrize("name", SAID)
def test_a_proxy_that(name: str) -> None:
    said, words = SAID[name]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()

    async def probe(w: World) -> None:
        await listen(w, answer)
        fault = await refused(through(w, API).fetch("https://api.test/"), "BAD_RESPONSE", words)
        assert "CANARY" not in fault.text
        assert fault.elsewhere

    run(probe)


def test_a_proxy_that_is_not_there_is_told_from_a_target_that_is_not() -> None:
    async def probe(w: World) -> None:
        fault = await refused(through(w, API).fetch("https://api.test/"), "TARGET_NOT_FOUND", "the proxy's host name")
        w.names["proxy.corp"] = [PROXY]
        fault = await refused(through(w, API).fetch("https://api.test/"), "TARGET_NOT_FOUND", "the proxy's address")
        assert not fault.missing, "nothing that the caller asked for is missing"

    run(probe)


def test_a_proxy_in_the_middle_cannot_pass_for_the_host() -> None:
    async def probe(w: World) -> None:
        await listen(w, Tunnels(w, await w.serve(HELLO, tls="proxy.corp")))
        await refused(through(w, API).fetch("https://api.test/"), "TLS_FAILED")

    run(probe)
