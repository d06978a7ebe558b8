"""A real server under hostile load: what a good caller notices, what it costs the server, and what is left afterwards."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.homes import PATIENCE_S, ROOT, Home, Server, environment
from tests.rough.cores import place_server

IS_LONG = os.environ.get("ROUGH") == "long"
"""`make rough`: every kind at every number of connections."""
WINDOW_S = 2.0 if IS_LONG else 1.0
"""Of a measurement: 500 calls in the long form, so that its p99 is not the slowest one. There are 138 of them, and the whole
must take no more than ten minutes, or nobody runs it."""
QUIET_FOR_S = 30.0 if IS_LONG else math.inf
"""How long a measurement of the quiet server counts: a shared machine changes its speed."""
PERIOD_S = 0.004
"""Between two calls of the good caller."""
P99_S = 0.05
"""What the good caller's p99 must stay under, whatever others do."""
TIMES_QUIET = 20
"""And how many times its p99 on a quiet server."""
LEAST_QUIET_S = 0.002
"""A p99 below this is counted as this: it is how soon the machine wakes a process up, and twenty times of little is luck."""
NEW_S = 2.0
"""What nine of ten of its new connections must be answered in. A server cannot know whose a connection is before it has read
a head from it, so a new one has to queue with all strangers who are new."""
RSS_BYTES = 300_000_000
RSS_LEFT_BYTES = 64_000_000
"""How much more memory than before may stay in use: allocators keep some of what they were given back."""
RECOVERY_S = 10.0
CALM_S = 0.3
"""Of a measurement after an attack: it is repeated until the good caller fares as before, or the time to recover is over."""
TIMES_CALM = 5
"""How many times what it was the good caller's time may then be: a short measurement on a shared machine is a rough one."""
TRIES = 3
SPARE_FDS = 64
"""Descriptors beside connections: the log, stores, worker processes, timers."""

SETTINGS = """
[server]
header_read_seconds = 1.0
body_read_seconds = 1.0
write_seconds = 1.0
keep_alive_seconds = 2.0
"""
"""Shorter than the defaults, so that a run can wait for them to pass."""


@dataclass(frozen=True)
class Pace:
    """How a good caller fared, in seconds."""

    calls: int
    p50: float
    p99: float
    """Of calls by connections that are kept."""
    new: float
    """What nine of ten calls by new connections took at most; they are too few for a p99."""
    failures: Sequence[str]

    @staticmethod
    def of(kept: Sequence[float], new: Sequence[float], failures: Sequence[str]) -> Pace:
        return Pace(len(kept) + len(new), _at(kept, 0.5), _at(kept, 0.99), _at(new, 0.9), failures)

    def is_like(self, before: Pace) -> bool:
        """Nothing fails, and calls by kept and by new connections take about as long as they did."""
        pairs = ((self.p50, before.p50), (self.p99, before.p99), (self.new, before.new))
        return not self.failures and all(now < TIMES_CALM * max(was, LEAST_QUIET_S) for now, was in pairs)


def _at(values: Sequence[float], share: float) -> float:
    return sorted(values)[math.ceil((len(values) - 1) * share)]


@dataclass(frozen=True)
class State:
    rss: int
    worker: int
    """Memory of the largest worker process."""
    fds: int


@dataclass(frozen=True)
class Outcome:
    name: str
    count: int
    quiet: Pace
    loaded: Pace
    calm: Pace
    """After the attack."""
    before: State
    peak: State
    after: State
    ended_s: float | None
    """Until the server had ended the hostile connections by itself; None if it need not."""
    recovered_s: float
    heard: dict[str, Any]

    def faults(self, connections: int) -> Iterator[str]:
        loaded, bound = self.loaded, min(P99_S, TIMES_QUIET * max(self.quiet.p99, LEAST_QUIET_S))
        if self.heard["opened"] < self.count:
            yield f"no attack: only {self.heard['opened']} hostile connections were made"
        if loaded.failures:
            yield f"{len(loaded.failures)} of {loaded.calls} good calls failed: {sorted(set(loaded.failures))}"
        if loaded.p99 >= bound:
            yield f"the good caller's p99 is {loaded.p99 * 1000:.1f} ms, not under {bound * 1000:.1f} ms"
        if loaded.new >= NEW_S:
            yield f"one new connection in ten takes {loaded.new:.1f} s, not under {NEW_S:.1f} s"
        if self.peak.rss >= RSS_BYTES:
            yield f"the server took {self.peak.rss / 1e6:.0f} MB"
        if self.peak.worker >= RSS_BYTES:
            yield f"a worker process took {self.peak.worker / 1e6:.0f} MB"
        if self.peak.fds > connections + SPARE_FDS:
            yield f"the server held {self.peak.fds} descriptors"
        if self.ended_s is not None and self.ended_s >= RECOVERY_S:
            yield f"hostile connections are still open after {RECOVERY_S:.0f} s"
        if self.recovered_s >= RECOVERY_S:
            yield f"not as before after {RECOVERY_S:.0f} s: {self.before} became {self.after}"
        if not self.calm.is_like(self.quiet):
            yield f"the good caller fares not as before after {RECOVERY_S:.0f} s: {self.quiet} became {self.calm}"

    def line(self) -> str:
        def ms(seconds: float) -> str:
            return f"{seconds * 1000:7.2f}"

        def mb(state: State) -> str:
            return f"{state.rss / 1e6:4.0f}"

        quiet, loaded = self.quiet, self.loaded
        ended = "   -" if self.ended_s is None else f"{self.ended_s:4.1f}"
        return (
            f"{self.name:32} {self.count:5} {ms(quiet.p50)} {ms(loaded.p50)} {ms(quiet.p99)} {ms(loaded.p99)} "
            f"{ms(self.calm.p99)} {ms(quiet.new)} {ms(loaded.new)} {mb(self.before)} {mb(self.peak)} {mb(self.after)} "
            f"{self.peak.worker / 1e6:4.0f} {self.before.fds:4} {self.peak.fds:5} {self.after.fds:4} {ended} "
            f"{self.recovered_s:4.1f}  {self.heard['opened']} opened, heard {self.heard['answers']}"
        )


TITLE = (
    f"{'':38} {'p50 in ms':>15} {'p99 in ms':>23} {'new, p90':>15} {'memory in MB':>19} {'descriptors':>15} {'seconds':>9}\n"
    f"{'kind':32} {'conns':>5} {'quiet':>7} {'loaded':>7} {'quiet':>7} {'loaded':>7} {'then':>7} {'quiet':>7} {'loaded':>7} "
    f"{'was':>4} {'peak':>4} {'then':>4} {'work':>4} {'was':>4} {'peak':>5} {'then':>4} {'end':>4} {'calm':>4}"
)


def allow_descriptors(wanted: int = 8192) -> None:
    """For the server and the attackers, which inherit it: many machines start programs with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


@dataclass
class Range:
    """A server that is shot at."""

    home: Home
    server: Server
    say: Callable[[str], None]
    """Where the lines of the table go."""
    attacker: str = "builder"
    """The role whose key an attack has, if it has one."""
    connections: int = 1024
    _quiet: list[Pace] = field(default_factory=list)
    _quiet_until: float = 0.0

    def __post_init__(self) -> None:
        self.say(TITLE)
        place_server(self.server.process.pid)

    def state(self) -> State:
        return state_of(self.server.process.pid)

    def pace(self, seconds: float) -> Pace:
        """How the good caller fares now."""
        command = _module("caller", self.server.port, self.home.keys["admin"], seconds, PERIOD_S)
        done = subprocess.run(
            command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
        return Pace.of(**json.loads(done.stdout))

    def quiet(self, *, anew: bool = False) -> Pace:
        if not self._quiet:
            self.pace(0.5)  # the first calls warm it up
        if not self._quiet or anew or time.monotonic() > self._quiet_until:
            self._quiet.append(self.pace(WINDOW_S))
            self._quiet_until = time.monotonic() + QUIET_FOR_S
        return self._quiet[-1]

    def fares(self, module: str, name: str, count: int, *more: object, ends: bool) -> list[str]:
        """What was not as promised, and was not at any of three tries: the machine may have had other things to do."""
        faults: list[str] = []
        for attempt in range(TRIES):
            self.quiet(anew=attempt > 0)
            faults = list(self.attacked_by(module, name, count, *more, ends=ends).faults(self.connections))
            if not faults:
                break
        return faults

    def attacked_by(self, module: str, name: str, count: int, *more: object, ends: bool) -> Outcome:
        """Side effects: says a line of the table."""
        quiet, before = self._quiet[-1], self.state()
        with self._watched() as peak, _running(module, self.server.port, self._key(), name, count, *more) as attack:
            loaded = self.pace(WINDOW_S)
            _say(attack, "\n")
            ended_s = _until(lambda: self.state().fds <= before.fds + 8) if ends else None
            heard, _ = attack.communicate(timeout=PATIENCE_S)
        recovered_s, calm = self._recovered(before, quiet)
        outcome = Outcome(
            name, count, quiet, loaded, calm, before, peak(), self.state(), ended_s, recovered_s, json.loads(heard)
        )
        self.say(outcome.line())
        return outcome

    def _recovered(self, before: State, quiet: Pace) -> tuple[float, Pace]:
        """Seconds until the server held no more than before, and how the good caller fares now that the attack is over."""
        over = time.monotonic()
        recovered_s = _until(lambda: self._is_as(before))
        calm = self.pace(CALM_S)
        while not calm.is_like(quiet) and time.monotonic() - over < RECOVERY_S:
            calm = self.pace(CALM_S)
        _until(lambda: self._is_as(before))  # the good caller has left, too
        return recovered_s, calm

    def _key(self) -> str:
        return self.home.keys[self.attacker]

    def _is_as(self, before: State) -> bool:
        now = self.state()
        return now.fds <= before.fds + 8 and now.rss <= before.rss + RSS_LEFT_BYTES

    @contextmanager
    def _watched(self) -> Iterator[Callable[[], State]]:
        """Looks at the server many times a second; gives the most that was seen."""
        seen, over = [self.state()], threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                seen.append(self.state())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield lambda: State(*(max(getattr(state, one) for state in seen) for one in ("rss", "worker", "fds")))
        finally:
            over.set()
            watcher.join()


def state_of(pid: int) -> State:
    workers = [_rss(worker) for worker in _descendants(pid)]
    return State(_rss(pid), max(workers, default=0), len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208 (many times a second)


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended


def _descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in thread.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        for child in children:
            yield child
            yield from _descendants(child)


def _module(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"tests.rough.{name}", *map(str, arguments)]


@contextmanager
def _running(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    attack = subprocess.Popen(
        _module(module, *arguments),
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield attack
    finally:
        attack.kill()
        attack.wait()
        for pipe in (attack.stdin, attack.stdout):
            if pipe is not None:
                pipe.close()


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _until(is_so: Callable[[], bool]) -> float:
    """Seconds that it took, `RECOVERY_S` at most."""
    start = time.monotonic()
    while not is_so() and time.monotonic() - start < RECOVERY_S:
        threading.Event().wait(0.05)
    return min(time.monotonic() - start, RECOVERY_S)
