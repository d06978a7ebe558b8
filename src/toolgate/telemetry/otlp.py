"""Makes spans of what the log was told, as a collector is sent them (OTLP, protobuf).

The names are those of OpenTelemetry's conventions for MCP, as far as these go; the rest begins with `toolgate.`. A span tells
what the record tells and no more: no argument, no answer, no address.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from toolgate import __version__
from toolgate.model.clock import from_rfc3339
from toolgate.telemetry.tally import OK, verdict_of
from toolgate.telemetry.tracing import own_span, own_trace

if TYPE_CHECKING:
    from toolgate.model.record import LedgerEntry

KINDS_KEPT: Final = 1024
"""Kinds of spans (tool, caller, ending) whose common part is kept: building one takes three times as long."""
_METHODS: Final = {
    "mcp.tool": "tools/call",
    "mcp.prompt": "prompts/get",
    "mcp.resource": "resources/read",
    "mcp.completion": "completion/complete",
    "mcp.subscription": "resources/subscribe",
    "mcp.listing": "resources/list",
}
"""By what stands before the colon of a tool's id."""
_TOOL, _PROMPT = "mcp.tool", "mcp.prompt"
_OPERATION: Final = "execute_tool"
_TOOL_ERROR: Final = "tool_error"
"""What the conventions call an error that the tool itself reported."""
_TOOLS_OWN: Final = frozenset({"tool_said_no", "tool_failed", "target_failed"})

Value = str | int | None


class SpanMaker:
    """Of one process."""

    def __init__(self, run: str, name_of: Callable[[str], str]) -> None:
        """`run`: of the log that this process writes. `name_of`: a canonical id's short name."""
        self._name_of = name_of
        self._resource = ResourceSpans()
        self._resource.resource.attributes.extend(
            _attributes(
                ("service.name", "toolgate"),
                ("service.version", __version__),
                ("service.instance.id", run),
                ("process.pid", os.getpid()),
            )
        )
        self._kind = lru_cache(KINDS_KEPT)(self._make_kind)

    def request(self, entries: Sequence[LedgerEntry]) -> bytes:
        """What a collector is sent."""
        request = ExportTraceServiceRequest()
        found = request.resource_spans.add()
        found.CopyFrom(self._resource)
        scope = found.scope_spans.add()
        scope.scope.name, scope.scope.version = "toolgate", __version__
        for entry in entries:
            self._fill(scope.spans.add(), entry)
        body: bytes = request.SerializeToString()
        return body

    def _fill(self, span: Span, entry: LedgerEntry) -> None:
        caller, wire = entry.caller, entry.wire
        verdict = verdict_of(entry)
        who = (None, None) if caller is None else (caller.key_id, caller.role)
        how = (entry.tier, entry.environment, entry.decision)
        span.MergeFrom(self._kind(entry.tool_id, (wire.face, wire.transport), who, how, verdict))
        parent = entry.origin.traceparent
        span.trace_id = bytes.fromhex(own_trace(entry.ids) if parent is None else parent[3:35])
        span.span_id = bytes.fromhex(own_span(entry.ids))
        if parent is not None:
            span.parent_span_id = bytes.fromhex(parent[36:52])
        if entry.origin.tracestate is not None:
            span.trace_state = entry.origin.tracestate
        ended = round(from_rfc3339(entry.timestamp) * 1000) * 1_000_000
        span.end_time_unix_nano = ended
        span.start_time_unix_nano = ended - int(entry.duration_ms * 1_000_000)
        span.attributes.extend(
            _attributes(
                ("toolgate.request_id", entry.ids.request),
                ("toolgate.input_bytes", entry.input_bytes),
                ("toolgate.output_bytes", entry.output_bytes),
            )
        )
        for clamp in entry.clamps:
            event = span.events.add(name="toolgate.clamp", time_unix_nano=ended)
            event.attributes.extend(_attributes(("toolgate.rule", clamp.rule), ("toolgate.field", clamp.field)))

    def _make_kind(
        self,
        tool_id: str | None,
        came: tuple[str, str],
        who: tuple[str | None, str | None],
        how: tuple[str | None, str | None, str | None],
        verdict: str,
    ) -> Span:
        """What spans of the same tool, way, caller and ending have in common."""
        (face, transport), (key_id, role), (tier, environment, decision) = came, who, how
        kind = "" if tool_id is None else tool_id.partition(":")[0]
        method = _METHODS.get(kind) if face == "mcp" else None
        name = self._name_of(tool_id) if tool_id is not None and kind in (_TOOL, _PROMPT) else None
        tool, prompt = (name if kind == _TOOL else None), (name.partition(":")[2] if name and kind == _PROMPT else None)
        said = method or (_OPERATION if tool else "call")
        span = Span(name=" ".join(filter(None, (said, tool or prompt))), kind=Span.SPAN_KIND_SERVER)
        span.attributes.extend(
            _attributes(
                ("mcp.method.name", method),
                ("gen_ai.operation.name", _OPERATION if tool else None),
                ("gen_ai.tool.name", tool),
                ("gen_ai.prompt.name", prompt),
                ("network.transport", "tcp" if transport == "http" else "pipe"),
                ("network.protocol.name", "http" if transport == "http" else None),
                ("error.type", None if verdict == OK else _TOOL_ERROR if verdict in _TOOLS_OWN else verdict),
                ("toolgate.face", face),
                ("toolgate.tool_id", tool_id),
                ("toolgate.caller", key_id),
                ("toolgate.role", role),
                ("toolgate.tier", tier),
                ("toolgate.environment", environment),
                ("toolgate.decision", decision),
                ("toolgate.verdict", verdict),
            )
        )
        if verdict != OK:
            span.status.code = Status.STATUS_CODE_ERROR
        return span


def _attributes(*pairs: tuple[str, Value]) -> Iterable[KeyValue]:
    """Without those that are not known."""
    for key, value in pairs:
        if value is not None:
            told = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
            yield KeyValue(key=key, value=told)
