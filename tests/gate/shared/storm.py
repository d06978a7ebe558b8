"""Servers that share a limit, while they are killed and stopped at random and their engine is stopped, paused and emptied.

    python -m tests.gate.shared.storm --processes 8 --calls 20000 --seed 1

Every call leaves a trace (`tests/site_packages/counted.py`), and at the end the most that ever ran at once is counted from it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tests.homes import PATIENCE_S, Home, environment, first_line, make_home
from tests.powers.limits.server import Redis
from tests.waiting import soon
from toolgate.gate.shared import RENEWALS
from toolgate.powers.limits.redis import PREFIX

LIMIT = 10
LEASE_S = 2.0
CONNECTIONS = 4
"""Of each server's clients; each asks again as soon as it is answered."""
PAUSE_S = 0.05
"""After a refusal: clients that hammer would only measure the machine."""
RESTLESS_S = (0.2, 0.8)
"""Between two blows."""


@dataclass
class Process:
    """A server, which is started again when it was killed. Its clients find it by its port of the moment."""

    home: Home
    trace: Path
    port: int = 0
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = self.home.command("serve", "--port", "0", "--json")
        self.popen = subprocess.Popen(
            command,
            env=environment(COUNTED_FILE=str(self.trace)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.port = int(first_line(self.popen)["url"].rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def kill(self) -> None:
        assert self.popen is not None
        self.popen.kill()
        self.popen.communicate()

    def end(self) -> bytes:
        assert self.popen is not None
        self.popen.terminate()
        return self.popen.communicate(timeout=PATIENCE_S)[1]


@dataclass
class Storm:
    redis: Redis
    processes: list[Process]
    random: random.Random
    answers: Counter[int] = field(default_factory=Counter)
    """By status; 0: the connection was lost."""
    blows: Counter[str] = field(default_factory=Counter)
    stops: list[tuple[int, float, float]] = field(default_factory=list)
    """Which process stood still, from when until when."""
    kills: dict[int, float] = field(default_factory=dict)
    key: str = ""
    calm: bool = False

    async def rage(self, calls: int) -> None:
        clients = [asyncio.create_task(self.ask(one)) for one in self.processes for _ in range(CONNECTIONS)]
        blows = asyncio.create_task(self.strike())
        while self.answers[200] < calls:
            await asyncio.wait([blows, *clients], timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            for task in (blows, *clients):
                if task.done():
                    task.result()  # says what went wrong
        self.calm = True
        await asyncio.gather(blows, *clients)

    # Clients -----------------------------------------------------------------------------------------------------------

    async def ask(self, process: Process) -> None:
        while not self.calm:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(2 * LEASE_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
                try:
                    while not self.calm:
                        status = await self.call(reader, writer, process.port)
                        self.answers[status] += 1
                        if status != 200:
                            await asyncio.sleep(PAUSE_S)
                finally:
                    writer.close()
            if not self.calm:
                self.answers[0] += 1
                await asyncio.sleep(PAUSE_S)

    async def call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, ms: int = 20) -> int:
        body = json.dumps({"tool": "counted_brief", "args": {"ms": ms}}).encode()
        writer.write(
            b"POST /mrt_dispatch HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"X-MCP-API-Key: %b\r\nContent-Length: %d\r\n\r\n%b" % (port, self.key.encode(), len(body), body)
        )
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        return int(head.split(b" ", 2)[1])

    # Blows -------------------------------------------------------------------------------------------------------------

    async def strike(self) -> None:
        kinds = [self.kill, self.stop, self.stop, self.hang, self.empty, self.restart_engine]
        while not self.calm:
            await asyncio.sleep(self.random.uniform(*RESTLESS_S))
            kind = self.random.choice(kinds)
            self.blows[kind.__name__] += 1
            await kind()

    async def kill(self) -> None:
        process = self.random.choice(self.processes)
        self.kills[process.pid] = time.monotonic()
        await asyncio.to_thread(process.kill)
        await asyncio.to_thread(process.start)

    async def stop(self) -> None:
        """Sometimes for longer than a lease."""
        pid = self.random.choice(self.processes).pid
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(0.05, 1.5) * LEASE_S)
        self.stops.append((pid, began, time.monotonic()))
        os.kill(pid, signal.SIGCONT)

    async def hang(self) -> None:
        with self.redis.hanging():
            await asyncio.sleep(self.random.uniform(0.05, 1.5) * LEASE_S)

    async def empty(self) -> None:
        self.redis.empty()

    async def restart_engine(self) -> None:
        await asyncio.to_thread(self.redis.kill)
        await asyncio.sleep(self.random.uniform(0.0, 1.0))
        await asyncio.to_thread(self.redis.start)

    # Afterwards --------------------------------------------------------------------------------------------------------

    async def all_slots(self) -> list[int]:
        """The answers to as many calls at once as the limit allows, spread over the servers, once all is well again."""
        await soon(lambda: self.redis.names() == [PREFIX + "state"], "every slot was given back")
        answers = await asyncio.gather(*(self.once(self.processes[n % len(self.processes)]) for n in range(LIMIT)))
        return sorted(answers)

    async def once(self, process: Process) -> int:
        """A server may still refuse for one lease."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
                status = await self.call(reader, writer, process.port, ms=1000)
                writer.close()
                if status != 503:
                    return status
                await asyncio.sleep(PAUSE_S)


@dataclass
class Trace:
    """When each call ran. `resumed`: those that went on after their process had stood still for longer than a lease."""

    most: int = 0
    calls: int = 0
    resumed: int = 0

    @classmethod
    def read(cls, path: Path, storm: Storm) -> Trace:
        began, ended = {}, {}
        for line in path.read_text().splitlines():
            event, pid, number, when = line.split()
            (began if event == "began" else ended)[int(pid), int(number)] = float(when)
        trace = cls(calls=len(began))
        pieces = [
            piece for call, start in began.items() for piece in trace.pieces(call[0], start, ended.get(call), storm)
        ]
        moments = sorted(chain.from_iterable(((start, 1), (end, -1)) for start, end in pieces))
        running = 0
        for _, change in moments:
            running += change
            trace.most = max(trace.most, running)
        return trace

    def pieces(self, pid: int, start: float, end: float | None, storm: Storm) -> list[tuple[float, float]]:
        """When it ran, without the time in which its process stood still."""
        end = storm.kills[pid] if end is None else end
        found = []
        for stopped, since, until in sorted(storm.stops):
            if stopped == pid and start < since < end:
                found.append((start, since))
                start = until
                if until - since > LEASE_S * (1 - 1 / RENEWALS):  # its lease may have been over
                    self.resumed += 1
                    return found
        return [*found, (start, end)]


async def run(processes: int, calls: int, seed: int, folder: Path) -> tuple[Storm, Trace, list[int]]:
    redis = Redis()
    trace = folder / "trace"
    settings = f'[limits]\nurl = "{redis.url}"\nconcurrency_per_caller = {LIMIT}\nlease_seconds = {LEASE_S}'
    home = make_home(folder / "home", packs=("counted",), settings=settings)
    storm = Storm(redis, [Process(home, trace) for _ in range(processes)], random.Random(seed), key=home.keys["admin"])
    try:
        redis.grow_old()
        for process in storm.processes:
            await asyncio.to_thread(process.start)
        await storm.rage(calls)
        slots = await storm.all_slots()
        for process in storm.processes:
            said = await asyncio.to_thread(process.end)
            assert b"Traceback" not in said, said.decode()
    finally:
        for process in storm.processes:
            if process.popen is not None and process.popen.poll() is None:
                process.kill()
        redis.close()
    return storm, Trace.read(trace, storm), slots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tg-storm-") as folder:
        began = time.monotonic()
        storm, trace, slots = asyncio.run(run(given.processes, given.calls, given.seed, Path(folder)))
    print(f"{trace.calls} calls ran in {time.monotonic() - began:.0f} s, at most {trace.most} of {LIMIT} at once")
    print(
        f"answers {dict(storm.answers)}, blows {dict(storm.blows)}, {trace.resumed} calls of processes that came back"
    )
    print(f"afterwards {slots.count(200)} of {LIMIT} slots are there")
    sys.exit(trace.most > LIMIT or slots != [200] * LIMIT)


if __name__ == "__main__":
    main()
