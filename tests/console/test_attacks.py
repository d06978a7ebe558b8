"""What others may try on every form and page: other origins, frames, missing tokens, other roles."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from tests.console.visiting import Visitor, call, visitor
from tests.homes import Home, Server

ACTS = {
    "sign-out": {},
    "keys/create": {"role": "admin", "label": "planted", "life": "1d"},
    "keys/{key}/revoke": {},
    "upstreams/x/approve": {"digest": "0"},
    "upstreams/x/refuse": {"digest": "0"},
    "approvals/0123456789abcdef/approve": {"reason": "planted"},
    "approvals/0123456789abcdef/refuse": {},
}
"""Every address that takes a form of someone who is signed in."""
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


def state(home: Home) -> list[tuple[str, str]]:
    return [(key.id, key.state(0)) for key in home.ring().all()]


def addressed(home: Home, path: str) -> str:
    return path.format(key=home.keys["builder"].split("_")[1])


@pytest.mark.parametrize("path", ACTS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Content_Type": "text/plain"},
        {"Host": "evil.example"},
    ],
    ids=str,
)
def test_a_form_that_another_site_sent_changes_nothing(
    served: tuple[Home, Server], admin: Visitor, path: str, headers: dict[str, str | None]
) -> None:
    home, before = served[0], state(served[0])
    seen = admin.post(addressed(home, path), {"token": admin.get("keys").token, **ACTS[path]}, **headers)
    assert seen.status in (403, 415, 421)
    assert state(home) == before
    assert admin.get().status == 200, "the session goes on"


@pytest.mark.parametrize("path", ACTS)
def test_a_form_without_the_token_of_the_session_changes_nothing(
    served: tuple[Home, Server], admin: Visitor, path: str
) -> None:
    home, before = served[0], state(served[0])
    other = visitor(served[1], home.keys["admin"]).get().token
    for token in ("", "x", other):
        seen = admin.post(addressed(home, path), {"token": token, **ACTS[path]})
        assert (seen.status, "earlier session" in seen.shown) == (403, True)
    assert state(home) == before


@pytest.mark.parametrize("role", ["auditor", "builder", "committer"])
@pytest.mark.parametrize("path", [path for path in ACTS if path != "sign-out"])
def test_only_an_admin_acts(served: tuple[Home, Server], role: str, path: str) -> None:
    home, before = served[0], state(served[0])
    person = visitor(served[1], home.keys[role])
    seen = person.post(addressed(home, path), {"token": person.get().token, **ACTS[path]})
    assert (seen.status, state(home)) == (403, before)


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_forbids_frames_inline_code_and_other_origins(admin: Visitor, path: str) -> None:
    headers = admin.get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["frame-ancestors"] == "'none'"
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"


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
