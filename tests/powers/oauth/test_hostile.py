"""Authorization servers that lie, redirect, point inwards or answer rubbish. A real socket; each ends with a reason of ours."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from toolgate.errors import SettingsError
from toolgate.model.tool import Hosts
from toolgate.powers.mcp.table import read_table
from toolgate.powers.net import PackEgress
from toolgate.powers.oauth import flows
from toolgate.powers.oauth.discovery import AuthorizationServer, ProtectedResource, find_resource, find_server
from toolgate.powers.oauth.exchange import OAuthClient, OAuthFailed, TokenWire, tokens_of
from toolgate.powers.oauth.logins import Login, LoginFile, LoginState

T = TypeVar("T")
Answer = tuple[int, Mapping[str, str], bytes]
CLIENT = OAuthClient("me")
GOOD = {"access_token": "a", "token_type": "Bearer", "expires_in": 60, "refresh_token": "r"}


class Liar:
    """Answers each path as it is told."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                liar.asked.append(self.path)
                self.rfile.read(int(self.headers.get("content-length", 0)))
                status, headers, body = liar.answers.get(self.path.partition("?")[0], (404, {}, b""))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 (the library's name)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.pair = f"127.0.0.1:{self._server.server_port}"
        self.origin = f"http://{self.pair}"
        self.url = f"{self.origin}/mcp"

    def says(self, path: str, body: Any, status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = (status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)

    def wire(self) -> TokenWire:
        return TokenWire(PackEgress(Hosts(any_public=True, private=[self.pair])))

    def metadata(self, **changed: Any) -> dict[str, Any]:
        found = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/auth",
            "token_endpoint": f"{self.origin}/token",
            "code_challenge_methods_supported": ["S256"],
        }
        return {name: value for name, value in {**found, **changed}.items() if value is not None}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def liar() -> Iterator[Liar]:
    made = Liar()
    yield made
    made.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def reason_of(work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(OAuthFailed) as caught:
        run(work)
    return caught.value.reason


PROTECTED = "/.well-known/oauth-protected-resource/mcp"
SERVER = "/.well-known/oauth-authorization-server"
RESOURCES: dict[str, tuple[Callable[[Liar], Any], str]] = {
    "another resource": (lambda liar: {"resource": "https://other.example/mcp"}, "bad_metadata"),
    "a resource beside": (lambda liar: {"resource": f"{liar.origin}/mc"}, "bad_metadata"),
    "no server": (lambda liar: {"resource": liar.url}, "bad_metadata"),
    "a server that is no address": (
        lambda liar: {"resource": liar.url, "authorization_servers": ["file:///etc/passwd"]},
        "bad_metadata",
    ),
    "a list": (lambda liar: [1], "bad_metadata"),
    "rubbish": (lambda liar: b"<html>", "bad_metadata"),
}


@pytest.mark.parametrize("name", RESOURCES)
def test_metadata_of_a_resource_that_cannot_be_used(liar: Liar, name: str) -> None:
    made, reason = RESOURCES[name]
    liar.says(PROTECTED, made(liar))
    assert reason_of(find_resource(liar.wire(), liar.url)) == reason


def test_a_resource_whose_metadata_is_elsewhere_is_not_believed(liar: Liar) -> None:
    challenge = 'Bearer resource_metadata="http://127.0.0.1:9/metadata"'
    liar.says("/mcp", {}, 401, WWW_Authenticate=challenge)
    assert reason_of(find_resource(liar.wire(), liar.url)) == "bad_metadata"


def test_a_resource_must_name_the_issuer_of_the_settings(liar: Liar) -> None:
    liar.says(PROTECTED, {"resource": liar.url, "authorization_servers": ["https://other.example"]})
    assert reason_of(find_resource(liar.wire(), liar.url, "https://mine.example")) == "bad_metadata"


INWARDS = [
    "http://169.254.169.254",
    "http://127.0.0.1:9",
    "http://10.0.0.1",
    "https://[::1]",
    "http://localhost:9",
    "http://example.com",
]


@pytest.mark.parametrize("place", INWARDS)
def test_metadata_that_points_inwards_reaches_nothing(liar: Liar, place: str) -> None:
    liar.says(PROTECTED, {"resource": liar.url, "authorization_servers": [place]})

    async def both() -> None:
        resource = await find_resource(liar.wire(), liar.url)
        await find_server(liar.wire(), resource.issuer)

    assert reason_of(both()) == "address_refused"


def test_a_token_endpoint_that_lies_inwards_gets_no_code(liar: Liar) -> None:
    liar.says(SERVER, liar.metadata(token_endpoint="http://127.0.0.1:9/token"))
    server = run(find_server(liar.wire(), liar.origin))
    assert reason_of(liar.wire().post(server.token_endpoint, {"code": "x"}, CLIENT)) == "address_refused"


SERVERS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"issuer": "https://other.example"}, "bad_metadata"),
    "an issuer with a slash more": ({"issuer": "http://127.0.0.1/"}, "bad_metadata"),
    "no token endpoint": ({"token_endpoint": None}, "bad_metadata"),
    "an endpoint that is no address": ({"token_endpoint": "javascript:alert(1)"}, "bad_metadata"),
    "no PKCE": ({"code_challenge_methods_supported": None}, "no_pkce"),
    "plain PKCE": ({"code_challenge_methods_supported": ["plain"]}, "no_pkce"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_metadata_of_a_server_that_cannot_be_used(liar: Liar, name: str) -> None:
    changed, reason = SERVERS[name]
    liar.says(SERVER, liar.metadata(**changed))
    assert reason_of(find_server(liar.wire(), liar.origin)) == reason


def test_a_redirect_to_another_origin_takes_nothing_along(liar: Liar) -> None:
    other = Liar()
    try:
        wire = TokenWire(PackEgress(Hosts(private=[liar.pair, other.pair])))
        liar.says("/token", b"", 307, Location=f"{other.origin}/token")
        assert reason_of(wire.post(f"{liar.origin}/token", {"refresh_token": "canary"}, CLIENT)) == "not_reachable"
        liar.says(SERVER, b"", 302, Location=f"{other.origin}{SERVER}")
        assert reason_of(find_server(wire, liar.origin)) == "address_refused"
        assert other.asked == []
    finally:
        other.close()


RUBBISH: dict[str, tuple[Any, int, str]] = {
    "no JSON": (b"access_token=a", 200, "bad_answer"),
    "a list": ([GOOD], 200, "bad_answer"),
    "no token": ({"token_type": "Bearer"}, 200, "bad_answer"),
    "a token that is none": ({**GOOD, "access_token": 7}, 200, "bad_answer"),
    "a token with a line break": ({**GOOD, "access_token": "a\r\nX: y"}, 200, "bad_answer"),
    "a token without end": ({**GOOD, "access_token": "a" * 20_000}, 200, "bad_answer"),
    "another kind of token": ({**GOOD, "token_type": "mac"}, 200, "bad_answer"),
    "a refresh token that is none": ({**GOOD, "refresh_token": ["r"]}, 200, "bad_answer"),
    "a status alone": (b"", 500, "bad_answer"),
    "an error": ({"error": "invalid_grant"}, 400, "invalid_grant"),
    "an error in a good answer": ({**GOOD, "error": "invalid_grant"}, 200, "invalid_grant"),
    "an error that is a text": ({"error": "<script>alert(1)</script>"}, 400, "bad_answer"),
    "more than anyone reads": (b"x" * 300_000, 200, "not_reachable"),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_a_token_endpoint_that_answers_rubbish(liar: Liar, name: str) -> None:
    body, status, reason = RUBBISH[name]
    liar.says("/token", body, status)

    async def redeemed() -> None:
        tokens_of(await liar.wire().post(f"{liar.origin}/token", {"code": "x"}, CLIENT))

    assert reason_of(redeemed()) == reason


@pytest.mark.parametrize("lives", [0, -1, "60", None, True, 1e12])
def test_a_lifetime_that_is_not_believable_is_not_used(liar: Liar, lives: Any) -> None:
    liar.says("/token", {**GOOD, "expires_in": lives}, 201)
    assert tokens_of(run(liar.wire().post(f"{liar.origin}/token", {}, CLIENT))).lives_s is None


ANSWERS: dict[str, tuple[dict[str, str], bool, str]] = {
    "another issuer": ({"code": "x", "iss": "https://other.example"}, False, "wrong_issuer"),
    "no issuer where one is promised": ({"code": "x"}, True, "wrong_issuer"),
    "an error of another issuer": ({"error": "access_denied", "iss": "https://other.example"}, True, "wrong_issuer"),
    "an error": ({"error": "access_denied"}, False, "denied"),
    "no code": ({"state": "s"}, False, "bad_answer"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_to_the_browser_that_is_not_taken(name: str) -> None:
    query, promised, reason = ANSWERS[name]
    server = AuthorizationServer("https://as.example", "https://as.example/token", names_itself=promised)
    with pytest.raises(OAuthFailed) as caught:
        flows.code_of(server, query)
    assert caught.value.reason == reason


def test_a_request_carries_pkce_state_and_resource() -> None:
    server = AuthorizationServer("https://as.example", "https://as.example/token", "https://as.example/auth?x=1")
    resource = ProtectedResource("https://up.example/mcp", "https://as.example")
    one, other = (flows.begin(server, CLIENT, resource, flows.redirect_at(5), "a offline_access") for _ in range(2))
    for part in (
        "?x=1&response_type=code",
        "code_challenge_method=S256",
        "resource=https%3A%2F%2Fup.example%2Fmcp",
        "prompt=consent",
    ):
        assert part in one.url
    assert one.verifier not in one.url
    assert one.state != other.state
    assert one.verifier != other.verifier
    assert not flows.is_ours(one, {"state": other.state})
    assert flows.is_ours(one, {"state": one.state})


class Waiting:
    """A token endpoint that counts, and holds its answers until it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def post(self, *_: Any) -> dict[str, Any]:
        self.asked += 1
        await self.go.wait()
        return {**GOOD, "access_token": f"new-{self.asked}", "refresh_token": f"r-{self.asked}"}


def stored(directory: Path, **changed: Any) -> LoginFile:
    file = LoginFile(directory, "login")
    state = {"upstream": "u", "issuer": "i", "resource": "r", "token_endpoint": "t", "client_id": "c", "access": "old"}
    file.write(LoginState(**{**state, "refresh": "r-0", **changed}))
    return file


def test_all_who_wait_share_one_renewal_and_none_of_them_can_end_it(tmp_path: Path) -> None:
    async def many() -> tuple[list[Any], int]:
        wire = Waiting()
        login = Login("u", stored(tmp_path), lambda: wire, str)  # type: ignore[arg-type,return-value]
        tasks = [asyncio.ensure_future(login.token("old")) for _ in range(5)]
        while not wire.asked:
            await asyncio.sleep(0)
        tasks[0].cancel()
        wire.go.set()
        return list(await asyncio.gather(*tasks, return_exceptions=True)), wire.asked

    found, asked = run(many())
    assert isinstance(found[0], asyncio.CancelledError)
    assert (found[1:], asked) == (["new-1"] * 4, 1)
    state = LoginFile(tmp_path, "login").read()
    assert state is not None
    assert (state.access, state.refresh) == ("new-1", "r-1")


def test_who_comes_second_to_the_lock_takes_what_the_first_has_written(tmp_path: Path) -> None:
    async def two() -> tuple[str, str, int]:
        wire = Waiting()
        file = stored(tmp_path)
        logins = [Login("u", file, lambda: wire, str) for _ in range(2)]  # type: ignore[arg-type,return-value]
        tasks = [asyncio.ensure_future(login.token("old")) for login in logins]
        while not wire.asked:
            await asyncio.sleep(0)
        wire.go.set()
        one, other = await asyncio.gather(*tasks)
        return one, other, wire.asked

    assert run(two()) == ("new-1", "new-1", 1)


def test_a_login_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = stored(tmp_path)
    (tmp_path / "login").chmod(0o644)
    with pytest.raises(OAuthFailed, match="chmod 600"):
        file.read()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff"])
def test_a_file_that_is_no_login_is_refused(tmp_path: Path, content: bytes) -> None:
    file = stored(tmp_path)
    (tmp_path / "login").write_bytes(content)
    with pytest.raises(OAuthFailed, match="not a login"):
        file.read()


WRONG_TABLES: dict[str, dict[str, Any]] = {
    "not a table": {"url": "https://u.example/mcp", "oauth": True},
    "an unknown key": {"url": "https://u.example/mcp", "oauth": {"token": "x"}},
    "a secret in the file": {"url": "https://u.example/mcp", "oauth": {"client_id": "a", "client_secret": "hunter2"}},
    "a path": {"url": "https://u.example/mcp", "oauth": {"login": "file:../other"}},
    "for a program": {"command": ["x"], "oauth": {}},
    "beside a header": {"url": "https://u.example/mcp", "oauth": {}, "headers": {"authorization": "Bearer file:t"}},
    "an issuer that is none": {"url": "https://u.example/mcp", "oauth": {"issuer": "ftp://x"}},
}


@pytest.mark.parametrize("name", WRONG_TABLES)
def test_a_table_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        read_table("u", WRONG_TABLES[name])
