"""The load generator against servers that answer wrongly: a benchmark that cannot notice proves nothing."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import pytest

from benchmarks import wire
from benchmarks.load import Load, Plan, Tally, header, split_response

GOOD = wire.Exchange("modern")
Answerer = Callable[[dict[str, Any]], bytes]


def right(request: dict[str, Any]) -> dict[str, Any]:
    data = dict(request["params"]["arguments"])
    return {"jsonrpc": "2.0", "id": request["id"], "result": {"structuredContent": {"data": data, "requestId": "r"}}}


def response(answer: Any, status: int = 200) -> bytes:
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


@contextmanager
def serving(answerer: Answerer) -> Iterator[int]:
    """A real TCP server that says to every request what `answerer` makes of it; an empty answer hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def talk(peer: socket.socket) -> None:
        with peer, suppress(ConnectionError):  # a load that gives up hangs up
            received = b""
            while data := peer.recv(65536):
                received += data
                head, _, body = received.partition(b"\r\n\r\n")
                length = int(header(head, b"content-length") or 0)
                if len(body) < length:
                    continue
                received = b""
                answer = answerer(json.loads(body))
                if not answer:
                    return
                peer.sendall(answer)
                if b"connection: close" in answer:
                    return

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=talk, args=(peer,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)
        for thread in threads:
            thread.join(5)


def run(answerer: Answerer, exchange: wire.Exchange = GOOD, **more: Any) -> Tally:
    with serving(answerer) as port:
        values: dict[str, Any] = {"connections": 2, "seconds": 0.02, "warm_seconds": 0.0} | more
        return Load(Plan(exchange=asdict(exchange), port=port, **values)).run()


def test_right_answers_are_counted_and_timed() -> None:
    tally = run(lambda request: response(right(request)))
    assert tally.wrong == 0
    assert tally.answers >= len(tally.latencies) > 0
    found = tally.as_json()
    assert found["p99_ms"] >= found["p50_ms"] > 0
    assert found["rate"] == pytest.approx(len(tally.latencies) / tally.seconds)


def changed(**changes: Any) -> Answerer:
    return lambda request: response(right(request) | changes)


def other_field(name: str, value: Any) -> Answerer:
    def answer(request: dict[str, Any]) -> bytes:
        request["params"]["arguments"][name] = value
        return response(right(request))

    return answer


def without_field(request: dict[str, Any]) -> bytes:
    del request["params"]["arguments"]["flag"]
    return response(right(request))


@pytest.mark.parametrize(
    ("answerer", "fault"),
    [
        (lambda request: response(right(request), status=500), "status 500"),
        (changed(id=wire.FIRST_ID - 1), "id 999999999"),
        (changed(id=None), "id None"),
        (other_field("text", "hullo"), "not the fields"),
        (other_field("count", 0), "not the fields"),
        (other_field("flag", 1), "not the fields"),
        (without_field, "not the fields"),
        (changed(result={"isError": True}), "an error instead"),
        (lambda _: response([]), "not a JSON object"),
        (lambda _: b"", "closed the connection"),
    ],
)
def test_a_wrong_answer_is_noticed(answerer: Answerer, fault: str) -> None:
    tally = run(answerer)
    assert tally.wrong > 0
    assert fault in tally.examples[0]


@pytest.mark.parametrize("body", [b"no length at all", b"Content-Length: 9\r\n\r\nnot JSON!"])
def test_an_answer_that_cannot_be_read_ends_the_run(body: bytes) -> None:
    end = b"" if b"\r\n\r\n" in body else b"\r\n\r\n"
    with pytest.raises(ValueError, match=r"without a length|invalid literal"):
        run(lambda _: b"HTTP/1.1 200 OK\r\n" + body + end)


def test_an_answer_to_another_request_is_noticed() -> None:
    last: list[dict[str, Any]] = []

    def late(request: dict[str, Any]) -> bytes:
        last.append(request)
        return response(right(last[-2] if len(last) > 1 else request))

    assert run(late, connections=1).wrong > 0


def test_every_request_is_answered_before_the_run_ends() -> None:
    given: list[int] = []

    def count(request: dict[str, Any]) -> bytes:
        given.append(1)
        return response(right(request))

    assert run(count, connections=3).answers == len(given)


def test_a_connection_that_the_server_says_it_closes_is_made_anew() -> None:
    given: list[int] = []

    def once(request: dict[str, Any]) -> bytes:
        given.append(1)
        return response(right(request)).replace(b"content-length", b"connection: close\r\ncontent-length")

    tally = run(once, connections=2)
    assert tally.wrong == 0
    assert tally.answers == len(given) > 2


def test_without_a_time_to_measure_each_connection_sends_one_request() -> None:
    assert run(lambda request: response(right(request)), connections=3, seconds=0.0).answers == 3


def test_in_the_open_loop_waiting_for_a_free_connection_counts_as_latency() -> None:
    """Requests fall due every 2 ms and are answered one after another, each 20 ms after it was sent: the later, the longer.

    A closed loop would say 20 ms for each. The machine's own slowness only adds to what is claimed.
    """
    pause = threading.Event()

    def slow(request: dict[str, Any]) -> bytes:
        pause.wait(0.02)
        return response(right(request))

    tally = run(slow, connections=1, rate=500.0, seconds=0.3)
    assert tally.wrong == 0
    assert max(tally.latencies) > 0.06


def test_a_server_that_goes_away_is_no_fault_in_the_trial_by_kill() -> None:
    left = [5]

    def few(request: dict[str, Any]) -> bytes:
        left[0] -= 1
        return response(right(request)) if left[0] >= 0 else b""

    tally = run(few, connections=1, until_gone=True, seconds=5.0)
    assert tally.wrong == 0
    assert tally.receipts == ["r"] * 5


@pytest.mark.parametrize(
    ("case", "status"), [(case, status) for case, status in wire.STATUSES.items() if status != 200]
)
def test_a_refusal_must_have_its_own_status_and_say_error(case: wire.Case, status: int) -> None:
    exchange = replace(GOOD, case=case)
    refusal = {"id": wire.FIRST_ID, "error": {"code": 1}}
    assert exchange.fault(0, status, refusal) is None
    assert exchange.fault(0, status, {"id": wire.FIRST_ID, "result": {}}) == "no error told"
    assert exchange.fault(0, 500, refusal) == f"status 500 instead of {status}"


@pytest.mark.parametrize("case", sorted(wire.AS_RESULT))
def test_the_end_of_one_call_must_be_told_as_a_result(case: wire.Case) -> None:
    exchange = replace(GOOD, case=case)
    assert exchange.fault(0, 200, {"id": wire.FIRST_ID, "result": {"isError": True}}) is None
    assert exchange.fault(0, 200, {"id": wire.FIRST_ID, "result": {"isError": False}}) is not None


@pytest.mark.parametrize("face", ["modern", "handshake", "mrt", "rpc", "stdio"])
def test_every_request_has_the_length_that_its_header_tells_and_a_number_of_its_own(face: wire.Face) -> None:
    exchange = replace(GOOD, face=face, text="100% of 1 000")
    request = exchange.requests(tail=b"\n")
    one, other = (json.loads(request(number)) for number in (0, 899_999))
    assert one != other
    assert {len(request(number)) for number in (0, 1, 12_345, 899_999, 900_000)} == {len(exchange.body()) + 1}


def test_answers_over_a_pipe_may_come_in_any_order() -> None:
    exchange = replace(GOOD, face="stdio")
    requests_out, requests_in = os.pipe()
    answers_out, answers_in = os.pipe()

    def answer() -> None:
        with os.fdopen(requests_out, "rb") as lines, os.fdopen(answers_in, "wb") as out:
            waiting: list[bytes] = []
            for line in lines:
                waiting.append(json.dumps(right(json.loads(line))).encode() + b"\n")
                if len(waiting) == 2:
                    out.writelines(reversed(waiting))
                    out.flush()
                    waiting.clear()

    peer = threading.Thread(target=answer)
    peer.start()
    plan = Plan(exchange=asdict(exchange), connections=2, seconds=0.0, pipes=(answers_out, requests_in))
    tally = Load(plan).run()
    os.close(requests_in)
    peer.join(5)
    os.close(answers_out)
    assert (tally.answers, tally.wrong) == (2, 0)


def test_a_response_is_complete_only_with_its_whole_body() -> None:
    whole = response({"a": 1})
    assert all(split_response(whole[:length]) is None for length in range(len(whole)))
    found = split_response(whole + b"next")
    assert found is not None
    assert (found[0], found[2], found[3]) == (200, b'{"a": 1}', b"next")
