"""One of several servers' processes in which the same call is made on the whole road, again and again, until it is killed: by
whoever started it, or by itself at one of the moments between a grant and its effect."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from tests.gate.conftest import WIRE
from toolgate.app import App, build
from toolgate.config import load_settings
from toolgate.gate.admit import Permits
from toolgate.gate.road import Road
from toolgate.kit.conditions.approval import ApprovalClaim, ApprovalRequest
from toolgate.model.call import Call
from toolgate.model.tool import Context, Result
from toolgate.powers import sql, stores

TOOL, ARGUMENTS = "unruly_write", {"name": "release"}


class Mortal:
    """The store of approvals and the tool, with the moments at which this process dies."""

    def __init__(self, app: App, effects: int, random: Random) -> None:
        self._store, self._effects, self._random = app.road.approvals.store, effects, random
        self.request = ""

    def _may_die(self) -> None:
        if self._random.random() < 0.12:
            os.kill(os.getpid(), signal.SIGKILL)

    async def claim(self, request: ApprovalRequest, now: float) -> ApprovalClaim:
        claim = await self._store.claim(request, now)
        if claim.state == "spent":
            self._may_die()  # before the intent
        return claim

    async def take_expired(self, _now: float) -> list[ApprovalRequest]:
        return []

    def run(self, _ctx: Context, args: dict[str, Any]) -> Result:
        self._may_die()  # after the intent, before the effect
        os.write(self._effects, f"{self.request}\n".encode())
        self._may_die()  # after the effect, before the outcome
        return Result(data={"name": args["name"]})

    def on(self, road: Road) -> Road:
        permits = [
            replace(grant, tool=replace(grant.tool, run=self.run)) if grant.tool.name == TOOL else grant
            for grant in road.admission.permits.all()
        ]
        approvals = replace(road.approvals, store=self)
        return replace(road, admission=replace(road.admission, permits=Permits(permits)), approvals=approvals)


async def main(home: str, effects: str, key: str, seed: str) -> None:
    app = build(load_settings(Path(home), {}, {}))
    mortal = Mortal(app, os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT), Random(seed))
    road, parent = mortal.on(app.road), os.getppid()
    caller = road.authenticate(key.encode())
    while os.getppid() == parent:
        ticket = road.admission.enter(caller, Call(WIRE, TOOL, ARGUMENTS))
        mortal.request = ticket.ids.request
        await road.travel(ticket)


if __name__ == "__main__":
    # Many writers on a busy machine: what is not waited for would be a grant that was spent for nothing.
    sql.SQLITE_BUSY_TIMEOUT_S, sql.STATEMENT_TIMEOUT_MS, stores.RUN_TIMEOUT_S = 60, 60_000, 120.0  # type: ignore[misc]
    asyncio.run(main(*sys.argv[1:]))
