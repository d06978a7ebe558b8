"""Requests that are made while others wait for their answers leave together, at the end of a turn of the event loop."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from tests.upstreams.support import PATIENCE_S
from toolgate.powers import wire
from toolgate.powers.mcp.failures import Lost, NotSent
from toolgate.powers.mcp.stdio import ChildPipes, StdioTransport
from toolgate.powers.tcp import TcpStream


def a_line() -> tuple[StdioTransport, int, list[int]]:
    """A line, the end that its child reads, and all that the child has."""
    child_in, stdin = os.pipe()
    stdout, child_out = os.pipe()
    stderr, child_err = os.pipe()
    for descriptor in (stdin, stdout, stderr):
        os.set_blocking(descriptor, False)
    return StdioTransport(ChildPipes(stdin, stdout, stderr)), child_in, [child_in, child_out, child_err]


async def asked(line: StdioTransport, count: int) -> list[asyncio.Task[object]]:
    """So many requests in one turn, which has not ended yet."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.ensure_future(line.request("tools/call", {"number": number}, seconds=PATIENCE_S))
        for number in range(count)
    ]
    await asyncio.sleep(0)
    return tasks


async def ended(line: StdioTransport, tasks: list[asyncio.Task[object]]) -> list[type[object]]:
    await line.close()
    return [type(fault) for fault in await asyncio.gather(*tasks, return_exceptions=True)]


def test_the_first_request_to_a_child_leaves_at_once_and_the_rest_of_a_turn_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    real = os.write

    def counted(descriptor: int, data: bytes) -> int:
        written.append(bytes(data).count(b"\n"))
        return real(descriptor, data)

    async def scenario() -> None:
        line, _, others = a_line()
        monkeypatch.setattr(os, "write", counted)
        tasks = await asked(line, 4)
        assert written == [1]
        await asyncio.sleep(0)
        assert written == [1, 3]
        assert await ended(line, tasks) == [Lost] * 4
        for descriptor in others:
            os.close(descriptor)

    asyncio.run(scenario())


def test_what_was_to_leave_and_cannot_was_not_sent_and_what_had_left_is_lost() -> None:
    async def scenario() -> None:
        line, child_in, others = a_line()
        tasks = await asked(line, 3)
        os.close(child_in)
        await asyncio.sleep(0)
        assert not line.open
        assert await ended(line, tasks) == [Lost, NotSent, NotSent]
        for descriptor in others[1:]:
            os.close(descriptor)

    asyncio.run(scenario())


def test_requests_that_are_held_leave_at_the_end_of_the_turn_and_one_that_cannot_fails_alone() -> None:
    async def scenario() -> None:
        (one, far), (two, other) = socket.socketpair(), socket.socketpair()
        for each in (one, two, far):
            each.setblocking(False)
        good, broken = TcpStream(one), TcpStream(two)
        departures = wire.Departures()
        waiting = [stream.next_piece(100) for stream in (good, broken)]
        departures.hold(good, b"to the good one")
        departures.hold(broken, b"to nobody")
        with pytest.raises(BlockingIOError):
            far.recv(100)
        two.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0)
        assert far.recv(100) == b"to the good one"
        far.send(b"answer")
        assert await asyncio.wait_for(waiting[0], PATIENCE_S) == b"answer"
        with pytest.raises(BrokenPipeError):
            await asyncio.wait_for(waiting[1], PATIENCE_S)
        for each in (good, broken, far, other):
            each.close()

    asyncio.run(scenario())
