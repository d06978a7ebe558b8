"""The tools as the road sees them: argument faults get document 000's reasons, errors its texts, and nothing leaks."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.faces.speak import mrt
from tests.homes import PATIENCE_S, Home, make_home
from tests.packs.lra.deployed.papers import PAGE, plant
from tests.packs.lra.receipts.samples import SEED, receipt
from tests.ports import free_port
from toolgate.app import App
from toolgate.errors import Ending, Refusal
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
        return self.loop.run_until_complete(asyncio.wait_for(self._call(tool, role, arguments), PATIENCE_S))

    async def _call(self, tool: str, role: str, arguments: dict[str, Any]) -> Answer:
        road = self.app.road
        call = Call(WIRE, tool, arguments, wants_text=True)
        caller = road.authenticate(self.home.keys[role].encode())
        try:
            ticket = road.admission.enter(caller, call)
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
    ("lra_serve", {"path": "../x"}, "invalid_path"),
]


@pytest.mark.req("000-D-SIGN-ARGS", "000-D-VERIFY-ARGS", "000-D-SERVE-PORT")
def test_every_argument_fault_has_document_000_s_reason(desk: Desk) -> None:
    for tool, arguments, reason in ARGUMENT_FAULTS:
        answer = desk.call(tool, **arguments)
        assert answer.ending is Ending.BAD_ARGUMENTS, (tool, arguments)
        assert answer.details.get("reason") == reason, (tool, arguments, answer.details)


def said_no(answer: Answer) -> tuple[Ending, str | None, str]:
    return answer.ending, answer.details.get("reason"), answer.text


@pytest.mark.req("000-D-SIGN-404")
def test_signing_names_what_is_not_there(desk: Desk) -> None:
    assert said_no(desk.call("lra_sign", receipt="paper/none.json")) == (
        Ending.NOT_THERE,
        "receipt_not_found",
        "Receipt file not found",
    )
    ending, reason, text = said_no(desk.call("lra_sign", receipt="paper/r.json", key="none.key"))
    assert (ending, reason) == (Ending.NOT_THERE, "key_not_found")
    assert text.startswith("Key file not found: there is no none.key in ")
    assert "to make one: lra keygen none.key --keys " in text
    ending, reason, text = said_no(desk.call("lra_sign", receipt="paper/r.json", key="broken.key"))
    assert (ending, reason) == (Ending.TOOL_SAID_NO, "invalid_key_format")
    assert text.startswith("Invalid key format")


@pytest.mark.req("000-D-SIGN-OUTPUT")
def test_a_signed_receipt_is_the_tool_s_text(desk: Desk) -> None:
    answer = desk.call("lra_sign", receipt="paper/r.json", key="~/.lra/identity.key", formats=["sshsig"])
    assert answer.ending is Ending.OK
    shown = json.loads(answer.stdout)
    assert list(shown) == ["receipt", "signature", "public_key", "timestamp", "signed_at"]
    assert shown["receipt"] == receipt()
    assert (desk.home.workspace / "paper" / "r.dsse.json").is_file()
    record = json.dumps(desk.home.calls())
    assert shown["signature"] not in record
    assert SEED.hex() not in record


def test_a_builder_neither_signs_nor_writes_a_receipt(desk: Desk) -> None:
    assert desk.call("lra_sign", "builder", receipt="paper/r.json").ending is Ending.INSUFFICIENT_ROLE
    refused = desk.call("lra_verify", "builder", target="https://x.test/", receipt="out.json")
    assert refused.ending is Ending.INSUFFICIENT_ROLE


def test_verifying_a_private_address_is_refused_without_a_setting(desk: Desk) -> None:
    for target in ("http://127.0.0.1:8080/", "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/"):
        ending, reason, _ = said_no(desk.call("lra_verify", target=target))
        assert (ending, reason) == (Ending.TOOL_SAID_NO, "address_refused")
    assert said_no(desk.call("lra_verify", target="https://x/", path="https://y/"))[1] == "conflicting_arguments"


@pytest.mark.req("000-D-VERIFY-REGISTRY")
def test_a_malformed_registry_is_document_000_s_error(desk: Desk) -> None:
    path = desk.home.workspace / "lra-registry.json"
    path.write_text("{")
    try:
        ending, reason, text = said_no(desk.call("lra_verify", target="https://x.test/"))
    finally:
        path.unlink()
    assert (ending, reason) == (Ending.TOOL_SAID_NO, "registry_malformed")
    assert text.startswith("Invalid JSON: registry parse failed")


@pytest.mark.req("000-D-SERVE-START", "000-D-SERVE-BUSY")
def test_serving_answers_at_once_keeps_running_and_is_listed_and_stopped(desk: Desk) -> None:
    port = free_port()
    started = desk.call("lra_serve", "builder", port=port, path="paper")
    assert started.ending is Ending.OK
    assert started.envelope is not None
    job = started.envelope.data["id"]
    assert started.envelope.data["stop_with"] == {"stop": job}
    assert started.stdout.splitlines() == [
        "LRA Dev Server",
        f"  Serving at http://localhost:{port}",
        f'  Stop it with lra_serve {{"stop": "{job}"}}',
        "  Watching for file changes...",
    ]
    assert _answers(desk, port)
    busy = desk.call("lra_serve", "committer", port=port)
    assert said_no(busy) == (Ending.TOOL_SAID_NO, "address_in_use", f"Address already in use: port {port}")
    listed = desk.call("lra_serve", "builder", list=True)
    assert listed.envelope is not None
    assert [(one["id"], one["port"], one["path"]) for one in listed.envelope.data["running"]] == [(job, port, "paper")]
    other = desk.call("lra_serve", "committer", stop=job)
    assert said_no(other)[:2] == (Ending.NOT_THERE, "server_not_found")
    assert desk.call("lra_serve", "builder", stop=job).ending is Ending.OK
    assert not _answers(desk, port)


@pytest.mark.req("000-D-INIT-NAME")
@pytest.mark.parametrize("name", ["a/b", "a..b", ".hidden", "a\u202eb", "-rf", "ends."])
def test_d10_answer_to_a_bad_project_name_says_what_is_allowed(desk: Desk, name: str) -> None:
    answer = desk.call("lra_init", project_name=name)
    assert answer.ending is Ending.BAD_ARGUMENTS
    assert answer.details is not None
    assert answer.details["reason"] == "invalid_project_name"
    assert "`my paper`" in answer.details["text"]
    assert answer.envelope is not None
    assert name not in str(answer.envelope.message), "the value is not repeated"


@pytest.mark.parametrize("name", ["paper.v2", "my paper", "médecine", "what?#<b>&"])
def test_d10_project_of_any_name_is_made_judged_served_and_listed(desk: Desk, name: str) -> None:
    assert desk.call("lra_init", project_name=name).ending is Ending.OK
    judged = desk.call("lra_validate", path=f"{name}/index.html")
    port = free_port()
    started = desk.call("lra_serve", port=port)
    assert judged.envelope is not None
    assert started.envelope is not None
    assert judged.envelope.data["tier"] == "SILVER"
    assert f'<a href="{quote(name)}/"><strong>' in _page(desk, port, "/")
    assert "<h1>" in _page(desk, port, f"/{quote(name)}/")
    desk.call("lra_serve", **started.envelope.data["stop_with"])


def test_a7_admin_sees_and_stops_the_dev_server_of_any_caller(desk: Desk) -> None:
    port = free_port()
    started = desk.call("lra_serve", "builder", port=port, path="paper")
    assert started.envelope is not None
    job = started.envelope.data["id"]
    listed = desk.call("lra_serve", "admin", list=True)
    assert listed.envelope is not None
    shown = [(one["id"], one["caller"]) for one in listed.envelope.data["running"]]
    assert shown == [(job, desk.home.keys["builder"].split("_")[1])]
    assert "  of " in listed.stdout
    mine = desk.call("lra_serve", "builder", list=True)
    assert mine.envelope is not None
    assert ["caller" in one for one in mine.envelope.data["running"]] == [False]
    others = desk.call("lra_serve", "committer", list=True)
    assert others.envelope is not None
    assert others.envelope.data["running"] == []
    stop_with = listed.envelope.data["running"][0]["stop_with"]
    assert desk.call("lra_serve", "admin", **stop_with).ending is Ending.OK
    assert not _answers(desk, port)


def test_one_caller_runs_four_dev_servers_and_shutdown_ends_them(home: Home) -> None:
    desk = Desk(home)
    ports = [free_port() for _ in range(5)]
    answers = [desk.call("lra_serve", "builder", port=port) for port in ports]
    assert [answer.ending for answer in answers[:4]] == [Ending.OK] * 4
    assert said_no(answers[4])[:2] == (Ending.TOOL_SAID_NO, "too_many_jobs")
    assert desk.call("lra_serve", "committer", port=ports[4]).ending is Ending.OK
    desk.close()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2).close()


def test_a_project_that_is_not_there_is_not_served(desk: Desk) -> None:
    ending, reason, _ = said_no(desk.call("lra_serve", path="nowhere", port=free_port()))
    assert (ending, reason) == (Ending.NOT_THERE, "file_not_found")


def _page(desk: Desk, port: int, path: str) -> str:
    async def ask() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        return answer.decode()

    return desk.loop.run_until_complete(ask())


def _answers(desk: Desk, port: int) -> bool:
    async def ask() -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return False
        writer.write(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
        line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        writer.close()
        return b" 200 " in line

    return desk.loop.run_until_complete(ask())


@pytest.mark.guard
def test_a_real_server_that_stops_takes_its_dev_servers_with_it(home: Home) -> None:
    port = free_port()
    with home.serving() as server:
        heard = mrt(server.port, "lra_serve", {"port": port, "path": "paper"}, home.keys["builder"])
        assert (heard.status, heard.body["exitCode"]) == (200, 0)
        with urllib.request.urlopen(f"http://localhost:{port}/", timeout=PATIENCE_S) as answer:
            assert answer.read() == PAGE.encode()
        again = mrt(server.port, "lra_serve", {"port": port}, home.keys["builder"])
        assert (again.status, again.code, again.reason) == (400, "validation_mrt_exec_failed", "address_in_use")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
