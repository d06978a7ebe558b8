"""Sends spans to a collector (OTLP over HTTP), in a thread of its own: no call waits for it, and what it cannot send is counted.

The collector is the operator's own, so it is reached directly and its address is not judged.
"""

from __future__ import annotations

import http.client
import logging
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from google.protobuf.message import DecodeError
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from toolgate import __version__
from toolgate.errors import StartRefused
from toolgate.telemetry.oplog import about
from toolgate.telemetry.otlp import SpanMaker
from toolgate.telemetry.tracing import Sampler, Traces

if TYPE_CHECKING:
    from toolgate.model.record import LedgerEntry
    from toolgate.telemetry.families import Numbers

MOST_WAITING: Final = 2048
"""Calls that wait to be sent. Those that come later are dropped and counted."""
BATCH: Final = 512
"""Spans in one request."""
INTERVAL_S: Final = 1.0
"""A span waits at most this long for others."""
TRIES: Final = 4
"""Of one batch: a collector that restarts is back by then."""
PAUSE_S: Final = 1.0
"""Before the second try; twice as long before each next one."""
ANSWER_S: Final = 5.0
"""For each step of one exchange with the collector."""
CLOSE_S: Final = 2.0
"""For what still waits when the server stops."""
MAX_ANSWER_BYTES: Final = 65_536
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]{1,4096}")
_OURSELVES: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_PASSES: Final = frozenset({408, 429, 502, 503, 504})
"""Answers after which the protocol wants the same batch to be sent again."""

_log: Final = logging.getLogger("toolgate.traces")


class _Refused(Exception):
    """The collector does not want this batch, now or ever."""


class SpanExporter:
    """`take` is for the event loop's thread; all else happens in the exporter's own, which begins with the first span."""

    def __init__(
        self,
        endpoint: str,
        request: Callable[[Sequence[LedgerEntry]], bytes],
        headers: Callable[[], Mapping[str, str]],
    ) -> None:
        """`request`: the body for some entries. `headers`: those that the collector asks for, read anew for each connection."""
        self.endpoint = endpoint
        self._request, self._headers = request, headers
        self._waiting: deque[LedgerEntry] = deque()
        self._wake, self._closing = Event(), Event()
        self._thread: Thread | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._given: Mapping[str, str] = {}
        self._is_down = False
        self.sent = 0
        self.dropped = {"queue_full": 0, "refused": 0, "unreachable": 0}

    def take(self, entry: LedgerEntry) -> None:
        """Never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self.dropped["queue_full"] += 1
            return
        self._waiting.append(replace(entry, more=None))  # which may be long, and no span tells it
        if self._thread is None:
            self._thread = Thread(target=self._work, name="traces", daemon=True)
            self._thread.start()
        elif len(self._waiting) == BATCH:
            self._wake.set()

    def numbers(self) -> Numbers:
        return {
            "toolgate_spans_sent": [((), float(self.sent))],
            "toolgate_spans_dropped": [((why,), float(count)) for why, count in self.dropped.items()],
        }

    def close(self) -> None:
        """Sends what waits, for a short time; blocks for that long."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while True:
            self._wake.wait(INTERVAL_S)
            self._wake.clear()
            while self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))])
            if self._closing.is_set():
                self._hang_up()
                return

    def _send(self, entries: Sequence[LedgerEntry]) -> None:
        body, pause = self._request(entries), PAUSE_S
        for attempt in range(TRIES):
            try:
                rejected = self._post(body)
            except _Refused as fault:
                self._lost(len(entries), "refused", str(fault))
                return
            except (OSError, http.client.HTTPException, StartRefused) as fault:
                self._hang_up()
                why = _said(fault)
                if attempt == TRIES - 1 or self._closing.wait(pause):
                    self._lost(len(entries), "unreachable", why)
                    return
                pause *= 2
            else:
                self._taken(len(entries) - rejected, rejected)
                return

    def _taken(self, sent: int, rejected: int) -> None:
        self.sent += sent
        if rejected:
            self._lost(rejected, "refused", "it took only a part of them")
        elif self._is_down:
            self._is_down = False
            _log.info("traces: %s takes spans again", self.endpoint, extra=about(event="traces.up"))

    def _lost(self, count: int, reason: str, why: str) -> None:
        self._is_down = True
        self.dropped[reason] += count
        facts = about(event="traces.dropped", reason=reason, **self.dropped)
        _log.warning("traces: %s spans dropped, %s: %s", count, self.endpoint, why, extra=facts)

    def _post(self, body: bytes) -> int:
        """How many spans the collector rejected. Raises: _Refused; OSError, HTTPException, StartRefused: later, perhaps."""
        parts = urlsplit(self.endpoint)
        if self._connection is None:
            self._given = {
                **self._headers(),
                "Content-Type": "application/x-protobuf",
                "User-Agent": f"toolgate/{__version__}",
            }
            self._connection = _connection(parts.scheme, parts.hostname or "", parts.port)
        self._connection.request("POST", parts.path or "/", body, self._given)
        answer = self._connection.getresponse()
        said = answer.read(MAX_ANSWER_BYTES)
        if not answer.isclosed():
            self._hang_up()  # it has more to say, and nobody listens
        if answer.status in _PASSES:
            raise http.client.HTTPException(f"status {answer.status}")
        if not 200 <= answer.status < 300:
            raise _Refused(f"status {answer.status}")
        return _rejected(said)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def traces_to(
    endpoint: str, sample: float, headers: Callable[[], str] | None, run: str, name_of: Callable[[str], str]
) -> Traces:
    """`headers`: reads the secret that holds them. Nothing is sent yet. Raises: StartRefused."""
    parts = urlsplit(endpoint)
    if headers is not None and parts.scheme == "http" and parts.hostname not in _OURSELVES:
        raise StartRefused(
            "traces.headers hold a secret, and traces.endpoint would send it over the network without TLS.\n"
            "Use https://, or a collector on this machine."
        )

    def read() -> dict[str, str]:
        return {} if headers is None else headers_of(headers())

    read()
    return Traces(Sampler(sample), SpanExporter(endpoint, SpanMaker(run, name_of).request, read))


def headers_of(text: str) -> dict[str, str]:
    """Of NAME=VALUE,NAME=VALUE, with %-escapes, as OpenTelemetry writes them. Raises: StartRefused."""
    found = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = (unquote(part.strip(), encoding="latin-1") for part in pair.partition("="))
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise StartRefused("traces.headers holds no headers.\nWrite NAME=VALUE,NAME=VALUE into the secret.")
        found[name] = value
    return found


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, port, timeout=ANSWER_S)


def _rejected(said: bytes) -> int:
    """Of an answer that says yes. One that cannot be read says nothing more."""
    answer = ExportTraceServiceResponse()
    try:
        answer.ParseFromString(said)
    except DecodeError:
        return 0
    return int(answer.partial_success.rejected_spans)


def _said(fault: Exception) -> str:
    """In words of our own: what a stranger sent is not repeated, and a secret's source is named, never its value."""
    if isinstance(fault, StartRefused):
        return str(fault).partition("\n")[0]
    if isinstance(fault, OSError):
        return fault.strerror or type(fault).__name__
    return str(fault) if type(fault) is http.client.HTTPException else type(fault).__name__
