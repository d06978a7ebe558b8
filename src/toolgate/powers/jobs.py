"""Jobs: what goes on after the call that started it has been answered.

One keeper in a process knows how to start each kind that a pack declares; a caller sees and stops only its own jobs, an admin
everybody's, each pack those it started. A job that nobody used for a while is ended, and shutdown ends all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.model.powers import JobInfo
from toolgate.model.tool import JobRun

IDLE_TIMEOUT_S: Final = 1800.0
"""Seconds without use: a forgotten dev server holds a port and serves files to everyone on the machine."""
SWEEP_S: Final = 15.0
"""Seconds between two looks at what is idle."""
MAX_JOBS: Final = 64
"""In one process, over all callers."""


Starter = Callable[[Any], Awaitable[JobRun]]
Kind = tuple[str, str]
"""A pack's name, and the kind as the pack calls it."""


class _Job(Struct, frozen=True):
    info: JobInfo
    pack: str
    running: JobRun


class JobKeeper:
    """All jobs of this process. Used from the event loop only."""

    def __init__(self, kinds: Mapping[Kind, Starter], *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._kinds = kinds
        self._idle_timeout_s = idle_timeout_s
        self._jobs: dict[str, _Job] = {}
        self._starting: list[tuple[str, Kind]] = []
        self._sweeper: asyncio.Task[None] | None = None

    def of(self, pack: str, owner: str, *, sees_all: bool = False) -> OwnJobs:
        return OwnJobs(lambda: self, pack, owner, sees_all=sees_all)

    async def start(self, owner: str, kind: Kind, options: Any, limit: int) -> JobInfo:
        starter = self._kinds.get(kind)
        if starter is None:
            raise ToolError("UNAVAILABLE", f"this server cannot run a {kind[1]}")
        mine = sum(job.info.owner == owner and (job.pack, job.info.kind) == kind for job in self._jobs.values())
        # What is still starting counts: otherwise twenty calls at once would all find room.
        if mine + self._starting.count((owner, kind)) >= limit:
            raise ToolError("TOO_MANY_JOBS", f"you have {limit} of these running; stop one first")
        if len(self._jobs) + len(self._starting) >= MAX_JOBS:
            raise ToolError("TOO_MANY_JOBS", "the server runs as many jobs as it can; try again later")
        self._starting.append((owner, kind))
        try:
            running = await starter(options)
        finally:
            self._starting.remove((owner, kind))
        info = JobInfo(secrets.token_hex(8), kind[1], owner, dict(running.details))
        self._jobs[info.id] = _Job(info, kind[0], running)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        return info

    def owned(self, owner: str | None, kind: Kind) -> list[JobInfo]:
        """None: everybody's."""
        return [
            job.info
            for job in self._jobs.values()
            if owner in (None, job.info.owner) and (job.pack, job.info.kind) == kind
        ]

    async def stop(self, owner: str | None, pack: str, job_id: str) -> bool:
        job = self._jobs.get(job_id)
        if job is None or job.pack != pack or owner not in (None, job.info.owner):
            return False
        del self._jobs[job_id]
        await job.running.stop()
        return True

    async def close(self) -> None:
        """Side effects: ends every job."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        jobs, self._jobs = list(self._jobs.values()), {}
        await asyncio.gather(*(job.running.stop() for job in jobs))

    async def end_idle(self) -> None:
        for job in list(self._jobs.values()):
            if job.running.idle_s() > self._idle_timeout_s:
                await self.stop(job.info.owner, job.pack, job.info.id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.end_idle()


class OwnJobs:
    """The keeper as one caller of one pack sees it: `toolgate.model.powers.Jobs`."""

    __slots__ = ("_keeper", "_owner", "_pack", "_seen")

    def __init__(self, keeper: Callable[[], JobKeeper], pack: str, owner: str, *, sees_all: bool = False) -> None:
        self._keeper = keeper
        self._pack = pack
        self._owner = owner
        self._seen = None if sees_all else owner

    async def start(self, kind: str, options: Any, *, limit: int) -> JobInfo:
        return await self._keeper().start(self._owner, (self._pack, kind), options, limit)

    def list(self, kind: str) -> Sequence[JobInfo]:
        return self._keeper().owned(self._seen, (self._pack, kind))

    async def stop(self, job_id: str) -> bool:
        return await self._keeper().stop(self._seen, self._pack, job_id)
