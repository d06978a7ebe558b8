"""Who answers requests for approval: admins, and roles that the deployment's policy lets; keys of one owner are one person."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands, Done
from tests.faces import speak
from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from tests.policy.support import manifest, row
from toolgate.errors import OK, Ending, StartRefused
from toolgate.kit.conditions.rules import RuleText
from toolgate.model.call import CallerBounds
from toolgate.policy.manifest import MANIFEST_FILE, load_manifest, narrow

LEAD, PLAIN = "lead", "tester"
ROLES = {LEAD: "builder", PLAIN: "admin"}
"""One that may answer, made of the least; one that may not, made of admin."""
ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {
        "x-rules": [
            {"name": "ask", "require-approval": "args.name.startsWith('a')"},
            {"name": "by-lead", "require-approval": "args.name.endsWith('lead')", "answered-by": [LEAD]},
            {"name": "two", "require-approval": "args.name.contains('two')", "approvers": 2},
            {"name": "by-admin", "require-approval": "args.name.contains('adm')", "answered-by": ["admin"]},
        ]
    }
}
Run = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly",), rows=ROWS, roles=ROLES, answering=[LEAD])


@pytest.fixture
def gate(home: Home) -> Iterator[Gate]:
    gate = Gate(home, home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


@pytest.fixture
def approve(home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    commands = Commands(capfd)

    def approve(request: str, key: str | None) -> Done:
        monkeypatch.delenv("TOOLGATE_API_KEY", raising=False)
        if key is not None:
            monkeypatch.setenv("TOOLGATE_API_KEY", home.keys.get(key, key))
        return commands("approvals", "approve", request, "--home", str(home.path))

    return approve


def asked(gate: Gate, name: str, key: str = "builder") -> str:
    answer = gate.call("unruly_write", {"name": name}, key=key)
    assert answer.ending is Ending.APPROVAL_REQUIRED
    assert answer.details is not None
    return str(answer.details["approval_id"])


@pytest.mark.parametrize(
    ("key", "code"), [(LEAD, 0), ("admin", 0), (None, 0), (PLAIN, 5), ("builder", 5), ("auditor", 5)]
)
def test_an_admin_and_a_role_that_the_policy_lets_answer(
    gate: Gate, approve: Callable[..., Done], key: str | None, code: int
) -> None:
    """A role made of admin is no admin here, and without a key whoever runs the command is one."""
    request = asked(gate, "a", key="committer")
    assert approve(request, key).code == code
    assert (gate.call("unruly_write", {"name": "a"}, key="committer").ending is OK) is (code == 0)


def test_a_rule_may_want_the_answer_of_some_roles_and_others_do_not_count(
    gate: Gate, approve: Callable[..., Done]
) -> None:
    request = asked(gate, "x-lead")
    for other in ("admin", None):
        done = approve(request, other)
        assert (done.code, f"another role: {LEAD}" in done.err) == (1, True)
    assert approve(request, LEAD).code == 0
    assert gate.call("unruly_write", {"name": "x-lead"}, key="builder").ending is OK


def test_two_rules_that_ask_are_answered_by_roles_that_both_name(gate: Gate, approve: Callable[..., Done]) -> None:
    """The most approvers of the one, the roles of the other."""
    request = asked(gate, "two-lead")
    assert approve(request, "admin").code == 1
    assert "waits for others" in approve(request, LEAD).out
    assert approve(request, gate.home.ring().create(LEAD)[1]).code == 0
    assert gate.call("unruly_write", {"name": "two-lead"}, key="builder").ending is OK


def test_what_no_role_can_answer_for_both_rules_is_refused(gate: Gate) -> None:
    answer = gate.call("unruly_write", {"name": "adm-lead"}, key="builder")
    assert answer.ending is Ending.RULE_DENIED
    assert answer.details is not None
    assert answer.details["reason"] == "rule_error"


def test_a_key_that_is_held_to_some_tools_answers_nothing_whatever_its_role(
    gate: Gate, approve: Callable[..., Done]
) -> None:
    _, key = gate.home.ring().create(LEAD, bounds=CallerBounds(scopes=("unruly_*",)))
    assert approve(asked(gate, "a"), key).code == 5


def test_keys_of_one_owner_are_one_person(gate: Gate, approve: Callable[..., Done]) -> None:
    ring = gate.home.ring()
    laptop, phone = (ring.create("admin", label=label, owner="Ann Ng")[1] for label in ("laptop", "phone"))
    request = asked(gate, "a", key=laptop)
    assert approve(request, phone).code == 1
    assert approve(request, "admin").code == 0
    (answered,) = [
        record["about"]
        for record in gate.home.records()
        if record.get("act") == "approvals.approve" and record.get("about", {}).get("state") == "approved"
    ]
    assert answered["role"] == "admin"


def test_over_http_a_role_that_may_lists_shows_and_answers(home: Home) -> None:
    with home.serving() as server:

        def says(verb: str, key: str, **message: Any) -> tuple[int, Any]:
            status, _, body = speak.send(
                server.port, f"/approvals/{verb}", message, {"x-mcp-api-key": home.keys.get(key, key)}
            )
            return status, body

        heard = speak.mrt(server.port, "unruly_write", {"name": "x-lead"}, home.keys["builder"])
        request = heard.body["details"]["approval_id"]
        assert says("list", PLAIN)[0] == 403
        assert [each["id"] for each in says("list", LEAD)[1]["approvals"]] == [request]
        assert says("show", LEAD, id=request)[1]["roles"] == LEAD
        status, body = says("approve", "admin", id=request)
        assert (status, body["details"]["reason"]) == (400, "other_role")
        assert says("approve", LEAD, id=request) == (200, {"id": request, "state": "approved"})
        assert speak.mrt(server.port, "unruly_write", {"name": "x-lead"}, home.keys["builder"]).status == 200


def test_another_set_of_roles_that_answer_is_another_policy(
    home: Home, gate: Gate, approve: Callable[..., Done]
) -> None:
    request = asked(gate, "a")
    assert approve(request, LEAD).code == 0
    file = home.path / "policy" / MANIFEST_FILE
    content = json.loads(file.read_bytes())
    content["roles"][1]["answers"] = True
    file.write_text(json.dumps(content))
    other = Gate(home, home.app(), gate.loop)
    try:
        assert asked(other, "a") != request
    finally:
        gate.run(other.app.close())


# What a manifest may say -----------------------------------------------------------------------------------------------


def test_a_rule_that_waits_for_a_role_that_may_not_answer_refuses_to_start(home: Home) -> None:
    file = home.path / "policy" / MANIFEST_FILE
    content = json.loads(file.read_bytes())
    del content["roles"][0]["answers"]
    file.write_text(json.dumps(content))
    with pytest.raises(StartRefused, match=r"rule by-lead: lead may not answer requests\.\nUse admin, or declare it"):
        home.app()


@pytest.mark.parametrize(
    "given", [{"deny": "true", "answered-by": ["admin"]}, {"require-approval": "true", "answered-by": []}]
)
def test_only_a_rule_that_asks_names_who_answers(home: Home, given: dict[str, Any]) -> None:
    file = home.path / "policy" / MANIFEST_FILE
    content = json.loads(file.read_bytes())
    next(row for row in content["tools"] if row["name"] == "unruly_write")["x-rules"] = [{"name": "r", **given}]
    file.write_text(json.dumps(content))
    with pytest.raises(StartRefused, match="row unruly_write: x-rules"):
        load_manifest(file)


def test_a_packaged_rule_is_answered_by_no_role_of_the_deployment() -> None:
    packaged, own = RuleText("ask", "require-approval", "true"), RuleText("mine", "require-approval", "true")
    default = manifest(row("sign", roles=frozenset({"admin"}), rules=(packaged,)))
    found = narrow(default, manifest(row("sign", roles=frozenset({"admin"}), rules=(packaged, own))))
    assert {rule.name: rule.answered_by for rule in found.rows["sign"].rules} == {"ask": ("admin",), "mine": ()}
