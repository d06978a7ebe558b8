"""Logins to upstreams, against a real authorization server: a browser, a device, renewal by two processes, and logging out."""

from __future__ import annotations

import json
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.powers.oauth.authority import Authority, address_in, authority, log_in, tokens_in
from tests.upstreams.homes import ask, toml_of

pytestmark = [pytest.mark.guard, pytest.mark.timeout(120)]
TOKEN_S = 3600


@pytest.fixture(scope="module")
def server() -> Iterator[Authority]:
    with authority(TOKEN_S) as made:
        yield made


def home_for(path: Path, server: Authority, **oauth: str) -> Home:
    table: dict[str, Any] = {"url": server.url, "prefix": "guarded_", "oauth": oauth}
    return make_home(path / "home", packs=("governance",), settings=toml_of("guarded", table))


class Person:
    """Runs `toolgate upstream login`, and does what it says."""

    def __init__(self, home: Home, *flags: str) -> None:
        command = home.command("upstream", "login", "guarded", "--json", *flags)
        self.process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def told(self) -> str:
        """The line that says where to go."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def ended(self) -> tuple[int, dict[str, Any], str]:
        out, rest = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, json.loads(out) if out else {}, rest.decode()


def logged_in(home: Home) -> dict[str, Any]:
    person = Person(home, "--no-browser")
    page = log_in(address_in(person.told()))
    assert "close this page" in page.text
    code, told, errors = person.ended()
    assert code == 0, errors
    return told


def state_of(home: Home) -> dict[str, Any]:
    file = home.path / "secrets" / "upstream-guarded-login"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return dict(json.loads(file.read_bytes()))


def change(home: Home, **fields: Any) -> None:
    file = home.path / "secrets" / "upstream-guarded-login"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **fields}))


def adopt(home: Home) -> None:
    command = home.command("upstream", "adopt", "guarded", "--roles", "admin", "--yes")
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_person_logs_in_with_a_browser_and_the_upstream_answers(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    told = logged_in(home)
    assert told == {"upstream": "guarded", "issuer": server.origin, "scope": told["scope"], "renews": True}
    state = state_of(home)
    assert (state["resource"], state["issuer"]) == (server.url, server.origin)
    adopt(home)
    with home.serving() as gate:
        status, body = ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])
        assert status == 200, body
        assert body["envelope"]["data"]["content"][0]["text"] == "said"


def test_no_token_is_shown_anywhere(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    person = Person(home, "--no-browser")
    line = person.told()
    arguments = Path(f"/proc/{person.process.pid}/cmdline")
    seen = line + (arguments.read_text() if arguments.exists() else "")
    log_in(address_in(line))
    _, told, errors = person.ended()
    adopt(home)
    shown = seen + json.dumps(told) + errors
    for command in (("list", "--json"), ("status", "--json"), ("diff", "guarded", "--json")):
        done = subprocess.run(
            home.command("upstream", *command), env=environment(), capture_output=True, timeout=PATIENCE_S, check=False
        )
        shown += done.stdout.decode() + done.stderr.decode()
    shown += json.dumps(home.records()) + (home.path / "toolgate.toml").read_text()
    shown += "".join(path.read_text() for path in (home.path / "policy").rglob("*.json"))
    canaries = tokens_in(state_of(home))
    assert len(canaries) >= 2
    assert [token for token in canaries if token in shown] == []


def test_a_person_logs_in_on_another_device(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    person = Person(home, "--device")
    log_in(address_in(person.told()))
    code, told, errors = person.ended()
    assert (code, told.get("renews")) == (0, True), errors


def test_a_client_that_was_registered_is_used_again(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    logged_in(home)
    before, client = server.counts()["registrations"], state_of(home)["client_id"]
    logged_in(home)
    assert (server.counts()["registrations"], state_of(home)["client_id"]) == (before, client)


def test_a_client_id_that_is_the_address_of_a_published_document_needs_no_registration(
    tmp_path: Path, server: Authority
) -> None:
    published = "https://gate.example.org/client.json"
    before = server.counts()["registrations"]
    home = home_for(tmp_path, server, client_id=published)
    assert logged_in(home)["renews"] is True
    state = state_of(home)
    assert (state["client_id"], state["auth_method"], state["client_secret"]) == (published, "none", "")
    assert server.counts()["registrations"] == before


def test_a_visit_with_another_state_is_refused_and_the_right_one_still_counts(
    tmp_path: Path, server: Authority
) -> None:
    home = home_for(tmp_path, server)
    person = Person(home, "--no-browser")
    url = address_in(person.told())
    redirect = httpx2.URL(url).params["redirect_uri"]
    before = server.counts()["authorization_code"]
    for query in ("?code=x&state=wrong", "?code=x", "?error=access_denied&state=", "?state=a&state=b&code=x"):
        assert httpx2.get(redirect + query, trust_env=False).status_code == 400
    assert httpx2.get(redirect.replace("/callback", "/"), trust_env=False).status_code == 404
    assert server.counts()["authorization_code"] == before
    log_in(url)
    assert person.ended()[0] == 0


def test_logging_out_revokes_and_the_server_serves_no_more(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    logged_in(home)
    adopt(home)
    with home.serving() as gate:
        assert ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])[0] == 200
        done = subprocess.run(
            home.command("upstream", "logout", "guarded", "--json"),
            env=environment(),
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert json.loads(done.stdout) == {"upstream": "guarded", "loggedOut": True, "revoked": True}
        status, body = ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])
        assert (status, body["error_code"], body["details"]["reason"]) == (503, "upstream_down", "no_login")


def test_two_processes_renew_one_token_with_one_request(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    logged_in(home)
    adopt(home)
    with home.serving() as one, home.serving() as other:
        for gate in (one, other):
            assert ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])[0] == 200
        before = server.counts()
        change(home, expires_at=time.time() - 1)
        statuses: list[int] = []

        def call(port: int) -> None:
            statuses.append(ask("mrt", port, ("guarded", "echo"), {}, home.keys["admin"])[0])

        threads = [threading.Thread(target=call, args=(gate.port,)) for gate in (one, other) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        after = server.counts()
    assert statuses == [200] * 8
    assert after["refresh_token"] - before["refresh_token"] == 1
    assert after["calls"] - before["calls"] == 8


def test_a_token_that_is_refused_is_renewed_and_the_call_is_sent_once_more(tmp_path: Path, server: Authority) -> None:
    home = home_for(tmp_path, server)
    logged_in(home)
    adopt(home)
    change(home, access="no-such-token")
    before = server.counts()
    with home.serving() as gate:
        assert ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])[0] == 200
    after = server.counts()
    assert (after["refresh_token"] - before["refresh_token"], after["calls"] - before["calls"]) == (1, 1)


def test_a_refresh_token_that_was_used_before_ends_the_login_and_is_not_shown_again(
    tmp_path: Path, server: Authority
) -> None:
    home = home_for(tmp_path, server)
    logged_in(home)
    adopt(home)
    old = state_of(home)
    change(home, access="no-such-token")
    with home.serving() as gate:
        assert ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])[0] == 200
        change(home, access="no-such-token", refresh=old["refresh"])
        before = server.counts()["refresh_token"]
        status, body = ask("mrt", gate.port, ("guarded", "echo"), {}, home.keys["admin"])
        assert (status, body["details"]["reason"]) == (503, "login_ended")
        assert server.counts()["refresh_token"] == before
        assert "toolgate upstream login guarded" in json.dumps(body)
