"""Sessions, levels, subscriptions and streams on the whole road, in this process: what a transport would carry is held here."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from toolgate.app import App
from toolgate.faces.reply import Reply
from toolgate.gate.arrival import Arrival
from toolgate.gate.sessions.seals import SealedSession, Seals
from toolgate.gate.sessions.watch import MAX_STREAMS
from toolgate.model.mcpwire import META_CAPABILITIES, META_VERSION

WATCHED = "test://watched-resource"
SUBSCRIBED = {"uri": WATCHED}
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "n", "version": "1"},
}
LISTENING = {
    "_meta": {META_VERSION: "2026-07-28", META_CAPABILITIES: {}},
    "notifications": {
        "toolsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": [WATCHED, "x:y"],
    },
}


class Kept(Arrival):
    """Of a client that keeps its session in a header."""

    def keep_session(self, session: SealedSession, seals: Seals) -> tuple[bytes, bytes] | None:
        return b"mcp-session-id", seals.sealed(session).encode()


class Client:
    def __init__(self, home: Home, app: App, role: str = "admin") -> None:
        self.app, self._key = app, home.keys[role].encode()
        self._face = next(face for face in app.faces() if face.route == "/mcp")
        self.session: SealedSession | None = None

    async def say(self, method: str, params: dict[str, Any] | None = None, *, kind: type[Arrival] = Kept) -> Reply:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        arrival = kind(self._face, "stdio", self._key, message=message, session=self.session)
        reply = await self.app.road.carry(arrival)
        self.session = arrival.session
        return reply

    async def stream(self) -> Reply:
        """Of the handshake era: what a client hears once it is ready."""
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        return await self.app.road.carry(Arrival(self._face, "stdio", self._key, message=message, session=self.session))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("wishes") / "home", packs=("everything",))


Scene = Callable[[Callable[[Client], Coroutine[Any, Any, None]]], None]


@pytest.fixture(scope="module")
def gate(home: Home) -> Iterator[Gate]:
    gate = Gate(home, home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


@pytest.fixture
def scene(gate: Gate) -> Scene:
    async def walk(work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(Client(gate.home, gate.app))
        finally:
            gate.app.road.watch.close_all()

    return lambda work: gate.run(walk(work))


def test_a_greeting_opens_a_session_that_knows_what_the_client_can_be_asked(scene: Scene) -> None:
    async def work(client: Client) -> None:
        reply = await client.say("initialize", GREETING)
        assert client.session is not None
        assert client.session.capabilities == ("elicitation",)
        sealed = dict(reply.headers)[b"mcp-session-id"].decode()
        caller = client.app.road.authenticate(client._key)
        assert client.app.road.seals.session(sealed, caller).id == client.session.id

    scene(work)


def test_a_greeting_that_is_refused_opens_nothing(scene: Scene) -> None:
    async def work(client: Client) -> None:
        reply = await client.say("initialize", {"protocolVersion": 7})
        assert "error" in json.loads(reply.body)
        assert client.session is None
        assert b"mcp-session-id" not in dict(reply.headers)

    scene(work)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", SUBSCRIBED),
        ("resources/unsubscribe", SUBSCRIBED),
    ],
)
def test_what_belongs_to_a_session_needs_one(scene: Scene, method: str, params: dict[str, Any]) -> None:
    async def work(client: Client) -> None:
        told = json.loads((await client.say(method, params)).body)
        assert told["error"]["data"]["reason"] == "session_required"
        assert client.session is None

    scene(work)


def test_a_session_and_its_streams_know_what_was_subscribed_to_and_from_which_level_on_logs_are_read(
    scene: Scene,
) -> None:
    async def work(client: Client) -> None:
        await client.say("initialize", GREETING)
        stream = (await client.stream()).stream
        assert stream is not None
        assert (stream.session, stream.level, [*stream.uris]) == (client.session and client.session.id, None, [])
        reply = await client.say("resources/subscribe", SUBSCRIBED)
        assert client.session is not None
        assert b"mcp-session-id" in dict(reply.headers)
        assert (client.session.uris, [*stream.uris]) == ((WATCHED,), [WATCHED])
        assert stream.uris[WATCHED].event == WATCHED
        await client.say("logging/setLevel", {"level": "error"})
        assert (client.session.level, stream.level, [*stream.uris]) == ("error", "error", [WATCHED])
        again = (await client.stream()).stream
        assert again is not None
        assert [*again.uris] == [WATCHED], "it is subscribed to what the session is"
        await client.say("resources/unsubscribe", SUBSCRIBED)
        assert (client.session.uris, [*stream.uris], stream.level) == ((), [], "error")

    scene(work)


def test_a_subscription_to_nothing_changes_no_session(scene: Scene) -> None:
    async def work(client: Client) -> None:
        await client.say("initialize", GREETING)
        reply = await client.say("resources/subscribe", {"uri": "test://nothing"})
        assert "error" in json.loads(reply.body)
        assert client.session is not None
        assert client.session.uris == ()
        assert b"mcp-session-id" not in dict(reply.headers)

    scene(work)


def test_a_transport_that_keeps_sessions_itself_gets_no_header(scene: Scene) -> None:
    async def work(client: Client) -> None:
        reply = await client.say("initialize", GREETING, kind=Arrival)
        assert b"mcp-session-id" not in dict(reply.headers)
        assert client.session is not None

    scene(work)


def test_a_stream_of_the_modern_era_hears_what_its_caller_may_and_leaves_no_trace_when_it_may_not_open(
    scene: Scene,
) -> None:
    async def work(client: Client) -> None:
        watch = client.app.road.watch
        for number in range(1, MAX_STREAMS + 1):
            stream = (await client.say("subscriptions/listen", LISTENING)).stream
            assert stream is not None
            assert (stream.lists, [*stream.uris], stream.session) == ({"tools", "resources"}, [WATCHED], "")
            assert watch.open_streams() == number
        told = await client.say("subscriptions/listen", LISTENING)
        assert (told.stream, watch.open_streams()) == (None, MAX_STREAMS)
        assert f"{MAX_STREAMS} streams" in told.body.decode()

    scene(work)


def test_a_stream_that_cannot_be_begun_is_closed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        def broken(*_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("toolgate.gate.sessions.wishes._watched", broken)
        with pytest.raises(ZeroDivisionError):
            await client.say("subscriptions/listen", LISTENING)
        assert client.app.road.watch.open_streams() == 0

    scene(work)


def test_who_never_greeted_has_no_stream_of_a_session(scene: Scene) -> None:
    async def work(client: Client) -> None:
        assert (await client.stream()).stream is None
        assert client.app.road.watch.open_streams() == 0

    scene(work)
