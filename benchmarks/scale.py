"""What it costs to be several, and how a server behaves when more is asked than it can do.

    python -m benchmarks.scale [--quick] [--only PART] [--rounds N] [--seconds S] [--connections N]

workers    CPU a call of a server of two processes, supervisor included, beside one of one and beside two apart. Goal: 1.1 times.
callers    what a slot costs as callers get more, counted in one process and in memory that several share. Goal: flat to 100 000.
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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import ours
from benchmarks.machine import cpu_seconds, memory_mib
from benchmarks.servers import Running, finish
from benchmarks.stats import quantile, ratios, spread
from toolgate.gate.admit import Slots
from toolgate.gate.counted import CountTable, TableSlots, make_table
from toolgate.model.call import Caller

if TYPE_CHECKING:
    from tests.powers.limits.server import Redis

GOAL = 1.25
WORKERS_GOAL = 1.1
REFUSED_GOAL_MS, BACK_GOAL_MS = 250, 1000
LEASE_S = 1
CALL = b'{"tool":"bench_echo","args":{"text":"x","count":1,"flag":true}}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look, in half a minute: two short rounds")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=64)
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds = 2, 0.5
    parts = [given.only] if given.only else list(PARTS)
    return max([PARTS[part](given) for part in parts])


def workers(given: argparse.Namespace) -> int:
    """Prints it; 1 if the goal is missed. Two servers that share nothing, on the same core, tell what two processes cost by
    themselves: each finds the core's caches full of the other's."""
    found: dict[str, list[float]] = {"one worker": [], "two workers": [], "two servers apart": []}
    with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder, ExitStack() as stack:
        started = []
        for number, processes in enumerate((1, 2, 1, 1)):
            target = ours.make(Path(folder) / str(number), settings=ours.LIMITED).over_http(f"{processes} workers")
            served = replace(target, command=(*target.command, "--workers", str(processes)))
            started.append(stack.enter_context(Running(served)))
        for _ in range(given.rounds):
            for rounds, servers in zip(found.values(), (started[:1], started[1:2], started[2:]), strict=True):
                rounds.append(_cpu_us(servers, given))
    print(f"CPU a call at {given.connections} connections, all processes, warm-up included, {given.rounds} rounds:")
    for name, rounds in found.items():
        print(f"  {name:<17} {spread(rounds).median:.0f} µs, {ratios(rounds, found['one worker']).median:.2f} times")
    ratio = ratios(found["two workers"], found["one worker"]).median
    beside = ratios(found["two workers"], found["two servers apart"]).median
    print(f"  goal {WORKERS_GOAL} times one worker; beside two servers apart {beside:.2f}")
    return ratio > WORKERS_GOAL


def _cpu_us(servers: Sequence[Running], given: argparse.Namespace) -> float:
    """Of one call, of all servers together, which are asked at once."""
    before = sum(_cpu_s(server.pid) for server in servers)
    plans = [server.plan(given.connections // len(servers), given.seconds) for server in servers]
    loads = [server.begin(plan) for server, plan in zip(servers, plans, strict=True)]
    answers: int = sum(finish(load, plan, "a server")["answers"] for load, plan in zip(loads, plans, strict=True))
    return (sum(_cpu_s(server.pid) for server in servers) - before) / answers * 1e6


def _cpu_s(pid: int) -> float:
    """Of a process and those it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(int(child)) for child in children)


def callers(given: argparse.Namespace) -> int:
    """Prints it; 1 if a slot costs more than half as much again with 100 000 callers as with 100."""
    file = make_table(2)
    table = CountTable(os.dup(file), 2, 0)
    kinds = {
        "in memory": Slots(per_caller=10, total=1000),
        "in shared memory": TableSlots(table, per_caller=10, total=1000),
    }
    missed = 0
    for name, slots in kinds.items():
        costs = []
        for count in (100, 10_000, 100_000):
            known = [Caller(f"{number:012x}", "builder") for number in range(count)]
            for caller in known:
                slots.take(caller)
                slots.give_back(caller)
            turns = 20_000 if given.quick else 200_000
            began = time.perf_counter()
            for number in range(turns):
                caller = known[number * 7919 % count]
                slots.take(caller)
                slots.give_back(caller)
            costs.append((time.perf_counter() - began) / turns * 1e6)
        print(
            f"a slot taken and given back, {name}: "
            + ", ".join(f"{cost:.1f} µs" for cost in costs)
            + " (100, 10 000, 100 000 callers)"
        )
        missed |= costs[-1] > 1.5 * costs[0] + 0.5
    table.close()
    os.close(file)
    return missed


def overload(given: argparse.Namespace) -> int:
    """Prints it; 1 if a goal is missed. Peak: as many connections as the key may run; then ten times as many."""
    site = Path(__file__).parents[1] / "tests" / "site_packages"
    with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder:
        from tests.homes import make_home

        home = make_home(Path(folder) / "home", packs=("counted",))
        environment = os.environ | {"PYTHONPATH": str(site), "COUNTED_FILE": str(Path(folder) / "counted")}
        process = subprocess.Popen(
            home.command("serve", "--port", "0", "--json", "--workers", "2"), env=environment, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
            seconds = 2 if given.quick else 20
            (peak, _), (crowd, refusals) = [
                flood(port, home.keys["builder"], connections, seconds) for connections in (10, 100)
            ]
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            memory = sum(memory_mib(int(child)) for child in children)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
    p99 = quantile(sorted(refusals), 0.99) if refusals else 0.0
    print(
        f"a tool of 20 ms, 10 at once: {peak:.0f} a second; asked ten times as much: {crowd:.0f} a second ({crowd / peak:.0%})"
    )
    print(f"  {len(refusals)} refusals, p99 {p99:.0f} ms; {memory:.0f} MiB in {len(children)} workers")
    return crowd < 0.8 * peak or p99 > 50 or memory > 512


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


def shared(given: argparse.Namespace) -> int:
    from tests.powers.limits.server import Redis

    redis = Redis()
    try:
        redis.grow_old()
        with tempfile.TemporaryDirectory(prefix="tg-scale-") as folder:
            ratio = cost(Path(folder), redis, given)
            refused, back = outages(Path(folder), redis, given.rounds)
    finally:
        redis.close()
    return ratio > GOAL or refused > REFUSED_GOAL_MS or back > BACK_GOAL_MS


def cost(folder: Path, redis: Redis, given: argparse.Namespace) -> float:
    """Prints it; the ratio."""
    memory, shared = measured(folder, redis, given)
    alone, together = [[each["cpu_us"] for each in rounds] for rounds in (memory, shared)]
    print(f"CPU a call at {given.connections} connections, median of {given.rounds} rounds:")
    for name, rounds in (("in memory", alone), ("shared", together)):
        found = spread(rounds)
        print(f"  {name:<9} {found.median:.0f} µs ({found.low:.0f} to {found.high:.0f})")
    ratio = ratios(together, alone)
    print(f"  ratio     {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), goal {GOAL}")
    return ratio.median


def measured(folder: Path, redis: Redis, given: argparse.Namespace) -> tuple[list[dict[str, float]], ...]:
    settings = [ours.LIMITED, f'{ours.LIMITED}\nurl = "{redis.url}"']
    made = [ours.make(folder / str(number), settings=each) for number, each in enumerate(settings)]
    found: tuple[list[dict[str, float]], ...] = ([], [])
    with Running(made[0].over_http("in memory")) as memory, Running(made[1].over_http("shared")) as shared:
        for _ in range(given.rounds):
            for results, server in zip(found, (memory, shared), strict=True):
                results.append(server.measure(given.connections, given.seconds))
    return found


def outages(folder: Path, redis: Redis, rounds: int) -> tuple[float, float]:
    """Prints them; the longest refusal and the longest way back, in milliseconds."""
    made = ours.make(folder / "outages", settings=f'[limits]\nurl = "{redis.url}"\nlease_seconds = {LEASE_S}')
    refusals: list[float] = []
    returns: list[float] = []
    with Running(made.over_http("shared")) as server:
        while call(server) != 200:
            time.sleep(0.01)
        for _ in range(rounds):
            with redis.hanging():
                began = time.perf_counter()
                while time.perf_counter() - began < 1.5 * LEASE_S:
                    refusals.append(timed(server, 503))
                    time.sleep(0.05)
            began = time.perf_counter()
            while call(server) != 200:
                time.sleep(0.005)
            returns.append((time.perf_counter() - began) * 1e3)
    print(f"Redis stopped for {1.5 * LEASE_S} s, {rounds} times, lease {LEASE_S} s:")
    tell("refusal", refusals, REFUSED_GOAL_MS)
    tell("back", returns, BACK_GOAL_MS)
    return max(refusals), max(returns)


def tell(what: str, found: Sequence[float], goal: int) -> None:
    ordered = sorted(found)
    print(
        f"  {what:<9} p50 {quantile(ordered, 0.5):.0f} ms, longest of {len(ordered)} {ordered[-1]:.0f} ms, goal {goal}"
    )


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


PARTS = {"workers": workers, "callers": callers, "overload": overload, "shared": shared}


if __name__ == "__main__":
    sys.exit(main())
