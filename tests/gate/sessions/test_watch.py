"""Who hears of changes, in this process: what a stream is told, how many there may be, and whose looks count."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from toolgate.errors import Ending, Refusal
from toolgate.gate.sessions import watch as watch_module
from toolgate.gate.sessions.seals import MAX_SUBSCRIPTIONS, SealedSession
from toolgate.gate.sessions.watch import LISTS, MAX_STREAMS, Watch, Watched, WatchStream
from toolgate.model.call import Caller

ANN, BEN = Caller("ann", "builder"), Caller("ben", "builder")


def stream(caller: Caller = ANN, *lists: str, session: str = "", level: Any = None) -> WatchStream:
    return WatchStream(caller, b"key", frozenset(lists), str.encode, session, level=level)


def watched(
    name: str = "t", *, held: bool = True, kind: str = "listing", offer: Any = None, stamp: str = ""
) -> Watched:
    tool = SimpleNamespace(name=name, kind=kind, offer=offer)
    grant = SimpleNamespace(tool=tool, is_held_by=lambda _: held)
    ticket: Any = SimpleNamespace(grant=grant, call=SimpleNamespace(arguments={}))
    return Watched(ticket, stamp, "uri")


def a_watch(caller: Caller | None = ANN, **more: Any) -> Watch:
    def authenticate(*_: Any) -> Caller:
        if caller is None:
            raise Refusal(Ending.INVALID_KEY)
        return caller

    return Watch(authenticate, lambda *_: None, **more)  # type: ignore[arg-type, return-value]


def test_a_stream_tells_what_it_wants_once_however_often_it_came_and_then_that_nothing_is_new() -> None:
    async def scene() -> None:
        one = stream(ANN, "tools")
        one.uris["uri"] = watched()
        for change in ("tools", "uri", "tools", "prompts", "other"):
            one.tell(change)
        assert [await one.next(60), await one.next(60)] == [b"tools", b"uri"]
        assert await one.next(0.0) == b""
        waiting = asyncio.ensure_future(one.next(60))
        await asyncio.sleep(0)
        one.tell("tools")
        assert await waiting == b"tools"
        waiting = asyncio.ensure_future(one.next(60))
        await asyncio.sleep(0)
        one.tell("uri")
        one.end()
        assert [await waiting, await one.next(60)] == [b"uri", None]

    asyncio.run(scene())


def test_a_caller_has_only_so_many_streams_and_so_have_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        watch = a_watch()
        opened = [stream() for _ in range(MAX_STREAMS)]
        for each in opened:
            watch.open(each)
        with pytest.raises(Refusal, match=f"{MAX_STREAMS} streams of this key"):
            watch.open(stream())
        monkeypatch.setattr(watch_module, "MAX_STREAMS_IN_ALL", MAX_STREAMS + 1)
        watch.open(stream(BEN))
        with pytest.raises(Refusal, match="Too many streams"):
            watch.open(stream(BEN))
        assert watch.open_streams() == watch.open_count() == MAX_STREAMS + 1
        watch.close(opened[0])
        watch.open(stream())
        watch.close_all()
        assert watch.open_streams() == 0

    asyncio.run(scene())


def test_changes_are_looked_for_while_a_stream_is_open() -> None:
    async def scene() -> None:
        watch, one, other = a_watch(), stream(), stream()
        watch.open(one)
        looking = watch._polling
        assert looking is not None
        watch.open(other)
        watch.close(one)
        assert watch._polling is looking
        watch.close(other)
        assert watch._polling is None
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert one.is_over
        watch.open(one)
        assert watch._polling is not None
        watch.close_all()

    asyncio.run(scene())


def test_a_change_that_is_told_from_any_thread_reaches_every_stream_that_wants_it() -> None:
    async def scene() -> Watch:
        watch, one, other = a_watch(), stream(ANN, "tools"), stream(BEN, "prompts")
        watch.changed("tools")  # nobody listens yet
        for each in (one, other):
            watch.open(each)
        await asyncio.to_thread(watch.changed, "tools")
        await asyncio.sleep(0)
        assert ([*one.waiting], [*other.waiting]) == (["tools"], [])
        watch.close_all()
        return watch

    watch = asyncio.run(scene())
    watch.changed("tools")  # nor any more


def test_other_rules_end_what_may_no_longer_be_read_and_may_change_every_list() -> None:
    async def scene() -> None:
        watch, one = a_watch(), stream(ANN, *LISTS)
        watch.open(one)
        one.uris = {"kept": watched("kept"), "gone": watched("gone")}
        one.listings = [watched("gone"), watched("kept")]
        new = SimpleNamespace(tool=None)
        watch.obey(SimpleNamespace(known=lambda name: new if name == "kept" else None))  # type: ignore[arg-type]
        assert [*one.uris] == ["kept"]
        assert [each.ticket.grant for each in (*one.uris.values(), *one.listings)] == [new, new]
        assert [*one.waiting] == [*LISTS]
        watch.close_all()

    asyncio.run(scene())


def test_a_session_has_the_streams_that_its_owner_opened_for_it_and_their_level() -> None:
    async def scene() -> None:
        watch = a_watch()
        mine = [stream(session="s"), stream(session="s", level="debug")]
        for each in (*mine, stream(session="other"), stream(BEN, session="s")):
            watch.open(each)
        session = SealedSession("s", "ann", 0.0, "error")
        assert sorted(map(id, watch.of_session(session))) == sorted(map(id, mine))
        assert watch.level_of(session) == "debug"
        assert watch.level_of(replace(session, id="unheard")) == "error"
        for number in range(MAX_SUBSCRIPTIONS + 1):
            watch.subscribe(mine, str(number), watched())
        assert {len(each.uris) for each in mine} == {MAX_SUBSCRIPTIONS}
        watch.close_all()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("now", "is_held", "told"),
    [(ANN, True, []), (replace(ANN, role="admin"), True, [*LISTS]), (None, False, [])],
    ids=["same", "another role", "revoked"],
)
def test_a_key_that_was_revoked_hears_no_more_and_one_of_another_role_sees_other_lists(
    now: Caller | None, is_held: bool, told: list[str]
) -> None:
    async def scene() -> None:
        watch, one = a_watch(now), stream(ANN, *LISTS)
        watch.open(one)
        assert watch._is_still_held(one) is is_held
        assert ([*one.waiting], one.is_over) == (told, not is_held)
        assert one.caller == (now or ANN)
        watch.close_all()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("about", "stopped", "seen"),
    [
        ({}, False, True),
        ({"held": False}, False, False),
        ({}, True, False),
        ({"kind": "subscription", "offer": SimpleNamespace(stamp=None)}, False, False),
        ({"kind": "subscription", "offer": SimpleNamespace(stamp=len)}, False, True),
        ({"name": "broken"}, False, False),
    ],
    ids=str,
)
def test_a_look_sees_only_what_the_caller_may_call_now_and_never_a_fault(
    monkeypatch: pytest.MonkeyPatch, about: dict[str, Any], stopped: bool, seen: bool
) -> None:
    async def looked(tool: Any, *_: Any) -> str:
        if tool.name == "broken":
            raise ZeroDivisionError
        return "new"

    async def scene() -> None:
        monkeypatch.setattr(watch_module, "_looked", looked)
        watch, one = a_watch(is_stopped=lambda *_: stopped), stream()
        at = one.uris["uri"] = watched(stamp="old", **about)
        await watch._look(one)
        assert (at.stamp, [*one.waiting]) == (("new", ["uri"]) if seen else ("old", []))
        one.waiting.clear()
        await watch._look(one)
        assert not one.waiting, "what has not changed is not told"

    asyncio.run(scene())
