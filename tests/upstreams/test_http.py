"""The client over HTTP: eras and how they are told apart, sessions, streams, headers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.upstreams.support import say
from tests.upstreams.web import EVENTS, Asked, Web, echoed, error, http, web_upstream
from tests.waiting import soon
from toolgate.errors import Ending, UpstreamFailed
from toolgate.powers.mcp.messages import Progress

STEP = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":0.5,"total":1}}'


def run(web: Web, *texts: str, reads: bool = False) -> list[str | UpstreamFailed]:
    async def scenario() -> list[str | UpstreamFailed]:
        found: list[str | UpstreamFailed] = []
        async with web_upstream(web) as upstream:
            for text in texts:
                try:
                    found.append(await say(upstream, text, reads=reads))
                except UpstreamFailed as failed:
                    found.append(failed)
        return found

    return asyncio.run(scenario())


def verdicts(found: list[str | UpstreamFailed]) -> list[tuple[str, str]]:
    return [(one.ending.value, one.reason) if isinstance(one, UpstreamFailed) else ("ok", one) for one in found]


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_server_of_either_era_answers_over_one_connection(era: str) -> None:
    web = Web(era, session="s-1" if era == "handshake" else None)
    assert run(web, "a", "b", "c") == ["a", "b", "c"]
    assert web.connections == 1
    assert web.names().count("tools/call") == 3


def test_each_era_gets_its_own_headers_and_meta() -> None:
    modern, handshake = Web("modern"), Web("handshake", session="s-1")
    run(modern, "a")
    run(handshake, "a")
    call = modern.asked[-1]
    assert call.headers["mcp-protocol-version"] == "2026-07-28"
    assert (call.headers["mcp-method"], call.headers["mcp-name"]) == ("tools/call", "echo")
    assert call.message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    call = handshake.asked[-1]
    assert (call.headers["mcp-protocol-version"], call.headers["mcp-session-id"]) == ("2025-11-25", "s-1")
    assert "mcp-method" not in call.headers
    assert "_meta" not in call.message["params"]


def _of_another(good: bytes) -> bytes:
    """The answer to the request before."""
    message = json.loads(good)
    return json.dumps({**message, "id": message["id"] - 1}).encode()


def _a_note(_good: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'


@pytest.mark.parametrize(
    ("spoilt", "verdict"),
    [
        (_of_another, ("upstream_fault", "wrong_id")),
        (lambda good: good[:-1], ("upstream_fault", "malformed_json")),
        (lambda good: good.replace(b"2.0", b"1.0"), ("upstream_fault", "not_a_message")),
        (_a_note, ("in_doubt", "connection_lost")),
    ],
    ids=["of another request", "half of it", "another protocol", "a note"],
)
def test_an_answer_under_a_head_that_came_before_is_judged_like_any_other(
    spoilt: Any, verdict: tuple[str, str]
) -> None:
    spoils = False

    async def answer(asked: Asked, _: asyncio.StreamWriter) -> bytes:
        good = echoed(asked)
        said = (spoilt(good) if spoils else good).ljust(len(good))
        assert len(said) == len(good)  # or its head would be another one
        return http(said)

    async def scenario() -> list[str]:
        nonlocal spoils
        async with web_upstream(Web(on_call=answer)) as upstream:
            said = [await say(upstream), await say(upstream)]
            spoils = True
            with pytest.raises(UpstreamFailed) as failed:
                await say(upstream)
            assert (failed.value.ending.value, failed.value.reason) == verdict
            spoils = False
            return [*said, await say(upstream)]

    assert asyncio.run(scenario()) == ["hello"] * 3


@pytest.mark.parametrize("status", [401, 403, 407, 408, 429, 500, 503])
def test_a_status_that_says_nothing_about_the_era_is_no_reason_to_shake_hands(status: int) -> None:
    async def refuse(asked: Asked, _: object) -> bytes:
        return http(b"no", f"{status} No", "text/plain")

    web = Web(on_any=refuse)
    assert verdicts(run(web, "a")) == [("upstream_down", f"status_{status}")]
    assert web.names() == ["server/discover"]


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_an_error_that_only_modern_servers_know_is_never_followed_by_a_handshake(code: int) -> None:
    async def refuse(asked: Asked, _: object) -> bytes:
        return http(error(asked, code), "400 Bad Request")

    web = Web(on_any=refuse)
    assert verdicts(run(web, "a")) == [("upstream_down", "incompatible")]
    assert web.names() == ["server/discover"]


def test_a_server_that_answers_discover_with_old_versions_only_is_greeted_with_the_handshake() -> None:
    async def old(asked: Asked, _: object) -> bytes | None:
        if asked.name != "server/discover":
            return None
        said = {"supportedVersions": ["2025-11-25"], "capabilities": {}}
        return http(json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": said}).encode())

    web = Web("handshake", on_any=old)
    assert run(web, "a") == ["a"]


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "400 Bad Request"])
def test_a_server_that_does_not_know_discover_is_greeted_with_the_handshake(status: str) -> None:
    async def old(asked: Asked, _: object) -> bytes | None:
        return http(b"<p>?</p>", status, "text/html") if asked.name == "server/discover" else None

    assert run(Web("handshake", on_any=old), "a") == ["a"]


def test_a_stream_of_events_brings_steps_and_the_answer_and_ends_there() -> None:
    async def stream(asked: Asked, writer: asyncio.StreamWriter) -> None:
        token = asked.message["params"]["_meta"]["progressToken"]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(b": hello\r\n\r\ndata:\n\nid: 7\nretry: 10\n\n")  # a comment, empty data, no data at all
        writer.write(b"event: message\ndata: " + STEP % token + b"\n\n")
        writer.write(b"event: other\ndata: {\n\n")
        writer.write(b"data: " + echoed(asked) + b"\n\n")
        await writer.drain()
        await asyncio.Event().wait()  # the stream itself never ends

    async def scenario() -> None:
        steps: list[Progress] = []
        async with web_upstream(Web(on_call=stream)) as upstream:  # type: ignore[arg-type]
            assert await say(upstream, "through", step=steps.append) == "through"
        assert [(step.done, step.total) for step in steps] == [(0.5, 1)]

    asyncio.run(scenario())


def test_an_answer_with_data_over_several_lines_is_one_message() -> None:
    async def stream(asked: Asked, _: object) -> bytes:
        whole = echoed(asked)
        half = whole.index(b",") + 1
        return http(b"data: " + whole[:half] + b"\r\ndata: " + whole[half:] + b"\r\n\r\n", kind=EVENTS)

    assert run(Web(on_call=stream), "a") == ["a"]


def test_a_forgotten_session_is_renewed_once_for_all_and_a_read_is_sent_again() -> None:
    web = Web("handshake", session="s-1")

    async def scenario() -> None:
        async with web_upstream(web) as upstream:
            assert await say(upstream, "a") == "a"
            web.session = "s-2"  # the server was restarted
            web.asked.clear()
            assert await asyncio.gather(*(say(upstream, str(n), reads=True) for n in range(5))) == list("01234")

    asyncio.run(scenario())
    assert web.names().count("initialize") == 1


def test_a_call_with_an_effect_that_met_a_forgotten_session_is_in_doubt_and_not_sent_again() -> None:
    web = Web("handshake", session="s-1")

    async def scenario() -> None:
        async with web_upstream(web) as upstream:
            assert await say(upstream, "a") == "a"
            web.session = "s-2"
            web.asked.clear()
            with pytest.raises(UpstreamFailed) as failed:
                await say(upstream, "b")
            assert (failed.value.ending, failed.value.reason) == (Ending.IN_DOUBT, "session_gone")
            assert web.names().count("tools/call") == 1
            assert await say(upstream, "c") == "c"

    asyncio.run(scenario())


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_cancelled_call_is_cancelled_upstream(era: str) -> None:
    async def scenario() -> None:
        reached = asyncio.Event()

        async def wait(asked: Asked, writer: asyncio.StreamWriter) -> None:
            reached.set()
            await asyncio.Event().wait()

        web = Web(era, on_call=wait)  # type: ignore[arg-type]
        async with web_upstream(web) as upstream:
            call = asyncio.create_task(say(upstream))
            await reached.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            if era == "handshake":
                await soon(lambda: "notifications/cancelled" in web.names())
            else:
                assert "notifications/cancelled" not in web.names()

    asyncio.run(scenario())


def test_the_upstreams_own_headers_go_out_and_nothing_else_of_ours() -> None:
    web = Web()

    async def scenario() -> None:
        async with web_upstream(web, headers={"Authorization": "Bearer theirs"}) as upstream:
            await say(upstream)

    asyncio.run(scenario())
    sent = web.asked[-1].headers
    assert sent["authorization"] == "Bearer theirs"
    assert set(sent) == {
        *("host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "authorization"),
        *("mcp-protocol-version", "mcp-method", "mcp-name"),
    }


def test_a_redirect_inside_the_origin_is_followed_while_greeting() -> None:
    async def slash(asked: Asked, _: object) -> bytes | None:
        return http(status="307 Temporary Redirect", Location="/mcp/") if asked.path == "/mcp" else None

    web = Web(on_any=slash)
    assert run(web, "a", "b") == ["a", "b"]
    assert [each.path for each in web.asked if each.name == "tools/call"] == ["/mcp/", "/mcp/"]


def test_a_connection_that_the_server_closed_meanwhile_is_not_written_to() -> None:
    async def closing(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(http(echoed(asked)))
        await writer.drain()

    web = Web(on_call=closing)  # type: ignore[arg-type]
    assert run(web, "a", "b", "c") == ["a", "b", "c"]  # effects: none was sent twice, none is in doubt
    assert web.names().count("tools/call") == 3


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_the_callers_trace_context_is_passed_on_in_headers_and_meta(era: str) -> None:
    web = Web(era)

    async def scenario() -> None:
        async with web_upstream(web) as upstream:
            await say(upstream, meta=TRACE)
            await say(upstream)

    asyncio.run(scenario())
    with_trace, without = [each for each in web.asked if each.name == "tools/call"]
    assert {key: with_trace.headers[key] for key in TRACE} == TRACE
    assert {key: with_trace.message["params"]["_meta"][key] for key in TRACE} == TRACE
    assert "traceparent" not in without.headers
    assert "traceparent" not in without.message["params"].get("_meta", {})


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_arguments_that_headers_repeat_are_sent_twice_to_a_modern_server_only(era: str) -> None:
    web = Web(era)

    async def scenario() -> None:
        async with web_upstream(web) as upstream:
            await say(upstream, mirrored={"mcp-param-Region": "eu"})

    asyncio.run(scenario())
    assert web.asked[-1].headers.get("mcp-param-region") == ("eu" if era == "modern" else None)


CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_change_that_is_told_on_a_stream_of_its_own_starts_the_comparison(era: str) -> None:
    """Nobody calls: in the modern era `subscriptions/listen` brings it, before that a GET."""
    tell = asyncio.Event()

    async def stream(asked: Asked, writer: asyncio.StreamWriter) -> bytes | None:
        if asked.name == "subscriptions/listen" or asked.method == "GET":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await tell.wait()
            writer.write(b"data: " + CHANGED + b"\n\n")
            await writer.drain()
            await asyncio.Event().wait()
        return None

    async def scenario() -> None:
        web = Web(era, on_any=stream, tells_changes=True)
        async with web_upstream(web) as upstream:
            await say(upstream)
            await soon(lambda: any(each.name == "subscriptions/listen" or each.method == "GET" for each in web.asked))
            assert web.names().count("tools/list") == 1
            tell.set()
            await soon(lambda: web.names().count("tools/list") == 2)
        asked = next(each for each in web.asked if each.name == "subscriptions/listen" or each.method == "GET")
        if era == "modern":
            assert asked.message["params"]["notifications"] == {"toolsListChanged": True}
        else:
            assert asked.headers["accept"] == "application/json, text/event-stream"

    asyncio.run(scenario())


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_server_without_such_a_stream_is_not_asked_for_it_again(era: str) -> None:
    async def refuse(asked: Asked, _: object) -> bytes | None:
        return http(b"", "405 Method Not Allowed") if asked.method == "GET" else None

    async def scenario() -> None:
        web = Web(era, on_any=refuse, tells_changes=True)
        async with web_upstream(web) as upstream:
            await say(upstream)
            await soon(lambda: any(each.name == "subscriptions/listen" or each.method == "GET" for each in web.asked))
            await soon(lambda: upstream._listener is not None and upstream._listener.is_over)
            assert await say(upstream, "b") == "b"

    asyncio.run(scenario())


def test_more_connections_than_are_under_way_are_not_kept() -> None:
    """As many rest as there were calls at once, and the next calls use them."""

    async def scenario() -> None:
        web = Web()
        async with web_upstream(web) as upstream:
            await say(upstream)
            for _ in range(3):
                await asyncio.gather(*(say(upstream) for _ in range(4)))
            assert web.connections <= 5

    asyncio.run(scenario())


def test_an_answer_whose_head_is_known_is_read_like_the_first() -> None:
    """The second answer with the same head is not parsed again; one of another length, or in two pieces, is."""
    texts = ["aaaa", "bbbb", "cc", "dddd", "x" * 5000, "eeee"]

    async def in_pieces(asked: Asked, writer: asyncio.StreamWriter) -> bytes | None:
        whole = http(echoed(asked))
        if asked.message["params"]["arguments"]["text"] != "dddd":
            return whole
        writer.write(whole[:-3])
        await writer.drain()
        for _ in range(10):  # the reader comes to the first piece before the second is there
            await asyncio.sleep(0)
        return whole[-3:]

    web = Web(on_call=in_pieces)
    assert run(web, *texts) == texts
    assert web.connections == 1
