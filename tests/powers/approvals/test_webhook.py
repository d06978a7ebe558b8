"""The webhook of approvals: a real service hears of each request, whatever it does to us."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.gate.conftest import Gate
from tests.homes import PATIENCE_S, Home, make_home
from tests.waiting import eventually, soon
from toolgate.errors import Ending, StartRefused
from toolgate.kit.conditions.approval import Person
from toolgate.powers.approvals import webhook

SECRET = "a secret of the webhook"
ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {"x-rules": [{"name": "ask", "require-approval": "true"}]},
    "unruly_secret": {"x-rules": [{"name": "ask", "require-approval": "true"}]},
}


class Receiver:
    """A service on loopback. `answers`: the status of each request, the last one for all further; 0 holds it."""

    def __init__(self, *answers: int) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.release = threading.Event()
        receiver, left = self, list(answers or (200,))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = left.pop(0) if len(left) > 1 else left[0]
                if not status:
                    receiver.release.wait(PATIENCE_S)
                    status = 200
                self.send_response(status)
                if status == 307:
                    self.send_header("location", f"{receiver.url}elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.pair = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.pair}/"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


Make = Callable[..., tuple[Gate, Receiver]]


def a_home(path: Path, **approvals: Any) -> Home:
    lines = [f"{name} = {json.dumps(value)}" for name, value in approvals.items()]
    home = make_home(path, packs=("unruly",), rows=ROWS, settings="\n".join(["[approvals]", *lines]))
    secrets = home.path / "secrets"
    secrets.mkdir(mode=0o700, exist_ok=True)
    (secrets / "webhook").touch(mode=0o600)
    (secrets / "webhook").write_text(SECRET)
    return home


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(webhook, "LAST_S", 0.05)
    made: list[tuple[Gate, Receiver]] = []

    def make(*answers: int, waits: tuple[float, ...] = (0.0, 0.0), **approvals: Any) -> tuple[Gate, Receiver]:
        receiver = Receiver(*answers)
        given = {"webhook": receiver.url, "webhook_secret": "file:webhook", "webhook_private": True, **approvals}
        home = a_home(tmp_path / "home", **given)
        made.append((a_gate(home, waits), receiver))
        return made[-1]

    yield make
    for gate, receiver in made:
        gate.run(gate.app.close())
        gate.loop.close()
        receiver.close()


def a_gate(home: Home, waits: tuple[float, ...] = (0.0, 0.0)) -> Gate:
    gate = Gate(home, home.app())
    gate.app.powers.webhook._waits = waits  # type: ignore[union-attr]  # the settings name one
    return gate


@contextmanager
def another_server(home: Home, look_s: float = webhook.LOOK_S) -> Iterator[Gate]:
    """Of the same home, with its services."""
    gate = a_gate(home)
    gate.app.powers.webhook._look_s = look_s  # type: ignore[union-attr]
    gate.run(gate.app.start_services())
    try:
        yield gate
    finally:
        gate.run(gate.app.close())
        gate.loop.close()


def ask(gate: Gate, tool: str = "unruly_write", **arguments: str) -> str:
    answer = gate.call(tool, arguments or {"name": "release"}, key="builder")
    assert answer.ending is Ending.APPROVAL_REQUIRED
    assert answer.details is not None
    return str(answer.details["approval_id"])


async def all_told(gate: Gate) -> None:
    async def looked() -> bool:
        return not await gate.app.powers.approvals.untold(gate.app.road.clock.wall())

    await eventually(looked, "the service has taken everything")


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.about["reason"] for record in caplog.records if record.name == "toolgate.approvals"]  # type: ignore[attr-defined]


def test_a_request_is_told_once_signed_and_without_secrets(make: Make) -> None:
    gate, receiver = make()
    request = ask(gate, "unruly_secret", password="hunter2")
    assert ask(gate, "unruly_secret", password="hunter2") == request
    gate.run(soon(lambda: receiver.got, "the webhook"))
    gate.run(gate.app.powers.webhook.close())  # type: ignore[union-attr]
    ((headers, body),) = receiver.got
    signed = f"{request}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(SECRET.encode(), signed, "sha256")).decode()
    assert (headers["webhook-id"], headers["webhook-signature"]) == (request, f"v1,{expected}")
    told = json.loads(body)
    assert (told["type"], told["data"]["id"], told["data"]["tool"]) == ("approval.requested", request, "unruly_secret")
    assert json.loads(told["data"]["shown"]) == {"password": "[secret]"}
    assert "binding" not in told["data"]
    assert b"hunter2" not in body


@pytest.mark.parametrize("ended_well", [True, False])
def test_what_the_service_did_not_take_is_told_by_the_next_server(make: Make, *, ended_well: bool) -> None:
    gate, receiver = make(503, 200, waits=(3600.0,))
    request = ask(gate)
    gate.run(soon(lambda: receiver.got, "the first attempt"))
    if ended_well:
        gate.run(gate.app.powers.webhook.close())  # type: ignore[union-attr]
    with another_server(gate.home) as after:
        after.run(soon(lambda: len(receiver.got) == 2, "the second attempt"))
        after.run(all_told(after))
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [request, request]
    assert len({body for _, body in receiver.got}) == 1


def test_what_the_service_took_or_a_person_answered_is_not_told_again(make: Make) -> None:
    gate, receiver = make(200, 503, waits=(3600.0,))
    ask(gate)
    gate.run(all_told(gate))
    answered = ask(gate, name="another release")
    gate.run(soon(lambda: len(receiver.got) == 2, "its first attempt"))
    gate.run(
        gate.app.powers.approvals.vote(answered, Person("user 1", "jane"), "refuse", "", gate.app.road.clock.wall())
    )
    with another_server(gate.home) as after:
        later = ask(after, name="a later release")
        after.run(soon(lambda: len(receiver.got) > 2, "the later one alone"))
    assert receiver.got[2][0]["webhook-id"] == later


def test_a_server_tells_what_another_process_did_not_get_through(make: Make) -> None:
    gate, receiver = make(503, 200, waits=(3600.0,))
    with another_server(gate.home, look_s=0.01) as server:
        request = ask(gate)
        gate.run(soon(lambda: receiver.got, "the first attempt"))
        server.run(all_told(server))
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [request, request]


def test_a_secret_in_base64_is_decoded() -> None:
    encoded = "whsec_" + base64.b64encode(b"key").decode()
    assert webhook.signature(encoded, "i", "1", b"{}") == webhook.signature("key", "i", "1", b"{}")


def test_what_fails_is_repeated_until_it_is_taken(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    gate, receiver = make(500, 503, 200)
    ask(gate)
    gate.run(soon(lambda: len(receiver.got) == 3, "three attempts"))
    gate.run(gate.app.powers.webhook.close())  # type: ignore[union-attr]
    assert len({body for _, body in receiver.got}) == 1
    assert failures(caplog) == []


def test_the_end_of_all_attempts_is_in_the_operators_log(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    gate, receiver = make(500)
    with caplog.at_level(logging.WARNING, "toolgate"):
        ask(gate)
        gate.run(soon(lambda: failures(caplog), "the failure"))
    assert failures(caplog) == ["status_500"]
    assert len(receiver.got) == 3


def test_a_service_that_hangs_holds_no_call_and_no_end(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    gate, receiver = make(0)
    ask(gate)
    gate.run(soon(lambda: receiver.got, "the webhook hangs"))
    assert gate.call("unruly_echo", {}, key="builder").ending is Ending.OK
    gate.run(gate.app.powers.webhook.close())  # type: ignore[union-attr]
    assert failures(caplog) == ["interrupted"]


def test_a_redirect_is_not_followed(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    gate, receiver = make(307, waits=())
    ask(gate)
    gate.run(soon(lambda: failures(caplog), "the failure"))
    assert (failures(caplog), len(receiver.got)) == (["BAD_RESPONSE"], 1)


def test_a_private_address_is_refused_unless_it_is_allowed(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    gate, receiver = make(webhook="https://127.0.0.1/", webhook_private=False)
    ask(gate)
    gate.run(soon(lambda: failures(caplog), "the refusal"))
    assert (failures(caplog), receiver.got) == (["ADDRESS_REFUSED"], [])


def test_more_than_enough_at_one_time_is_dropped_and_logged(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "MAX_UNDER_WAY", 1)
    gate, _ = make(0)
    ask(gate, name="one")
    ask(gate, name="two")
    assert failures(caplog) == ["too_many_under_way"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"webhook": "http://example.org/", "webhook_secret": "file:webhook"}, "webhook_private"),
        ({"webhook": "ftp://example.org/", "webhook_secret": "file:webhook"}, "cannot be used"),
        ({"webhook": "https://example.org/"}, "no secret to sign with"),
        ({"webhook": "https://example.org/", "webhook_secret": "file:gone"}, "is not there"),
    ],
)
def test_a_webhook_that_cannot_work_refuses_to_start(tmp_path: Path, given: dict[str, Any], text: str) -> None:
    with pytest.raises(StartRefused, match=text):
        a_home(tmp_path / "home", **given).app()
