"""F11: a site that answers in the most laborious way. What it costs us is counted in bytes and looks, not in seconds."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.homes import PATIENCE_S
from tests.powers.net.world import ANYWHERE, Handler, Seen, World, answer, client_tls, pages, redirect, world
from toolgate.errors import ToolError
from toolgate.model.tool import Hosts
from toolgate.powers import tcp, wire
from toolgate.powers.net import FetchLimits, PackEgress

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "chunks of one byte": (CHUNKED, b"1\r\na\r\n"),
    "chunks of two bytes with an extension": (CHUNKED, b"2;a=b;c\r\naa\r\n"),
    "one chunk extension": (CHUNKED + b"1;", b"x"),
    "one quoted chunk extension": (CHUNKED + b'1;a="', b"x"),
    "one chunk size": (CHUNKED, b"0"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"),
    "headers": (OK, b"a: b\r\n"),
    "headers without a value": (OK, b"a:\r\n"),
    "one header value": (OK + b"a: ", b"x"),
    "one header name": (OK, b"x"),
    "headers of early hints": (b"HTTP/1.1 103 Early Hints\r\n", b"a: b\r\n"),
    "one reason phrase": (b"HTTP/1.1 200 ", b"x"),
    "blank lines before the answer": (b"", b"\r\n"),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"a: b\r\n"),
    "one trailer value": (CHUNKED + b"1\r\na\r\n0\r\na: ", b"x"),
}


def endless(before: bytes, again: bytes) -> Handler:
    async def handle(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        piece = again * (65_536 // len(again))
        while True:
            writer.write(piece)
            await writer.drain()

    return handle


class Counting:
    """Between us and a world's connections: how much was taken, in how many looks."""

    def __init__(self, w: World) -> None:
        self._connect = w.connector
        self.bytes = 0
        self.looks = 0

    async def connector(self, address: str, port: int) -> tcp.Stream:
        stream = await self._connect(address, port)
        receive = stream.receive

        async def counted(max_bytes: int) -> bytes:
            data = await receive(max_bytes)
            self.bytes += len(data)
            self.looks += 1
            return data

        stream.receive = counted  # type: ignore[method-assign]
        return stream

    def egress(self, w: World, *, allow: Sequence[str] = (), **limits: Any) -> PackEgress:
        options = FetchLimits(**{"timeout_s": PATIENCE_S, **limits})
        hosts = Hosts(private=allow, any_public=True)
        return PackEgress(hosts, resolver=w.resolver, connector=self.connector, tls=client_tls(), limits=options)


async def plain_site(w: World, handler: Handler) -> int:
    """`rude.test` without TLS, at the port returned."""
    port = await w.serve(handler)
    w.names["rude.test"] = ["127.0.0.1"]
    w.routes[("127.0.0.1", port)] = port
    return port


def in_world(test: Callable[[World], Awaitable[Any]]) -> None:
    async def inside() -> None:
        async with world() as w:
            await asyncio.wait_for(test(w), PATIENCE_S)

    asyncio.run(inside())


async def refusal(fetch: Awaitable[Any]) -> ToolError:
    with pytest.raises(ToolError) as refused:
        await fetch
    return refused.value


@pytest.mark.parametrize("shape", ENDLESS)
def test_f11_an_answer_that_is_all_framing_is_cut_after_a_fixed_number_of_bytes(shape: str) -> None:
    async def probe(w: World) -> None:
        await w.site("rude.test", endless(*ENDLESS[shape]))
        counting = Counting(w)
        fault = await refusal(counting.egress(w).fetch("https://rude.test/"))
        assert fault.code == "BAD_RESPONSE"
        assert counting.bytes <= 2 * wire.FREE_BYTES  # the handshake's share and the answer's

    in_world(probe)


def test_f11_tls_records_of_one_byte_are_framing_too() -> None:
    async def drops(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        while True:
            for _ in range(1000):
                writer.write(b"a")
            await writer.drain()

    async def probe(w: World) -> None:
        await w.site("rude.test", drops)
        counting = Counting(w)
        fault = await refusal(counting.egress(w).fetch("https://rude.test/"))
        assert (fault.code, "framing" in fault.text) == ("BAD_RESPONSE", True)
        assert counting.bytes <= 2 * wire.FREE_BYTES

    in_world(probe)


def test_f11_a_drip_is_looked_at_no_oftener_than_the_pause_allows() -> None:
    async def drip(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0)

    async def probe(w: World) -> None:
        port = await plain_site(w, drip)
        counting = Counting(w)
        fetch = counting.egress(w, allow=[f"rude.test:{port}"], timeout_s=0.4).fetch(f"http://rude.test:{port}/")
        assert (await refusal(fetch)).code == "TIMEOUT"
        assert counting.looks <= wire.FREE_SHORT_READS + 0.4 / wire.DRIP_PAUSE_S + 2

    in_world(probe)


def test_f11_twenty_hostile_answers_are_handled_one_piece_in_a_turn_of_the_loop() -> None:
    async def probe(w: World) -> None:
        port = await plain_site(w, endless(*ENDLESS["chunks of one byte"]))
        turns = 0
        fed: list[int] = []

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        original = wire._Reader.feed

        def feed(self: Any, piece: bytes) -> None:
            fed.append(turns)
            original(self, piece)

        egress = PackEgress(Hosts(private=[f"rude.test:{port}"]), resolver=w.resolver, connector=w.connector)
        counter = asyncio.create_task(count_turns())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire._Reader, "feed", feed)
            asked = [egress.fetch(f"http://rude.test:{port}/") for _ in range(20)]
            got = await asyncio.gather(*asked, return_exceptions=True)
        counter.cancel()
        assert [getattr(one, "code", None) for one in got] == ["BAD_RESPONSE"] * 20
        assert len(fed) >= 20 * 4
        assert len(set(fed)) == len(fed)

    in_world(probe)


def test_f11_files_that_come_side_by_side_are_weighed_while_they_come() -> None:
    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> bytes | None:
        if seen.path == "/":
            return answer(b"<p>")
        await endless(OK + b"\r\n", b"x")(seen, writer)
        return None

    async def probe(w: World) -> None:
        await w.site("big.test", flood)
        counting = Counting(w)
        async with counting.egress(w, max_visit_bytes=300_000).visit() as visit:
            await visit.page("https://big.test/")
            parts = await asyncio.gather(*(visit.part(str(n)) for n in range(8)), return_exceptions=True)
        assert {getattr(one, "code", None) for one in parts} == {"RESPONSE_TOO_LARGE"}
        assert counting.bytes <= 300_000 + 10 * wire.FREE_BYTES

    in_world(probe)


def test_f11_what_redirects_say_on_the_way_counts_as_part_of_the_answer() -> None:
    async def onward(seen: Seen, _: asyncio.StreamWriter) -> bytes:
        step = int(seen.path.strip("/") or 0)
        return answer(b"x" * 400, status="302 Found", Location=f"/{step + 1}")

    async def probe(w: World) -> None:
        await w.site("big.test", onward)
        fault = await refusal(w.egress(limits=FetchLimits(max_body_bytes=1000)).fetch("https://big.test/"))
        assert fault.code == "RESPONSE_TOO_LARGE"
        assert len(w.seen) == 3

    in_world(probe)


def test_f11_an_honest_answer_in_small_chunks_with_hints_and_trailers_is_read() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" * 3
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(word), word) for word in [b"<p>", *[b"word "] * 2000])
    said = hints + CHUNKED + chunks + b"0\r\nX-Checksum: 1\r\nContent-Type: application/x\r\n\r\n"

    async def speak(_: Seen, writer: asyncio.StreamWriter) -> bytes:
        for start in range(0, len(said), 700):
            writer.write(said[start : start + 700])
            await writer.drain()
        return b""

    async def probe(w: World) -> None:
        await w.site("good.test", speak)
        got = await w.egress().fetch("https://good.test/")
        assert got.body == b"<p>" + b"word " * 2000
        assert got.status == 200
        assert got.headers["content-type"] == "text/html"
        assert "x-checksum" not in got.headers

    in_world(probe)


def test_f11_what_was_read_of_an_answer_is_freed_with_it_and_not_when_the_collector_comes() -> None:
    async def probe(w: World) -> None:
        port = await plain_site(w, endless(OK + b"\r\n", b"x"))
        egress = Counting(w).egress(w, allow=[f"rude.test:{port}"], max_body_bytes=4_000_000)
        tracemalloc.start()
        gc.disable()
        try:
            for _ in range(4):
                fault = await refusal(egress.fetch(f"http://rude.test:{port}/"))
                assert fault.code == "RESPONSE_TOO_LARGE"
                del fault
            held, highest = tracemalloc.get_traced_memory()
        finally:
            gc.enable()
            tracemalloc.stop()
        assert highest > 4_000_000
        assert held < 4_000_000

    in_world(probe)


# -- what the parser must not be talked into ------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\nabc",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n0\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        CHUNKED + b"5\r\nab",
        CHUNKED + b"ffffffffffffffffff\r\nab",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
    ],
)
def test_an_answer_that_two_readers_could_read_differently_is_a_bad_response(said: bytes) -> None:
    async def rude(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    async def probe(w: World) -> None:
        await w.site("rude.test", rude)
        assert (await refusal(w.egress().fetch("https://rude.test/"))).code == "BAD_RESPONSE"

    in_world(probe)


def test_a_connection_on_which_more_came_than_was_asked_for_serves_no_second_answer() -> None:
    async def twice(seen: Seen, _: asyncio.StreamWriter) -> bytes:
        return answer(b"<p>asked") + (answer(b"<p>not asked") if seen.path == "/" else b"")

    async def probe(w: World) -> None:
        await w.site("rude.test", twice)
        async with w.egress().visit() as visit:
            assert (await visit.page("https://rude.test/")).body == b"<p>asked"
            assert (await visit.part("part")).body == b"<p>asked"
        assert len(w.connected) == 2

    in_world(probe)


def test_a_kept_connection_that_the_site_has_closed_meanwhile_is_replaced() -> None:
    async def one_each(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"<p>"))  # promises to stay, and leaves

    async def probe(w: World) -> None:
        await w.site("good.test", one_each)
        async with w.egress().visit() as visit:
            await visit.page("https://good.test/")
            assert (await visit.part("a")).status == 200
            assert (await visit.part("b")).status == 200
        assert len(w.connected) == 3

    in_world(probe)


def test_a_body_without_a_length_ends_where_the_other_side_says_so_and_not_where_the_line_is_cut() -> None:
    async def cut(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n<p>")
        await writer.drain()
        if seen.path == "/cut":
            writer.transport.abort()  # type: ignore[attr-defined] # asyncio's own

    async def probe(w: World) -> None:
        await w.site("good.test", cut)
        assert (await w.egress().fetch("https://good.test/")).body == b"<p>"
        assert (await refusal(w.egress().fetch("https://good.test/cut"))).code == "BAD_RESPONSE"

    in_world(probe)


@pytest.mark.parametrize("header", [{"X": "a\r\nY: b"}, {"X": "a\nb"}, {"X\r\nY": "a"}, {"X": "\x00"}, {"": "a"}])
def test_a_header_that_would_be_read_as_two_is_not_sent(header: dict[str, str]) -> None:
    async def probe(w: World) -> None:
        await w.site("good.test", pages(index=answer(b"<p>")))
        assert (await refusal(w.egress().fetch("https://good.test/", headers=header))).code == "INVALID_INPUT"
        assert not w.seen

    in_world(probe)


# -- names ----------------------------------------------------------------------------------------------------


@pytest.fixture
def silent_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    begun, release = threading.Event(), threading.Event()

    def silent(*_: Any, **__: Any) -> list[Any]:
        begun.set()
        release.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    yield begun
    release.set()


def test_a8_target_that_does_not_answer_in_time_is_no_fault_of_the_arguments(
    silent_resolver: threading.Event,
) -> None:
    fault = asyncio.run(refusal(PackEgress(ANYWHERE, limits=FetchLimits(timeout_s=0.1)).fetch("https://silent.test/")))
    assert (fault.code, fault.elsewhere, fault.missing) == ("TIMEOUT", True, False)


def test_f11_a_lookup_that_does_not_end_holds_neither_the_loop_nor_the_exit(silent_resolver: threading.Event) -> None:
    async def probe() -> None:
        fault = await refusal(PackEgress(ANYWHERE, limits=FetchLimits(timeout_s=0.1)).fetch("https://silent.test/"))
        assert fault.code == "TIMEOUT"

    asyncio.run(probe())  # returns: a thread of asyncio's own pool would be waited for
    assert silent_resolver.wait(PATIENCE_S), "it began, perhaps only now"
    assert {thread.daemon for thread in threading.enumerate() if thread.name == "silent"} == {True}


def test_a_redirect_to_another_site_leaves_no_connection_open_behind_it() -> None:
    async def probe(w: World) -> None:
        await w.site("old.test", pages(index=redirect("https://new.test/")))
        w.names["new.test"] = ["151.101.1.69"]
        w.routes[("151.101.1.69", 443)] = await w.serve(pages(index=answer(b"<p>")), tls="new.test")
        assert (await w.egress().fetch("https://old.test/")).url == "https://new.test/"
        await asyncio.wait_for(asyncio.gather(*w.talks, return_exceptions=True), PATIENCE_S)

    in_world(probe)
