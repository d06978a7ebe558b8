"""Starting, measuring and stopping the servers under test: one shape for ours and for the peers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any

from benchmarks import machine, wire
from benchmarks.load import Load, Plan

PATIENCE_S = 60.0
"""Seconds that a server may take to start or to stop, and the load longer than planned."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server in one mode: how it starts, how it is spoken to, where its answers carry the echo."""

    name: str
    command: tuple[str, ...]
    exchange: wire.Exchange
    environment: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @property
    def over_stdio(self) -> bool:
        return self.exchange.face == "stdio"

    def spoken(self, name: str, **changes: Any) -> Target:
        """The same server under another face, case or size."""
        return replace(self, name=name, exchange=replace(self.exchange, **changes))


class Running:
    """A started server, pinned to the server's core. Use as a context manager: it always ends."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.server_core, self.load_core = machine.cores()
        self.begun = perf_counter()
        self.process = subprocess.Popen(
            target.command,
            env=os.environ | dict(target.environment),
            stdin=subprocess.PIPE if target.over_stdio else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: machine.pin(0, self.server_core),  # noqa: PLW1509 (no thread runs here yet)
        )
        ready = {} if target.over_stdio else self._announced()
        self.port = int(str(ready.get("url", ":0")).rpartition(":")[2])
        self.keys: tuple[str, ...] = (ready["token"],) if "token" in ready else target.keys

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _announced(self) -> dict[str, Any]:
        """The line in which a server over HTTP tells its address, and perhaps a key it has made."""
        assert self.process.stdout is not None
        overdue = threading.Timer(PATIENCE_S, self.process.kill)
        overdue.start()
        line = self.process.stdout.readline()
        overdue.cancel()
        if not line:
            self.stop()
            raise RuntimeError(f"{self.target.name}: did not start")
        return dict(json.loads(line))

    def stop(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()  # how a client ends a server over stdio
        else:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def plan(self, connections: int, seconds: float, **more: Any) -> Plan:
        pipes = None
        if self.target.over_stdio:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            pipes = (self.process.stdout.fileno(), self.process.stdin.fileno())
        exchange = more.pop("exchange", self.target.exchange)
        return Plan(
            exchange=asdict(exchange),
            connections=connections,
            seconds=seconds,
            port=self.port,
            pipes=pipes,
            keys=more.pop("keys", self.keys),
            server_pid=more.pop("server_pid", self.pid),
            **more,
        )

    def begin(self, plan: Plan) -> subprocess.Popen[bytes]:
        """The load in its own process on its own core, started but not waited for."""
        load = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=plan.pipes or (),
            preexec_fn=lambda: machine.pin(0, self.load_core),  # noqa: PLW1509 (no thread runs here yet)
        )
        assert load.stdin is not None
        load.stdin.write(json.dumps(plan.as_json()).encode())
        load.stdin.close()
        load.stdin = None
        return load

    def measure(self, connections: int, seconds: float, **more: Any) -> dict[str, Any]:
        """One run of the load, with its result. Raises: WrongAnswers."""
        plan = self.plan(connections, seconds, **more)
        return finish(self.begin(plan), plan, self.target.name)


class WrongAnswers(Exception):
    """A server answered wrongly. Its speed is then of no interest."""


def finish(load: subprocess.Popen[bytes], plan: Plan, name: str) -> dict[str, Any]:
    """Raises: WrongAnswers: an answer was wrong, or none came at all."""
    out, _ = load.communicate(timeout=plan.seconds + PATIENCE_S)
    if load.returncode != 0:
        raise WrongAnswers(f"{name}: the load failed (exit {load.returncode})")
    found: dict[str, Any] = json.loads(out)
    if found["wrong"] or not found["answers"]:
        raise WrongAnswers(f"{name}: {found['wrong']} wrong of {found['answers']}: {'; '.join(found['examples'])}")
    return found


def first_answer(server: Running) -> float:
    """Seconds from the start of its process to its first right answer. Raises: WrongAnswers."""
    tally = Load(server.plan(1, 0.0, warm_seconds=0.0, server_pid=None)).run()
    elapsed = perf_counter() - server.begun
    if tally.wrong or not tally.answers:
        raise WrongAnswers(f"{server.target.name}: {'; '.join(tally.examples)}")
    return elapsed
