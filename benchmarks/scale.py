"""What it costs to be several, and how a server behaves when more is asked than it can do.

    python -m benchmarks.scale [--quick] [--only PART] [--rounds N] [--seconds S] [--connections N] [--write]

workers    CPU a call of a server of two processes, supervisor included, beside one of one: on both cores, and on one core, there
           also beside two servers apart. Goal: 1.1 times.
callers    what a call costs as callers get more, in process; beside it a slot, counted in one process and in memory that several
           share. Goal: a call is flat to 100 000 callers.
overload   a tool of 20 ms, asked for ten times as often as its key may. Goals: 80 % of the peak, p99 of refusals 50 ms.
shared     limits in Redis:

CPU a call of a server that asks Redis about each, beside one that counts in memory: both run at once and are measured in
turn; CPU is the server's own, without Redis's. Goal: 1.25 times at 64 connections. Then Redis is stopped (SIGSTOP) for longer
than a lease and goes on, again and again. Goals: every refusal within 250 ms, the first call let in within a second. Redis
is the tests' own (`tests/powers/limits/server.py`), on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine, ours, report, scale_tables
from benchmarks.callers import callers_us
from benchmarks.machine import cpu_seconds, memory_mib
from benchmarks.scale_tables import (
    A_CALL,
    APART,
    IN_MEMORY,
    IN_PROCESS,
    IN_REDIS,
    IN_TABLE,
    ONE,
    ONE_FREE,
    TWO,
    TWO_FREE,
)
from benchmarks.servers import Running, finish
from benchmarks.stats import quantile
from benchmarks.tables import goal_table
from toolgate.gate.admit import Slots
from toolgate.gate.counted import CountTable, TableSlots, make_table
from toolgate.model.call import Caller

if TYPE_CHECKING:
    from tests.powers.limits.server import Redis

LEASE_S = 1
COUNTS = (100, 1_000, 10_000, 100_000)
Found = dict[str, list[float]]
"""A number of each round, by what was measured."""
CALL = b'{"tool":"bench_echo","args":{"text":"x","count":1,"flag":true}}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a look, in half a minute: two short rounds")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--write", action="store_true", help="keep the numbers, and make docs/benchmarks.md of them")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds = 2, 0.5
    missed = False
    for part in [given.only] if given.only else PARTS:
        load = os.getloadavg()[1]
        found = {part: PARTS[part](given)}
        judged = [goal for goal in scale_tables.goals(found) if goal.reached is not None]
        print(goal_table(judged), flush=True)
        missed |= any(goal.verdict() == "missed" for goal in judged)
        if given.write:
            keep(found, {part: load}, given.rounds)
    return missed


def keep(found: dict[str, Any], loads: dict[str, float], rounds: int) -> None:
    """Side effects: adds to the results, and makes the page of them."""
    before = report.read(report.SCALE)
    about = {**report.about_this_run(()), "rounds": rounds, "loads": {**before.get("loads", {}), **loads}}
    report.SCALE.write_text(json.dumps({**before, **about, **found}, indent=1) + "\n")
    report.write()


def workers(given: argparse.Namespace) -> Found:
    """CPU µs a call. Workers are there to use several cores; then the load uses these, too. Two servers that share nothing, on
    one core, tell what two processes there cost by themselves: each finds the core's caches full of the other's."""
    found: Found = {ONE: [], TWO: [], ONE_FREE: [], TWO_FREE: [], APART: []}
    with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder, ExitStack() as stack:
        started = []
        for number, processes in enumerate((1, 2, 1, 2, 1, 1)):
            target = ours.make(Path(folder) / str(number), settings=ours.LIMITED).over_http(f"{processes} workers")
            served = replace(target, command=(*target.command, "--workers", str(processes)))
            started.append(stack.enter_context(Running(served)))
        for server in started[2:4]:
            _set_free(server.pid)
        groups = (started[:1], started[1:2], started[2:3], started[3:4], started[4:])
        for _ in range(given.rounds):
            for rounds, servers in zip(found.values(), groups, strict=True):
                rounds.append(_cpu_us(servers, given))
    return found


def _set_free(pid: int) -> None:
    """Every thread of a server and of its workers may run on every core."""
    every = set.union(*machine.cores())
    for process in (pid, *_children(pid)):
        for thread in Path(f"/proc/{process}/task").iterdir():
            machine.pin(int(thread.name), every)


def _cpu_us(servers: Sequence[Running], given: argparse.Namespace) -> float:
    """Of one call, of all servers together, which are asked at once."""
    before = sum(_cpu_s(server.pid) for server in servers)
    plans = [server.plan(given.connections // len(servers), given.seconds) for server in servers]
    loads = [server.begin(plan) for server, plan in zip(servers, plans, strict=True)]
    answers: int = sum(finish(load, plan, "a server")["answers"] for load, plan in zip(loads, plans, strict=True))
    return (sum(_cpu_s(server.pid) for server in servers) - before) / answers * 1e6


def _cpu_s(pid: int) -> float:
    """Of a process and those it has started."""
    return cpu_seconds(pid) + sum(cpu_seconds(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def callers(given: argparse.Namespace) -> dict[str, Found]:
    """CPU µs by how many callers there are: of a whole call, and of a slot that is taken and given back."""
    with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder:
        calls = callers_us(Path(folder), COUNTS, 2_000 if given.quick else 20_000, given.rounds)
    return {A_CALL: calls, **_slots(given)}


def _slots(given: argparse.Namespace) -> dict[str, Found]:
    file = make_table(2)
    table = CountTable(os.dup(file), 2, 0)
    kinds = {
        IN_PROCESS: Slots(per_caller=10, total=1000),
        IN_TABLE: TableSlots(table, per_caller=10, total=1000),
    }
    found: dict[str, Found] = {kind: {str(count): [] for count in COUNTS} for kind in kinds}
    known = [Caller(f"{number:012x}", "builder") for number in range(max(COUNTS))]
    for _ in range(given.rounds):
        for kind, slots in kinds.items():
            for count in COUNTS:
                found[kind][str(count)].append(_slot_us(slots, known[:count], 5_000 if given.quick else 50_000))
    table.close()
    os.close(file)
    return found


def _slot_us(slots: Slots, known: Sequence[Caller], turns: int) -> float:
    """Each caller has come before."""
    for caller in known:
        slots.take(caller)
        slots.give_back(caller)
    began = time.process_time()
    for number in range(turns):
        caller = known[number * 7919 % len(known)]
        slots.take(caller)
        slots.give_back(caller)
    return (time.process_time() - began) / turns * 1e6


def overload(given: argparse.Namespace) -> Found:
    """Peak: as many connections as the key may run; then ten times as many."""
    site = Path(__file__).parents[1] / "tests" / "site_packages"
    with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder:
        from tests.homes import make_home

        home = make_home(Path(folder) / "home", packs=("counted",))
        environment = os.environ | {"PYTHONPATH": str(site), "COUNTED_FILE": str(Path(folder) / "counted")}
        process = subprocess.Popen(
            home.command("serve", "--port", "0", "--json", "--workers", "2"), env=environment, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        found: Found = {"peak": [], "crowd": [], "refusal_p99_ms": [], "mib": []}
        try:
            port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
            for _ in range(2 if given.quick else 5):
                (peak, _), (crowd, refusals) = [
                    flood(port, home.keys["builder"], connections, 1 if given.quick else 4) for connections in (10, 100)
                ]
                memory = sum(memory_mib(child) for child in _children(process.pid))
                p99 = quantile(sorted(refusals), 0.99) if refusals else 0.0
                for rounds, value in zip(found.values(), (peak, crowd, p99, memory), strict=True):
                    rounds.append(value)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
    return found


def flood(port: int, key: str, connections: int, seconds: float) -> tuple[float, list[float]]:
    """(calls done in a second, milliseconds of each refusal). A refused client waits 20 ms, as long as a call takes."""
    done, refusals, end = [0], [], time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"tool":"counted_brief","args":{}}'
        head = f"POST /mrt_dispatch HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        request = f"{head}x-mcp-api-key: {key}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            if b" 200 " in answer[:16]:
                done[0] += 1
            else:
                refusals.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(0.02)
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(client() for _ in range(connections)))

    asyncio.run(all_of_them())
    return done[0] / seconds, refusals


def shared(given: argparse.Namespace) -> Found:
    """CPU µs a call in memory and with Redis; then the milliseconds of each refusal while it is stopped, and of each way back."""
    from tests.powers.limits.server import Redis

    redis = Redis()
    try:
        redis.grow_old()
        with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder:
            memory, together = measured(Path(folder), redis, given)
            refused, back = outages(Path(folder), redis, given.rounds)
    finally:
        redis.close()
    cpu = {name: [each["cpu_us"] for each in rounds] for name, rounds in ((IN_MEMORY, memory), (IN_REDIS, together))}
    return {**cpu, "refused_ms": refused, "back_ms": back}


def measured(folder: Path, redis: Redis, given: argparse.Namespace) -> tuple[list[dict[str, float]], ...]:
    settings = [ours.LIMITED, f'{ours.LIMITED}\nurl = "{redis.url}"']
    made = [ours.make(folder / str(number), settings=each) for number, each in enumerate(settings)]
    found: tuple[list[dict[str, float]], ...] = ([], [])
    with Running(made[0].over_http("in memory")) as memory, Running(made[1].over_http("shared")) as shared:
        for _ in range(given.rounds):
            for results, server in zip(found, (memory, shared), strict=True):
                results.append(server.measure(given.connections, given.seconds))
    return found


def outages(folder: Path, redis: Redis, rounds: int) -> tuple[list[float], list[float]]:
    """Of each outage the longest refusal, and the way back, in milliseconds."""
    made = ours.make(folder / "outages", settings=f'[limits]\nurl = "{redis.url}"\nlease_seconds = {LEASE_S}')
    refusals: list[float] = []
    returns: list[float] = []
    with Running(made.over_http("shared")) as server:
        while call(server) != 200:
            time.sleep(0.01)
        for _ in range(rounds):
            longest = 0.0
            with redis.hanging():
                began = time.perf_counter()
                while time.perf_counter() - began < 1.5 * LEASE_S:
                    longest = max(longest, timed(server, 503))
                    time.sleep(0.05)
            refusals.append(longest)
            began = time.perf_counter()
            while call(server) != 200:
                time.sleep(0.005)
            returns.append((time.perf_counter() - began) * 1e3)
    return refusals, returns


def timed(server: Running, wanted: int) -> float:
    began = time.perf_counter()
    status = call(server)
    took = (time.perf_counter() - began) * 1e3
    if status != wanted:
        raise RuntimeError(f"{status} instead of {wanted}")
    return took


def call(server: Running) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {"content-type": "application/json", "x-mcp-api-key": server.keys[0]}
    connection.request("POST", "/mrt_dispatch", CALL, headers)
    status = connection.getresponse().status
    connection.close()
    return status


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "workers": workers,
    "callers": callers,
    "overload": overload,
    "shared": shared,
}


if __name__ == "__main__":
    sys.exit(main())
