"""Spans on their way to a collector: in batches, again after a pause, dropped and counted when it does not work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.ports import free_port
from tests.telemetry.receiver import REJECTS, receiving
from tests.waiting import until
from toolgate.errors import Ending, StartRefused
from toolgate.model.call import Caller, Origin, Wire
from toolgate.model.clock import Ids
from toolgate.model.envelope import Clamp
from toolgate.model.record import LedgerEntry
from toolgate.telemetry import exporting
from toolgate.telemetry.exporting import SpanExporter, headers_of, traces_to
from toolgate.telemetry.otlp import SpanMaker

MCP = Wire("mcp", "http", "/mcp")
TRACE, SPAN, PARENT = "a" * 32, "b" * 16, "c" * 16
SERVER, ERROR = 2, 2
"""Of the protocol: a kind of span, a status."""


def entry(
    number: int = 0, tool: str | None = "mcp.tool:notes.add", ending: Ending = Ending.OK, **more: Any
) -> LedgerEntry:
    ok = ending is Ending.OK
    facts: dict[str, Any] = {
        "event": "outcome",
        "wire": MCP,
        "ids": Ids(f"request-{number}", TRACE, SPAN),
        "timestamp": "2026-11-18T00:00:01.000Z",
        "tool_id": tool,
        "status": "ok" if ok else "error",
        "caller": Caller("k", "builder"),
        "error": None if ok else {"happening": ending, "code": None, "reason": None},
        "duration_ms": 250.0,
    }
    return LedgerEntry(**facts | more)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "INTERVAL_S", 0.01)
    monkeypatch.setattr(exporting, "PAUSE_S", 0.01)


def exporter(endpoint: str, headers: Callable[[], Mapping[str, str]] = dict) -> SpanExporter:
    maker = SpanMaker("run-1", lambda tool_id: tool_id.rpartition(":")[2].replace(".", "_"))
    return SpanExporter(endpoint, maker.request, headers)


def spans_of(*entries: LedgerEntry) -> list[dict[str, Any]]:
    with receiving() as receiver:
        made = exporter(receiver.endpoint)
        for each in entries:
            made.take(each)
        made.close()
        until(lambda: len(receiver.spans) == len(entries), "all spans")
        assert receiver.requests[0]["path"] == "/v1/traces"
        assert receiver.requests[0]["headers"]["content-type"] == "application/x-protobuf"
        assert receiver.requests[0]["resource"]["service.name"] == "toolgate"
        assert receiver.requests[0]["resource"]["service.instance.id"] == "run-1"
        return receiver.spans


def test_a_span_tells_what_its_record_tells() -> None:
    clamp = Clamp("FLOOR-1", "decision", "block", "warn")
    (span,) = spans_of(entry(tier="experimental", environment="local", decision="warn", clamps=(clamp,), input_bytes=7))
    assert (span["name"], span["kind"], span["status"]) == ("tools/call notes_add", SERVER, 0)
    assert (span["trace"], span["span"], span["parent"]) == (TRACE, SPAN, "")
    assert span["end"] - span["start"] == 250_000_000
    assert span["end"] == 1_794_960_001_000_000_000
    assert span["mcp.method.name"] == "tools/call"
    assert span["gen_ai.operation.name"] == "execute_tool"
    assert span["gen_ai.tool.name"] == "notes_add"
    assert (span["network.transport"], span["network.protocol.name"]) == ("tcp", "http")
    assert (span["toolgate.request_id"], span["toolgate.verdict"], span["toolgate.tier"]) == (
        "request-0",
        "ok",
        "experimental",
    )
    assert span["toolgate.input_bytes"] == 7
    assert span["events"] == [["toolgate.clamp", {"toolgate.rule": "FLOOR-1", "toolgate.field": "decision"}]]
    assert "error.type" not in span


def test_a_call_within_a_trace_is_a_child_there() -> None:
    origin = Origin(address="10.1.2.3", traceparent=f"00-{'d' * 32}-{PARENT}-01", tracestate="a=1")
    (span,) = spans_of(entry(origin=origin))
    assert (span["trace"], span["span"], span["parent"], span["state"]) == ("d" * 32, SPAN, PARENT, "a=1")
    assert "10.1.2.3" not in str(span)


@pytest.mark.parametrize(
    ("made", "name", "error"),
    [
        (entry(ending=Ending.TOOL_FAILED), "tools/call notes_add", "tool_error"),
        (entry(ending=Ending.TOO_MANY), "tools/call notes_add", "too_many"),
        (entry(tool=None, ending=Ending.MISSING_KEY, caller=None), "call", "missing_key"),
        (entry(wire=Wire("mrt", "http", "/mrt_dispatch")), "execute_tool notes_add", None),
        (entry(tool="mcp.resource:notes.page"), "resources/read", None),
        (entry(error={"happening": Ending.OK, "code": "BREAKER_OPEN", "reason": None}), "tools/call notes_add", None),
    ],
)
def test_a_span_is_named_and_judged_by_the_conventions(made: LedgerEntry, name: str, error: str | None) -> None:
    (span,) = spans_of(made)
    assert (span["name"], span.get("error.type"), span["status"]) == (name, error, ERROR if error else 0)


def test_a_prompt_is_named_as_such() -> None:
    with receiving() as receiver:
        made = SpanExporter(receiver.endpoint, SpanMaker("run", lambda _: "prompt:guide").request, dict)
        made.take(entry(tool="mcp.prompt:notes.guide"))
        made.close()
        until(lambda: receiver.spans, "its span")
    (span,) = receiver.spans
    assert (span["name"], span["gen_ai.prompt.name"]) == ("prompts/get guide", "guide")
    assert "gen_ai.tool.name" not in span


@pytest.mark.parametrize("status", [429, 503])
def test_a_collector_that_is_busy_gets_the_same_batch_again(status: int) -> None:
    with receiving(status, status) as receiver:
        made = exporter(receiver.endpoint)
        made.take(entry())
        until(lambda: made.sent == 1, "the third try")
        made.close()
        until(lambda: len(receiver.requests) == 3, "three requests")
    assert [request["status"] for request in receiver.requests] == [status, status, 200]
    assert sum(made.dropped.values()) == 0


def test_what_the_collector_refuses_is_dropped_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with receiving(400, REJECTS) as receiver, caplog.at_level(logging.INFO, "toolgate.traces"):
        made = exporter(receiver.endpoint)
        made.take(entry(1))
        until(lambda: made.dropped["refused"] == 1, "the refusal")
        made.take(entry(2))
        until(lambda: made.dropped["refused"] == 2, "the rejected span")
        made.take(entry(3))
        until(lambda: made.sent == 1, "the next one")
        made.close()
    assert dict(made.numbers())["toolgate_spans_sent"] == [((), 1.0)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "status 400" in caplog.messages[0]


def test_a_collector_that_is_not_there_costs_spans_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    made = exporter(f"http://127.0.0.1:{free_port()}/v1/traces")
    made.take(entry())
    until(lambda: made.dropped["unreachable"] == 1, "the last try")
    made.close()
    assert "Connection refused" in caplog.text


def test_calls_beyond_the_queue_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MOST_WAITING", 2)
    monkeypatch.setattr(exporting, "INTERVAL_S", 60.0)
    made = exporter(f"http://127.0.0.1:{free_port()}/v1/traces")
    for number in range(5):
        made.take(entry(number))
    assert made.dropped["queue_full"] == 3
    made.close()


def test_a_full_batch_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "INTERVAL_S", 60.0)
    with receiving() as receiver:
        made = exporter(receiver.endpoint)
        for number in range(exporting.BATCH):
            made.take(entry(number))
        until(lambda: made.sent == exporting.BATCH, "the batch")
        made.close()


def test_kept_arguments_do_not_wait_with_their_span() -> None:
    made = exporter(f"http://127.0.0.1:{free_port()}/v1/traces")
    seen: list[LedgerEntry] = []
    made._request = lambda entries: seen.extend(entries) or b""  # type: ignore[func-returns-value, assignment]
    made.take(entry(more={"arguments": {"text": "long"}}))
    made.close()
    assert [each.more for each in seen] == [None]


def test_the_headers_of_the_secret_are_sent_and_never_said(caplog: pytest.LogCaptureFixture) -> None:
    with receiving(401) as receiver:
        made = exporter(receiver.endpoint, lambda: headers_of("authorization=Bearer%20hush-hush, x-team=a"))
        made.take(entry())
        until(lambda: made.dropped["refused"] == 1, "the refusal")
        made.close()
        until(lambda: receiver.requests, "the request")
    assert receiver.requests[0]["headers"]["authorization"] == "Bearer hush-hush"
    assert receiver.requests[0]["headers"]["x-team"] == "a"
    assert "hush" not in caplog.text


@pytest.mark.parametrize("text", ["name", "na me=x", "a=b%0d%0aevil: 1", "=x"])
def test_headers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(StartRefused, match=r"traces\.headers"):
        headers_of(text)


@pytest.mark.parametrize(
    ("endpoint", "is_fine"),
    [
        ("http://127.0.0.1:4318/v1/traces", True),
        ("http://[::1]:4318/v1/traces", True),
        ("https://collector.example/v1/traces", True),
        ("http://collector.example:4318/v1/traces", False),
        ("http://10.0.0.5/v1/traces", False),
    ],
)
def test_headers_for_a_collector_do_not_cross_a_network_without_tls(endpoint: str, is_fine: bool) -> None:
    assert traces_to(endpoint, 1.0, None, "run", str).exporter.endpoint == endpoint
    if is_fine:
        assert traces_to(endpoint, 1.0, lambda: "a=b", "run", str).exporter.endpoint == endpoint
    else:
        with pytest.raises(StartRefused, match="without TLS"):
            traces_to(endpoint, 1.0, lambda: "a=b", "run", str)
