"""The load: one thread, raw sockets or pipes, every answer decoded and checked. `python -m benchmarks.load < plan.json`.

It runs in a process and on a core of its own. Closed loop: each connection sends its next request when the answer to the
last has come. Open loop: requests fall due at a fixed rate whether or not the server keeps up, and latency counts from
then.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

import orjson

from benchmarks import wire
from benchmarks.machine import cpu_seconds, memory_mib
from benchmarks.stats import quantile

PATIENCE_S = 30.0
"""Seconds without any answer after which the load gives up."""
DOZE_S = 0.05
"""Longest sleep of the closed loop; an answer ends it at once. The open loop never sleeps: its requests fall due to the
microsecond, and a kernel timer is a millisecond. Nor does one connection alone: waking an idle core would be part of every
round trip, half of it with a fast server, and the server's send would pay for it."""
RECEIVE_BYTES = 1 << 16
"""Taken at once. Above 128 KiB the allocator asks the kernel for fresh pages each time, which costs more than the read."""
EXAMPLES = 3
"""Wrong answers told in full; of the rest only the number."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run of the load is to do. It travels as JSON."""

    exchange: dict[str, Any]
    connections: int
    """Connections; over stdio: requests in flight on the one pipe."""
    seconds: float
    warm_seconds: float = 0.2
    """Answered before the clock starts: first connections, first imports, first compilations are not the steady state."""
    port: int = 0
    pipes: tuple[int, int] | None = None
    """(read, write) file descriptors of a server over stdio."""
    keys: tuple[str, ...] = ()
    """Connections take them in turn; none: no key is sent."""
    rate: float | None = None
    """Requests a second in the open loop; None: closed loop."""
    server_pid: int | None = None
    until_gone: bool = False
    """Run until the server closes every connection, and tell the request id of every answer."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Plan:
        pipes = found.get("pipes")
        return cls(**found | {"keys": tuple(found.get("keys", ())), "pipes": tuple(pipes) if pipes else None})


@dataclass(slots=True)
class Tally:
    """What came back."""

    answers: int = 0
    """All of them, also those before and after the measured time."""
    latencies: list[float] = field(default_factory=list)
    """Seconds, of those inside it."""
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    statuses: Counter[int | str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu_seconds: float | None = None
    memory_mib: float | None = None
    """Of the server, at the end of the measured time, all connections open."""
    busy_seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        ordered = sorted(self.latencies)
        inside = len(ordered)
        found: dict[str, Any] = {
            "answers": self.answers,
            "wrong": self.wrong,
            "examples": self.examples,
            "statuses": {str(status): number for status, number in self.statuses.items()},
            "seconds": self.seconds,
            "load_busy": self.busy_seconds / self.seconds if self.seconds else 0.0,
        }
        if inside:
            found |= {"rate": inside / self.seconds, "p50_ms": quantile(ordered, 0.5) * 1e3}
            found |= {"p99_ms": quantile(ordered, 0.99) * 1e3}
        if inside and self.cpu_seconds is not None:
            found |= {"cpu_us": self.cpu_seconds / inside * 1e6, "mib": self.memory_mib}
        if self.receipts:
            found["receipts"] = self.receipts
        return found


class Closed(Exception):
    """The server closed the connection."""


class HttpLink:
    """One keep-alive connection, one request at a time."""

    depth = 1

    def __init__(self, plan: Plan, exchange: wire.Exchange, index: int) -> None:
        self._port = plan.port
        self._key = plan.keys[index % len(plan.keys)] if plan.keys else None
        self._exchange = exchange
        self.pending: dict[int, float] = {}
        self.connect()

    def connect(self) -> None:
        """Also again, where the server has said that it closes the connection: strangers are answered so often on one."""
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = self._handshake(self._port, self._key) if self._exchange.face == "handshake" else None
        self._request = self._exchange.requests(head=self._exchange.headers(self._port, self._key, session))
        self._socket.setblocking(False)  # a socket with a timeout polls before each send and each receive
        self._received = b""
        self.over = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, number: int, since: float) -> None:
        self.pending[number] = since
        request = self._request(number)
        sent = self._socket.send(request)
        if sent < len(request):
            self._socket.settimeout(PATIENCE_S)
            self._socket.sendall(memoryview(request)[sent:])
            self._socket.setblocking(False)

    def receive(self) -> list[tuple[int, int, Any]]:
        """(number, status, decoded body) of every answer that is complete. Raises: Closed, ValueError."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise Closed
        self._received = self._received + data if self._received else data
        answer = split_response(self._received)
        if answer is None:
            return []
        status, head, body, self._received = answer
        self.over = says_close(head)
        return [(next(iter(self.pending)), status, orjson.loads(body) if body else None)]

    def close(self) -> None:
        self._socket.close()

    def _handshake(self, port: int, key: str | None) -> str | None:
        """initialize and its confirmation; the session's id, if the server wants one remembered."""
        head = self._exchange_once(port, key, None, wire.initialize())
        session = header(head, b"mcp-session-id")
        self._exchange_once(port, key, session, wire.INITIALIZED)
        return session

    def _exchange_once(self, port: int, key: str | None, session: str | None, body: bytes) -> bytes:
        bare = wire.Exchange("handshake").headers(port, key, session)
        own_length = bare.index(b"Content-Length: ")
        rest = bare[bare.index(b"\r\n", own_length) :]
        self._socket.sendall(bare[:own_length] + b"Content-Length: %d" % len(body) + rest + body)
        received = b""
        while (answer := split_response(received)) is None:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise Closed
            received += data
        status, head, _, _ = answer
        if status not in (200, 202):
            raise ValueError(f"the handshake got status {status}")
        return head


def split_response(received: bytes) -> tuple[int, bytes, bytes, bytes] | None:
    """(status, head, body, what follows), or None while it is not complete. Raises: ValueError: no length is told."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = received[:end]
    status, length = status_and_length(head)
    start = end + 4
    stop = start + length
    if len(received) < stop:
        return None
    return status, head, received[start:stop], received[stop:]


@lru_cache(maxsize=64)
def status_and_length(head: bytes) -> tuple[int, int]:
    """Remembered, because a server's next head is mostly its last one. Raises: ValueError: no length is told."""
    status = int(head[9:12])
    length = header(head, b"content-length")
    if length is None and status not in (202, 204):
        raise ValueError("an answer without a length")
    return status, int(length or 0)


@lru_cache(maxsize=64)
def says_close(head: bytes) -> bool:
    return (header(head, b"connection") or "").lower() == "close"


def header(head: bytes, name: bytes) -> str | None:
    start = head.lower().find(b"\r\n" + name + b":")
    if start < 0:
        return None
    stop = head.find(b"\r\n", start + 2)
    return head[start + len(name) + 3 : stop if stop >= 0 else None].strip().decode("latin-1")


class PipeLink:
    """A server over stdio: one JSON message a line, many in flight; answers may come in any order."""

    over = False

    def __init__(self, plan: Plan, exchange: wire.Exchange) -> None:
        assert plan.pipes is not None
        self._read_fd, self._write_fd = plan.pipes
        self._request = exchange.requests(tail=b"\n")
        self._received = b""
        self.depth = plan.connections
        self.pending: dict[int, float] = {}

    def fileno(self) -> int:
        return self._read_fd

    def send(self, number: int, since: float) -> None:
        self.pending[number] = since
        left = self._request(number)
        while left:
            left = left[os.write(self._write_fd, left) :]

    def receive(self) -> list[tuple[int, int, Any]]:
        data = os.read(self._read_fd, RECEIVE_BYTES)
        if not data:
            raise Closed
        *lines, self._received = (self._received + data).split(b"\n")
        found = []
        for answer in map(orjson.loads, lines):
            number = wire.number_of(answer)
            if number not in self.pending:
                raise ValueError("an answer to a request that is not open")
            found.append((number, 200, answer))
        return found

    def close(self) -> None:
        """The pipes belong to whoever started the server."""


class Load:
    """One run. `run` drives it; the rest reacts to answers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._exchange = wire.Exchange(**plan.exchange | {"data_at": tuple(plan.exchange["data_at"])})
        self._numbers = count()
        self.tally = Tally()
        self._links: list[HttpLink | PipeLink] = (
            [PipeLink(plan, self._exchange)]
            if plan.pipes
            else [HttpLink(plan, self._exchange, index) for index in range(plan.connections)]
        )
        self._selector = selectors.DefaultSelector()
        for link in self._links:
            self._selector.register(link, selectors.EVENT_READ, link)
        self._measuring = False
        self._sending = plan.seconds > 0
        """Without a time to measure, each connection sends one request."""
        self._late: deque[float] = deque()
        """Open loop: due times of requests that no connection was free for."""
        self._free: list[HttpLink | PipeLink] = []
        self._doze_s = DOZE_S if plan.rate is None and plan.connections > 1 else 0.0
        self._enough = plan.connections if plan.seconds else 0
        """A server so slow that not every connection had an answer in time is measured for longer."""

    def run(self) -> Tally:
        """Raises: TimeoutError: no answer for too long. ValueError: an answer that is none."""
        links = list(self._links)
        try:
            self._run()
        finally:
            self._selector.close()
            for link in links:
                link.close()
        return self.tally

    def _run(self) -> None:
        if self._plan.rate is None:
            self._fill()
            self._turn_until(perf_counter() + PATIENCE_S, enough=lambda: self.tally.answers > 0)
        else:
            self._free = list(self._links)
        begun = perf_counter()
        self._turn_until(begun + self._plan.warm_seconds)
        cpu = self._server_cpu()
        start = perf_counter()
        self._measuring = True
        self.tally.busy_seconds = 0.0
        self._turn_until(start + self._plan.seconds)
        self._turn_until(start + PATIENCE_S, enough=lambda: len(self.tally.latencies) >= self._enough)
        self._measuring = self._sending = False
        self.tally.seconds = perf_counter() - start
        if cpu is not None and self._plan.server_pid is not None:
            self.tally.cpu_seconds = (self._server_cpu() or 0.0) - cpu
            self.tally.memory_mib = memory_mib(self._plan.server_pid)
        self._drain()

    def _server_cpu(self) -> float | None:
        pid = self._plan.server_pid
        return None if pid is None or self._plan.until_gone else cpu_seconds(pid)

    def _fill(self) -> None:
        for link in self._links:
            for _ in range(link.depth):
                self._send(link, perf_counter())

    def _turn_until(self, end: float, enough: Callable[[], bool] = lambda: False) -> None:
        rate = self._plan.rate
        interval = 1 / rate if rate else 0.0
        due = last = perf_counter()
        while not enough() and (now := perf_counter()) < end and self._links:
            if rate:
                while due <= now:
                    self._late.append(due)
                    due += interval
                while self._late and self._free:
                    self._send(self._free.pop(), self._late.popleft())
            last = self._turn(now, last)

    def _drain(self) -> None:
        """Wait for what is still open: an answer that nobody counted would be a line too many in the audit log."""
        self._late.clear()
        last = perf_counter()
        while any(link.pending for link in self._links):
            last = self._turn(perf_counter(), last)

    def _turn(self, now: float, last: float) -> float:
        """Take what has come. Returns when something last came. Raises: TimeoutError."""
        ready = self._selector.select(self._doze_s)
        if not ready:
            if now - last > PATIENCE_S:
                raise TimeoutError(f"no answer for {PATIENCE_S:.0f} s")
            return last
        woken = perf_counter()
        for key, _ in ready:
            self._take(key.data)
        done = perf_counter()
        self.tally.busy_seconds += done - woken
        return done

    def _take(self, link: HttpLink | PipeLink) -> None:
        try:
            answers = link.receive()
        except (Closed, ConnectionError):
            self._lose(link)
            return
        now = perf_counter()
        if link.over:
            self._reconnect(link)
        for number, status, answer in answers:
            self._count(number, status, answer, now - link.pending.pop(number))
            if self._sending and self._plan.rate is None:
                self._send(link, perf_counter())
            elif self._plan.rate is not None:
                self._free.append(link)

    def _reconnect(self, link: HttpLink | PipeLink) -> None:
        assert isinstance(link, HttpLink)
        self._selector.unregister(link)
        link.close()
        link.connect()
        self._selector.register(link, selectors.EVENT_READ, link)

    def _send(self, link: HttpLink | PipeLink, since: float) -> None:
        try:
            link.send(next(self._numbers), since)
        except (ConnectionError, BrokenPipeError):
            self._lose(link)

    def _count(self, number: int, status: int, answer: Any, latency: float) -> None:
        tally = self.tally
        tally.answers += 1
        tally.statuses[self._exchange.told(status, answer)] += 1
        fault = self._exchange.fault(number, status, answer)
        if fault is not None:
            tally.wrong += 1
            if len(tally.examples) < EXAMPLES:
                tally.examples.append(fault)
        if self._measuring:
            tally.latencies.append(latency)
        if self._plan.until_gone:
            tally.receipts.append(wire.request_id_of(answer) or "")

    def _lose(self, link: HttpLink | PipeLink) -> None:
        """The server went away. Wanted in the trial by kill; otherwise every open request counts as answered wrongly."""
        self._selector.unregister(link)
        self._links.remove(link)
        if not self._plan.until_gone:
            self.tally.wrong += 1
            self.tally.examples.append("the server closed the connection")


def main() -> None:
    plan = Plan.from_json(json.load(sys.stdin))
    print(json.dumps(Load(plan).run().as_json()))


if __name__ == "__main__":
    main()
