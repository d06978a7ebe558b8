from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from tests.homes import PATIENCE_S, Home, make_home
from toolgate.app import App
from toolgate.errors import Refusal
from toolgate.model.call import Call, Wire
from toolgate.model.envelope import Answer

T = TypeVar("T")
WIRE = Wire(face="mrt", transport="http", route="/mrt_dispatch")


@pytest.fixture(scope="session")
def unruly_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("gate") / "home", packs=("unruly",))


@dataclass
class Gate:
    """The whole composition in this process, called as a face calls it."""

    home: Home
    app: App
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    def call(self, tool: str, arguments: Any = None, *, key: str | None = "admin") -> Answer:
        return self.run(self.acall(tool, arguments, key=key))

    async def acall(
        self, tool: str, arguments: Any = None, *, key: str | None = "admin", once: str | None = None
    ) -> Answer:
        """`key` is a role whose key is used, a literal key, or None. `once`: an idempotency key."""
        road = self.app.road
        caller = None
        call = Call(WIRE, tool, {} if arguments is None else arguments, wants_text=True, idempotency_key=once)
        try:
            caller = road.authenticate(None if key is None else self.home.keys.get(key, key).encode())
            ticket = road.admission.enter(caller, call)
        except Refusal as refusal:
            return road.refuse(refusal, WIRE, caller, call)
        return await road.travel(ticket)


@pytest.fixture
def gate(unruly_home: Home) -> Iterator[Gate]:
    gate = Gate(unruly_home, unruly_home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()
