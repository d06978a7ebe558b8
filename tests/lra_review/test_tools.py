"""The tools as the road sees them: argument faults get document 000's reasons, errors its texts, and nothing leaks."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.speak import mrt
from tests.homes import Home, make_home
from tests.lra_review.papers import PAGE, plant
from tests.lra_review.samples import SEED, receipt
from toolgate.app import App
from toolgate.errors import Happening, Refusal
from toolgate.model.call import Call, Wire
from toolgate.model.envelope import Answer
from toolgate.powers.keys import to_pem

WIRE = Wire(face="mrt", transport="http", route="/mrt_dispatch")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = make_home(tmp_path_factory.mktemp("tools") / "home", packs=("lra",))
    keys = made.path / "secrets"
    keys.mkdir(mode=0o700, exist_ok=True)
    for name, data in {"identity.key": to_pem(SEED), "broken.key": b"not a key"}.items():
        (keys / name).write_bytes(data)
        (keys / name).chmod(0o600)
    plant(made.workspace / "paper")
    (made.workspace / "paper" / "r.json").write_text(json.dumps(receipt()))
    return made


class Desk:
    """One app and one loop: calls, as a face makes them."""

    def __init__(self, home: Home) -> None:
        self.loop = asyncio.new_event_loop()
        self.home = home
        self.app: App = home.app()

    def call(self, tool: str, role: str = "committer", **arguments: Any) -> Answer:
        return self.loop.run_until_complete(asyncio.wait_for(self._call(tool, role, arguments), 20))

    async def _call(self, tool: str, role: str, arguments: dict[str, Any]) -> Answer:
        road = self.app.road
        call = Call(WIRE, tool, arguments, wants_text=True)
        caller = road.authenticate(self.home.keys[role].encode())
        try:
            ticket = road.enter(caller, call)
        except Refusal as refusal:
            return road.refuse(refusal, WIRE, caller, call)
        return await road.travel(ticket)

    def close(self) -> None:
        self.loop.run_until_complete(self.app.close())
        self.loop.close()


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    made = Desk(home)
    yield made
    made.close()


ARGUMENT_FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("lra_sign", {}, "missing_receipt"),
    ("lra_sign", {"receipt": ""}, "missing_receipt"),
    ("lra_sign", {"receipt": "x" * 1025}, "receipt_too_long"),
    ("lra_sign", {"receipt": "../r.json"}, "invalid_path"),
    ("lra_sign", {"receipt": "paper/../r.json"}, "invalid_path"),
    ("lra_sign", {"receipt": "/etc/passwd"}, "invalid_path"),
    ("lra_sign", {"receipt": 7}, "invalid_path"),
    ("lra_sign", {"receipt": "paper/r.json", "key": "../identity.key"}, "invalid_path"),
    ("lra_sign", {"receipt": "paper/r.json", "key": "/root/.ssh/id_ed25519"}, "invalid_path"),
    ("lra_sign", {"receipt": "paper/r.json", "key": "~/.ssh/id_ed25519"}, "invalid_path"),
    ("lra_sign", {"receipt": "paper/r.json", "formats": ["pgp"]}, "invalid_formats"),
    ("lra_sign", {"receipt": "paper/r.json", "force": True}, "unknown_argument"),
    ("lra_verify", {}, "missing_target"),
    ("lra_verify", {"target": ""}, "missing_target"),
    ("lra_verify", {"path": ""}, "missing_target"),
    ("lra_verify", {"target": "https://x/" + "a" * 1024}, "target_too_long"),
    ("lra_verify", {"path": "https://x/" + "a" * 1024}, "target_too_long"),
    ("lra_verify", {"target": "https://example.org/../x"}, "invalid_target"),
    ("lra_verify", {"path": "https://example.org/%2e%2e/x"}, "invalid_target"),
    ("lra_verify", {"target": "https://example.org/a%2f..%2fb"}, "invalid_target"),
    ("lra_verify", {"target": ".."}, "invalid_target"),
    ("lra_verify", {"target": 1}, "invalid_target"),
    ("lra_verify", {"target": "https://x/", "receipt": "../x.json"}, "invalid_path"),
    ("lra_verify", {"target": "https://x/", "run": "yes"}, "invalid_run"),
    ("lra_serve", {"port": 80}, "invalid_port"),
    ("lra_serve", {"port": 1023}, "invalid_port"),
    ("lra_serve", {"port": 65536}, "invalid_port"),
    ("lra_serve", {"port": 0}, "invalid_port"),
    ("lra_serve", {"port": "8080"}, "invalid_port"),
    ("lra_serve", {"port": 8080.5}, "invalid_port"),
    ("lra_serve", {"port": None}, "invalid_port"),
    ("lra_serve", {"path": "../x"}, "invalid_path"),
]


@pytest.mark.req("000-D-SIGN-ARGS", "000-D-VERIFY-ARGS", "000-D-SERVE-PORT")
def test_every_argument_fault_has_document_000_s_reason(desk: Desk) -> None:
    for tool, arguments, reason in ARGUMENT_FAULTS:
        answer = desk.call(tool, **arguments)
        assert answer.happening is Happening.BAD_ARGUMENTS, (tool, arguments)
        assert answer.details.get("reason") == reason, (tool, arguments, answer.details)


def said_no(answer: Answer) -> tuple[Happening, str | None, str]:
    return answer.happening, answer.details.get("reason"), answer.text


@pytest.mark.req("000-D-SIGN-404")
def test_signing_names_what_is_not_there(desk: Desk) -> None:
    assert said_no(desk.call("lra_sign", receipt="paper/none.json")) == (
        Happening.NOT_THERE,
        "receipt_not_found",
        "Receipt file not found",
    )
    happening, reason, text = said_no(desk.call("lra_sign", receipt="paper/r.json", key="none.key"))
    assert (happening, reason, text) == (Happening.NOT_THERE, "key_not_found", "Key file not found")
    happening, reason, text = said_no(desk.call("lra_sign", receipt="paper/r.json", key="broken.key"))
    assert (happening, reason) == (Happening.TOOL_SAID_NO, "invalid_key_format")
    assert text.startswith("Invalid key format")


@pytest.mark.req("000-D-SIGN-OUTPUT")
def test_a_signed_receipt_is_the_tool_s_text(desk: Desk) -> None:
    answer = desk.call("lra_sign", receipt="paper/r.json", key="~/.lra/identity.key", formats=["sshsig"])
    assert answer.happening is Happening.OK
    shown = json.loads(answer.stdout)
    assert list(shown) == ["receipt", "signature", "public_key", "timestamp", "signed_at"]
    assert shown["receipt"] == receipt()
    assert (desk.home.workspace / "paper" / "r.dsse.json").is_file()
    record = json.dumps(desk.home.calls())
    assert shown["signature"] not in record
    assert SEED.hex() not in record


def test_a_builder_neither_signs_nor_writes_a_receipt(desk: Desk) -> None:
    assert desk.call("lra_sign", "builder", receipt="paper/r.json").happening is Happening.INSUFFICIENT_ROLE
    refused = desk.call("lra_verify", "builder", target="https://x.test/", receipt="out.json")
    assert refused.happening is Happening.INSUFFICIENT_ROLE


def test_verifying_a_private_address_is_refused_without_a_setting(desk: Desk) -> None:
    for target in ("http://127.0.0.1:8080/", "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/"):
        happening, reason, _ = said_no(desk.call("lra_verify", target=target))
        assert (happening, reason) == (Happening.TOOL_SAID_NO, "address_refused")
    assert said_no(desk.call("lra_verify", target="https://x/", path="https://y/"))[1] == "conflicting_arguments"


@pytest.mark.req("000-D-VERIFY-REGISTRY")
def test_a_malformed_registry_is_document_000_s_error(desk: Desk) -> None:
    path = desk.home.workspace / "lra-registry.json"
    path.write_text("{")
    try:
        happening, reason, text = said_no(desk.call("lra_verify", target="https://x.test/"))
    finally:
        path.unlink()
    assert (happening, reason) == (Happening.TOOL_SAID_NO, "registry_malformed")
    assert text.startswith("Invalid JSON: registry parse failed")


@pytest.mark.req("000-D-SERVE-START", "000-D-SERVE-BUSY")
def test_serving_answers_at_once_keeps_running_and_is_listed_and_stopped(desk: Desk) -> None:
    port = _free_port()
    started = desk.call("lra_serve", "builder", port=port, path="paper")
    assert started.happening is Happening.OK
    lines = started.stdout.splitlines()
    assert lines == [
        "LRA Dev Server",
        f"  Serving at http://localhost:{port}",
        "  Press Ctrl+C to stop",
        "  Watching for file changes...",
    ]
    assert started.envelope is not None
    job = started.envelope.data["id"]
    assert _answers(desk, port)
    busy = desk.call("lra_serve", "committer", port=port)
    assert said_no(busy) == (Happening.TOOL_SAID_NO, "address_in_use", f"Address already in use: port {port}")
    listed = desk.call("lra_serve", "builder", list=True)
    assert listed.envelope is not None
    assert [(one["id"], one["port"], one["path"]) for one in listed.envelope.data["running"]] == [(job, port, "paper")]
    other = desk.call("lra_serve", "committer", stop=job)
    assert said_no(other)[:2] == (Happening.NOT_THERE, "server_not_found")
    assert desk.call("lra_serve", "builder", stop=job).happening is Happening.OK
    assert not _answers(desk, port)


def test_one_caller_runs_four_dev_servers_and_shutdown_ends_them(home: Home) -> None:
    desk = Desk(home)
    ports = [_free_port() for _ in range(5)]
    answers = [desk.call("lra_serve", "builder", port=port) for port in ports]
    assert [answer.happening for answer in answers[:4]] == [Happening.OK] * 4
    assert said_no(answers[4])[:2] == (Happening.TOOL_SAID_NO, "too_many_jobs")
    assert desk.call("lra_serve", "committer", port=ports[4]).happening is Happening.OK
    desk.close()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2).close()


def test_a_project_that_is_not_there_is_not_served(desk: Desk) -> None:
    happening, reason, _ = said_no(desk.call("lra_serve", path="nowhere", port=_free_port()))
    assert (happening, reason) == (Happening.NOT_THERE, "file_not_found")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(desk: Desk, port: int) -> bool:
    async def ask() -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return False
        writer.write(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
        line = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        return b" 200 " in line

    return desk.loop.run_until_complete(ask())


@pytest.mark.guard
def test_a_real_server_that_stops_takes_its_dev_servers_with_it(home: Home) -> None:
    port = _free_port()
    with home.serving() as server:
        heard = mrt(server.port, "lra_serve", {"port": port, "path": "paper"}, home.keys["builder"])
        assert (heard.status, heard.body["exitCode"]) == (200, 0)
        with urllib.request.urlopen(f"http://localhost:{port}/", timeout=5) as answer:
            assert answer.read() == PAGE.encode()
        again = mrt(server.port, "lra_serve", {"port": port}, home.keys["builder"])
        assert (again.status, again.code, again.reason) == (400, "validation_mrt_exec_failed", "address_in_use")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
