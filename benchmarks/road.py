"""What the road costs in process: request bytes to answer bytes, whole and step by step. `make bench-road`.

Authentication, limits, validation both ways, floor and the ledger with its tree are on, as always. Times are the best and
the median of many rounds in one process on one core; compare numbers of one run only.

    python -m benchmarks.road [--rounds N] [--calls N] [--json]
    python -m benchmarks.road --instructions         bytecode instructions of a call, by function: the same on a busy machine
    python -m benchmarks.road --flame FILE.svg       where the time goes, as a flame graph to click into

The flame graph is sampled from outside by py-spy, so watching costs the watched nothing. On macOS that needs sudo.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, thread_time_ns
from types import FrameType
from typing import Any

from benchmarks.deployment import ECHO_ARGUMENTS, bench_home
from toolgate.app import App
from toolgate.faces import mcp
from toolgate.gate.admit import arguments_digest
from toolgate.gate.execute import Outcome, validated
from toolgate.gate.floor import envelope_json, normalize_response
from toolgate.gate.road import LOCAL
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.servers.connection import Connection, WaitLimits
from toolgate.servers.door import Door, DoorLimits
from toolgate.servers.framing import FramingLimits
from toolgate.servers.http import HttpApp

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"bench_echo"}
WARM_CALLS = 300
"""Until everything that is kept is there."""
COUNTED_CALLS = 200
"""Ids are drawn for a hundred calls at once, and a checkpoint comes after 256 records: enough for a fair share of both."""
FLAME_SECONDS = 10
"""Long enough that the start of the process is a thin flame beside the calls."""
FLAME_SAMPLES_A_SECOND = 500


class InProcess:
    """A connection without a socket: the bytes of a request in, the bytes of its answer out."""

    def __init__(self, app: App, key: str, arguments: Mapping[str, Any] = ECHO_ARGUMENTS) -> None:
        self.http = HttpApp(app.road, app.faces(), body_bytes=1 << 20, ready=app.ready)
        self.http.heads.hosts = frozenset({b"bench"})
        params = {"name": "bench_echo", "arguments": arguments, "_meta": META}
        self.body = strictjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        self.request = (
            b"POST /mcp HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-mcp-api-key: %b\r\n"
            b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
            b"mcp-method: tools/call\r\nmcp-name: bench_echo\r\ncontent-length: %d\r\n\r\n%b"
        ) % (key.encode(), len(self.body), self.body)
        self.loop = asyncio.new_event_loop()
        self.connection = Connection(
            self.http,
            Door(DoorLimits(1024, 1 << 24), self.loop),
            self.loop,
            framing=FramingLimits(4096, 16_384, 64, 1 << 20),
            waits=WaitLimits(10, 10, 10, 75),
        )
        self.transport = _Transport()
        self.connection.connection_made(self.transport)

    def call(self) -> None:
        """One request, driven to its end without an event loop turn: the tool does not wait, so nothing suspends."""
        size = len(self.request)
        self.connection.get_buffer(-1)[:size] = self.request
        self.connection.buffer_updated(size)
        assert self.transport.sent.startswith(b"HTTP/1.1 200 OK\r\n"), self.transport.sent


class _Transport:
    """Stands where the socket would be: keeps what was written last."""

    sent = b""

    def write(self, data: bytes) -> None:
        self.sent = data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("192.0.2.1", 50_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is ever left unsent."""


def timed(work: Callable[[], object], calls: int, rounds: int) -> list[float]:
    """Microseconds a call, one number a round."""
    found = []
    for _ in range(rounds):
        begun = thread_time_ns()
        for _ in range(calls):
            work()
        found.append((thread_time_ns() - begun) / calls / 1000)
    return found


def steps(app: App, whole: InProcess, key: str) -> dict[str, Callable[[], object]]:
    """Each step of the road, alone, on the values it really gets."""
    road = app.road
    credential = key.encode()
    caller = road.authenticate(credential)
    body = strictjson.loads(whole.body)
    face = mcp.McpFace()
    routing = face.hints(HEADERS | {b"content-length": b"%d" % len(whole.body)}, frozenset())
    asked = face.read(body, "http", routing)
    call = asked.call
    assert call is not None
    admission = road.admission
    grant = admission.permits.permit(caller, call.tool)
    ticket = admission.enter(caller, call)
    context = road._context(ticket)
    result = grant.tool.run(context, call.arguments)
    outcome = Outcome(_ok(), result)  # type: ignore[arg-type] # an inline tool answers at once
    environment, _ = LOCAL

    def admit() -> None:
        admission.rate.take(caller, 0.0)
        admission.slots.check(caller)

    def floor() -> Any:
        return envelope_json(
            normalize_response(
                outcome.result, tier=grant.tier, environment=environment, request_id="r", timestamp=rfc3339(0)
            ),
            outcome.data_json,
        )

    answer = asyncio.run(road.travel(ticket))
    entry, _ = road._conclude(ticket, outcome)
    return {
        "decode strict JSON": lambda: strictjson.loads(whole.body),
        "read the MCP message": lambda: face.read(body, "http", routing),
        "1 authenticate": lambda: road.authenticate(credential),
        "2 permit": lambda: admission.permits.permit(caller, call.tool),
        "3 admit": admit,
        "ids and digest": lambda: (
            admission.ids.for_call("x", call.arguments),
            arguments_digest(grant.io.secrets, call.arguments),
        ),
        "4 validate in": lambda: grant.io.input.is_valid(call.arguments),
        "6 context and run": lambda: grant.tool.run(road._context(ticket), call.arguments),
        "7 validate out": lambda: validated(outcome, grant, call, road.max_output_bytes),
        "8 floor": floor,
        "9 outcome record": lambda: road.ledger.append(entry),
        "render the answer": lambda: face.render(asked, answer),
    }


def _ok() -> Any:
    from toolgate.errors import Ending

    return Ending.OK


def measure(calls: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home = bench_home(Path(folder) / "home")
        app = home.app()
        whole = InProcess(app, home.keys["builder"])
        whole.call()
        works = {"bytes to bytes": whole.call, **steps(app, whole, home.keys["builder"])}
        found: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                work()
                found[name] += timed(work, calls, 1)
        asyncio.run(app.close())
        return {name: {"best": min(each), "median": statistics.median(each)} for name, each in found.items()}


def run_hot(seconds: float) -> None:
    """Call after call for so long: what `--flame` watches."""
    with tempfile.TemporaryDirectory() as folder:
        home = bench_home(Path(folder) / "home")
        app = home.app()
        whole = InProcess(app, home.keys["builder"])
        end = monotonic() + seconds
        while monotonic() < end:
            whole.call()
        asyncio.run(app.close())


def instructions(calls: int) -> Counter[str]:
    """Of `calls` calls, by file and function. Tracing sees no work that is done in C."""
    found: Counter[str] = Counter()

    def enter(frame: FrameType, _event: str, _about: Any) -> Callable[[FrameType, str, Any], Any]:
        code = frame.f_code
        place = f"{Path(code.co_filename).name}:{code.co_qualname}"
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def step(_frame: FrameType, event: str, _about: Any) -> Any:
            found[place] += event == "opcode"
            return step

        return step

    with tempfile.TemporaryDirectory() as folder:
        home = bench_home(Path(folder) / "home")
        app = home.app()
        whole = InProcess(app, home.keys["builder"])
        for _ in range(WARM_CALLS):
            whole.call()
        sys.settrace(enter)
        for _ in range(calls):
            whole.call()
        sys.settrace(None)
        asyncio.run(app.close())
    return found


def tell_instructions(calls: int) -> None:
    found = instructions(calls)
    print(f"{found.total() / calls:8.1f} instructions a call")
    for place, count in found.most_common():
        print(f"{count / calls:8.1f} {place}")


def flame(file: Path) -> int:
    """Side effects: writes one SVG that needs nothing beside it. Returns the exit code of py-spy."""
    spy = str(Path(sys.executable).parent / "py-spy")
    record = [spy, "record", "--function", "--output", str(file), "--rate", str(FLAME_SAMPLES_A_SECOND)]
    child = [sys.executable, "-m", "benchmarks.road", "--hot", str(FLAME_SECONDS)]
    return subprocess.run([*record, "--", *child], check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--flame", type=Path, metavar="FILE.svg")
    parser.add_argument("--hot", type=float, metavar="SECONDS", help="only call, and measure nothing")
    options = parser.parse_args()
    if options.flame:
        sys.exit(flame(options.flame))
    if options.instructions:
        tell_instructions(COUNTED_CALLS)
        return
    if options.hot:
        run_hot(options.hot)
        return
    table = measure(options.calls, options.rounds)
    if options.json:
        print(json.dumps(table, indent=2))
        return
    print(f"{'':28}{'best':>10}{'median':>10}   µs a call")
    for name, row in table.items():
        print(f"{name:28}{row['best']:10.2f}{row['median']:10.2f}")


if __name__ == "__main__":
    main()
