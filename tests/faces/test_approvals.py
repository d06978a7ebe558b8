"""`POST /approvals/...`: requests listed, shown and answered over HTTP, by the guards that every message meets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import Home, Server, make_home
from toolgate.model.call import CallerBounds

ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {"x-rules": [{"name": "ask", "require-approval": "args.name.startsWith('release')"}]},
    "unruly_secret": {"x-rules": [{"name": "ask", "require-approval": "true"}]},
}
NOBODY = "0123456789abcdef"
VERBS = ("list", "show", "approve", "refuse")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("approvals") / "home", packs=("unruly",), rows=ROWS)


@pytest.fixture(scope="module")
def server(home: Home) -> Iterator[Server]:
    with home.serving() as server:
        yield server


class Desk:
    """Who speaks to the server with one key."""

    def __init__(self, server: Server, key: str | None) -> None:
        self._port, self._key = server.port, key

    def __call__(self, verb: str, message: Any = None, /, **headers: str) -> tuple[int, Any]:
        own = {} if self._key is None else {"x-mcp-api-key": self._key}
        status, _, body = speak.send(
            self._port, f"/approvals/{verb}", {} if message is None else message, own | headers
        )
        return status, body

    def asks(self, name: str) -> str:
        heard = speak.mrt(self._port, "unruly_write", {"name": name}, self._key)
        assert (heard.status, heard.headers["retry-after"]) == (202, "5")
        return str(heard.body["details"]["approval_id"])


@pytest.fixture(scope="module")
def admin(home: Home, server: Server) -> Desk:
    return Desk(server, home.keys["admin"])


@pytest.fixture(scope="module")
def builder(home: Home, server: Server) -> Desk:
    return Desk(server, home.keys["builder"])


def test_a_service_lists_shows_and_approves_and_the_call_runs(home: Home, admin: Desk, builder: Desk) -> None:
    request = builder.asks("release-1")
    status, body = admin("list")
    assert (status, [row["id"] for row in body["approvals"] if row["tool"] == "unruly_write"]) == (200, [request])
    status, shown = admin("show", {"id": request})
    assert (status, shown["shown"], shown["votes"]) == (200, '{"name":"release-1"}', [])
    assert admin("approve", {"id": request, "reason": "seen"}) == (200, {"id": request, "state": "approved"})
    assert admin("show", {"id": request})[1]["votes"][0]["reason"] == "seen"
    assert speak.mrt(admin._port, "unruly_write", {"name": "release-1"}, home.keys["builder"]).status == 200
    acts = [record for record in home.records() if record.get("act") == "approvals.approve"]
    assert [record["about"]["approval"] for record in acts] == [request, request]
    assert acts[-1]["about"]["state"] == "approved"
    assert acts[-1]["by"]["role"] == "admin"


def test_a_refusal_is_heard_by_the_caller(home: Home, admin: Desk, builder: Desk) -> None:
    request = builder.asks("release-2")
    assert admin("refuse", {"id": request})[1]["state"] == "refused"
    assert speak.mrt(admin._port, "unruly_write", {"name": "release-2"}, home.keys["builder"]).code == "rule_denied"


def test_secret_arguments_are_masked(home: Home, admin: Desk) -> None:
    assert speak.mrt(admin._port, "unruly_secret", {"password": "hunter2"}, home.keys["builder"]).status == 202
    for asked in (admin("list"), admin("list", {"all": True})):
        assert "[secret]" in str(asked)
        assert "hunter2" not in str(asked)


@pytest.mark.parametrize("verb", VERBS)
def test_who_has_no_key_or_a_role_that_may_not_is_refused_and_recorded(
    home: Home, server: Server, admin: Desk, builder: Desk, verb: str
) -> None:
    request = builder.asks("release-3")
    message = {} if verb == "list" else {"id": request}
    assert Desk(server, None)(verb, message)[0] == 401
    status, body = builder(verb, message)
    assert (status, body["error_code"], body["details"]) == (403, "auth_insufficient_role", {"role": "builder"})
    auditor = Desk(server, home.ring().create("auditor")[1])
    assert auditor(verb, message)[0] == (200 if verb in ("list", "show") else 403)
    assert admin("show", {"id": request})[1]["state"] == "pending"
    refused = [record["error"]["happening"] for record in home.calls() if record.get("route") == f"/approvals/{verb}"]
    assert {"missing_key", "insufficient_role"} <= set(refused)


def test_nobody_answers_a_request_of_their_own_and_an_answer_is_given_once(home: Home, server: Server) -> None:
    ring = home.ring()
    ann, ann_too, bob = (Desk(server, ring.create("admin", label=name)[1]) for name in ("ann", "ann", "bob"))
    request = ann.asks("release-4")
    for own in (ann, ann_too):
        status, body = own("approve", {"id": request})
        assert (status, body["details"]["reason"]) == (400, "own_request")
    assert bob("approve", {"id": request})[1]["state"] == "approved"
    assert bob("refuse", {"id": request})[1]["details"]["reason"] == "not_waiting"


@pytest.mark.parametrize(
    ("verb", "message", "status", "reason"),
    [
        ("show", {"id": NOBODY}, 404, "unknown_approval"),
        ("approve", {"id": NOBODY}, 404, "unknown_approval"),
        ("approve", {"id": "../../x"}, 400, "invalid_id"),
        ("approve", {}, 400, "missing_id"),
        ("approve", {"id": NOBODY, "by": "me"}, 400, "unknown_argument"),
        ("approve", {"id": NOBODY, "reason": "x" * 201}, 400, "reason_too_long"),
        ("approve", {"id": NOBODY, "reason": "\x1b[2J"}, 400, "invalid_reason"),
        ("list", [], 400, None),
        ("erase", {}, 404, "unknown_route"),
    ],
)
def test_what_is_wrong_is_told_in_the_shape_of_every_error(
    admin: Desk, verb: str, message: Any, status: int, reason: str | None
) -> None:
    found, body = admin(verb, message)
    assert found == status
    assert body["ok"] is False
    assert body["error"] == {"code": body["error_code"], "message": body["message"], "details": body["details"]}
    assert reason is None or body["details"]["reason"] == reason


def test_a_page_of_another_origin_and_a_body_of_another_kind_are_refused(admin: Desk) -> None:
    assert admin("list", origin="https://evil.example")[0] == 403
    assert admin("list", {"all": True}, **{"content-type": "text/plain"})[0] == 415
    assert admin("list", {"reason": "x" * 3_000_000})[0] == 413


def test_answers_count_for_the_limits_of_their_key(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",), rows=ROWS, settings="[limits]\nrate_per_minute = 2\n")
    with home.serving() as server:
        admin = Desk(server, home.keys["admin"])
        assert [admin("list")[0] for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("verb", VERBS)
def test_a_key_that_is_held_to_some_tools_answers_nothing(home: Home, server: Server, verb: str) -> None:
    _, text = home.ring().create("admin", bounds=CallerBounds(scopes=("*",)))
    status, body = Desk(server, text)(verb, {} if verb == "list" else {"id": NOBODY})
    assert (status, body["error_code"]) == (403, "auth_insufficient_role")
