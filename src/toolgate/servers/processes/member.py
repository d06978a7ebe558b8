"""One process of several, as its supervisor sees it: it says when it serves, and does what it is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import convert, to_builtins

from toolgate.errors import ToolgateError
from toolgate.model import strictjson
from toolgate.model.call import Wire
from toolgate.servers.processes.link import MAX_FRAME_BYTES, Link, LinkLost, Note
from toolgate.servers.processes.owner import OwnerLink, OwnerSocket

if TYPE_CHECKING:
    from toolgate.gate.admit import Ticket
    from toolgate.running import PreparedReload, Running
    from toolgate.servers.http import HttpApp
    from toolgate.servers.processes.place import WorkerPlace


class Member:
    def __init__(self, place: WorkerPlace) -> None:
        self.place = place
        self.owner = OwnerLink(place.owner_path())
        self._running: Running
        self._prepared: PreparedReload | None = None
        self._link: Link | None = None
        self._listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def joined(self, running: Running, http: HttpApp, stop: Callable[[], None]) -> AsyncIterator[None]:
        """While this process serves. `stop`: called when the supervisor has gone. Raises: OSError."""
        self._running = running
        reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=self.place.link))
        self._link = link = Link(reader, writer, self._answer, self._hear)
        self._listening = asyncio.get_running_loop().create_task(link.listen())
        self._listening.add_done_callback(lambda _: stop())
        served = OwnerSocket(self.place.owner_path(), running.app) if self.place.is_owner else None
        if served is not None:
            await served.open()
        else:
            running.upstream_states = self._upstream_states
        http.cancel_elsewhere = self._cancel_elsewhere
        running.app.road.back_channel.elsewhere.append(self._deliver_elsewhere)
        self._share_changes(running)
        try:
            yield
        finally:
            if served is not None:
                await served.close()
            self.owner.close()

    def leave(self) -> None:
        """All is done: the supervisor hears of the end by the end of the process."""
        if self._link is not None:
            self._link.close()

    def ready(self, told: Mapping[str, Any]) -> None:
        assert self._link is not None
        self._link.tell({"ready": told, "digests": dict(self._running.digests())})

    async def all_numbers(self) -> list[Any]:
        """What each process shows of itself."""
        assert self._link is not None
        found = await self._link.ask({"do": "numbers"})
        return [
            {name: [(tuple(labels), value) for labels, value in samples] for name, samples in numbers.items()}
            for numbers in found["numbers"]
        ]

    async def _upstream_states(self) -> list[dict[str, Any]]:
        try:
            return await self.owner.upstream_states()
        except (LinkLost, TimeoutError):
            return []

    def _share_changes(self, running: Running) -> None:
        """What changed here is told to those who listen elsewhere, too."""
        own, loop = running.app.road.watch.changed, asyncio.get_running_loop()

        def changed(what: str) -> None:
            own(what)
            loop.call_soon_threadsafe(self._tell, {"changed": what})

        running.app.powers.changed = changed

    def _tell(self, word: Mapping[str, Any]) -> None:
        if self._link is not None:
            self._link.tell(word)

    def _cancel_elsewhere(self, key_id: str, request_id: str | int, wire: Wire) -> None:
        self._tell({"cancel": {"key": key_id, "id": request_id, "wire": to_builtins(wire)}})

    def _deliver_elsewhere(self, key_id: str, message: Mapping[str, Any]) -> None:
        self._tell({"answer": {"key": key_id, "message": strictjson.dumps(message)}})

    def _hear(self, word: dict[str, Any]) -> None:
        if "changed" in word:
            self._running.app.road.watch.changed(word["changed"])
        elif "answer" in word:
            message = strictjson.loads(word["answer"]["message"], max_bytes=MAX_FRAME_BYTES, max_values=None)
            self._running.app.road.back_channel.deliver_here(word["answer"]["key"], message)
        elif "cancel" in word:
            for ticket in self._matching(word["cancel"]):
                ticket.cancel()

    def _matching(self, about: Mapping[str, Any]) -> list[Ticket]:
        wire = convert(about["wire"], Wire)
        return [
            ticket
            for ticket in self._running.app.road.under_way
            if ticket.caller.key_id == about["key"] and ticket.is_answer_to(about["id"], wire)
        ]

    async def _answer(self, question: dict[str, Any], _note: Note) -> Mapping[str, Any]:
        running = self._running
        match question["do"]:
            case "status":
                return await running.status() | {"number": self.place.number}
            case "find":
                return {"found": len(self._matching(question["about"]))}
            case "numbers":
                telemetry = running.app.telemetry
                return {"numbers": telemetry.numbers() if telemetry is not None else {}}
            case "prepare":
                return await self._prepare()
            case "commit" if self._prepared is not None:
                prepared, self._prepared = self._prepared, None
                return {**running.take_over(question["way"], prepared), "digests": dict(running.digests())}
            case "refuse":
                self._prepared = None
                return running.refuse(question["way"], question["reason"])
        return {"failed": "nothing that can be asked"}

    async def _prepare(self) -> Mapping[str, Any]:
        try:
            self._prepared = await self._running.prepare()
        except ToolgateError as fault:
            return {"refused": str(fault)}
        return {"about": dict(self._prepared.about)}
