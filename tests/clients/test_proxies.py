"""docs/guides/proxies.md: both recipes as they stand there, between a client with TLS and a real server."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faces.speak import mcp_message
from tests.homes import PATIENCE_S, ROOT, Home, environment, make_home
from tests.ports import free_port
from tests.support import need
from tests.waiting import until

pytestmark = pytest.mark.guard

GUIDE = (ROOT / "docs" / "guides" / "proxies.md").read_text()
CLIENT_ADDRESS = "127.0.0.2"
"""Not the proxy's own, so that the log can tell them apart. All of 127/8 is this machine on Linux."""


def recipe(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


def certificate(place: Path) -> tuple[Path, Path]:
    need("openssl")
    pem, key = place / "gate.pem", place / "gate.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    return pem, key


class Proxied:
    """A server behind a proxy, and a client in front of it."""

    def __init__(self, home: Home, port: int, pem: Path, log: Path) -> None:
        self.home, self._port, self.log = home, port, log
        self._tls = ssl.create_default_context(cafile=str(pem))

    @contextmanager
    def asking(self, tool: str, arguments: dict[str, Any], **more: Any) -> Iterator[http.client.HTTPSConnection]:
        """A call under way; the client leaves at the end."""
        connection = http.client.HTTPSConnection(
            "localhost", self._port, timeout=PATIENCE_S, context=self._tls, source_address=(CLIENT_ADDRESS, 0)
        )
        message = mcp_message(tool, arguments, modern=False)
        message["params"] |= more
        headers = {
            "Authorization": f"Bearer {self.home.keys['builder']}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }
        try:
            connection.request("POST", "/mcp", json.dumps(message), headers)
            yield connection
        finally:
            connection.close()

    def ends_of(self, tool: str) -> list[dict[str, Any]]:
        """The records of how its calls ended."""
        ends = [record for record in self.home.calls() if record["event"] == "outcome"]
        return [record for record in ends if record["metadata"]["toolId"] == f"mcp.tool:{tool}"]


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    program, kind, place = need(request.param), request.param, tmp_path_factory.mktemp(request.param)
    port, (pem, key) = free_port(), certificate(place)
    settings = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert settings is not None
    told = settings[1].replace("gate.example:8443", f"localhost:{port}")
    home = make_home(place / "home", packs=("wiretest", "unruly"), settings=told)
    with home.serving() as server:
        written = recipe(kind)
        for old, new in {
            "/etc/ssl/gate.example.pem": str(pem),
            "/etc/ssl/gate.example.key": str(key),
            "/var/log/nginx/toolgate.log": str(place / "access.log"),
            "gate.example": "localhost",
            "8443": str(port),
            "127.0.0.1:8000": f"127.0.0.1:{server.port}",
        }.items():
            written = written.replace(old, new)
        with _running(kind, program, written, place) as process:
            try:
                _until_open(port, process, place / "proxy.log")
                yield Proxied(home, port, pem, place / "access.log")
            finally:
                process.terminate()


def _running(kind: str, program: str, written: str, place: Path) -> subprocess.Popen[bytes]:
    file = place / "proxy.conf"
    if kind == "nginx":
        folders = "".join(
            f"{each}_temp_path {place}/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        head = f"daemon off;\npid {place}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        file.write_text(f"{head}http {{\naccess_log off;\n{folders}{written}}}\n")
        command = [program, "-p", str(place), "-c", str(file), "-e", "stderr"]
    else:
        file.write_text("{\n    admin off\n    auto_https off\n}\n" + written)
        command = [program, "run", "--adapter", "caddyfile", "--config", str(file)]
    with (place / "proxy.log").open("wb") as log:
        return subprocess.Popen(command, env=environment(HOME=str(place)), stdout=log, stderr=log)


def _until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def is_open() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        return False

    until(is_open, "the proxy listens")


def test_a_call_passes_with_tls_and_the_log_holds_the_clients_address(proxied: Proxied) -> None:
    with proxied.asking("wire_echo", {"text": "hello"}) as connection, connection.getresponse() as answer:
        assert answer.status == 200
        told = json.loads(answer.read())
    assert told["result"]["structuredContent"]["data"] == {"text": "hello"}
    assert [record["clientAddress"] for record in proxied.ends_of("wiretest.echo")] == [CLIENT_ADDRESS]


@pytest.mark.parametrize("proxied", ["nginx"], indirect=True)
def test_a_line_of_nginxs_log_leads_to_the_record(proxied: Proxied) -> None:
    with proxied.asking("wire_fail", {"text": "x"}) as connection, connection.getresponse() as answer:
        answer.read()
    (record,) = proxied.ends_of("wiretest.fail")
    assert len(record["clientRequestId"]) == 32
    until(lambda: f" 200 {record['clientRequestId']}\n" in proxied.log.read_text(), "nginx writes its line")


def test_events_arrive_one_by_one(proxied: Proxied) -> None:
    def first_of_them() -> bytes:
        asking = proxied.asking("wire_progress", {"text": "done"}, _meta={"progressToken": "t"})
        with asking as connection, connection.getresponse() as answer:
            assert answer.getheader("content-type") == "text/event-stream"
            pieces = [answer.read1()]
            while piece := answer.read1():
                pieces.append(piece)
        assert b"structuredContent" in b"".join(pieces)
        return pieces[0]

    # A reader that is late finds several of them. A proxy that keeps them together never gives the first one alone.
    until(lambda: b"step 1" in (first := first_of_them()) and b"step 3" not in first, "the first event comes alone")


def test_a_client_that_leaves_before_the_answer_cancels_its_call(proxied: Proxied) -> None:
    with proxied.asking("unruly_wait", {}):
        until((proxied.home.workspace / "inside").exists, "the tool runs")
    (end,) = until(lambda: proxied.ends_of("unruly.wait"), "the call ends")
    assert end["error"]["reason"] == "cancelled", "its deadline is not what ended it"


def test_a_client_that_leaves_in_the_middle_of_events_cancels_its_call(proxied: Proxied) -> None:
    asking = proxied.asking("wire_wait", {"text": "x"}, _meta={"progressToken": "t"})
    with asking as connection, connection.getresponse() as answer:
        assert b"waiting" in answer.read1()
    (end,) = until(lambda: proxied.ends_of("wiretest.wait"), "the call ends")
    assert end["error"]["reason"] == "cancelled", "its deadline is not what ended it"
