"""A collector in a process of its own: takes OTLP over HTTP, decodes the protobuf, and prints what it got as JSON lines.

python -m tests.telemetry.receiver [STATUS ...]: answers to the first requests; to those that come later, 200.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.homes import PATIENCE_S, ROOT
from tests.waiting import until

REJECTS = 299
"""A status of this file: 200, with the word that one span was rejected."""


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def told(body: bytes) -> dict[str, Any]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    (resource,) = request.resource_spans
    spans = [
        {
            "trace": span.trace_id.hex(),
            "span": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "state": span.trace_state,
            "name": span.name,
            "kind": span.kind,
            "start": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "status": span.status.code,
            "events": [[event.name, plain(event.attributes)] for event in span.events],
            **plain(span.attributes),
        }
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    return {"resource": plain(resource.resource.attributes), "spans": spans}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    statuses: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.statuses.pop(0) if self.statuses else 200
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = int(status == REJECTS)
        said = answer.SerializeToString()
        self.send_response(200 if status == REJECTS else status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
        headers = {name.lower(): value for name, value in self.headers.items()}
        print(json.dumps({"status": status, "path": self.path, "headers": headers, **told(body)}), flush=True)

    def log_message(self, *_: Any) -> None:
        pass


class Receiver:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._lines = process.stdout
        self.endpoint = f"http://127.0.0.1:{int(self._lines.readline())}/v1/traces"
        self.requests: list[dict[str, Any]] = []
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        with self._lines:
            for line in self._lines:
                self.requests.append(json.loads(line))

    def ended(self) -> None:
        """Its process has."""
        self._listening.join(PATIENCE_S)

    @property
    def spans(self) -> list[dict[str, Any]]:
        """Those that were taken."""
        return [span for request in list(self.requests) if request["status"] == 200 for span in request["spans"]]

    def span_of(self, request_id: str) -> dict[str, Any]:
        found = until(
            lambda: [each for each in self.spans if each["toolgate.request_id"] == request_id],
            f"a span of {request_id}",
        )
        assert len(found) == 1
        return found[0]


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    command = [sys.executable, "-m", "tests.telemetry.receiver", *map(str, statuses)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    receiver = Receiver(process)
    try:
        yield receiver
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        receiver.ended()


if __name__ == "__main__":
    assert Path.cwd() == ROOT
    Handler.statuses = [int(each) for each in sys.argv[1:]]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
