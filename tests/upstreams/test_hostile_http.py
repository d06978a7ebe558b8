"""Bad upstreams over HTTP, one row each: a real socket, its verdict, the gate's memory and a neighbour's waiting time."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.powers.net.world import Relabelled, client_tls, server_tls
from tests.upstreams.support import PATIENCE_S, memory_bytes, say, stub
from tests.upstreams.test_hostile_stdio import MEMORY_BYTES, NEIGHBOUR_CPU_S
from tests.upstreams.web import EVENTS, Asked, Web, echoed, http, listening, web_upstream
from tests.waiting import PAUSE_S
from toolgate.errors import UpstreamFailed
from toolgate.powers import tcp
from toolgate.powers.mcp.failures import NotSent
from toolgate.powers.mcp.http import Dialer, Endpoint, HttpTransport
from toolgate.powers.mcp.session import greet

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


async def _pour(writer: asyncio.StreamWriter, piece: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(piece)
        await writer.drain()


async def huge(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    await _pour(writer, b"100000\r\n" + b"x" * 0x100000 + b"\r\n", 100)


async def announced(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n")
    await _pour(writer, b"x" * 0x100000, 100)


async def endless_event(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + b"data: ")
    await _pour(writer, b"x" * 65_536, 2000)


async def million_steps(asked: Asked, writer: asyncio.StreamWriter) -> None:
    token = asked.message["params"].get("_meta", {}).get("progressToken", 1)
    step = (
        b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}\n\n'
        % token
    )
    writer.write(STREAM)
    await _pour(writer, step * 1000, 1000)


async def deep(asked: Asked, _: Any) -> bytes:
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":%b%b}}' % (asked.message["id"], b"[" * 10_000, b"]" * 10_000)
    return http(body)


async def duplicate(asked: Asked, _: Any) -> bytes:
    return http(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"content":[]}}' % asked.message["id"])


async def not_a_number(asked: Asked, _: Any) -> bytes:
    return http(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"a":NaN}}' % asked.message["id"])


async def wrong_id(asked: Asked, _: Any) -> bytes:
    asked.message["id"] += 1
    return http(echoed(asked))


async def two_answers(asked: Asked, _: Any) -> bytes:
    return http((b"data: " + echoed(asked) + b"\n\n") * 2, kind=EVENTS)


async def stream_without_answer(asked: Asked, _: Any) -> bytes:
    return http(b": nothing\n\n", kind=EVENTS)


async def compressed(asked: Asked, _: Any) -> bytes:
    return http(gzip.compress(echoed(asked)), Content_Encoding="gzip")


async def page(asked: Asked, _: Any) -> bytes:
    return http(b"<p>Welcome</p>", kind="text/html")


async def redirects(asked: Asked, _: Any) -> bytes:
    return http(status="307 Temporary Redirect", Location="/elsewhere")


async def breaks_off(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


async def leaves(asked: Asked, writer: asyncio.StreamWriter) -> None:
    pass


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def server_error(asked: Asked, _: Any) -> bytes:
    return http(b"oops", "500 Internal Server Error", "text/plain")


async def gateway_timeout(asked: Asked, _: Any) -> bytes:
    return http(b"oops", "504 Gateway Timeout", "text/plain")


async def accepted(asked: Asked, _: Any) -> bytes:
    return http(status="202 Accepted")


ON_A_CALL: dict[str, tuple[Any, str, str]] = {
    "100 MB in chunks": (huge, "upstream_fault", "answer_too_large"),
    "100 MB announced": (announced, "upstream_fault", "answer_too_large"),
    "an event without end": (endless_event, "upstream_fault", "answer_too_large"),
    "a million steps": (million_steps, "upstream_fault", "too_many_notes"),
    "depth 10 000": (deep, "upstream_fault", "malformed_json"),
    "duplicate keys": (duplicate, "upstream_fault", "malformed_json"),
    "NaN": (not_a_number, "upstream_fault", "malformed_json"),
    "wrong id": (wrong_id, "upstream_fault", "wrong_id"),
    "two answers": (two_answers, "upstream_fault", "unasked_answer"),
    "a stream without an answer": (stream_without_answer, "in_doubt", "connection_lost"),
    "compressed": (compressed, "upstream_fault", "bad_response"),
    "a page": (page, "upstream_fault", "not_a_message"),
    "a redirect": (redirects, "upstream_fault", "redirected"),
    "breaks off": (breaks_off, "in_doubt", "connection_lost"),
    "leaves without a byte": (leaves, "in_doubt", "connection_lost"),
    "silent": (silent, "in_doubt", "no_answer"),
    "500": (server_error, "upstream_fault", "status_500"),
    "504": (gateway_timeout, "in_doubt", "status_504"),
    "202 to a call": (accepted, "in_doubt", "connection_lost"),
}


@pytest.mark.parametrize("row", ON_A_CALL)
def test_a_call_to_a_bad_upstream_ends_in_its_verdict_and_is_sent_once(row: str) -> None:
    behaviour, ending, reason = ON_A_CALL[row]
    web = Web(on_call=behaviour)

    async def scenario() -> UpstreamFailed:
        most_s = 0.0
        gc.collect()
        before = most = memory_bytes()
        async with stub("good") as neighbour, web_upstream(web) as upstream:
            await say(neighbour)
            await upstream._ready(PATIENCE_S)  # only the answer is to be late
            call = asyncio.create_task(say(upstream, seconds=0.3 if reason == "no_answer" else PATIENCE_S))
            while not call.done():
                began = time.thread_time()
                await say(neighbour)
                most_s, most = max(most_s, time.thread_time() - began), max(most, memory_bytes())
                await asyncio.wait([call], timeout=PAUSE_S)
            with pytest.raises(UpstreamFailed) as failed:
                await call
        assert most_s < NEIGHBOUR_CPU_S
        assert most - before < MEMORY_BYTES
        return failed.value

    failed = asyncio.run(scenario())
    assert (failed.ending.value, failed.reason) == (ending, reason)
    assert web.names().count("tools/call") == 1


def test_a_redirect_to_another_origin_is_not_followed() -> None:
    async def scenario() -> None:
        elsewhere = Web()
        async with listening(elsewhere) as port:

            async def away(asked: Asked, _: Any) -> bytes:
                return http(status="307 Temporary Redirect", Location=f"http://127.0.0.1:{port}/mcp")

            async with web_upstream(Web(on_any=away)) as upstream:
                with pytest.raises(UpstreamFailed) as failed:
                    await say(upstream)
        assert (failed.value.ending.value, failed.value.reason) == ("upstream_down", "redirected")
        assert "another origin" in failed.value.text
        assert elsewhere.asked == []

    asyncio.run(scenario())


async def _greeted(endpoint: Endpoint, door: Dialer) -> None:
    line = HttpTransport(endpoint, door)
    try:
        await greet(line, seconds=PATIENCE_S)
    finally:
        await line.close()


class _Names:
    """A resolver that answers what it is told, and a connector that reaches the real server at each address."""

    def __init__(self, addresses: Sequence[str], port: int) -> None:
        self.addresses = addresses
        self._port = port

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return self.addresses

    async def connect(self, address: str, port: int) -> tcp.Stream:
        return Relabelled(await tcp.connect("127.0.0.1", self._port), address)


PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    ("addresses", "private", "refused"),
    [
        ([PUBLIC], False, None),
        (["127.0.0.1"], False, "address_refused"),  # it was public when it was adopted
        ([PUBLIC, "10.0.0.7"], False, "address_refused"),
        (["10.0.0.7"], True, None),
        (["169.254.169.254"], True, "address_refused"),  # a metadata service, whatever was adopted
    ],
)
def test_an_address_that_turned_private_is_refused(addresses: list[str], private: bool, refused: str | None) -> None:
    async def scenario() -> None:
        async with listening(Web(), server_tls("mcp.test")) as port:
            names = _Names(addresses, port)
            endpoint = Endpoint("https://mcp.test/mcp", private=private)
            await _greeted(
                endpoint, Dialer(endpoint, resolver=names.resolve, connector=names.connect, tls=client_tls())
            )

    if refused is None:
        asyncio.run(scenario())
        return
    with pytest.raises(NotSent) as failed:
        asyncio.run(scenario())
    assert failed.value.reason == refused


def test_plain_http_is_not_spoken_to_a_public_address() -> None:
    async def scenario() -> None:
        names = _Names([PUBLIC], 1)
        endpoint = Endpoint("http://mcp.test/mcp", private=False)
        await _greeted(endpoint, Dialer(endpoint, resolver=names.resolve, connector=names.connect))

    with pytest.raises(NotSent, match="use https"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("certified", "trusted", "expired"),
    [("other.test", True, False), ("mcp.test", False, False), ("mcp.test", True, True)],
)
def test_a_certificate_of_another_name_of_nobody_known_or_expired_is_refused(
    certified: str, trusted: bool, expired: bool
) -> None:
    async def scenario() -> None:
        async with listening(Web(), server_tls(certified, expired=expired)) as port:
            names = _Names([PUBLIC], port)
            endpoint = Endpoint("https://mcp.test/mcp", private=False)
            tls = client_tls() if trusted else None
            await _greeted(endpoint, Dialer(endpoint, resolver=names.resolve, connector=names.connect, tls=tls))

    with pytest.raises(NotSent) as failed:
        asyncio.run(scenario())
    assert failed.value.reason == "tls_failed"
