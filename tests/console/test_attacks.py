"""What others may try on every form and page: other origins, frames, missing tokens, other roles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

import pytest

from tests.console.forms import ACTS, FORMS, World, world
from tests.console.visiting import Seen, Visitor, call, visitor
from tests.homes import Home, Server
from toolgate.console.attempts import MAX_FAILED

PAGES = (
    "",
    "calls",
    "calls?tool=%3Cb%3E&since=nonsense",
    "tools",
    "tools/dummy_experimental",
    "approvals",
    "keys",
    "nothing",
)


@pytest.fixture(scope="module")
def admin(served: tuple[Home, Server]) -> Visitor:
    return visitor(served[1], served[0].keys["admin"])


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("attacks")) as made:
        made.change()
        yield made


@pytest.fixture(scope="module")
def names(there: World) -> dict[str, str]:
    """What the forms speak of: each of it is there, and could be changed."""
    key = there.home.keys["builder"]
    digest = there.digest(there.admin())
    return {"key": key.split("_")[1], "approval": there.waiting("attacked"), "digest": digest, "secret": key}


def sent(person: Visitor, path: str, names: dict[str, str], token: str, **headers: str | None) -> Seen:
    form = {name: value.format(**names) for name, value in FORMS[path].items()}
    return person.post(path.format(**names), {"token": token, **form}, **headers)


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "multipart/form-data; boundary=x"},
        {"Content_Type": "application/json"},
        {"Host": "evil.example"},
    ],
    ids=str,
)
def test_a_form_that_another_site_sent_changes_nothing(
    there: World, names: dict[str, str], path: str, headers: dict[str, str | None]
) -> None:
    person = Visitor(there.port) if path == "sign-in" else there.admin()
    token = "" if path == "sign-in" else person.get("keys").token
    cookies = dict(person.cookies)
    before, told = there.state((names["approval"],)), there.acts()
    seen = sent(person, path, names, token, **headers)
    assert seen.status in (403, 415, 421)
    assert (there.state((names["approval"],)), there.acts()) == (before, told)
    assert person.cookies == cookies, "nobody was signed in or out"
    assert person.get().status == (303 if path == "sign-in" else 200)


@pytest.mark.parametrize("path", [path for path in FORMS if path != "sign-in"])
def test_a_form_without_the_token_of_the_session_changes_nothing(
    there: World, names: dict[str, str], path: str
) -> None:
    person, before = there.admin(), there.state((names["approval"],))
    for token in ("", "x", there.admin().get().token):
        seen = sent(person, path, names, token)
        assert (seen.status, "earlier session" in seen.shown) == (403, True)
    assert there.state((names["approval"],)) == before


@pytest.mark.parametrize("role", ["auditor", "builder", "committer"])
@pytest.mark.parametrize("path", ACTS)
def test_only_an_admin_acts(there: World, names: dict[str, str], role: str, path: str) -> None:
    person, before = visitor(there.server, there.home.keys[role]), there.state((names["approval"],))
    seen = sent(person, path, names, person.get().token)
    assert (seen.status, there.state((names["approval"],))) == (403, before)


def test_nobody_is_signed_in_by_an_address_alone(there: World) -> None:
    """A link that carries a key would stand in histories and in logs of proxies."""
    person = Visitor(there.port)
    seen = person.get(f"sign-in?key={there.home.keys['admin']}&next=keys")
    assert (seen.status, person.cookies) == (200, {})
    assert there.home.keys["admin"] not in seen.text


def test_a_page_that_was_answered_by_signing_in_brings_no_session_of_a_strangers_choice(there: World) -> None:
    """A cookie that somebody planted is not taken over: signing in always begins a session of its own."""
    planted = visitor(there.server, there.home.keys["builder"])
    person = Visitor(there.port, dict(planted.cookies))
    person.sign_in(there.home.keys["admin"])
    assert person.cookies != planted.cookies
    assert planted.get("keys").shown.count("live") == 1, "a builder still sees their own key alone"


@pytest.mark.parametrize("answer", ["page", "refused key", "too many", "elsewhere"])
def test_the_way_to_sign_in_forbids_frames_and_other_origins(there: World, answer: str) -> None:
    person, address = Visitor(there.port), {"X_Forwarded_For": f"192.0.2.{len(answer)}"}
    if answer == "page":
        seen = person.get("sign-in")
    elif answer == "elsewhere":
        seen = person.get("keys")
    else:
        tries = 1 if answer == "refused key" else MAX_FAILED + 1
        seen = [person.post("sign-in", {"key": "x"}, **address) for _ in range(tries)][-1]
    assert seen.status == {"page": 200, "refused key": 403, "too many": 429, "elsewhere": 303}[answer]
    assert_safe(seen)


def assert_safe(seen: Seen) -> None:
    headers = seen.headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["frame-ancestors"] == "'none'"
    assert policy["default-src"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_forbids_frames_inline_code_and_other_origins(admin: Visitor, path: str) -> None:
    assert_safe(admin.get(path))


def test_templates_hold_no_inline_script_style_or_handler() -> None:
    folder = resources.files("toolgate.console") / "templates"
    for page in folder.iterdir():
        text = page.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|\|safe", text), page.name


def test_forms_and_addresses_are_bounded(served: tuple[Home, Server], admin: Visitor) -> None:
    assert admin.post("keys/create", {"token": "x", "label": "y" * 9000}).status == 413
    assert admin.get("calls?tool=" + "x" * 3000).status == 200
    assert admin.get("calls/" + "x" * 3000).status == 404
    assert admin.get("calls?" + "&".join(f"a{n}=1" for n in range(100))).status == 404
    assert admin.get("calls/%ff%fe").status == 404


@pytest.mark.parametrize(
    "path", ["assets/../site.py", "assets/%2e%2e%2fsite.py", "assets/", "assets/console.css/x", "assets/x.js"]
)
def test_assets_are_the_files_of_one_folder(admin: Visitor, path: str) -> None:
    assert admin.get(path).status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(admin: Visitor, method: str) -> None:
    assert admin.ask(method, "keys").status == 405


@pytest.mark.parametrize("role", ["builder", "committer"])
def test_callers_see_their_own_calls_and_no_others(served: tuple[Home, Server], role: str) -> None:
    home, server = served
    other = "committer" if role == "builder" else "builder"
    assert call(server.port, home.keys[role], "dummy_experimental") == 200
    assert call(server.port, home.keys[other], "dummy_experimental") == 200
    ids = {name: home.keys[name].split("_")[1] for name in (role, other)}
    theirs = next(each["requestId"] for each in home.calls() if (each.get("caller") or {}).get("id") == ids[other])
    person = visitor(server, home.keys[role])
    listed = person.get("calls.jsonl").text
    assert (ids[role] in listed, ids[other] in listed) == (True, False)
    assert "No record matches" in person.get(f"calls?caller={ids[other]}").text
    assert person.get(f"calls/{theirs}").status == 404
    assert person.get(f"calls/{theirs}/proof.json").status == 404
    assert ids[other] not in person.get("keys").text
    assert person.get("upstreams/x").status == 404


def test_an_auditor_sees_everybodys_calls_and_calls_no_tool(served: tuple[Home, Server]) -> None:
    home, server = served
    assert call(server.port, home.keys["builder"], "dummy_experimental") == 200
    person = visitor(server, home.keys["auditor"])
    assert home.keys["builder"].split("_")[1] in person.get("calls.jsonl").text
    app = home.app(**{"console.enabled": False})
    try:
        names = [grant.tool.name for grant in app.road.admission.permits.all()]
    finally:
        app.ledger.close()
    assert len(names) > 5
    assert {call(server.port, home.keys["auditor"], name) for name in names if ":" not in name} == {403}


def test_a_server_without_the_setting_has_no_console(tmp_path: object) -> None:
    from tests.homes import make_home

    home = make_home(tmp_path / "home")  # type: ignore[operator]
    with home.serving() as server:
        assert Visitor(server.port).get().status == 404
        assert "console" not in server.ready
