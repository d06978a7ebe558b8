"""What a transport hands in, and what it hears: steps and logs on their way out, and a sender that leaves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from toolgate.faces.face import Asked
from toolgate.gate.arrival import MAX_LOGGED, Arrival, logging_to, stepping_to

OVERHEAD = len(b'""')


@pytest.mark.parametrize(
    ("at", "data", "is_sent"),
    [
        ("warning", "x", True),
        ("error", "x", True),
        ("info", "x", False),
        ("shouting", "x", False),
        ("error", "x" * (MAX_LOGGED - OVERHEAD), True),
        ("error", "x" * (MAX_LOGGED - OVERHEAD + 1), False),
        ("error", float("nan"), False),
        ("error", {1, 2}, False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_a_tool_logs_is_sent_from_the_level_on_that_is_read_if_it_can_be(
    at: Any, data: Any, is_sent: bool
) -> None:
    sent: list[bytes] = []
    logging_to(sent.append, lambda level, _: level.encode(), "warning")(at, data)
    assert sent == ([at.encode()] if is_sent else [])


def test_a_step_is_sent_as_it_is_spelt() -> None:
    sent: list[bytes] = []
    stepping_to(sent.append, lambda done, total, message: f"{done}/{total} {message}".encode())(1, 2, "half")
    assert sent == [b"1/2 half"]


@pytest.mark.parametrize(("end", "heard"), [("leave", "left"), ("give_up", "cancelled")])
def test_a_sender_that_ends_ends_its_question_and_its_call(end: str, heard: str) -> None:
    async def scene() -> None:
        ended: list[str] = []
        ticket: Any = SimpleNamespace(leave=lambda: ended.append("left"), cancel=lambda: ended.append("cancelled"))
        face: Any = None
        getattr(Arrival(face, "http", None), end)()
        arrival = Arrival(face, "http", None, ticket=ticket)
        getattr(arrival, end)()
        assert ended == [heard]
        question: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        arrival.wait(question)
        getattr(arrival, end)()
        assert question.result() is None

    asyncio.run(scene())


def test_an_arrival_that_says_nothing_of_itself_is_unread_and_not_held() -> None:
    face: Any = None
    arrival = Arrival(face, "http", None)
    assert (arrival.is_held, arrival.body, arrival.body_bytes, arrival.caller_id) == (False, None, 0, "")
    assert arrival.asking() is None
    call: Any = object()
    assert arrival.with_progress(Asked(call=call)) is call, "nobody is told of its steps"
