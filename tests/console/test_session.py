"""Signing in: what it takes, what it gives, and when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.visiting import CONSOLE, Seen, Visitor, console, visitor
from tests.homes import Home, Server
from tests.servers.tls.certificates import Pair
from toolgate.console.attempts import MAX_FAILED
from toolgate.console.session import IDLE_S, LONGEST_S, RENEWED_S, Sessions
from toolgate.gate.keys import KeyRing
from toolgate.model.call import CallerBounds


def test_without_a_session_every_page_leads_to_the_sign_in(served: tuple[Home, Server]) -> None:
    for path in (
        "",
        "calls",
        "calls/x",
        "calls.csv",
        "calls/live",
        "tools",
        "keys",
        "panels/a/b",
        "upstreams/x",
        "nothing",
    ):
        seen = Visitor(served[1].port).get(path)
        assert (seen.status, seen.headers["Location"].partition("?")[0].rpartition("/")[2]) == (303, "sign-in"), path


def test_a_key_is_exchanged_for_a_cookie_that_no_script_reads_and_no_other_site_sends(
    served: tuple[Home, Server],
) -> None:
    home, server = served
    person = Visitor(server.port)
    seen = person.post("sign-in", {"key": home.keys["admin"]})
    (cookie,) = seen.headers.get_all("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", f"Max-Age={IDLE_S}"} <= set(cookie.split("; "))
    assert home.keys["admin"].rpartition("_")[2] not in cookie
    assert person.get().status == 200


def set_by(seen: Seen) -> set[str]:
    (cookie,) = seen.headers.get_all("Set-Cookie")
    return set(cookie.split("; "))


def test_on_a_plain_loopback_address_the_cookie_is_not_secure_or_no_browser_would_keep_it(
    served: tuple[Home, Server],
) -> None:
    home, server = served
    person = Visitor(server.port)
    assert "Secure" not in set_by(person.post("sign-in", {"key": home.keys["admin"]}))
    other = Visitor(server.port).post("sign-in", {"key": home.keys["admin"]}, Origin=f"https://127.0.0.1:{server.port}")
    assert other.status == 421, "an origin that the settings do not name is not served"


def test_over_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    with console(tmp_path / "home", settings=f"{pair.settings}[console]\nenabled = true\n") as (home, server):
        person = Visitor(server.port, trust=pair.trusting())
        assert "Secure" in set_by(person.post("sign-in", {"key": home.keys["admin"]}))
        assert person.get().status == 200
        plain = Visitor(server.port, trust=person.trust)
        assert (
            plain.post("sign-in", {"key": home.keys["admin"]}, Origin=f"http://127.0.0.1:{server.port}").status == 421
        )


def test_behind_a_proxy_that_ends_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    public = 'allowed_hosts = ["gate.example"]\nallowed_origins = ["https://gate.example"]\n'
    with console(tmp_path / "home", settings=CONSOLE + public) as (home, server):
        proxied = {"Host": "gate.example", "Origin": "https://gate.example", "X_Forwarded_Proto": "https"}
        person = Visitor(server.port)
        assert "Secure" in set_by(person.post("sign-in", {"key": home.keys["admin"]}, **proxied))
        assert person.get(Host="gate.example").status == 200
        assert "Secure" not in set_by(Visitor(server.port).post("sign-in", {"key": home.keys["admin"]}))


def test_signing_out_ends_the_session_in_this_browser(served: tuple[Home, Server]) -> None:
    person = visitor(served[1], served[0].keys["builder"])
    token = person.get("keys").token
    assert person.post("sign-out", {"token": token}).status == 303
    assert person.cookies == {}
    assert person.get().status == 303


def test_revoking_the_key_ends_its_sessions_at_once(served: tuple[Home, Server]) -> None:
    home, server = served
    key, text = home.ring().create("admin", label="short")
    person = visitor(server, text)
    token = person.get("keys").token
    home.ring().revoke(key.id)
    assert person.post("keys/create", {"token": token, "role": "admin", "life": "1d"}).status == 303
    assert person.get().status == 303
    assert not any(each.label == "made by a dead key" for each in home.ring().all())


def test_another_process_of_the_home_knows_the_session(served: tuple[Home, Server]) -> None:
    home, server = served
    person = visitor(server, home.keys["auditor"])
    with home.serving() as other:
        assert Visitor(other.port, dict(person.cookies)).get().status == 200


def test_a_cookie_that_is_not_ours_opens_nothing(served: tuple[Home, Server]) -> None:
    home, server = served
    person = visitor(server, home.keys["admin"])
    ((name, value),) = person.cookies.items()
    for wrong in (
        value[:-1],
        value[:-1] + ("A" if value[-1] != "A" else "B"),
        "",
        "x" * 20_000,
        f"{value}; {name}={value}",
    ):
        seen = Visitor(server.port, {name: wrong}).get()
        assert seen.status in (303, 431), wrong[:40]


def test_wrong_keys_are_limited_by_address_and_recorded(served: tuple[Home, Server]) -> None:
    home, server = served
    person, address = Visitor(server.port), {"X_Forwarded_For": "192.0.2.7"}
    statuses = [person.post("sign-in", {"key": f"tg_{n}"}, **address).status for n in range(MAX_FAILED + 1)]
    assert statuses == [403] * MAX_FAILED + [429]
    acts = [each for each in home.records() if each.get("act") == "console.sign_in" and each["status"] == "error"]
    assert len([each for each in acts if each["from"]["address"] == "192.0.2.7"]) == MAX_FAILED
    assert person.post("sign-in", {"key": home.keys["admin"]}).status == 303, "others are not kept out"


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/\\evil", "../../mcp", "javascript:alert(1)", "calls\r\nX: y"],
)
def test_after_signing_in_one_stays_in_the_console(target: str) -> None:
    from toolgate.console.site import _next

    assert _next(target) == "./"
    assert _next("calls/abc-1") == "calls/abc-1"


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def sessions(tmp_path: Path) -> tuple[Sessions, Clock, str]:
    clock = Clock()
    ring = KeyRing(tmp_path / "keys" / "callers.json", clock)
    _, text = ring.create("admin")
    return Sessions(ring, lambda: b"k" * 32, clock), clock, text


def cookie_of(sessions: Sessions, header: tuple[bytes, bytes]) -> bytes:
    return header[1].partition(b";")[0]


def test_a_session_ends_after_an_hour_without_a_page(sessions: tuple[Sessions, Clock, str]) -> None:
    made, clock, text = sessions
    session = made.begin(text, "a")
    assert session is not None
    cookie = cookie_of(made, made.header(session))
    clock.now += IDLE_S - 1
    assert made.of(cookie) is not None
    clock.now += 1
    assert made.of(cookie) is None


def test_renewing_does_not_keep_a_session_for_ever(sessions: tuple[Sessions, Clock, str]) -> None:
    made, clock, text = sessions
    session = made.begin(text, "a")
    assert session is not None
    began = clock.now
    while clock.now < began + LONGEST_S:
        found = made.of(cookie_of(made, made.header(session)))
        assert found is not None
        session = found
        clock.now += IDLE_S - 1
    clock.now = began + LONGEST_S
    assert made.of(cookie_of(made, made.header(session))) is None


def test_a_session_that_began_over_tls_is_renewed_with_a_secure_cookie(sessions: tuple[Sessions, Clock, str]) -> None:
    """Whatever the next page's request says of where it came from: a bookmark says nothing."""
    made, clock, text = sessions
    for is_secure in (True, False):
        session = made.begin(text, "a", is_secure=is_secure)
        assert session is not None
        cookie = cookie_of(made, made.header(session))
        clock.now += RENEWED_S
        found = made.of(cookie)
        assert found is not None
        assert made.is_worn(found)
        assert made.header(found)[1].endswith(b"; Secure") is is_secure


def test_a_session_goes_by_the_addresses_of_its_key(tmp_path: Path) -> None:
    clock = Clock()
    ring = KeyRing(tmp_path / "keys" / "callers.json", clock)
    _, text = ring.create("admin", bounds=CallerBounds(ranges=("10.0.0.0/8",)))
    made = Sessions(ring, lambda: b"k" * 32, clock)
    assert made.begin(text, "192.0.2.1") is None
    assert made.begin(text, "") is None
    session = made.begin(text, "10.0.0.1")
    assert session is not None
    cookie = cookie_of(made, made.header(session))
    assert made.of(cookie, "10.9.9.9") is not None
    assert made.of(cookie, "192.0.2.1") is None
    assert made.of(cookie) is None


def test_a_session_ends_with_the_secret_that_it_may_have_begun_with(tmp_path: Path) -> None:
    clock = Clock()
    ring = KeyRing(tmp_path / "keys" / "callers.json", clock)
    key, text = ring.create("admin")
    made = Sessions(ring, lambda: b"k" * 32, clock)
    session = made.begin(text, "a")
    assert session is not None
    cookie = cookie_of(made, made.header(session))
    _, fresh = ring.rotate(key.id, 60)
    clock.now += 1
    assert made.of(cookie) is not None
    clock.now += 60
    assert made.of(cookie) is None
    assert made.begin(text, "a") is None
    assert made.begin(fresh, "a") is not None


def test_an_admin_that_is_held_to_some_tools_sees_itself_and_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    ring = KeyRing(tmp_path / "keys" / "callers.json", clock)
    key, text = ring.create("admin", bounds=CallerBounds(scopes=("*",)))
    session = Sessions(ring, lambda: b"k" * 32, clock).begin(text, "a")
    assert session is not None
    assert (session.acts, session.sees_all, session.owner) == (False, False, key.id)
