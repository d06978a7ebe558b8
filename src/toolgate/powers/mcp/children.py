"""A child: a program that speaks MCP on its pipes. One process for all callers, and none that outlives us."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from toolgate.model import strictjson
from toolgate.model.threads import in_thread, start
from toolgate.powers.mcp import supervisor
from toolgate.powers.mcp.bounds import STANDARD, Bounds
from toolgate.powers.mcp.failures import NotSent
from toolgate.powers.mcp.stdio import ChildPipes, StdioTransport

GRACE_S: Final = 2.0
"""Between the end of input and TERM, and between TERM and KILL."""
START_S: Final = 10.0
"""For the supervisor and the program to be there; how long it then takes to answer is the session's matter."""
MEMORY_BYTES: Final = 4 << 30
"""Of writable memory. A headless browser uses one or two gigabytes."""
FILES: Final = 4096
KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What a child gets of our own environment: no secrets, nothing that tells a program to load code."""


class Program(Struct, frozen=True):
    """What is started, and with what. Values of `environment` may be secrets: they go over the lifeline, never in argv.
    `secrets`: those that it was given, which are cut out of what it says on standard error."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    memory_bytes: int = MEMORY_BYTES
    files: int = FILES
    grace_s: float = GRACE_S
    secrets: tuple[str, ...] = ()


def environment_for(declared: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """From zero: a few plain variables of ours, and what the settings declare."""
    return {name: ours[name] for name in KEPT_VARIABLES if name in ours} | dict(declared)


class Child:
    """A program under way, with its supervisor."""

    def __init__(
        self, process: subprocess.Popen[bytes], lifeline: socket.socket, pipes: ChildPipes, grace_s: float
    ) -> None:
        self._process = process
        self._lifeline = lifeline
        self._grace_s = grace_s
        self._said = b""
        self.pipes = pipes
        self.pid = 0
        self.code: int | None = None
        """How it ended: an exit code, or a signal as its negative number."""

    @property
    def supervisor(self) -> int:
        return self._process.pid

    async def started(self) -> None:
        """Raises: NotSent: the program could not be started."""
        event = await self._event(START_S)
        if "started" in event:
            self.pid = event["started"]
            return
        raise NotSent(
            "not_started", f"the program could not be started ({event.get('failed', 'its supervisor ended')})"
        )

    async def stop(self) -> None:
        """Its input must be closed by now. Returns when nothing of it is left, or when all that can be done is done."""
        with suppress(OSError):
            self._lifeline.send(b"stop\n")
        event = await self._event(self._grace_s * 3 + START_S)
        self.code = event.get("ended", self.code)
        self.kill()
        await in_thread(self._process.wait)

    async def ended(self) -> int | None:
        """After its pipe broke: wait for its supervisor to tell how it ended. None: it did not end in time."""
        event = await self._event(self._grace_s)
        self.code = event.get("ended")
        return self.code

    def kill(self) -> None:
        """At once: the supervisor first, since it would only do the same more gently."""
        self._lifeline.close()
        if self._process.poll() is None and self.code is None:
            with suppress(OSError):
                if self.pid:
                    os.killpg(self.pid, signal.SIGKILL)
                self._process.kill()

    async def discard(self) -> None:
        """End a child whose pipes nobody has taken."""
        for descriptor in (self.pipes.stdin, self.pipes.stdout, self.pipes.stderr):
            os.close(descriptor)
        await self.stop()

    async def _event(self, seconds: float) -> dict[str, Any]:
        """The supervisor's next line; empty when it has ended or says nothing in time."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(seconds):
                while b"\n" not in self._said:
                    piece = await asyncio.get_running_loop().sock_recv(self._lifeline, 4096)
                    if not piece:
                        break
                    self._said += piece
        line, _, self._said = self._said.partition(b"\n")
        try:
            event: dict[str, Any] = strictjson.loads(line) if line else {}
        except strictjson.JsonFault:
            event = {}
        return event


async def start_child(program: Program) -> Child:
    """Raises: NotSent."""
    if shutil.which(program.command[0], path=program.environment.get("PATH")) is None:
        raise NotSent(
            "not_found",
            f"the program {program.command[0]!a} is not on the PATH that the gate gives it; name its full path",
        )
    spawning, _ = start(partial(_spawn, program), name="upstream-start")
    try:
        child: Child = await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await asyncio.wait({spawning})  # a few milliseconds: what was started must be ended
        if spawning.exception() is None:
            await spawning.result().discard()
        raise
    except OSError as fault:
        raise NotSent("not_started", f"no process could be started ({fault.strerror})") from None
    try:
        await child.started()
    except BaseException:
        await child.discard()
        raise
    return child


def _spawn(program: Program) -> Child:
    """Raises: OSError."""
    ours, theirs = socket.socketpair()
    stdin_read, stdin_write = os.pipe()
    stdout_read, stdout_write = os.pipe()
    stderr_read, stderr_write = os.pipe()
    given = (stdin_read, stdout_write, stderr_write)
    try:
        process = subprocess.Popen(  # noqa: S603 (our own interpreter and script)
            [sys.executable, "-I", "-S", "-c", _BOOT, str(theirs.fileno()), supervisor.__file__],
            stdin=stdin_read,
            stdout=stdout_write,
            stderr=stderr_write,
            cwd="/",
            env={},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl+C, and a signal to our group, is for us
        )
    except BaseException:
        ours.close()
        for descriptor in (stdin_write, stdout_read, stderr_read):
            os.close(descriptor)
        raise
    finally:
        theirs.close()
        for descriptor in given:
            os.close(descriptor)
    for descriptor in (stdin_write, stdout_read, stderr_read):
        os.set_blocking(descriptor, False)
    ours.sendall(strictjson.dumps(_order(program)) + b"\n")
    ours.settimeout(0)  # from here on the event loop reads it
    return Child(process, ours, ChildPipes(stdin_write, stdout_read, stderr_read), program.grace_s)


_BOOT: Final = (
    "import os,sys,runpy;d=int(sys.argv[1]);d==3 or (os.dup2(d,3),os.close(d));"
    "runpy.run_path(sys.argv[2],run_name='__main__')"
)
"""The lifeline becomes descriptor 3, wherever it was."""


def _order(program: Program) -> dict[str, Any]:
    return {
        "command": list(program.command),
        "environment": dict(program.environment),
        "directory": program.directory,
        "memory_bytes": program.memory_bytes,
        "files": program.files,
        "grace_s": program.grace_s,
    }


class ChildTransport(StdioTransport):
    """The pipes of a child, and the child: when one ends, so does the other."""

    def __init__(self, child: Child, bounds: Bounds, births: ChildRegister | None, secrets: Sequence[str]) -> None:
        super().__init__(child.pipes, bounds)
        self._child = child
        self._secrets = secrets
        self._births = births
        self._burial: asyncio.Task[None] | None = None
        self.on_end = self._bury

    @property
    def pid(self) -> int:
        return self._child.pid

    async def close(self) -> None:
        await super().close()
        if self._burial is not None:
            await asyncio.shield(self._burial)

    async def why(self) -> str:
        if self._burial is not None:
            await asyncio.shield(self._burial)
        code, words = self._child.code, self.stderr.text(self._secrets).strip()
        how = "" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
        ended = f"the program ended with {how}" if how else await super().why()
        return f"{ended}; it said:\n{words}" if words else ended

    def _bury(self) -> None:
        self._burial = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        await self._child.stop()
        if self._births is not None:
            self._births.remove(self._child)


async def open_child(
    program: Program, bounds: Bounds = STANDARD, births: ChildRegister | None = None
) -> ChildTransport:
    """Raises: NotSent."""
    child = await start_child(program)
    if births is not None:
        births.add(child)
    return ChildTransport(child, bounds, births, program.secrets)


# -- what a killed gate left behind -----------------------------------------------------------------------------


class ChildRegister:
    """A file for each child, so that the next gate of the same home finds those whose supervisor was killed as well."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, child: Child) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        born = birth(child.pid)
        if born is not None:
            record = {"pid": child.pid, "born": born, "gate": os.getpid(), "gateBorn": birth(os.getpid())}
            (self._directory / f"{child.pid}.json").write_bytes(strictjson.dumps(record))

    def remove(self, child: Child) -> None:
        (self._directory / f"{child.pid}.json").unlink(missing_ok=True)

    def reap(self) -> list[int]:
        """Kill the groups of children whose gate has died. Side effects: kills, and removes the files.

        Several gates may share a home: what a living one has started is its own.
        """
        killed = []
        for file in sorted(self._directory.glob("*.json")) if self._directory.is_dir() else ():
            with suppress(OSError, strictjson.JsonFault, KeyError, TypeError, ValueError):
                record = strictjson.loads(file.read_bytes())
                pid, gate = int(record["pid"]), int(record["gate"])
                if birth(gate) == record["gateBorn"]:
                    continue
                if birth(pid) == record["born"] and os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                    killed.append(pid)
            file.unlink(missing_ok=True)
        return killed


def birth(pid: int) -> int | None:
    """When the process began, in ticks since the machine did: with its number it names one process for good. Linux only."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2]
        return int(after_name.split()[19])
    except (OSError, ValueError, IndexError):
        return None
