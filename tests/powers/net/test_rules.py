"""The eleven egress rules, each as a probe against our own servers; and each rule taken out once, to show its probe fails."""

from __future__ import annotations

import asyncio
import gzip
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.homes import PATIENCE_S
from tests.powers.net.world import (
    ANYWHERE,
    OTHER_PUBLIC,
    PUBLIC,
    Seen,
    World,
    answer,
    client_tls,
    pages,
    redirect,
    world,
)
from toolgate.errors import ToolError
from toolgate.model.tool import Hosts
from toolgate.powers import addresses, net, tcp, wire
from toolgate.powers.net import FetchLimits, PackEgress

Probe = Callable[[World], Awaitable[None]]
Patch = pytest.MonkeyPatch
probe_s = PATIENCE_S
"""How long a refusal may take. Without its rule it may never come: then nobody waits as long for it."""


def nothing(*_: Any, **__: Any) -> None:
    """A rule that is not there."""


async def refused(fetch: Awaitable[Any], code: str, words: str = "") -> ToolError:
    """Assert that the fetch is refused with this code; anything else, success included, fails the probe."""
    try:
        got = await asyncio.wait_for(fetch, probe_s)
    except ToolError as caught:
        fault = caught
    except TimeoutError:
        raise AssertionError(f"still running, not {code}") from None
    else:
        raise AssertionError(f"went through with {got.status}, not {code}")
    assert fault.code == code, f"refused with {fault.code}, not {code}"
    assert words in fault.text
    return fault


HELLO = pages(index=answer(b"<p>hello</p>"))


# -- 1: one strict reading -----------------------------------------------------------------------------------


async def odd_urls_are_not_read(w: World) -> None:
    await w.site("good.test", HELLO)
    w.routes[("127.0.0.1", 443)] = w.routes[(PUBLIC, 443)]
    for url in (
        "https://user:pw@good.test/",
        "https://good.test/a/../",
        "https://good.test\\@127.0.0.1/",
        "https://127.1/",
    ):
        await refused(w.egress().fetch(url), "INVALID_TARGET")
    assert not w.connected


def read_leniently(patch: Patch) -> None:
    def parse(url: str) -> addresses.UrlTarget:
        parts = urlsplit(url.replace("\\", "/"))
        return addresses.UrlTarget(parts.scheme, parts.hostname or "", parts.port or 443, parts.path or "/")

    patch.setattr(net, "parse_target", parse)


async def plain_http_is_not_spoken(w: World) -> None:
    w.names["good.test"] = [PUBLIC]
    w.routes[(PUBLIC, 80)] = await w.serve(HELLO)
    await refused(w.egress().fetch("http://good.test/"), "ADDRESS_REFUSED", "https")


async def other_ports_are_not_tried(w: World) -> None:
    await w.site("good.test", HELLO)
    w.routes[(PUBLIC, 8443)] = w.routes[(PUBLIC, 443)]
    await refused(w.egress().fetch("https://good.test:8443/"), "ADDRESS_REFUSED", "ports")


# -- 2: every answer public ----------------------------------------------------------------------------------

FORBIDDEN = [
    "127.0.0.1",
    "10.0.0.7",
    "::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fe80::1",
    "0.0.0.0",
]


async def names_of_private_addresses_are_refused(w: World) -> None:
    real = await w.serve(HELLO, tls="inside.test")
    for address in FORBIDDEN:
        w.names["inside.test"] = [address]
        w.routes[(str(addresses.parse_address(address)), 443)] = real
        await refused(w.egress().fetch("https://inside.test/"), "ADDRESS_REFUSED")
        assert not w.connected, address


async def one_private_answer_condemns_the_name(w: World) -> None:
    await w.site("mixed.test", HELLO)
    w.names["mixed.test"] = [PUBLIC, "10.0.0.1"]
    await refused(w.egress().fetch("https://mixed.test/"), "ADDRESS_REFUSED")


def check_the_first_answer_only(patch: Patch) -> None:
    async def first_only(self: Any, host: str, port: int) -> list[addresses.Address]:
        found = [addresses.parse_address(text) for text in await self._resolve(host, port)]
        net.refuse_address(found[0], explicitly_allowed=False)
        return found

    patch.setattr(net._Dialer, "_checked_addresses", first_only)


async def metadata_stays_closed_even_if_allowed(w: World) -> None:
    real = await w.serve(HELLO)
    w.names["cloud.test"] = ["169.254.169.254"]
    w.routes[("169.254.169.254", 80)] = real
    await refused(w.egress(allow=["cloud.test:80"]).fetch("http://cloud.test/"), "ADDRESS_REFUSED", "metadata")


# -- 3: the checked address, confirmed -----------------------------------------------------------------------


async def a_connection_that_ends_elsewhere_is_dropped(w: World) -> None:
    await w.site("good.test", HELLO)
    w.relabel = False  # the connector really reaches 127.0.0.1, as a rebound or hijacked connection would
    await refused(w.egress().fetch("https://good.test/"), "ADDRESS_REFUSED", "checked")


async def a_name_that_changes_its_answer_is_not_asked_twice(w: World) -> None:
    await w.site("rebind.test", HELLO)
    w.routes[("127.0.0.1", 443)] = w.routes[(PUBLIC, 443)]
    answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    egress = PackEgress(ANYWHERE, resolver=rebinding, connector=w.connector, tls=client_tls())
    async with egress.visit() as visit:
        await visit.page("https://rebind.test/")
        await visit.part("again")
    assert {address for address, _ in w.connected} == {PUBLIC}


def connect_by_name(patch: Patch) -> None:
    async def by_name(self: Any, host: str, port: int) -> tcp.Stream:
        await self._checked_addresses(host, port)
        stream: tcp.Stream = await self._connector((await self._resolve(host, port))[0], port)
        return stream

    patch.setattr(net._Dialer, "connect", by_name)


async def a_certificate_for_another_name_is_refused(w: World) -> None:
    await w.site("good.test", HELLO, certificate="evil.test")
    await refused(w.egress().fetch("https://good.test/"), "TLS_FAILED")


def trust_any_name(patch: Patch) -> None:
    careless = client_tls()
    patch.setattr(careless, "check_hostname", False)


async def a_certificate_of_a_strange_authority_is_refused(w: World) -> None:
    await w.site("good.test", HELLO)
    await refused(w.egress(tls=None).fetch("https://good.test/"), "TLS_FAILED")


def trust_any_authority(patch: Patch) -> None:
    patch.setattr(net.ssl, "create_default_context", ssl._create_unverified_context)


# -- 4: nothing of ours travels ------------------------------------------------------------------------------


async def proxies_and_secrets_of_the_environment_stay_home(w: World) -> None:
    await w.site("good.test", HELLO)
    try:
        await w.egress().fetch("https://good.test/")
    except ToolError:
        raise AssertionError("the request went to the proxy, which is not there") from None
    (seen,) = w.seen
    assert set(seen.headers) == {"host", "user-agent", "accept", "accept-encoding"}


def honour_the_environment(patch: Patch) -> None:
    patch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")

    async def by_proxy(self: Any, host: str, port: int) -> tcp.Stream:
        proxy = urlsplit(os.environ["HTTPS_PROXY"])
        try:
            return await tcp.connect(proxy.hostname or "", proxy.port or 80)
        except OSError:
            raise ToolError("TARGET_NOT_FOUND", "the proxy is not there") from None

    patch.setattr(net._Dialer, "connect", by_proxy)


def send_netrc(patch: Patch) -> None:
    original = net._write
    patch.setattr(net, "_write", lambda *asked: original(*asked[:2], {**asked[2], "Authorization": "Basic c2VjcmV0"}))


# -- 5: redirects --------------------------------------------------------------------------------------------


async def redirects_end_after_five(w: World) -> None:
    async def onward(seen: Seen, _: asyncio.StreamWriter) -> bytes:
        step = int(seen.path.strip("/") or 0)
        return redirect(f"/{step + 1}") if step < 6 else answer(b"<p>end</p>")

    await w.site("good.test", onward)
    await refused(w.egress().fetch("https://good.test/"), "BAD_RESPONSE", "redirects more than 5")
    assert (await w.egress().fetch("https://good.test/1")).url == "https://good.test/6"


def follow_on(patch: Patch) -> None:
    patch.setattr(
        World,
        "egress",
        lambda self: PackEgress(
            ANYWHERE,
            resolver=self.resolver,
            connector=self.connector,
            tls=client_tls(),
            limits=FetchLimits(max_redirects=50),
        ),
    )


async def each_hop_is_checked_anew(w: World) -> None:
    w.routes[("127.0.0.1", 443)] = await w.serve(HELLO, tls="inside.test")
    w.names["inside.test"] = ["127.0.0.1"]
    await w.site("good.test", pages(index=redirect("https://inside.test/")))
    await refused(w.egress().fetch("https://good.test/"), "ADDRESS_REFUSED")
    assert w.connected == [(PUBLIC, 443)]


async def https_never_becomes_http(w: World) -> None:
    w.routes[(PUBLIC, 80)] = await w.serve(HELLO)
    await w.site("good.test", pages(index=redirect("http://good.test/")))
    # The pair is opened for http, so only the downgrade itself is left to refuse.
    await refused(w.egress(allow=["good.test:80"]).fetch("https://good.test/"), "ADDRESS_REFUSED", "from https to http")


# -- 6: time, size, encoding, kind ---------------------------------------------------------------------------


async def a_trickle_ends_at_the_deadline(w: World) -> None:
    async def trickle(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
        for _ in range(400):
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    await w.site("slow.test", trickle)
    await refused(
        w.egress(limits=FetchLimits(timeout_s=0.4)).fetch("https://slow.test/"), "TIMEOUT", "Connection timeout (0.4s)"
    )


def no_deadline(patch: Patch) -> None:
    @asynccontextmanager
    async def forever(_: float) -> AsyncIterator[None]:
        yield

    patch.setattr(net, "_deadline", forever)


async def an_endless_body_is_cut(w: World) -> None:
    async def endless(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
        for _ in range(2000):
            writer.write(b"x" * 4096)
            await writer.drain()

    await w.site("big.test", endless)
    await refused(w.egress(limits=FetchLimits(max_body_bytes=100_000)).fetch("https://big.test/"), "RESPONSE_TOO_LARGE")


async def an_announced_flood_is_not_begun(w: World) -> None:
    async def announce(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 10485761\r\n\r\n")
        await writer.drain()
        await asyncio.Event().wait()

    await w.site("big.test", announce)
    await refused(w.egress().fetch("https://big.test/"), "RESPONSE_TOO_LARGE")


def read_it_all(patch: Patch) -> None:
    patch.setattr(wire.Budget, "require", nothing)


async def a_compressed_answer_is_not_unpacked(w: World) -> None:
    bomb = gzip.compress(b"0" * 1_000_000)
    await w.site("zip.test", pages(index=answer(bomb, Content_Encoding="gzip")))
    await refused(w.egress().fetch("https://zip.test/"), "BAD_RESPONSE", "compressed")


async def a_page_is_html(w: World) -> None:
    await w.site("pdf.test", pages(index=answer(b"%PDF", kind="application/pdf")))

    async def look() -> net.Fetched:
        async with w.egress().visit() as visit:
            return await visit.page("https://pdf.test/")

    await refused(look(), "BAD_RESPONSE", "not an HTML page")


# -- 7: parts ------------------------------------------------------------------------------------------------


async def parts_come_from_the_page_s_origin(w: World) -> None:
    await w.site("cdn.test", HELLO, address=OTHER_PUBLIC)
    await w.site("good.test", pages(index=answer(b"<p>"), away=redirect("https://cdn.test/")))

    async def look(reference: str) -> net.Fetched:
        async with w.egress().visit() as visit:
            await visit.page("https://good.test/")
            return await visit.part(reference)

    await refused(look("https://cdn.test/"), "ADDRESS_REFUSED", "another origin")
    await refused(look("away"), "ADDRESS_REFUSED", "another origin")


async def parts_are_counted(w: World) -> None:
    await w.site("good.test", HELLO)

    async def look() -> net.Fetched:
        async with w.egress(limits=FetchLimits(max_parts=3)).visit() as visit:
            got = await visit.page("https://good.test/")
            for number in range(4):
                got = await visit.part(f"?{number}")
            return got

    await refused(look(), "RESPONSE_TOO_LARGE", "more than 3 parts")


def do_not_count(patch: Patch) -> None:
    patch.setattr(FetchLimits, "max_parts", property(lambda _: 10**9, nothing))


async def parts_are_weighed_together(w: World) -> None:
    await w.site("good.test", pages(index=answer(b"<p>" + b"x" * 1000), part=answer(b"y" * 1000, kind="text/css")))

    async def look() -> net.Fetched:
        async with w.egress(limits=FetchLimits(max_visit_bytes=2500)).visit() as visit:
            await visit.page("https://good.test/")
            await visit.part("part")
            return await visit.part("part?again")

    await refused(look(), "RESPONSE_TOO_LARGE")


def do_not_weigh(patch: Patch) -> None:
    patch.setattr(FetchLimits, "max_visit_bytes", property(lambda _: 10**9, nothing))


# -- 9: errors ------------------------------------------------------------------------------------------------


async def errors_do_not_quote_the_stranger(w: World) -> None:
    said = answer(b"CANARY", status="200 CANARY", kind="text/CANARY", X_CANARY="CANARY")
    await w.site(
        "rude.test", pages(index=said, to=redirect("ftp://CANARY/"), part=answer(b"", Content_Encoding="CANARY"))
    )

    async def look() -> net.Fetched:
        async with w.egress().visit() as visit:
            return await visit.page("https://rude.test/")

    async def get(path: str) -> net.Fetched:
        return await w.egress().fetch(f"https://rude.test/{path}")

    for fetch, code in (
        (look, "BAD_RESPONSE"),
        (lambda: get("to"), "INVALID_TARGET"),
        (lambda: get("part"), "BAD_RESPONSE"),
    ):
        assert "CANARY" not in (await refused(fetch(), code)).text


def quote_the_stranger(patch: Patch) -> None:
    def quoting(headers: Mapping[str, str]) -> None:
        raise ToolError("BAD_RESPONSE", f"the target is {headers.get('content-type')}")

    patch.setattr(net, "refuse_not_html", quoting)


# -- 10: loopback only if named --------------------------------------------------------------------------------


async def loopback_opens_only_for_the_named_pair(w: World) -> None:
    port = await w.serve(HELLO)
    other = await w.serve(HELLO)
    w.names["localhost"] = ["127.0.0.1"]
    w.routes |= {("127.0.0.1", port): port, ("127.0.0.1", other): other}
    egress = w.egress(allow=[f"127.0.0.1:{port}"])
    w.names["127.0.0.1"] = ["127.0.0.1"]
    got = await egress.fetch(f"http://127.0.0.1:{port}/")
    assert got.status == 200
    assert got.explicitly_allowed
    await refused(egress.fetch(f"http://127.0.0.1:{other}/"), "ADDRESS_REFUSED")
    await refused(egress.fetch(f"http://localhost:{port}/"), "ADDRESS_REFUSED")


def allow_by_address(patch: Patch) -> None:
    patch.setattr(net, "refuse_scheme_and_port", nothing)
    patch.setattr(net, "refuse_address", nothing)


# -- 11: only what the pack declares ---------------------------------------------------------------------------

ONE_API = Hosts(named=["api.test"])


async def hosts_that_are_not_declared_are_not_reached(w: World) -> None:
    await w.site("api.test", pages(index=answer(b"ok"), away=redirect("https://good.test/")))
    await w.site("good.test", HELLO, address=OTHER_PUBLIC)
    egress = w.egress(hosts=ONE_API, tls=client_tls())
    assert (await egress.fetch("https://api.test/")).status == 200
    for url in ("https://good.test/", "https://api.test:8443/", "https://sub.api.test/", "https://api.test/away"):
        await refused(egress.fetch(url), "ADDRESS_REFUSED", "does not declare this host")
    assert "good.test" not in w.resolved, "not even its name is asked for"


async def a_named_host_is_still_a_public_one_over_tls(w: World) -> None:
    w.names["api.test"] = ["10.0.0.7"]
    w.routes[("10.0.0.7", 443)] = await w.serve(HELLO, tls="api.test")
    egress = w.egress(hosts=ONE_API, tls=client_tls())
    await refused(egress.fetch("https://api.test/"), "ADDRESS_REFUSED", "private")
    await refused(w.egress(hosts=Hosts(named=["api.test:80"])).fetch("http://api.test/"), "ADDRESS_REFUSED", "https")


async def a_pack_that_declares_nothing_reaches_nothing(w: World) -> None:
    await w.site("good.test", HELLO)
    await refused(w.egress(hosts=Hosts()).fetch("https://good.test/"), "ADDRESS_REFUSED", "does not declare")


@dataclass(frozen=True)
class Rule:
    number: int
    probe: Probe
    take_out: Callable[[Patch], None]


def without(name: str) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(net, name, nothing)


RULES = [
    Rule(1, odd_urls_are_not_read, read_leniently),
    Rule(1, plain_http_is_not_spoken, without("refuse_scheme_and_port")),
    Rule(2, names_of_private_addresses_are_refused, without("refuse_address")),
    Rule(2, one_private_answer_condemns_the_name, check_the_first_answer_only),
    Rule(2, metadata_stays_closed_even_if_allowed, without("is_metadata")),
    Rule(3, a_connection_that_ends_elsewhere_is_dropped, without("confirm_peer")),
    Rule(3, a_name_that_changes_its_answer_is_not_asked_twice, connect_by_name),
    Rule(3, a_certificate_for_another_name_is_refused, trust_any_name),
    Rule(3, a_certificate_of_a_strange_authority_is_refused, trust_any_authority),
    Rule(4, proxies_and_secrets_of_the_environment_stay_home, honour_the_environment),
    Rule(4, proxies_and_secrets_of_the_environment_stay_home, send_netrc),
    Rule(5, redirects_end_after_five, follow_on),
    Rule(5, each_hop_is_checked_anew, without("refuse_address")),
    Rule(5, https_never_becomes_http, without("refuse_downgrade")),
    Rule(6, a_trickle_ends_at_the_deadline, no_deadline),
    Rule(6, an_endless_body_is_cut, read_it_all),
    Rule(6, an_announced_flood_is_not_begun, read_it_all),
    Rule(6, a_compressed_answer_is_not_unpacked, without("refuse_encoding")),
    Rule(6, a_page_is_html, without("refuse_not_html")),
    Rule(6, other_ports_are_not_tried, without("refuse_scheme_and_port")),
    Rule(7, parts_come_from_the_page_s_origin, without("refuse_other_origin")),
    Rule(7, parts_are_counted, do_not_count),
    Rule(7, parts_are_weighed_together, do_not_weigh),
    Rule(9, errors_do_not_quote_the_stranger, quote_the_stranger),
    Rule(10, loopback_opens_only_for_the_named_pair, allow_by_address),
    Rule(11, hosts_that_are_not_declared_are_not_reached, without("refuse_undeclared")),
    Rule(11, a_named_host_is_still_a_public_one_over_tls, without("refuse_address")),
    Rule(11, a_pack_that_declares_nothing_reaches_nothing, without("refuse_undeclared")),
]


def run(probe: Probe) -> None:
    async def inside() -> None:
        async with world() as w:
            await probe(w)

    asyncio.run(inside())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.number}-{rule.probe.__name__}")
def test_the_rule_holds(rule: Rule, monkeypatch: Patch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    run(rule.probe)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.number}-{rule.probe.__name__}")
def test_without_the_rule_its_probe_fails(rule: Rule, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tests.powers.net.test_rules.probe_s", 1.0)
    rule.take_out(monkeypatch)
    with pytest.raises(AssertionError):
        run(rule.probe)
