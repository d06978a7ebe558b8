"""TLS at the front door: what a connection may hold, wait for and use, holds from the first byte of its handshake on."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.servers.byhand import WAITS, Later, door
from tests.servers.test_connection import Clock, Echo, plain
from tests.servers.tls.byhand import Client
from tests.servers.tls.certificates import Pair
from toolgate.servers import connection as connection_module
from toolgate.servers import door as door_module
from toolgate.servers.connection import LINGER_BYTES, LINGER_S
from toolgate.servers.door import READ_BYTES, SMALL_READ_BYTES, TURN_S, Door
from toolgate.servers.tls import layer as layer_module
from toolgate.servers.tls.certificate import ServerCertificate
from toolgate.servers.tls.layer import HANDSHAKE_BYTES, SILENT_BYTES


class World:
    def __init__(self, folder: Path) -> None:
        self.pair = Pair(folder)
        self.context = ServerCertificate(self.pair.certificate, self.pair.key).context
        self.trust = self.pair.trusting()
        self.loop, self.app = Later(), Echo()
        self.door: Door = door(self.loop)

    def client(self) -> Client:
        return Client(self.app, self.context, self.trust, self.loop, self.door)

    def spoken(self) -> Client:
        """One whose handshake is complete."""
        client = self.client()
        client.shake_hands()
        return client


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What turns are measured by. It stands still unless a test says how long a look at it takes."""
    clock = Clock()
    for module in (connection_module, door_module, layer_module):
        monkeypatch.setattr(module, "perf_counter", clock)
    return clock


@pytest.fixture
def world(files: Path) -> World:
    return World(files)


def test_a_request_and_its_answer_pass_whole(world: World) -> None:
    client = world.spoken()
    client.send(plain(b"hello"))
    assert client.heard.endswith(b"\r\n\r\nhello")
    client.send(plain(b"again"))
    assert client.heard.count(b"200 OK") == 2
    assert b"hello" not in client.wire.sent


def test_a_request_may_come_with_the_last_words_of_the_handshake(world: World) -> None:
    client = world.client()
    client.give(client.hello())
    client._listen()
    client.tls.do_handshake()
    client.send(plain(b"at once"))
    assert client.heard.endswith(b"at once")


def test_a_stream_cut_anywhere_is_the_same_stream(world: World) -> None:
    client = world.spoken()
    for byte in client.encrypted(plain(b"cut")):
        client.give(bytes([byte]))
    client.hear()
    assert client.heard.endswith(b"cut")


def test_a_large_body_arrives_whole_after_the_connection_had_enough_for_a_while(world: World) -> None:
    world.app.caller_id = "someone"
    client, other = world.spoken(), world.spoken()
    for one in (client, other):
        one.send(plain(b"hello"))
    world.loop.end_turns()
    body = bytes(range(256)) * 1000
    client.give(client.encrypted(plain(body)))
    world.loop.end_turns()
    client.hear()
    assert client.heard.endswith(body)
    assert client.wire.reading


def test_requests_sent_ahead_wait_encrypted_and_are_answered_in_their_order(world: World) -> None:
    client, _other = world.spoken(), world.spoken()
    world.app.caller_id = "someone"
    sent = client.encrypted(b"".join(plain(b"%04d" % number) for number in range(300)))
    while sent:
        if not client.wire.reading:
            assert len(world.app.asked) < 300
            world.loop.end_turn()
            continue
        client.give(sent[:SMALL_READ_BYTES])
        sent = sent[SMALL_READ_BYTES:]
    world.loop.end_turns()
    assert world.app.bodies == [b"%04d" % number for number in range(300)]


def test_a_handshake_that_never_completes_ends_when_a_head_would_have_to(world: World) -> None:
    silent, half = world.client(), world.client()
    half.give(half.hello())
    world.loop.go_to(WAITS.head_s - 1)
    half.give(b"\x16")
    assert not silent.wire.closed
    assert not half.wire.closed
    world.loop.go_to(WAITS.head_s)
    assert silent.wire.aborted
    assert half.wire.aborted, "a byte now and then gains nothing"
    assert b"408" not in half.wire.sent


def test_a_completed_handshake_gains_no_time_for_the_head(world: World) -> None:
    world.loop.go_to(0)
    client = world.client()
    world.loop.go_to(WAITS.head_s - 1)
    client.shake_hands()
    client.send(b"POST /")
    world.loop.go_to(WAITS.head_s)
    client.hear()
    assert client.heard.startswith(b"HTTP/1.1 408")


def test_half_open_handshakes_have_places_and_the_oldest_makes_room(world: World) -> None:
    world.door = door(world.loop, connections=8)
    strangers = [world.client() for _ in range(20)]
    assert [one.wire.aborted for one in strangers] == [True] * 14 + [False] * 6, "a quarter is kept for keys"
    good = world.spoken()
    good.send(plain(b"hello"))
    assert good.heard.endswith(b"hello")


def test_handshakes_take_the_newcomers_turn_and_a_caller_keeps_its_own(world: World, clock: Clock) -> None:
    good = world.spoken()
    world.app.caller_id = "good"
    good.send(plain(b"hello"))
    crowd = [world.client() for _ in range(50)]
    hellos = [one.hello() for one in crowd]
    world.loop.end_turns()
    clock.step = TURN_S / 4
    for one, hello in zip(crowd, hellos, strict=True):
        one.give(hello)
    answered = [one for one in crowd if one.wire.sent]
    assert 1 <= len(answered) <= 10
    assert not any(one.wire.reading for one in crowd if one not in answered), "who waits is not read"
    good.send(plain(b"again"))
    world.loop.end_turn()
    good.hear()
    assert good.heard.endswith(b"again")
    clock.step = 0.0
    world.loop.end_turns()
    assert all(one.wire.sent and one.wire.reading for one in crowd)


def test_a_client_that_leaves_while_its_handshake_waits_is_not_looked_at_again(world: World, clock: Clock) -> None:
    crowd = [world.client() for _ in range(20)]
    clock.step = TURN_S
    for one in crowd:
        one.give(one.hello())
    last = crowd[-1]
    assert not last.wire.sent
    last.wire.abort()
    last.layer.connection_lost(None)
    clock.step = 0.0
    world.loop.end_turns()
    assert not last.wire.sent


@pytest.mark.parametrize("garbage", [bytes(64), b"\x16\x03\x01\xff\xff" + bytes(64), b"\x80\x2e\x01\x00\x02" * 9])
def test_garbage_ends_the_connection_and_nothing_else(world: World, garbage: bytes) -> None:
    bad, good = world.client(), world.spoken()
    bad.give(garbage)
    if not bad.wire.closed:  # a record may be said to be longer than what came
        bad.give(bytes(HANDSHAKE_BYTES + 1))
    assert bad.wire.closed
    good.send(plain(b"hello"))
    world.loop.end_turns()
    good.hear()
    assert good.heard.endswith(b"hello")
    assert world.app.bodies == [b"hello"]


def test_a_client_that_does_not_speak_tls_is_told_so_in_its_own_words(world: World) -> None:
    client = world.client()
    client.give(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = client.wire.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"content-length: %d" % len(body) in head
    assert b"https" in body
    assert client.wire.closed


def test_a_hello_without_end_is_bounded(world: World) -> None:
    client = world.client()
    hello = bytearray(client.hello())
    hello[6:9] = (1 << 20).to_bytes(3)  # the message goes on for a megabyte
    client.give(bytes(hello))
    fragment = b"\x16\x03\x01\x10\x00" + bytes(4096)
    for _ in range(HANDSHAKE_BYTES // len(fragment) + 1):
        client.give(fragment)
    assert client.wire.closed


def test_a_record_that_was_changed_on_the_way_ends_the_connection(world: World) -> None:
    client = world.spoken()
    sent = bytearray(client.encrypted(plain(b"hello")))
    sent[-1] ^= 1
    client.give(bytes(sent))
    assert client.wire.closed
    assert world.app.bodies == []


def test_much_that_says_nothing_ends_the_connection(world: World) -> None:
    """Such as changes of keys, of which each costs work. Here: what came before, and the begin of a record."""
    client = world.spoken()
    client.layer._silent = SILENT_BYTES
    client.give(client.encrypted(bytes(16_000))[:SMALL_READ_BYTES])
    assert client.wire.closed


def test_a_refused_client_hears_why_and_its_bytes_are_dropped(world: World) -> None:
    client = world.spoken()
    client.send(b"nonsense\r\n\r\n")
    assert client.heard.startswith(b"HTTP/1.1 400")
    assert client.wire.ended
    assert not client.wire.closed
    assert client.is_told_goodbye
    client.give(bytes(LINGER_BYTES + 1))
    assert client.wire.closed


def test_a_refused_client_is_not_waited_for(world: World) -> None:
    client = world.spoken()
    client.send(b"nonsense\r\n\r\n")
    world.loop.go_to(LINGER_S)
    assert client.wire.aborted


def test_a_client_that_does_not_read_is_closed_when_its_time_is_over(world: World) -> None:
    client = world.spoken()
    client.send(plain(b"one"))
    client.layer.pause_writing()
    world.loop.go_to(WAITS.write_s - 1)
    assert not client.wire.aborted
    world.loop.go_to(WAITS.write_s)
    assert client.wire.aborted


def test_what_the_kernel_did_not_take_counts_encrypted(world: World) -> None:
    client = world.spoken()
    client.wire.unsent = 1 << 30
    client.layer.pause_writing()
    assert client.wire.aborted


def test_a_client_that_says_goodbye_is_answered_first(world: World) -> None:
    client = world.spoken()
    request = client.encrypted(plain(b"last"))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.give(request + client._out.read())
    assert world.app.bodies == [b"last"]
    assert client.wire.closed


@pytest.mark.parametrize("size", [1, SMALL_READ_BYTES + 1])
def test_strangers_are_read_in_small_pieces(world: World, size: int) -> None:
    client = world.spoken()
    assert len(client.layer.get_buffer(-1)) == SMALL_READ_BYTES
    world.app.caller_id = "someone"
    client.send(plain(bytes(size)))
    assert len(client.layer.get_buffer(-1)) == READ_BYTES


def test_a_stopping_server_ends_handshakes_and_says_goodbye_to_the_idle(world: World) -> None:
    half, idle = world.client(), world.spoken()
    idle.send(plain(b"hello"))
    before = len(idle.wire.sent)
    for guest in list(world.door.guests):
        guest.shutdown()
    assert half.wire.closed
    assert idle.wire.closed
    assert len(idle.wire.sent) > before, "close_notify"


def test_an_answer_of_the_door_itself_before_the_handshake_is_not_sent_in_plain(world: World) -> None:
    world.door = door(world.loop, connections=1)
    world.app.caller_id = "someone"
    first = world.spoken()
    world.app.refuses = False
    first.layer._connection._phase = "answer"
    second = world.client()
    assert second.wire.closed
    assert second.wire.sent == b""
