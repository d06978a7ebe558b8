"""Approvals in the console: what waits is seen by those who may, and answered once, by another person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.visiting import CONSOLE, Visitor, visitor
from tests.faces import speak
from tests.homes import Home, Server, make_home
from toolgate.console.rendering import WholeText, shown
from toolgate.gate.authority.approvals import MAX_SHOWN

ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {
        "x-rules": [{"name": "ask", "require-approval": "args.name.startsWith('release')"}],
        "x-roles": ["builder", "committer", "admin", "tester"],
    },
    "unruly_secret": {"x-rules": [{"name": "ask", "require-approval": "true"}]},
}
HOSTILE = "release<script>alert(1)</script>\u202etxt"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    home = make_home(
        tmp_path_factory.mktemp("approvals") / "home",
        packs=("unruly",),
        rows=ROWS,
        settings=CONSOLE,
        roles={"lead": "builder", "tester": "admin"},
        answering=["lead"],
    )
    with home.serving() as server:
        yield home, server


@pytest.fixture
def admin(served: tuple[Home, Server]) -> Visitor:
    return visitor(served[1], served[0].keys["admin"])


def asked(server: Server, key: str, name: str, tool: str = "unruly_write", argument: str = "name") -> str:
    heard = speak.mrt(server.port, tool, {argument: name}, key)
    assert heard.status == 202
    return str(heard.body["details"]["approval_id"])


def state(served: tuple[Home, Server], request: str) -> str:
    home, server = served
    _, _, body = speak.send(server.port, "/approvals/show", {"id": request}, {"x-mcp-api-key": home.keys["admin"]})
    return str(body["state"])


def test_what_waits_is_on_the_overview_and_is_approved_once(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    request = asked(server, home.keys["builder"], "release-1")
    assert f"approvals/{request}" in admin.get().text
    assert request in admin.get("approvals").text
    page = admin.get(f"approvals/{request}")
    assert '"name": "release-1"' in page.shown
    stale = page.token
    done = admin.post(f"approvals/{request}/approve", {"token": stale, "reason": "seen with Ann"})
    assert (done.status, done.headers["Location"]) == (303, f"../{request}")
    assert "seen with Ann" in admin.get(f"approvals/{request}").shown
    again = admin.post(f"approvals/{request}/refuse", {"token": stale})
    assert (again.status, "no such request that waits" in again.shown) == (409, True)
    assert speak.mrt(server.port, "unruly_write", {"name": "release-1"}, home.keys["builder"]).status == 200
    acts = [record for record in home.records() if record.get("act") == "approvals.approve"]
    assert [(record["stage"], record["from"]["way"]) for record in acts] == [
        ("intent", "console"),
        ("outcome", "console"),
    ]


def test_a_refusal_is_given_and_a_bad_reason_is_not(served: tuple[Home, Server], admin: Visitor) -> None:
    request = asked(served[1], served[0].keys["builder"], "release-2")
    token = admin.get(f"approvals/{request}").token
    assert admin.post(f"approvals/{request}/refuse", {"token": token, "reason": "x" * 201}).status == 400
    assert admin.post(f"approvals/{request}/refuse", {"token": token, "reason": "a\u202eb"}).status == 400
    assert state(served, request) == "pending"
    assert admin.post(f"approvals/{request}/refuse", {"token": token}).status == 303
    assert state(served, request) == "refused"


def test_nobody_answers_their_own(served: tuple[Home, Server]) -> None:
    home, server = served
    one, other = (home.ring().create("admin", label="ann")[1] for _ in range(2))
    request = asked(server, one, "release-3")
    for key in (one, other):
        person = visitor(server, key)
        page = person.get(f"approvals/{request}")
        assert "another person answers it" in page.shown
        assert f"{request}/approve" not in page.text
        refused = person.post(f"approvals/{request}/approve", {"token": page.token})
        assert (refused.status, "same person" in refused.shown) == (409, True)
    assert state(served, request) == "pending"


def test_an_auditor_sees_and_does_not_act_and_a_caller_sees_only_their_own(served: tuple[Home, Server]) -> None:
    home, server = served
    request = asked(server, home.keys["builder"], "release-4")
    auditor = visitor(server, home.ring().create("auditor")[1])
    page = auditor.get(f"approvals/{request}")
    assert (page.status, f"{request}/approve" in page.text) == (200, False)
    for verdict in ("approve", "refuse"):
        assert auditor.post(f"approvals/{request}/{verdict}", {"token": page.token}).status == 403
    assert visitor(server, home.keys["builder"]).get(f"approvals/{request}").status == 200
    other = visitor(server, home.keys["committer"])
    assert other.get(f"approvals/{request}").status == 404
    assert request not in other.get("approvals").text
    assert state(served, request) == "pending"


def test_a_page_of_another_session_or_of_a_revoked_key_answers_nothing(served: tuple[Home, Server]) -> None:
    home, server = served
    request = asked(server, home.keys["builder"], "release-5")
    key, text = home.ring().create("admin", label="gone soon")
    person = visitor(server, text)
    token = person.get(f"approvals/{request}").token
    assert person.post(f"approvals/{request}/approve", {"token": "another"}).status == 403
    home.ring().revoke(key.id)
    ended = person.post(f"approvals/{request}/approve", {"token": token})
    assert (ended.status, "sign-in" in ended.headers["Location"]) == (303, True)
    assert state(served, request) == "pending"


def test_hostile_arguments_are_text_and_secret_ones_are_masked(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    page = admin.get(f"approvals/{asked(server, home.keys['builder'], HOSTILE)}")
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text
    assert "alert(1)" in page.shown
    secret = admin.get(f"approvals/{asked(server, home.keys['builder'], 'hunter2', 'unruly_secret', 'password')}")
    assert ("[secret]" in secret.shown, "hunter2" in secret.text) == (True, False)


def test_an_approver_sees_the_end_of_long_arguments_too(served: tuple[Home, Server], admin: Visitor) -> None:
    page = admin.get(f"approvals/{asked(served[1], served[0].keys['builder'], 'release-6')}")
    assert "\n  &#34;name&#34;: " in page.text, "on lines of their own"
    assert shown(WholeText("x" * MAX_SHOWN + "the end")).endswith("the end")


@pytest.mark.parametrize("approval", ["0123456789abcdef", "x", "%2e%2e"])
def test_a_request_that_is_not_there_is_not_found(admin: Visitor, approval: str) -> None:
    assert admin.get(f"approvals/{approval}").status == 404
    assert admin.act(f"approvals/{approval}/approve").status == 404


def test_a_role_that_may_answers_requests_and_does_nothing_else(served: tuple[Home, Server]) -> None:
    home, server = served
    lead, tester = (visitor(server, home.keys[role]) for role in ("lead", "tester"))
    request = asked(server, home.keys["builder"], "release-by-lead")
    assert tester.get(f"approvals/{request}").status == 404, "a role that may not answer sees its own alone"
    other = asked(server, home.keys["tester"], "release-by-tester")
    own = tester.get(f"approvals/{other}")
    auditor = visitor(server, home.keys["auditor"]).get(f"approvals/{other}")
    assert "It is approved or refused by admin or lead." in auditor.shown
    refused = tester.post(f"approvals/{other}/approve", {"token": own.token})
    assert (refused.status, state(served, other)) == (403, "pending")
    page = lead.get(f"approvals/{request}")
    made = lead.post("keys/create", {"token": page.token, "role": "admin", "label": "x", "life": "1d"})
    assert (made.status, "only an admin changes" in made.shown) == (403, True)
    assert lead.post(f"approvals/{request}/approve", {"token": page.token}).status == 303
    assert state(served, request) == "approved"


def test_the_owner_of_a_key_is_shown_and_another_key_of_it_does_not_answer(served: tuple[Home, Server]) -> None:
    home, server = served
    ring = home.ring()
    laptop, phone = (ring.create("admin", label=label, owner="Ann Ng")[1] for label in ("laptop", "phone"))
    request = asked(server, laptop, "release-of-ann")
    page = visitor(server, phone).get(f"approvals/{request}")
    assert "You asked for this yourself" in page.shown
    assert "Ann Ng" in page.shown
    assert "Ann Ng" in visitor(server, phone).get("keys").shown
