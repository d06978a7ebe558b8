"""What an operator does to the deployment is in the same log: who, on which machine, what, before it happens and after."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands, Done
from tests.faces import speak
from tests.homes import Home, make_home
from toolgate.cli.admin_records import recorded
from toolgate.config import load_settings
from toolgate.errors import ExitCode, StartRefused
from toolgate.ledger.opening import open_for_act
from toolgate.model.call import ROLES
from toolgate.model.clock import SystemClock

Run = Callable[..., Done]
FINGERPRINT = "the finding's fingerprint"
REVIEW = ("--reason", "tested", "--reviewer", "ann", "--ticket", "T-1")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("governance", "unruly"))


@pytest.fixture
def run(home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`toolgate ...` in this home."""
    monkeypatch.chdir(home.path)
    toolgate = Commands(capfd)
    workflow = home.path / ".github" / "workflows" / "ci.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("on: push\npermissions: {}\njobs: {a: {runs-on: x, steps: [{uses: a/b@v1}]}}\n")

    def run(*arguments: str) -> Done:
        known = [fingerprint(toolgate, home) if word is FINGERPRINT else word for word in arguments]
        return toolgate(*known, *(() if "check-proof" in arguments else ("--home", str(home.path))))

    return run


def fingerprint(toolgate: Commands, home: Home) -> str:
    """Of the one finding in this home's workflow."""
    found = re.search(r"[0-9a-f]{32}", toolgate("analyze", "--home", str(home.path)).out)
    assert found is not None
    return found[0]


def acts(home: Home) -> list[dict[str, Any]]:
    return [one for one in home.records() if one["event"] == "act"]


def check_who(found: dict[str, Any]) -> None:
    assert found["by"] == {"user": pwd.getpwuid(os.getuid()).pw_name, "uid": os.getuid()}
    assert found["from"] == {"host": socket.gethostname(), "way": "command line"}


def test_p8_keys_that_are_made_and_revoked_are_in_the_log_and_it_verifies(home: Home, run: Run) -> None:
    with home.serving() as server:  # beside a running server, whose run goes on
        made = json.loads(run("keys", "create", "--role", "builder", "--label", "ci", "--json").out)
        assert speak.mrt(server.port, "unruly_echo", {}, made["key"]).status == 200
        assert run("keys", "revoke", made["id"]).code == 0
        assert run("audit", "verify").code == 0
    found = acts(home)
    assert {(one["act"], one["stage"]) for one in found} == {
        (act, stage) for act in ("keys.create", "keys.revoke") for stage in ("intent", "outcome")
    }
    for one in found:
        check_who(one)
    by_stage = {(one["act"], one["stage"]): one for one in found}
    created = by_stage["keys.create", "outcome"]
    assert created["about"] == {"role": "builder", "label": "ci", "expires": None, "id": made["id"]}
    assert created["status"] == "ok"
    assert created["requestId"] == by_stage["keys.create", "intent"]["requestId"]
    assert by_stage["keys.revoke", "intent"]["about"] == {"id": made["id"]}
    assert made["key"] not in json.dumps(home.records())
    done = run("audit", "verify")
    assert done.code == 0, done.out
    latest = (home.path / "runs/mcp_server/envelope_validation/envelope_validation.latest.jsonl").resolve()
    assert '"event":"outcome"' in latest.read_text(), "the link stays with the server's run"


def test_p8_acts_are_shown_explained_and_exported(home: Home, run: Run) -> None:
    made = json.loads(run("keys", "create", "--role", "admin", "--json").out)
    request = acts(home)[0]["requestId"]
    user = pwd.getpwuid(os.getuid()).pw_name
    tail = run("audit", "tail").out
    assert "keys.create" in tail
    assert user in tail
    assert made["id"] in run("audit", "show", request).out
    explained = run("explain", request).out
    for text in ("keys.create", user, socket.gethostname(), made["id"], "Ended:    ok"):
        assert text in explained
    assert "keys.create" in run("audit", "export", "--format", "csv").out


def test_p8_an_act_is_proved_like_a_call(home: Home, run: Run, tmp_path: Path) -> None:
    made = json.loads(run("keys", "create", "--role", "admin", "--json").out)
    request = acts(home)[0]["requestId"]
    public = str(home.path / "runs" / "mcp_server" / "envelope_validation" / "audit-log.pub")
    for stage in ("intent", "outcome"):
        proof = tmp_path / f"{stage}.json"
        proof.write_text(run("audit", "prove", request, "--event", stage).out)
        done = run("audit", "check-proof", str(proof), "--key", public)
        assert done.code == 0, done.err
        assert (done.json["act"], done.json["stage"]) == ("keys.create", stage)
    assert done.json["about"]["id"] == made["id"]
    proof.write_text(proof.read_text().replace("keys.create", "keys.revoke"))
    assert run("audit", "check-proof", str(proof), "--key", public).code == ExitCode.FAILED


def test_p8_acts_are_filtered_and_exported_as_records(home: Home, run: Run) -> None:
    run("keys", "create", "--role", "admin")
    shown = [json.loads(line) for line in run("audit", "tail", "--status", "ok", "--json").out.splitlines()]
    assert [(one["act"], one["stage"]) for one in shown] == [("keys.create", "outcome")]
    exported = [json.loads(line) for line in run("audit", "export", "--since", "1h").out.splitlines()]
    assert [one for one in exported if one["event"] == "act"] == acts(home)
    request = acts(home)[0]["requestId"]
    assert json.loads(run("audit", "show", request, "--json").out) == acts(home)
    assert json.loads(run("explain", request, "--json").out)["records"] == acts(home)


def test_p8_the_keys_of_a_new_home_are_acts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toolgate = Commands(capfd)
    made = toolgate("init", str(tmp_path / "new"), "--json").json
    new = Home(tmp_path / "new", {})
    assert [(one["act"], one["stage"]) for one in acts(new)] == [("keys.create", "intent"), ("keys.create", "outcome")]
    assert acts(new)[1]["about"] == {"role": "admin", "label": "first", "expires": None, "id": made["id"]}
    check_who(acts(new)[1])
    assert toolgate("audit", "verify", "--home", str(new.path)).code == 0
    assert toolgate("consensus", "keys", "--make", "--home", str(new.path)).code == 0
    (made,) = (one["about"] for one in acts(new) if (one["act"], one["stage"]) == ("consensus.keys.make", "outcome"))
    assert made == {"keys": ["arbiter.key", "vrf.key"], "made": []}


def test_p8_the_keys_of_a_development_home_are_acts_made_once(tmp_path: Path) -> None:
    from toolgate.cli.dev import prepare

    prepare(tmp_path / "dev")
    found = acts(Home(tmp_path / "dev", {}))
    assert {one["about"]["role"] for one in found if one["stage"] == "outcome"} == {*ROLES}
    prepare(tmp_path / "dev")
    assert acts(Home(tmp_path / "dev", {})) == found


def test_p8_consent_and_reviews_are_acts(home: Home, run: Run, tmp_path: Path) -> None:
    for arguments in (
        ("consent", "grant", "acme", "fp_metrics", "--by", "ann"),
        ("consent", "revoke", "acme", "fp_metrics", "--by", "bob"),
        ("fp", "mark", FINGERPRINT, "--rule", "MD-002", *REVIEW),
        ("fp", "export", "-o", str(tmp_path / "out.json")),
        ("fp", "import", str(tmp_path / "out.json")),
    ):
        done = run(*arguments)
        assert done.code == 0, done.err
    ended = {one["act"]: one["about"] for one in acts(home) if one["stage"] == "outcome"}
    assert ended.keys() == {"consent.grant", "consent.revoke", "fp.mark", "fp.import"}
    assert (ended["consent.grant"]["by"], ended["consent.revoke"]["by"]) == ("ann", "bob")
    assert re.fullmatch(r"[0-9a-f]{32}", ended["fp.mark"]["fingerprint"])
    assert (ended["fp.import"]["rows"], ended["fp.import"]["added"]) == (1, 0)
    assert run("audit", "verify").code == 0


def test_p8_a_contract_that_is_built_in_a_home_is_an_act(home: Home, run: Run) -> None:
    done = run("contract", "build")
    assert done.code == 0, done.err + done.out
    assert [(one["act"], one["stage"]) for one in acts(home)] == [
        ("contract.build", "intent"),
        ("contract.build", "outcome"),
    ]
    assert acts(home)[1]["about"]["digest"] in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("keys", "create", "--role", "admin"),
        ("consent", "grant", "acme", "fp_metrics", "--by", "ann"),
        ("fp", "mark", FINGERPRINT, "--rule", "MD-002", *REVIEW),
        ("contract", "build"),
    ],
    ids=" ".join,
)
def test_p8_without_a_log_nothing_is_done(home: Home, run: Run, arguments: tuple[str, ...]) -> None:
    (home.path / "runs").write_text("no directory can be here")
    before = [key.id for key in home.ring().all()], (home.path / "policy" / "mcp-contract.json").read_bytes()
    done = run(*arguments)
    assert done.code == ExitCode.FAILED
    assert "The audit log cannot be written" in done.err
    assert ([key.id for key in home.ring().all()], (home.path / "policy" / "mcp-contract.json").read_bytes()) == before
    (home.path / "runs").unlink()
    listed = json.loads(run("consent", "list", "acme", "--json").out)
    assert all(one["grantedBy"] is None for one in listed)
    assert json.loads(run("fp", "list", "--json").out) == []


def test_p8_an_act_that_fails_says_so(home: Home, run: Run) -> None:
    settings = load_settings(home.path, {}, {})
    with pytest.raises(RuntimeError), recorded(settings, "test.act", {"x": 1}):
        raise RuntimeError("not in the log")
    intent, outcome = acts(home)
    assert (intent["about"], outcome["status"], outcome["error"]) == ({"x": 1}, "error", "RuntimeError")
    assert "not in the log" not in json.dumps(outcome)
    assert run("audit", "verify").code == 0


def test_p8_an_act_that_is_killed_is_found_by_the_next_start(home: Home, run: Run) -> None:
    settings = load_settings(home.path, {}, {})
    ledger = open_for_act(settings, SystemClock())
    ledger.append_act("intent", {"act": "keys.create", "requestId": "0" * 32})
    ledger.close()  # without an outcome: the run is not closed by its own last word
    assert run("keys", "create", "--role", "admin").code == 0
    (recovered,) = (one["recovered"] for one in home.records() if one["event"] == "recovered")
    assert [one["requestId"] for one in recovered["unfinished"]] == ["0" * 32]
    assert run("audit", "verify").code == 0


def test_p8_a_log_that_cannot_be_synced_stops_the_act(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolgate.errors import LedgerUnavailable
    from toolgate.ledger.local import SegmentWriter

    settings = load_settings(home.path, {}, {})
    ledger = open_for_act(settings, SystemClock())

    def broken(_: SegmentWriter) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SegmentWriter, "sync", broken)
    with pytest.raises(LedgerUnavailable):
        ledger.append_act("intent", {"act": "keys.create", "requestId": "0" * 32})
    with pytest.raises(StartRefused), recorded(settings, "keys.create", {}):
        raise AssertionError("nothing may begin")
    monkeypatch.undo()
    ledger.close()
