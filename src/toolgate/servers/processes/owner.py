"""What belongs to one process of a server and is used by all: upstreams, services and jobs.

The owner, worker 0, serves as the others do, and besides answers them on a private socket (0600, in a directory 0700). A tool
that needs what it owns runs there: steps 1 to 5 and 7 to 9 of the road are those of the process that the call came to, and step
6 is the owner's.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import convert, to_builtins
from msgspec.structs import replace

from toolgate.errors import OK, Ending
from toolgate.gate.admit import Ticket
from toolgate.gate.execute import Execution, Outcome, bad_output, error_result
from toolgate.model import strictjson
from toolgate.model.call import Call, Caller, Origin, Wire, no_progress
from toolgate.model.clock import Ids
from toolgate.model.tool import Ask, Result
from toolgate.servers.processes.control import socket_name
from toolgate.servers.processes.link import MAX_FRAME_BYTES, Link, LinkLost, Note

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.app import App
    from toolgate.model.tool import Context, Pack, Tool

REACH_S: Final = 5.0
"""For an owner that is being replaced to come back, before a call that needs it fails."""
AGAIN_S: Final = 0.05
LOOK_S: Final = 1.0
"""For what /readyz tells besides."""
_WIRE: Final = Wire("cli", "stdio", "")
_LOST: Final = "The process of this server that ran the tool has ended. What the tool did is not known."


def runs_at_owner(pack: Pack, tool: Tool) -> bool:
    """It needs what one process has: an upstream's connection, what a service of its pack keeps in memory, or running jobs."""
    return tool.foreign is not None or bool(pack.services) or (bool(pack.jobs) and tool.effect == "write")


class OwnerSocket:
    """The owner's end."""

    def __init__(self, path: Path, app: App) -> None:
        self._path, self._app = path, app
        self._server: asyncio.AbstractServer | None = None
        self._links: set[Link] = set()

    async def open(self) -> None:
        """Raises: OSError."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_name(self._path) as name:
            listener.bind(name)
        self._path.chmod(0o600)
        listener.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer, self._answer)
        self._links.add(link)
        try:
            await link.listen()
        finally:
            self._links.discard(link)

    async def _answer(self, question: dict[str, Any], note: Note) -> Mapping[str, Any]:
        if question["do"] == "upstreams":
            return {"states": self._app.upstream_states()}
        return await self._run(question, note)

    async def _run(self, asked: dict[str, Any], note: Note) -> Mapping[str, Any]:
        grant = self._app.road.admission.permits.known(asked["tool"])
        if grant is None:
            return _encoded(_failed("owner_differs", "The process that runs this tool does not serve it now."))
        call = Call(
            _WIRE,
            asked["tool"],
            progress=_noting(note) if asked["progress"] else no_progress,
            log=lambda level, data: note({"log": [level, strictjson.dumps(data)]}),
            capabilities=frozenset(asked["capabilities"]),
            era=asked["era"],
        )
        caller, origin = convert(asked["caller"], Caller), Origin(None, None, *asked["trace"])
        ticket = Ticket(caller, call, grant, Ids("", "", ""), 0.0, "", 0, None, origin)
        ticket.state, ticket.answers = strictjson.loads(asked["state"]), strictjson.loads(asked["answers"])
        ended = asyncio.Event()
        execution = Execution(grant.tool, on_end=ended.set)
        context = self._app.powers.context_for(grant, ticket)
        try:
            return _encoded(
                await execution.run(
                    context, strictjson.loads(asked["arguments"], max_bytes=MAX_FRAME_BYTES, max_values=None)
                )
            )
        except asyncio.CancelledError:
            execution.cancel()
            await ended.wait()
            raise


class OwnerLink:
    """The others' end: one connection, made when it is first needed, and again when the owner was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._link: Link | None = None
        self._making: asyncio.Task[Link] | None = None
        self._listening: set[asyncio.Task[None]] = set()

    def elsewhere(self, pack: Pack, tool: Tool) -> Tool:
        """The tool as it is called here."""
        if not runs_at_owner(pack, tool):
            return tool

        async def run(ctx: Context, arguments: dict[str, Any]) -> Any:
            return await self._forward(tool, ctx, arguments)

        offer = tool.offer
        if tool.foreign is not None and tool.kind == "subscription":

            async def stamp(ctx: Context, arguments: Mapping[str, Any]) -> str:
                outcome = await self._forward(tool, ctx, dict(arguments))
                return str(outcome.result.data["stamp"])

            offer = replace(offer, stamp=stamp)
        return replace(tool, run=run, inline=False, offer=offer)

    async def upstream_states(self) -> list[dict[str, Any]]:
        """Raises: LinkLost, TimeoutError."""
        link = await self._reached(LOOK_S)
        if link is None:
            raise LinkLost
        async with asyncio.timeout(LOOK_S):
            found = await link.ask({"do": "upstreams"})
        states: list[dict[str, Any]] = found["states"]
        return states

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    async def _forward(self, tool: Tool, ctx: Context, arguments: dict[str, Any]) -> Outcome:
        question = {
            "do": "run",
            "tool": tool.name,
            "caller": to_builtins(ctx.caller),
            "arguments": strictjson.dumps(arguments),
            "progress": ctx.progress is not no_progress,
            "capabilities": sorted(ctx.capabilities),
            "era": ctx.era,
            "answers": strictjson.dumps(dict(ctx.answers)),
            "state": strictjson.dumps(ctx.state),
            "trace": [ctx.trace.get("traceparent"), ctx.trace.get("tracestate")],
        }
        link = await self._reached(REACH_S)
        if link is None:
            return _unreached(tool)
        try:
            return _decoded(await link.ask(question, _heard(ctx)))
        except LinkLost:
            if tool.foreign is not None:
                return _upstream(Ending.IN_DOUBT, "owner_lost", _LOST)
            return _failed("owner_lost", _LOST)

    async def _reached(self, seconds: float) -> Link | None:
        """Not `asyncio.timeout`, which wants a task: a call to an upstream may have none."""
        if self._link is not None and self._link.is_open:
            return self._link
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._connected())
        making = self._making
        await asyncio.wait({making}, timeout=seconds)
        return making.result() if making.done() and not making.cancelled() and making.exception() is None else None

    async def _connected(self) -> Link:
        async with asyncio.timeout(2 * REACH_S):
            while True:
                try:
                    with socket_name(self._path) as name:
                        reader, writer = await asyncio.open_unix_connection(name)
                    break
                except OSError:
                    await asyncio.sleep(AGAIN_S)
        self._link = link = Link(reader, writer, _asked_nothing)
        task = asyncio.get_running_loop().create_task(link.listen())
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return link


async def _asked_nothing(_question: dict[str, Any], _note: Note) -> Mapping[str, Any]:
    return {}


def _noting(note: Note) -> Callable[[int, int | None, str], None]:
    loop = asyncio.get_running_loop()

    def progress(done: int, total: int | None, message: str) -> None:
        loop.call_soon_threadsafe(note, {"progress": [done, total, message]})

    return progress


def _heard(ctx: Context) -> Note:
    def heard(note: Mapping[str, Any]) -> None:
        if "progress" in note:
            ctx.progress(*note["progress"])
        elif "log" in note:
            level, data = note["log"]
            ctx.log(level, strictjson.loads(data))

    return heard


def _unreached(tool: Tool) -> Outcome:
    text = "The process of this server that runs the tool cannot be reached; try again shortly."
    if tool.foreign is not None:
        outcome = _upstream(Ending.UPSTREAM_DOWN, "owner_unreachable", text)
        outcome.retry_after_s = 1
        return outcome
    return _failed("owner_unreachable", text)


def _upstream(ending: Ending, reason: str, text: str) -> Outcome:
    return Outcome(ending, error_result(ending.name, text, {"reason": reason}), reason, text)


def _failed(reason: str, text: str) -> Outcome:
    return Outcome(Ending.TOOL_FAILED, error_result("EXECUTION_FAILED", text, {"reason": reason}), reason, text)


def _encoded(outcome: Outcome) -> Mapping[str, Any]:
    """What a handler made is checked here as far as it must be to be sent; the rest is step 7 of the process that asked."""
    result = outcome.result
    try:
        made = {"data": result.data, "details": result.details, "content": list(result.content)}
        parts = {name: strictjson.encode_checked(value) for name, value in made.items()}
        ask = None if result.ask is None else strictjson.encode_checked(to_builtins(result.ask))
    except (strictjson.JsonFault, TypeError):
        return _encoded(bad_output("the data is not strict JSON"))
    plain = {
        name: getattr(result, name)
        for name in ("decision", "code", "message", "success", "is_error", "degraded", "exit_code", "raw", "counts")
    }
    about = {"ending": outcome.ending.value, "reason": outcome.reason, "text": outcome.text}
    return {**about, "retry": outcome.retry_after_s, "result": plain, "parts": parts, "ask": ask}


def _decoded(found: dict[str, Any]) -> Outcome:
    if "failed" in found:
        return _failed("crashed", "The tool failed.")
    parts = {
        name: strictjson.loads(text, max_bytes=MAX_FRAME_BYTES, max_values=None)
        for name, text in found["parts"].items()
    }
    ask = None if found["ask"] is None else Ask(**strictjson.loads(found["ask"]))
    result = Result(**found["result"], **parts, ask=ask)
    ending = Ending(found["ending"])
    return Outcome(
        OK if ending is Ending.OK else ending, result, found["reason"], found["text"], retry_after_s=found["retry"]
    )
