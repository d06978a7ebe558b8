"""What clients carry for us: it opens for its owner and its purpose, unchanged and in time, and for nothing else."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from tests.offers.client import GREETING
from tests.offers.conftest import World
from toolgate.errors import Ending, Refusal
from toolgate.gate.sessions.seals import MAX_SUBSCRIPTIONS, SESSION_S, STATE_S, Seals
from toolgate.kit.seal import NotSealed, seal, unseal
from toolgate.model.call import Caller
from toolgate.model.clock import RandomIds
from toolgate.model.tool import Foreign

KEY = bytes(range(32))
ALICE, MALLORY = Caller("alice", "builder"), Caller("mallory", "admin")


class Hand:
    """A clock that is turned by hand."""

    now = 1_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def seals(clock: Hand) -> Seals:
    return Seals(lambda: KEY, clock, RandomIds())


def ticket(caller: Caller = ALICE, tool: str = "mcp.tool:demo.ask", pin: str | None = None, **arguments: Any) -> Any:
    foreign = None if pin is None else Foreign("up", pin, {})
    grant = SimpleNamespace(tool_id=tool, tool=SimpleNamespace(foreign=foreign))
    return SimpleNamespace(caller=caller, grant=grant, call=SimpleNamespace(arguments=arguments or {"a": 1}))


def test_what_is_sealed_opens_for_its_purpose_only() -> None:
    text = seal(KEY, {"n": 1}, "session", "alice")
    assert unseal(KEY, text, "session", "alice") == {"n": 1}
    for purpose in (("session", "mallory"), ("state", "alice"), ("session",), ("sessiona", "lice"), ()):
        with pytest.raises(NotSealed):
            unseal(KEY, text, *purpose)
    with pytest.raises(NotSealed):
        unseal(bytes(32), text, "session", "alice")


def test_no_byte_of_a_sealed_text_can_be_changed() -> None:
    text = seal(KEY, ["x"], "p")
    for place in range(len(text)):
        for other in ("A", "B"):
            changed = text[:place] + other + text[place + 1 :]
            if changed != text:
                with pytest.raises(NotSealed):
                    unseal(KEY, changed, "p")


@pytest.mark.parametrize("text", ["", "x", "=", "AAAA", "é" * 50, "A" * 100_000, "AQ" * 40, "-_" * 40, " " * 60])
def test_a_text_that_was_never_sealed_opens_nothing(text: str) -> None:
    with pytest.raises(NotSealed):
        unseal(KEY, text, "p")


def test_one_thing_has_one_spelling() -> None:
    text = seal(KEY, 1, "p")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for other in (text + "=", base64.b64encode(raw).decode() + "=", text + "\n", " " + text):
        if other != text:
            with pytest.raises(NotSealed):
                unseal(KEY, other, "p")


def test_the_state_of_a_call_opens_for_the_same_call_of_the_same_caller(seals: Seals) -> None:
    text = seals.state_of(ticket(), {"round": 1})
    assert seals.state(ticket(), text) == {"round": 1}
    for other in (ticket(MALLORY), ticket(tool="mcp.tool:demo.other"), ticket(a=2), ticket(a=1, b="more")):
        with pytest.raises(Refusal) as refused:
            seals.state(other, text)
        assert refused.value.ending is Ending.STATE_REFUSED


def test_the_state_of_an_upstreams_call_opens_while_the_same_is_approved(seals: Seals) -> None:
    text = seals.state_of(ticket(pin="one"), {"round": 1})
    assert seals.state(ticket(pin="one"), text) == {"round": 1}
    for other in (ticket(pin="two"), ticket()):
        with pytest.raises(Refusal):
            seals.state(other, text)


def test_the_state_of_a_call_ends(seals: Seals, clock: Hand) -> None:
    text = seals.state_of(ticket(), 1)
    clock.now += STATE_S - 1
    assert seals.state(ticket(), text) == 1
    clock.now += 1
    with pytest.raises(Refusal, match="too old"):
        seals.state(ticket(), text)


def test_a_session_id_is_worth_nothing_with_another_key(seals: Seals) -> None:
    """Hijacking, and fixation: whoever plants an id of its own in another's client gains nothing."""
    text = seals.sealed(seals.new_session(ALICE))
    assert seals.session(text, ALICE).owner == "alice"
    for _ in range(2):
        with pytest.raises(Refusal) as refused:
            seals.session(text, MALLORY)
        assert refused.value.ending is Ending.NO_SESSION


def test_a_session_id_cannot_be_replayed_after_its_day_though_it_was_opened_before(seals: Seals, clock: Hand) -> None:
    text = seals.sealed(seals.new_session(ALICE))
    assert seals.session(text, ALICE)
    clock.now += SESSION_S
    with pytest.raises(Refusal):
        seals.session(text, ALICE)


def test_a_state_is_no_session_and_a_session_is_no_state(seals: Seals) -> None:
    with pytest.raises(Refusal):
        seals.session(seals.state_of(ticket(), ["x", 9e9, None, []]), ALICE)
    with pytest.raises(Refusal):
        seals.state(ticket(), seals.sealed(seals.new_session(ALICE)))


def test_a_session_carries_its_subscriptions_and_only_so_many(seals: Seals) -> None:
    session = seals.new_session(ALICE)
    for number in range(MAX_SUBSCRIPTIONS):
        session.subscribe(f"paper:///{number}")
        session.subscribe(f"paper:///{number}")
    assert len(seals.session(seals.sealed(session), ALICE).uris) == MAX_SUBSCRIPTIONS
    with pytest.raises(Refusal, match="unsubscribe first"):
        session.subscribe("paper:///one-more")
    session.unsubscribe("paper:///0")
    with pytest.raises(Refusal):
        session.subscribe("paper:///" + "x" * 5000)


def test_over_http_a_stolen_session_id_is_answered_404_and_so_is_a_changed_one(world: World) -> None:
    victim, thief = world.client("builder").greet(), world.client("admin")
    stolen = victim.session
    assert stolen is not None
    assert victim.ask("ping")["status"] == 200
    for text in (stolen, stolen[:-1] + ("A" if stolen[-1] != "A" else "B"), "1234", ""):
        answer = thief.ask("ping", session=text or "x")
        assert (answer["status"], answer["error"]["code"]) == (404, -32600)
        assert thief.look(text or "x") == 404
    assert thief.look(None) == 405


def test_a_greeting_takes_no_session_that_the_client_names(world: World) -> None:
    mallory = world.client("admin").greet()
    planted = mallory.session
    status, headers, _ = world.client("builder").post("initialize", GREETING, session=planted)
    assert status == 200
    assert headers["mcp-session-id"] != planted


def test_a_session_is_opened_by_another_server_process_of_the_same_home(world: World) -> None:
    client = world.client("builder").greet()
    with world.home.serving() as other:
        moved = type(client)(other.port, world.home.keys["builder"])
        assert moved.ask("ping", session=client.session)["status"] == 200
