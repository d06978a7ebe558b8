"""The trials of the comparison, each a function from servers to numbers. Rounds are interleaved: what disturbs the
machine for a while disturbs every server alike."""

from __future__ import annotations

import resource
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import orjson

from benchmarks import machine, ours, peers, wire
from benchmarks.field import OURS, Field
from benchmarks.servers import Running, Target, WrongAnswers, finish, first_answer

Rounds = dict[str, list[float]]
"""A measure and its value in each round."""
STDIO = ", stdio"
"""Follows the name of a peer over stdio where it could be taken for the one over HTTP."""
MEASURES = ("rate", "cpu_us", "p50_ms", "p99_ms", "load_busy")
BETWEEN_ROUNDS_S = 1.0
"""Rounds of what takes milliseconds are kept apart, or a neighbour on the same hardware disturbs all of them or none."""
PLAIN_DATA = ("result", "structuredContent")
"""Where peers put the echo; ours puts it one deeper, in the governance envelope."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    seconds: float
    connections: tuple[int, ...]
    in_flight: tuple[int, ...]
    faces: bool
    """Also the handshake revision and our other two doors."""
    kills: int


FULL = Size(rounds=7, seconds=2.0, connections=(1, 10, 64), in_flight=(1, 10), faces=True, kills=20)
QUICK = Size(rounds=2, seconds=0.4, connections=(10, 64), in_flight=(10,), faces=False, kills=1)


def peers_over_http() -> dict[str, Target]:
    sdk = tuple(peers.SDK.command("sdk.py", "http"))
    fast = tuple(peers.FASTMCP.command("fast.py", "http"))
    modern = wire.Exchange("modern", data_at=PLAIN_DATA)
    handshake = wire.Exchange("handshake", data_at=PLAIN_DATA)
    return {
        "SDK": Target("SDK", sdk, modern),
        "FastMCP": Target("FastMCP", fast, modern),
        "empty ASGI": Target("empty ASGI", tuple(peers.ASGI.command("asgi.py")), wire.Exchange("modern", fixed=True)),
        "SDK, handshake": Target("SDK, handshake", sdk, handshake),
        "FastMCP, handshake": Target("FastMCP, handshake", fast, handshake),
    }


def peers_over_stdio() -> dict[str, Target]:
    exchange = wire.Exchange("stdio", data_at=PLAIN_DATA)
    return {
        "SDK": Target("SDK", tuple(peers.SDK.command("sdk.py", "stdio")), exchange),
        "FastMCP": Target("FastMCP", tuple(peers.FASTMCP.command("fast.py", "stdio")), exchange),
    }


def faces_of(server: Running) -> Iterator[tuple[str, Running, wire.Exchange]]:
    """Our other doors, served by the same process."""
    exchange = server.target.exchange
    yield "Toolgate, handshake", server, replace(exchange, face="handshake")
    yield "Toolgate, /mrt_dispatch", server, replace(exchange, face="mrt", data_at=("envelope", "data"))
    yield "Toolgate, /rpc", server, replace(exchange, face="rpc", data_at=("result", "data"))


def in_turn(rows: Sequence[Any], number: int) -> list[Any]:
    """Each round begins with another row, so nobody always follows the same neighbour."""
    cut = number % len(rows)
    return [*rows[cut:], *rows[:cut]]


def keep(table: Rounds, found: Mapping[str, Any]) -> None:
    for measure in MEASURES:
        if found.get(measure) is not None:
            table[measure].append(float(found[measure]))


def limit(_folder: Path, size: Size, field: Field) -> dict[str, Any]:
    """How fast the load alone can be, beside a server that does nothing."""
    table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    name = peers.ASGI.label
    with ExitStack() as stack, field.excusing(name):
        target = Target(name, tuple(peers.ASGI.command("ceiling.py")), wire.Exchange("modern", fixed=True))
        for server in field.start(stack, [target]):
            for _ in range(size.rounds):
                for connections in size.connections:
                    keep(table[str(connections)], server.measure(connections, size.seconds / 2))
    tell("the load's own limit")
    return {"limit": table} if table else {}


def over_http(folder: Path, size: Size, field: Field) -> dict[str, Any]:
    """Closed loop at each number of connections, then the open loop at a third of what ours could do."""
    deployment = ours.make(folder / "http")
    targets = {"Toolgate": deployment.over_http()} | peers_over_http()
    if not size.faces:
        targets = {name: target for name, target in targets.items() if "handshake" not in name}
    table: dict[str, dict[str, Rounds]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    answers = 0
    with ExitStack() as stack:
        servers = field.start(stack, targets.values())
        governed = servers[0]
        rows = [(server.target.name, server, server.target.exchange) for server in servers]
        if size.faces:
            rows += faces_of(governed)
        disturbance = Disturbance(servers)
        for number in range(size.rounds):
            for connections in size.connections:
                for name, server, exchange in in_turn(rows, number):
                    if not field.stays(name):
                        continue
                    with field.excusing(name):
                        found = server.measure(connections, size.seconds, exchange=exchange)
                        keep(table[name][str(connections)], found)
                        answers += found["answers"] if server is governed else 0
            tell(f"HTTP round {number + 1} of {size.rounds}")
        capacity = statistics.median(table["Toolgate"]["64"]["rate"])
        paced: Rounds = defaultdict(list)
        for _ in range(size.rounds):
            found = governed.measure(64, size.seconds, rate=capacity / 3)
            keep(paced, found)
            answers += found["answers"]
        disturbed = disturbance.share()
    deployment.check(answers)
    return {"http": stayed(table, field), "open": paced, "others_used": disturbed, "audit": {"http": answers}}


def stayed(table: Mapping[str, Any], field: Field, mode: str = "") -> dict[str, Any]:
    """Without the half-measured rows of those who left."""
    return {name: rows for name, rows in table.items() if field.stays(name + mode)}


def over_stdio(folder: Path, size: Size, field: Field) -> dict[str, Any]:
    deployment = ours.make(folder / "stdio")
    targets = {"Toolgate": deployment.over_stdio()} | peers_over_stdio()
    table: dict[str, dict[str, Rounds]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    answers = 0
    with ExitStack() as stack:
        servers = field.start(stack, targets.values(), STDIO)
        for number in range(size.rounds):
            for in_flight in size.in_flight:
                for server in in_turn(servers, number):
                    name = server.target.name
                    if not field.stays(name + STDIO):
                        continue
                    with field.excusing(name + STDIO):
                        found = server.measure(in_flight, size.seconds)
                        keep(table[name][str(in_flight)], found)
                        answers += found["answers"] if server is servers[0] else 0
            tell(f"stdio round {number + 1} of {size.rounds}")
    deployment.check(answers)
    return {"stdio": stayed(table, field, STDIO), "audit": {"stdio": answers}}


GATEWAY_CONNECTIONS = (1, 10)
"""At 64 connections ContextForge answers nothing for seconds."""


def gateway(folder: Path, size: Size, field: Field) -> dict[str, Any]:
    """A gateway beside us, for scale: it also authenticates and keeps a record, but forwards the call."""
    label = peers.CONTEXTFORGE.label
    if not field.stays(peers.SDK.label):
        field.left[label] = "nothing to forward to"
        return {}
    if reason := peers.install(peers.CONTEXTFORGE):
        field.left[label] = reason
        return {}
    place = folder / "contextforge"
    place.mkdir()
    deployment = ours.make(folder / "gateway")
    table: dict[str, dict[str, Rounds]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    answers = 0
    with Running(peers_over_http()["SDK"]) as upstream, Running(deployment.over_http()) as governed:
        machine.pin(upstream.pid, upstream.load_core)
        command = tuple(peers.CONTEXTFORGE.command("gateway.py", str(upstream.port), str(place)))
        target = Target(label, command, wire.Exchange("gateway", data_at=PLAIN_DATA))
        with field.excusing(label), Running(target) as forwarding:
            for number in range(size.rounds):
                for connections in GATEWAY_CONNECTIONS:
                    for server in in_turn([governed, forwarding], number):
                        found = server.measure(connections, size.seconds)
                        keep(table[server.target.name][str(connections)], found)
                        answers += found["answers"] if server is governed else 0
                tell(f"gateway round {number + 1} of {size.rounds}")
    deployment.check(answers)
    return {"gateway": table, "audit": {"gateway": answers}} if field.stays(label) else {}


LET_THROUGH = 0.02
"""Share of calls that a rate limit of one a minute may let through in a run; more would not measure refusals."""


def refusals(folder: Path, size: Size) -> dict[str, Any]:
    """CPU of a refusal beside that of a success, at 10 connections."""
    open_house = ours.make(folder / "refusals", tools=1)
    ours.give_to_administrators_only(open_house, wire.ADMIN_TOOL)
    limited = ours.make(folder / "limited", settings="[limits]\nrate_per_minute = 1")
    table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    answers = {"too fast": 0, "rest": 0}
    with Running(open_house.over_http()) as usual, Running(limited.over_http()) as strict:
        for number in range(size.rounds):
            for case in in_turn(tuple(wire.STATUSES), number):
                server = strict if case == "too fast" else usual
                keys = (f"tg_{'0' * 12}_{'0' * 64}",) if case == "wrong key" else server.target.keys
                exchange = replace(server.target.exchange, case=case)
                if case == "too fast":  # first spend what a minute allows
                    spent = server.measure(ours.CALLERS, 0.0, exchange=exchange, warm_seconds=0.0)
                    answers[case] += spent["answers"]
                found = server.measure(10, size.seconds, exchange=exchange, keys=keys)
                if case == "too fast" and found["statuses"].get("200", 0) > LET_THROUGH * found["answers"]:
                    raise WrongAnswers(f"the limit let {found['statuses']['200']} of {found['answers']} through")
                keep(table[case], found)
                answers[case if case in answers else "rest"] += found["answers"]
        tell(f"refusals: {size.rounds} rounds")
    limited.check(answers["too fast"], flood=True)
    open_house.check(answers["rest"], flood=True)
    return {"refusals": table, "audit": {"refusals": sum(answers.values())}}


def start_up(folder: Path, size: Size, field: Field) -> dict[str, Any]:
    """Seconds to the first right answer, memory at rest after it and under load. One server at a time: what processes
    share is divided between them, so a neighbour would make each look smaller."""
    deployment = ours.make(folder / "start")
    http = {"Toolgate": deployment.over_http()} | peers_over_http()
    rows = [target for name, target in http.items() if "handshake" not in name]
    stdio = {"Toolgate": deployment.over_stdio()} | peers_over_stdio()
    rows += [replace(target, name=name + STDIO) for name, target in stdio.items()]
    table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    answers = 0
    machine.pin(0, machine.cores()[1])
    for number in range(size.rounds):
        for target in in_turn(rows, number):
            if not field.stays(target.name):
                continue
            with field.excusing(target.name), Running(target) as server:
                table[target.name]["seconds"].append(first_answer(server))
                table[target.name]["mib"].append(machine.memory_mib(server.pid))
                found = server.measure(10 if target.over_stdio else 64, size.seconds / 2)
                table[target.name]["mib_loaded"].append(found["mib"])
                answers += 1 + found["answers"] if target.name.startswith(OURS) else 0
        tell(f"start-up round {number + 1} of {size.rounds}")
    deployment.check(answers)
    return {"start": stayed(table, field), "audit": {"start": answers}}


def guarantee(folder: Path, size: Size) -> dict[str, Any]:
    """What a record before each answer costs: the rate beside that of the same server with its log on /dev/null."""
    deployment = ours.make(folder / "written")
    table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    answers = 0
    nowhere = ours.make(folder / "unwritten").unwritten("unwritten")
    with Running(deployment.over_http("written")) as written, Running(nowhere) as unwritten:
        for number in range(2 * size.rounds):  # the difference is small, so it is asked twice as often
            for server in in_turn([written, unwritten], number):
                found = server.measure(64, size.seconds)
                keep(table[server.target.name], found)
                answers += found["answers"] if server is written else 0
    tell("the cost of the guarantee")
    deployment.check(answers)
    return {"guarantee": table, "audit": {"guarantee": answers}}


def kills(folder: Path, size: Size) -> dict[str, Any]:
    """SIGKILL at full load: which answers reached a client without a line in the audit log?"""
    deployment = ours.make(folder / "kills")
    receipts: list[str] = []
    for number in range(size.kills):
        with Running(deployment.over_http()) as server:
            plan = server.plan(64, 30.0, warm_seconds=0.0, until_gone=True)
            load = server.begin(plan)
            _wait_for_lines(deployment, sum(1 for _ in deployment.lines()) + 500)
            sleep(0.2 + 0.013 * (number % 11))  # not always at the same moment between two checkpoints
            server.process.kill()
            receipts += finish(load, plan, "kill")["receipts"]
        tell(f"kill {number + 1} of {size.kills}")
    recorded, torn = _request_ids(deployment)
    with Running(deployment.over_http()):
        pass  # a start finds the last killed run, and writes down how far its records reach
    deployment.verify()
    lost = sum(receipt not in recorded for receipt in receipts)
    if lost:
        raise ours.AuditFault(f"{lost} of {len(receipts)} answers without a line in the audit log after SIGKILL")
    return {"kills": {"kills": size.kills, "answers": len(receipts), "without_line": lost, "torn": torn}}


def _wait_for_lines(deployment: ours.Deployment, wanted: int) -> None:
    end = perf_counter() + 30
    while sum(1 for _ in deployment.lines()) < wanted:
        if perf_counter() > end:
            raise WrongAnswers("the load never came to speed before the kill")
        sleep(0.05)


def _request_ids(deployment: ours.Deployment) -> tuple[set[str], int]:
    found, torn = set(), 0
    for line in deployment.lines():
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            torn += 1
            continue
        if record["event"] == "outcome":
            found.add(record["requestId"])
    return found, torn


def in_process(size: Size) -> dict[str, Any]:
    """Request bytes to answer bytes, and the L0 checks, in this process."""
    from benchmarks import l0, road

    whole = road.measure(1000 if size.faces else 200, 30 if size.faces else 3)
    measured: dict[str, list[float]] = {"steady": [], "first": []}
    for _ in range(size.rounds):
        measured["steady"].append(statistics.median(l0.steady(1_000 if size.faces else 200)))
        measured["first"].append(statistics.median(l0.first_runs(200 if size.faces else 50)))
        sleep(BETWEEN_ROUNDS_S)
    tell("in process")
    return {"road": whole, "l0_ns": measured}


class Disturbance:
    """Which share of the machine's time went to processes that are not ours."""

    def __init__(self, servers: Sequence[Running]) -> None:
        self._servers = servers
        self._before = self._now()

    def _now(self) -> tuple[float, float, float]:
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(each.ru_utime + each.ru_stime for each in usage)
        return (
            perf_counter(),
            machine.busy_seconds(),
            own + sum(machine.cpu_seconds(each.pid) for each in self._servers),
        )

    def share(self) -> float:
        elapsed, busy, own = (after - before for before, after in zip(self._before, self._now(), strict=True))
        return max(0.0, (busy - own) / (elapsed * int(machine.describe()["cores"])))


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
