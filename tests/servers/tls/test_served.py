"""TLS on a real server, spoken by clients that nobody here wrote; and by hostile ones, beside a good caller."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
import uvloop

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, make_home
from tests.servers.byhand import FRAMING, WAITS
from tests.servers.test_connection import Echo, plain
from tests.servers.tls.certificates import Pair
from tests.site_packages.wiretest import STEPS
from tests.support import need
from toolgate.servers.door import DoorLimits
from toolgate.servers.server import Server as HttpServer
from toolgate.servers.tls.certificate import ServerCertificate

HALF_OPEN = 500


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Home:
    return make_home(tmp_path_factory.mktemp("tls") / "home", packs=("unruly", "wiretest"), settings=pair.settings)


@pytest.fixture(scope="module")
def server(home: Home) -> Iterator[Server]:
    with home.serving() as server:
        yield server


def caller(home: Home, server: Server, trust: ssl.SSLContext) -> httpx2.Client:
    headers = {"x-mcp-api-key": home.keys["admin"]}
    return httpx2.Client(
        base_url=f"https://127.0.0.1:{server.port}", verify=trust, headers=headers, timeout=PATIENCE_S, trust_env=False
    )


def echoed(client: httpx2.Client, text: str) -> str:
    answer = client.post("/rpc", json=speak.rpc_message("unruly_echo", {"text": text}))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["data"]["text"])


def only(trust: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    trust.minimum_version = trust.maximum_version = version
    trust.set_ciphers("ALL:@SECLEVEL=0")
    return trust


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_call_over_tls(home: Home, server: Server, pair: Pair, version: ssl.TLSVersion) -> None:
    assert server.ready["mcp"] == f"https://127.0.0.1:{server.port}/mcp"
    with caller(home, server, only(pair.trusting(), version)) as client:
        assert echoed(client, "one") == "one"
        large = client.post("/rpc", json=speak.rpc_message("unruly_echo", {"text": "x" * 900_000}))
        assert large.json()["error"]["data"]["reason"] == "text_too_long", "it was read to its end"
        assert client.get("/readyz").status_code == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_what_is_older_than_tls_1_2_is_not_spoken(server: Server, pair: Pair) -> None:
    context = only(pair.trusting(), ssl.TLSVersion.TLSv1_1)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as plain_socket,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain_socket, server_hostname="localhost")


def test_openssl_speaks_to_it(home: Home, server: Server, pair: Pair) -> None:
    program = need("openssl")
    request = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    trust = ["-verify_return_error", "-CAfile", pair.certificate, "-servername", "localhost"]
    done = subprocess.run(
        [program, "s_client", "-quiet", "-ign_eof", "-connect", f"127.0.0.1:{server.port}", *trust],
        input=request.encode(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.startswith(b"HTTP/1.1 200"), done.stderr.decode()
    assert done.stdout.endswith(b'{"status":"ok"}')


def test_a_caller_without_tls_is_told_to_use_it(server: Server) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{server.port}/healthz", timeout=PATIENCE_S, trust_env=False)
    assert answer.status_code == 400
    assert "https" in answer.text


def test_a_page_of_the_servers_own_origin_is_one_over_https(home: Home, server: Server, pair: Pair) -> None:
    with caller(home, server, pair.trusting()) as client:
        for scheme, status in (("https", 200), ("http", 403)):
            origin = f"{scheme}://127.0.0.1:{server.port}"
            call = {"tool": "unruly_echo", "args": {}}
            assert client.post("/mrt_dispatch", json=call, headers={"origin": origin}).status_code == status


def test_beside_hundreds_of_handshakes_that_never_end_a_caller_is_served(
    home: Home, server: Server, pair: Pair
) -> None:
    with ExitStack() as stack, caller(home, server, pair.trusting()) as client:
        assert echoed(client, "before") == "before"
        for number in range(HALF_OPEN):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            with suppress(ConnectionError):  # garbage may have been refused already
                one.sendall((b"", b"\x16\x03\x01\x02\x00\x01\x00", bytes(200))[number % 3])
        assert echoed(client, "on an open connection") == "on an open connection"
        with caller(home, server, pair.trusting()) as newcomer:
            assert echoed(newcomer, "on a new one") == "on a new one"


def test_a_renewed_certificate_greets_new_connections_and_open_ones_go_on(tmp_path: Path) -> None:
    pair = Pair(tmp_path)

    async def scenario() -> None:
        certificate = ServerCertificate(pair.certificate, pair.key)
        limits = DoorLimits(8, 1 << 20)
        served = HttpServer(Echo(), door=limits, framing=FRAMING, waits=WAITS, drain_s=0.0, certificate=certificate)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        await served.start(listener)
        port = listener.getsockname()[1]

        async def connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port, ssl=pair.trusting(), server_hostname="localhost")

        async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> bytes:
            writer.write(plain(body))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            return await reader.readexactly(len(body))

        old = await connected()
        assert await asked(*old, b"before") == b"before"
        pair.write()
        certificate.reload()
        new = await connected()  # it trusts the new certificate only
        assert await asked(*new, b"new") == b"new"
        assert await asked(*old, b"open") == b"open"
        served.stop()
        await served.ended()
        for _, writer in (old, new):
            writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_events_arrive_over_tls_and_the_answer_last(home: Home, server: Server, pair: Pair) -> None:
    params = {"name": "wire_steps", "arguments": {"text": "done"}, "_meta": {"progressToken": 1}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    with caller(home, server, pair.trusting()) as client:
        answer = client.post("/mcp", json=call, headers=headers)
    events = [json.loads(line.partition(": ")[2]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert len(events) == STEPS + 1
    assert events[-1]["id"] == 1
