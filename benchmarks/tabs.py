"""What open pages of the console cost a server at work, and how soon a call appears on one.

    python -m benchmarks.tabs [--quick] [--json]

One server at 64 connections, in turns: nobody looks, and five tabs have the live list of all calls open. CPU of the server's own
process a call; the goal is 3 % at most. Then at rest: milliseconds from the answer to a call to its row in the stream of an open
tab; the goal is 200.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from time import perf_counter
from typing import Final
from urllib.parse import urlencode

from benchmarks import ours
from benchmarks.machine import cpu_seconds
from benchmarks.servers import PATIENCE_S, Running
from benchmarks.stats import ratios

TABS: Final = 5
CONNECTIONS: Final = 64
GOAL: Final = 0.03
SETTINGS: Final = f"{ours.LIMITED}\n[console]\nenabled = true"


class Console:
    """A person who has signed in."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        origin = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/x-www-form-urlencoded"}
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        asked.request("POST", "/console/sign-in", urlencode({"key": key, "next": "./"}), origin)
        answer = asked.getresponse()
        if answer.status != 303:
            raise SystemExit(f"the console refused to sign in: {answer.status}")
        self._cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
        asked.close()

    @contextmanager
    def tab(self) -> Iterator[Queue[float]]:
        """An open live list: the moment of each row that arrives."""
        rows: Queue[float] = Queue()
        live = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        head = f"GET /console/calls/live HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\ncookie: {self._cookie}\r\n\r\n"
        live.sendall(head.encode())
        first = live.recv(65_536)
        if not first.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the console has no live list: {first[:80]!r}")
        reader = threading.Thread(target=_read, args=(live, rows), daemon=True)
        reader.start()
        try:
            yield rows
        finally:
            live.shutdown(socket.SHUT_RDWR)
            reader.join()
            live.close()


def _read(live: socket.socket, rows: Queue[float]) -> None:
    live.settimeout(None)
    while data := live.recv(65_536):
        for _ in range(data.count(b"data: ")):
            rows.put(perf_counter())


def cost(server: Running, console: Console, rounds: int, seconds: float) -> dict[str, list[float]]:
    """CPU µs a call, round by round."""
    found: dict[str, list[float]] = {"nobody looks": [], f"{TABS} tabs": []}
    for _ in range(rounds):
        found["nobody looks"].append(_cpu_us(server, seconds))
        with _tabs(console, TABS):
            found[f"{TABS} tabs"].append(_cpu_us(server, seconds))
    return found


@contextmanager
def _tabs(console: Console, count: int) -> Iterator[None]:
    if not count:
        yield
        return
    with console.tab(), _tabs(console, count - 1):
        yield


def _cpu_us(server: Running, seconds: float) -> float:
    before = cpu_seconds(server.pid)
    answers = server.measure(CONNECTIONS, seconds)["answers"]
    return (cpu_seconds(server.pid) - before) / int(answers) * 1e6


def delays(server: Running, console: Console, calls: int) -> list[float]:
    """Milliseconds from an answer to its row."""
    found = []
    with console.tab() as rows:
        for _ in range(calls):
            _call(server)
            answered = perf_counter()
            found.append(max(0.0, rows.get(timeout=PATIENCE_S) - answered) * 1000)
    return found


def _call(server: Running) -> None:
    asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    body = json.dumps({"tool": "bench_echo", "args": {"text": "x", "count": 1, "flag": True}})
    asked.request("POST", "/mrt_dispatch", body, {"x-mcp-api-key": server.keys[0], "content-type": "application/json"})
    if asked.getresponse().status != 200:
        raise SystemExit("a call was refused")
    asked.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds, for a look")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tg-tabs-") as folder:
        made = ours.make(Path(folder) / "home", settings=SETTINGS)
        admin = json.loads(made.run("keys", "create", "--role", "admin", "--json", "--home", str(made.home)).stdout)
        with Running(made.over_http()) as server:
            console = Console(server.port, admin["key"])
            late = delays(server, console, 5 if given.quick else 50)
            costs = cost(server, console, 2 if given.quick else 9, 0.5 if given.quick else 2.0)
        made.verify()
    plain, watched = costs.values()
    share = ratios(watched, plain)
    if given.json:
        print(json.dumps({"cpu_us": costs, "delay_ms": late}, indent=2))
        return
    print(f"nobody looks  {statistics.median(plain):7.1f} µs of CPU a call")
    print(f"{TABS} tabs        {statistics.median(watched):7.1f} µs, {share.median:.3f}x (at most {1 + GOAL:.2f}x)")
    print(f"a call is on the page after {statistics.median(late):.0f} ms, {max(late):.0f} ms at most (goal 200)")


if __name__ == "__main__":
    main()
