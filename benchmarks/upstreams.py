"""What a relayed call costs: Toolgate beside other gateways, all in front of the same stub. Part of `make bench`.

    python -m benchmarks.upstreams [--quick] [--out FILE]

The stub (benchmarks/peers/stub.py) does as little as an answer needs, over HTTP and on pipes, and runs on the load's core
with everything else that a gateway has started: two cores carry three parties, so the CPU of the gateway's own process is
judged and not its rate. Every answer is checked, and our log must hold every one of them.
The full form writes benchmarks/results/upstreams.json and docs/benchmarks.md. Exit 1: our server answered wrongly, or its log
does not hold every answer. A peer that does not install or answers wrongly is left out, and the tables say so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from io import FileIO
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import machine, ours, peers, report, upstream_tables, wire
from benchmarks.field import OURS, Field
from benchmarks.load import HttpLink
from benchmarks.servers import Running, Target, WrongAnswers
from benchmarks.trials import GATEWAY_CONNECTIONS, PLAIN_DATA, Rounds, in_turn, keep, tell
from toolgate.policy.manifest import MANIFEST_FILE

Table = dict[str, dict[str, Rounds]]
STUB = "the stub"
STUB_TOOL = "bench_echo"
CONCURRENCY = 128
"""Calls that an upstream of the bench may have under way: more than there are connections."""
UPSTREAMS = 20
TOOLS_EACH = 50
SYNCS = 100
"""Effects of each round that are timed by themselves, each beside the stub's own answer and two syncs of the disk: what disturbs
the disk or the machine disturbs all three."""
SYNC_BYTES = 700
"""About one record."""


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    seconds: float
    connections: tuple[int, ...]
    peers: bool


FULL = Size(7, 2.0, (1, 10, 64), peers=True)
QUICK = Size(2, 0.4, (1, 10), peers=True)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a server, and what is asked of it."""

    name: str
    server: Running
    exchange: wire.Exchange
    connections: tuple[int, ...] | None = None
    """Only these, where a peer does not answer at more."""


# -- deployments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adopted:
    """An upstream of ours: where it is, and whether policy calls its tools reads."""

    name: str
    where: Mapping[str, Any]
    reads: bool = True

    def table(self) -> str:
        settings = {**self.where, "concurrency": CONCURRENCY}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        return "\n".join([f"[upstreams.{self.name}]", *lines, ""])

    @property
    def tool(self) -> str:
        return f"{self.name}_{STUB_TOOL}"


def deploy(home: Path, upstreams: Sequence[Adopted]) -> ours.Deployment:
    """A deployment that has adopted these, by the commands that a person types."""
    tables = "\n".join(each.table() for each in upstreams)
    made = ours.make(home, settings=f"{ours.LIMITED}\n{tables}")
    for each in upstreams:
        options = ("--roles", "builder", "--yes", "--json", "--home", str(home))
        made.run("upstream", "adopt", each.name, *options).check_returncode()
    _call_reads(home / "policy" / MANIFEST_FILE, {f"upstream-{each.name}" for each in upstreams if each.reads})
    return made


def _call_reads(manifest: Path, packs: set[str]) -> None:
    content = json.loads(manifest.read_bytes())
    for row in content["tools"]:
        if row.get("x-pack") in packs:
            row["x-effect"] = "read"
    manifest.write_text(json.dumps(content))


def stub_command(over: str, tools: int = 1) -> tuple[str, ...]:
    return tuple(peers.ASGI.command("stub.py", over, str(tools)))


def start_stub(stack: ExitStack, tools: int = 1) -> Running:
    """Over HTTP, on the load's core."""
    running = stack.enter_context(
        Running(Target(STUB, stub_command("http", tools), wire.Exchange("modern", data_at=PLAIN_DATA)))
    )
    machine.pin(running.pid, running.load_core)
    return running


def address(server: Running) -> str:
    return f"http://127.0.0.1:{server.port}/mcp"


# -- the trials -------------------------------------------------------------------------------------------------------


def relay(folder: Path, size: Size, field: Field) -> dict[str, Any]:
    """Everybody in front of the stub, in interleaved rounds; our own tool and the SDK's own server beside them."""
    table: Table = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    beside: list[dict[str, float]] = []
    answers = 0
    with ExitStack() as stack:
        stub = start_stub(stack)
        pipe = {"command": list(stub_command("stdio"))}
        upstreams = [
            Adopted("web", {"url": address(stub)}),
            Adopted("pipe", pipe),
            Adopted("webeffect", {"url": address(stub)}, reads=False),
            Adopted("pipeeffect", pipe, reads=False),
        ]
        deployment = deploy(folder / "relay", upstreams)
        gate = stack.enter_context(Running(deployment.over_http()))
        rows = [*_our_rows(gate, upstreams), *_beside(stack, stub, field)]
        if size.peers:
            rows += _peer_rows(stack, stub, folder, field)
        answers += _settle(rows, gate, field)
        for number in range(size.rounds):
            beside.append(effect_beside_syncs(rows, folder))
            answers += SYNCS
            for connections in size.connections:
                for row in in_turn(rows, number):
                    answers += _measure(row, connections, size.seconds, table, field)
            tell(f"upstreams: round {number + 1} of {size.rounds}")
    deployment.check(answers)
    kept = {name: found for name, found in table.items() if field.stays(name)}
    syncs = {name: [each[name] for each in beside] for name in ("sync_ms", "added_ms")}
    return {"relay": kept, **syncs, "audit": answers}


def _our_rows(gate: Running, upstreams: Sequence[Adopted]) -> Iterator[Row]:
    own = gate.target.exchange
    yield Row(upstream_tables.OWN, gate, own)
    for name, each in zip(upstream_tables.RELAYED, upstreams, strict=True):
        yield Row(name, gate, replace(own, tool=each.tool, data_at=PLAIN_DATA))


def _beside(stack: ExitStack, stub: Running, field: Field) -> Iterator[Row]:
    """The stub itself, which tells how long an answer takes without a gateway, and the SDK's own server."""
    modern = wire.Exchange("modern", data_at=PLAIN_DATA)
    yield Row(upstream_tables.STUB_HTTP, stub, modern)
    target = Target(upstream_tables.SDK, tuple(peers.SDK.command("sdk.py", "http")), modern)
    for server in field.start(stack, [target]):
        yield Row(upstream_tables.SDK, server, modern)


def _peer_rows(stack: ExitStack, stub: Running, folder: Path, field: Field) -> Iterator[Row]:
    place = folder / "contextforge"
    place.mkdir()
    pipe, modern = stub_command("stdio"), wire.Exchange("modern", data_at=PLAIN_DATA)
    gateway = wire.Exchange("gateway", data_at=PLAIN_DATA)
    forge = tuple(peers.CONTEXTFORGE.command("gateway.py", str(stub.port), str(place)))
    targets = [
        Target(upstream_tables.FASTMCP_HTTP, tuple(peers.FASTMCP.command("fastproxy.py", address(stub))), modern),
        Target(upstream_tables.FASTMCP_PIPE, tuple(peers.FASTMCP.command("fastproxy.py", *pipe)), modern),
        Target(
            upstream_tables.MCP_PROXY,
            tuple(peers.MCP_PROXY.command("pipeproxy.py", *pipe)),
            wire.Exchange("handshake", data_at=PLAIN_DATA),
        ),
        Target(upstream_tables.CONTEXTFORGE, forge, gateway),
    ]
    for server in field.start(stack, targets):
        slow = server.target.name != upstream_tables.MCP_PROXY
        yield Row(server.target.name, server, server.target.exchange, GATEWAY_CONNECTIONS if slow else None)


def _settle(rows: Sequence[Row], gate: Running, field: Field) -> int:
    """One answer of each: what a gateway starts, it starts now, and what it has started goes to the load's core.

    Returns the answers of ours.
    """
    answers = 0
    for row in rows:
        with field.excusing(row.name):
            found = row.server.measure(1, 0.0, exchange=row.exchange, warm_seconds=0.0)
            answers += found["answers"] if row.server is gate else 0
        machine.pin_below(row.server.pid, row.server.load_core)
    return answers


def _measure(row: Row, connections: int, seconds: float, table: Table, field: Field) -> int:
    """Returns the answers, if they are ours."""
    if not field.stays(row.name) or connections not in (row.connections or (connections,)):
        return 0
    answers = 0
    with field.excusing(row.name):
        found = row.server.measure(connections, seconds, exchange=row.exchange)
        keep(table[row.name][str(connections)], found)
        answers = int(found["answers"])
    return answers if row.name.startswith(OURS) else 0


def effect_beside_syncs(rows: Sequence[Row], folder: Path) -> dict[str, float]:
    """What an effect takes longer than the stub's own answer and two syncs of a record, done right after it; and such a sync.
    Medians of some. Raises: WrongAnswers."""
    with ExitStack() as stack, (folder / "synced").open("ab", buffering=0) as file:
        effect, stub = (
            _alone(stack, row) for row in rows if row.name in (upstream_tables.EFFECT_HTTP, upstream_tables.STUB_HTTP)
        )
        machine.pin(0, rows[0].server.load_core)
        stack.callback(machine.pin, 0, set().union(*machine.cores()))
        syncs, added = [], []
        for number in range(SYNCS):
            took = _answered_ms(effect, number) - _answered_ms(stub, number)
            both = [_sync_ms(file), _sync_ms(file)]
            syncs += both
            added.append(took - sum(both))
    return {"sync_ms": statistics.median(syncs), "added_ms": statistics.median(added)}


def _alone(stack: ExitStack, row: Row) -> HttpLink:
    link = HttpLink(row.server.plan(1, 0.0), row.exchange, 0)
    stack.callback(link.close)
    return link


def _answered_ms(link: HttpLink, number: int) -> float:
    """Milliseconds from a request to its answer. It is waited for without sleeping, as the load does for one connection.

    Raises: WrongAnswers."""
    began = perf_counter()
    link.send(number, began)
    found: list[tuple[int, int, Any]] = []
    while not found:
        with suppress(BlockingIOError):
            found = link.receive()
    took = (perf_counter() - began) * 1e3
    del link.pending[number]
    if found[0][1] != HTTPStatus.OK or found[0][2]["result"].get("isError"):
        raise WrongAnswers(f"an effect, timed by itself: {found[0]}")
    return took


def _sync_ms(file: FileIO) -> float:
    file.write(b"x" * SYNC_BYTES)
    began = perf_counter()
    os.fdatasync(file.fileno())
    return (perf_counter() - began) * 1e3


def many_tools(folder: Path, size: Size) -> dict[str, Any]:
    """1 000 pinned tools of 20 upstreams, beside one of one: what a call costs, and what an idle upstream weighs."""
    cpu: dict[str, list[float]] = {"few": [], "many": []}
    memory: dict[str, float] = {}
    answers = dict.fromkeys(cpu, 0)
    with ExitStack() as stack:
        one, fifty = start_stub(stack), start_stub(stack, TOOLS_EACH)
        made = {
            "few": [Adopted("u0", {"url": address(one)})],
            "many": [Adopted(f"u{number}", {"url": address(fifty)}) for number in range(UPSTREAMS)],
        }
        homes = {name: deploy(folder / name, upstreams) for name, upstreams in made.items()}
        servers = {name: stack.enter_context(Running(home.over_http())) for name, home in homes.items()}
        for name, server in servers.items():
            for each in made[name]:  # connected, listed, compared; from here on most of them are idle
                answers[name] += server.measure(1, 0.0, exchange=_of(server, each), warm_seconds=0.0)["answers"]
            memory[name] = machine.memory_mib(server.pid)
        for number in range(size.rounds):
            for name in in_turn(list(cpu), number):
                found = servers[name].measure(10, size.seconds, exchange=_of(servers[name], made[name][0]))
                cpu[name].append(found["cpu_us"])
                answers[name] += found["answers"]
        tell("upstreams: 1 000 tools of 20 upstreams")
    for name, home in homes.items():
        home.check(answers[name])
    weight = (memory["many"] - memory["few"]) / (UPSTREAMS - 1)
    return {"many": {"cpu_us": cpu, "mib": memory, "mib_each": weight}}


def _of(server: Running, upstream: Adopted) -> wire.Exchange:
    return replace(server.target.exchange, tool=upstream.tool, data_at=PLAIN_DATA)


def measure(size: Size, field: Field) -> dict[str, Any]:
    """Raises: WrongAnswers, AuditFault."""
    results: dict[str, Any] = {
        **report.about_this_run(peers.RELAYS),
        "rounds": size.rounds,
        "seconds": size.seconds,
    }
    peers.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="upstreams-", dir=peers.CACHE) as name:  # on disk: /tmp may be memory
        results |= relay(Path(name), size, field)
        results |= many_tools(Path(name), size)
    return results | {"left_out": field.left}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rounds; writes no documentation")
    parser.add_argument("--alone", action="store_true", help="without other gateways; writes no documentation")
    parser.add_argument("--out", type=Path, help="where the results go as JSON")
    options = parser.parse_args()
    machine.require_linux()
    size = replace(QUICK if options.quick else FULL, peers=not options.alone)
    wanted = peers.RELAYS if size.peers else (peers.ASGI, peers.SDK)
    try:
        results = measure(size, Field(peers.install_all(wanted)))
    except (WrongAnswers, ours.AuditFault) as fault:
        print(f"stopped: {fault}", file=sys.stderr)
        return 1
    partial = options.quick or options.alone
    out = options.out or (peers.CACHE / "upstreams.json" if partial else report.UPSTREAMS)
    out.write_text(json.dumps(results, indent=1) + "\n")
    if out == report.UPSTREAMS:
        report.write()
    print(upstream_tables.tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
