"""What an honest fetch gives, and how each honest failure is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.homes import PATIENCE_S
from tests.powers.net.world import ANYWHERE, OTHER_PUBLIC, PUBLIC, Seen, World, answer, pages, redirect, world
from toolgate.errors import ToolError
from toolgate.model.tool import Hosts
from toolgate.powers import net
from toolgate.powers.net import TIMEOUT_S, FetchLimits, PackEgress


def in_world(test: Callable[[World], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        async with world() as w:
            return await asyncio.wait_for(test(w), PATIENCE_S)

    return asyncio.run(inside())


async def code_of(fetch: Awaitable[Any]) -> tuple[str, bool, str]:
    with pytest.raises(ToolError) as refused:
        await fetch
    return refused.value.code, refused.value.missing, refused.value.text


def test_a_page_comes_with_its_chain_addresses_and_certificates() -> None:
    async def probe(w: World) -> None:
        await w.site("old.test", pages(index=redirect("https://new.test/paper/")), address=OTHER_PUBLIC)
        await w.site("new.test", pages(paper=answer(b"<p>hello</p>")))
        got = await w.egress().fetch("https://old.test")
        assert (got.url, got.status, got.body) == ("https://new.test/paper/", 200, b"<p>hello</p>")
        assert [(hop.url, hop.status, hop.address) for hop in got.chain] == [
            ("https://old.test/", 302, OTHER_PUBLIC),
            ("https://new.test/paper/", 200, PUBLIC),
        ]
        assert all(hop.certificate_sha256 and len(hop.certificate_sha256) == 64 for hop in got.chain)
        assert not got.explicitly_allowed

    in_world(probe)


def test_the_real_connector_speaks_to_a_real_server_that_the_settings_allow() -> None:
    async def probe(w: World) -> None:
        port = await w.serve(pages(index=answer(b"<p>here</p>")))
        got = await PackEgress(Hosts(private=[f"127.0.0.1:{port}"])).fetch(f"http://127.0.0.1:{port}/")
        assert got.body == b"<p>here</p>"
        assert got.explicitly_allowed
        assert got.chain[0].address == "127.0.0.1"
        assert got.chain[0].certificate_sha256 is None
        code = await code_of(PackEgress(ANYWHERE).fetch(f"http://127.0.0.1:{port}/"))
        assert code[0] == "ADDRESS_REFUSED"

    in_world(probe)


@pytest.mark.req("000-D-VERIFY-404")
def test_a_name_that_does_not_resolve_and_a_port_nobody_holds_are_not_found() -> None:
    async def probe(w: World) -> None:
        assert (await code_of(w.egress().fetch("https://nowhere.test/")))[:2] == ("TARGET_NOT_FOUND", True)
        w.names["closed.test"] = [PUBLIC]
        assert (await code_of(w.egress().fetch("https://closed.test/")))[:2] == ("TARGET_NOT_FOUND", True)

    in_world(probe)


def test_another_checked_address_is_tried_when_the_first_is_silent() -> None:
    async def probe(w: World) -> None:
        await w.site("two.test", pages(index=answer(b"ok")))
        w.names["two.test"] = [OTHER_PUBLIC, PUBLIC]
        assert (await w.egress().fetch("https://two.test/")).chain[0].address == PUBLIC
        assert [address for address, _ in w.connected] == [OTHER_PUBLIC, PUBLIC]

    in_world(probe)


@pytest.mark.req("000-D-VERIFY-TIMEOUT")
def test_the_deadline_covers_the_resolver_too_and_is_ten_seconds_unless_set() -> None:
    async def probe(w: World) -> None:
        async def silent(host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return [PUBLIC]

        fetch = PackEgress(ANYWHERE, resolver=silent, limits=FetchLimits(timeout_s=0.1)).fetch("https://slow.test/")
        assert await code_of(fetch) == ("TIMEOUT", False, "Connection timeout (0.1s)")

    in_world(probe)
    assert TIMEOUT_S == 10.0


def test_the_deadline_of_a_visit_counts_what_is_fetched_and_not_what_its_caller_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that only the site and the caller move."""
    now = 0.0
    monkeypatch.setattr(net, "monotonic", lambda: now)

    async def slow(_: Seen, __: asyncio.StreamWriter) -> bytes:
        nonlocal now
        now += 3
        return answer(b"<p>")

    async def probe(w: World) -> None:
        nonlocal now
        await w.site("slow.test", slow)
        async with w.egress(limits=FetchLimits(timeout_s=10)).visit() as visit:
            await visit.page("https://slow.test/")
            now += 100  # what the caller does with it
            await visit.part("a")
            await visit.part("b")
            await visit.part("c")  # begun within the deadline: 9 of 10 seconds are spent
            assert await code_of(visit.part("d")) == ("TIMEOUT", False, "Connection timeout (10s)")

    in_world(probe)


def test_a_status_is_told_and_not_judged() -> None:
    async def probe(w: World) -> None:
        await w.site("good.test", pages(gone=answer(b"x", status="410 Gone"), index=answer(b"y", status="503 No")))
        assert (await w.egress().fetch("https://good.test/gone")).status == 410
        assert (await w.egress().fetch("https://good.test/")).status == 503
        assert (await w.egress().fetch("https://good.test/other")).status == 404

    in_world(probe)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HELLO\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
    ],
)
def test_what_is_not_http_is_a_bad_response(said: bytes) -> None:
    async def probe(w: World) -> None:
        async def rude(_: Seen, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            await writer.drain()

        await w.site("rude.test", rude)
        assert (await code_of(w.egress().fetch("https://rude.test/")))[0] == "BAD_RESPONSE"

    in_world(probe)


def test_a_post_carries_its_body_and_is_never_repeated_elsewhere() -> None:
    async def probe(w: World) -> None:
        await w.site("peer.test", pages(index=answer(b"{}"), away=redirect("https://peer.test/")))
        await w.egress().fetch(
            "https://peer.test/", method="POST", body=b"votes", headers={"Content-Type": "text/plain"}
        )
        assert (w.seen[0].method, w.seen[0].body, w.seen[0].headers["content-type"]) == ("POST", b"votes", "text/plain")
        fetch = w.egress().fetch("https://peer.test/away", method="POST", body=b"votes")
        assert (await code_of(fetch))[0] == "BAD_RESPONSE"

    in_world(probe)


def test_headers_meant_for_one_origin_do_not_reach_another() -> None:
    async def probe(w: World) -> None:
        await w.site("one.test", pages(index=redirect("https://two.test/")), address=OTHER_PUBLIC)
        await w.site("two.test", pages(index=answer(b"ok")))
        await w.egress().fetch("https://one.test/", headers={"X-Mine": "1"})
        assert ["x-mine" in seen.headers for seen in w.seen] == [True, False]

    in_world(probe)


def test_a_fetch_can_be_held_to_an_origin() -> None:
    async def probe(w: World) -> None:
        await w.site("one.test", pages(index=answer(b"ok")))
        egress = w.egress()
        assert (await egress.fetch("https://one.test/", same_origin_as="https://ONE.test/paper")).status == 200
        assert (await code_of(egress.fetch("https://one.test/", same_origin_as="https://two.test/")))[
            0
        ] == "ADDRESS_REFUSED"

    in_world(probe)


def test_a_visit_reads_parts_beside_the_final_page_over_kept_connections() -> None:
    async def probe(w: World) -> None:
        routes = {
            "index": redirect("/paper/v2/"),
            "paper/v2": answer(b"<p>"),
            "paper/v2/a_css": answer(b"a", kind="text/css"),
        }
        await w.site("good.test", pages(**routes))
        async with w.egress().visit() as visit:
            assert (await visit.page("https://good.test/")).url == "https://good.test/paper/v2/"
            assert (await visit.part("a.css")).body == b"a"
            assert (await visit.part("missing.js")).status == 404
        assert len(w.connected) == 1
        assert w.resolved == ["good.test"]

    in_world(probe)


def test_parts_may_be_fetched_side_by_side() -> None:
    async def probe(w: World) -> None:
        await w.site("good.test", pages(index=answer(b"<p>")))
        async with w.egress().visit() as visit:
            await visit.page("https://good.test/")
            got = await asyncio.gather(*(visit.part(f"{number}.js") for number in range(40)))
        assert {one.status for one in got} == {404}
        assert len(w.connected) <= 4

    in_world(probe)


@pytest.mark.parametrize(
    "entry", ["127.0.0.1", "http://127.0.0.1:80", "a b:80", "a:0", "a:99999", "", ":80", "a:80/", "u@a:80"]
)
def test_an_allow_list_names_hosts_with_ports(entry: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        PackEgress(Hosts(private=[entry]))


def test_parts_side_by_side_are_weighed_together_too() -> None:
    async def probe(w: World) -> None:
        await w.site("good.test", pages(index=answer(b"<p>"), a=answer(b"a" * 700), b=answer(b"b" * 700)))
        async with w.egress(limits=FetchLimits(max_visit_bytes=1000)).visit() as visit:
            await visit.page("https://good.test/")
            both = await asyncio.gather(visit.part("a"), visit.part("b"), return_exceptions=True)
        assert [getattr(one, "code", None) for one in both].count("RESPONSE_TOO_LARGE") == 1

    in_world(probe)


def test_a_part_has_a_page() -> None:
    async def probe(w: World) -> None:
        async with w.egress().visit() as visit:
            with pytest.raises(RuntimeError, match="after its page"):
                await visit.part("a.css")

    in_world(probe)
