"""`toolgate upstream`, from a client's configuration to a served tool, and what happens when a server changed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Managed, managed
from tests.homes import PATIENCE_S, environment, make_home
from tests.upstreams.homes import Swapping, ask, stub_table
from tests.upstreams.support import STUB
from toolgate.errors import ExitCode

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


def run(home: Managed, *arguments: str, code: int = 0) -> str:
    done = home.toolgate("upstream", arguments[0], "--home", str(home.path), *arguments[1:])
    assert done.code == code, done
    assert "Toolgate itself failed" not in done.err
    return done.out + done.err


def answer(home: Managed, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(home, arguments[0], "--json", *arguments[1:], code=code).splitlines()[0])


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Managed:
    return managed(make_home(tmp_path / "home"), capfd)


@pytest.fixture
def swapping(tmp_path: Path) -> Swapping:
    return Swapping(tmp_path)


def added(home: Managed, swapping: Swapping) -> None:
    table = swapping.table()
    run(home, "add", "stub", "--env", f"STUB_LOG={table['env']['STUB_LOG']}", "--", *table["command"])


def test_from_a_cursor_config_to_a_served_tool(home: Managed, tmp_path: Path) -> None:
    table = stub_table("environment", tmp_path / "log")
    config = {"command": table["command"][0], "args": table["command"][1:], "env": {"MY_TOKEN": TOKEN}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"My Stub": config}}))
    said = answer(home, "import", str(tmp_path / "mcp.json"))
    assert [one["name"] for one in said["added"]] == ["my-stub"]
    assert TOKEN not in (home.path / "toolgate.toml").read_text()
    secret = home.path / "secrets" / "upstream-my-stub-my-token"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == (TOKEN, 0o600)

    assert answer(home, "list")[0] | {"where": ""} == {
        "name": "my-stub",
        "where": "",
        "adopted": False,
        "tools": 0,
        "pin": "",
    }
    looked = answer(home, "try", "my-stub")
    assert [tool["name"] for tool in looked["tools"]] == ["echo", "other"]
    assert not (home.path / "policy" / "upstreams").exists()

    told = answer(home, "adopt", "my-stub", "--roles", "committer,admin", "--tool", "echo", "--yes")
    assert told["tools"] == ["my-stub_echo"]
    assert answer(home, "status")[0]["state"] == "up"
    with home.serving() as server:
        status, body = ask("mcp modern", server.port, ("my-stub", "echo"), {"text": "x"}, home.keys["admin"])
        assert status == 200
        assert TOKEN in body["result"]["content"][0]["text"]  # the program was given it
        _, body = ask("mcp modern", server.port, ("my-stub", "other"), {}, home.keys["admin"])
        assert body["error"]["code"] == -32602  # not chosen: it is not there
    acts = [one["act"] for one in home.records() if one["event"] == "act" and one["stage"] == "outcome"]
    assert [act for act in acts if act.startswith("upstream.")] == ["upstream.import", "upstream.adopt", "upstream.up"]
    assert TOKEN not in json.dumps(home.records())


def test_a_server_that_changed_is_refused_until_a_person_approves(home: Managed, swapping: Swapping) -> None:
    added(home, swapping)
    run(home, "adopt", "stub", "--roles", "admin", "--yes")
    before = answer(home, "diff", "stub")
    assert before["changed"] == {}
    swapping.behave("described otherwise")
    found = answer(home, "diff", "stub", code=ExitCode.DRIFT)
    assert found["changed"] == {"echo": ["description"]}
    assert "+Says it twice." in run(home, "diff", "stub", code=ExitCode.DRIFT)
    with home.serving() as server:
        status, body = ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"])
        assert (status, body["error_code"]) == (409, "upstream_drift")
    assert "Nobody is at the terminal" in run(home, "approve", "stub", code=ExitCode.FAILED)
    told = answer(home, "approve", "stub", "--yes")
    assert told["before"] == before["pin"] != told["pin"]
    with home.serving() as server:
        assert ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"])[0] == 200
    approved = [one for one in home.records() if one.get("act") == "upstream.approve" and one["stage"] == "outcome"]
    assert len(approved[0]["about"]["diff"]) == 64
    drifted = [one for one in home.records() if one.get("act") == "upstream.drifted"]
    assert drifted[0]["about"]["tools"] == {"echo": "changed_description"}


def test_a_new_tool_is_not_served_before_it_is_given_to_somebody(home: Managed, swapping: Swapping) -> None:
    added(home, swapping)
    run(home, "adopt", "stub", "--roles", "admin", "--yes")
    swapping.behave("one more tool")
    assert answer(home, "diff", "stub", code=ExitCode.DRIFT)["added"] == ["third"]
    assert answer(home, "approve", "stub", "--yes")["new"] == ["stub_third"]
    assert answer(home, "list")[0]["tools"] == 2
    run(home, "remove", "stub", "--yes")
    assert answer(home, "list") == []


def kept(home: Managed) -> list[bytes]:
    """What a person has approved, as it lies there."""
    policy = home.path / "policy"
    return [(policy / "upstreams" / "stub.pin.json").read_bytes(), (policy / "mcp-tools.policy.json").read_bytes()]


def grown(home: Managed, swapping: Swapping, behaviour: str = "one more tool") -> None:
    """Adopted, and then it offers more."""
    added(home, swapping)
    run(home, "adopt", "stub", "--roles", "admin", "--yes")
    swapping.behave(behaviour)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [(["--roles", "king"], 2, "builder, committer, admin"), (["--tool", "nothing"], 1, "offers no 'nothing'")],
    ids=["a role that is not there", "a tool that is not there"],
)
def test_an_approval_that_is_refused_has_approved_nothing(
    home: Managed, swapping: Swapping, arguments: list[str], code: int, text: str
) -> None:
    grown(home, swapping)
    before = kept(home)
    assert text in run(home, "approve", "stub", *arguments, "--yes", code=code)
    assert kept(home) == before
    assert not [one for one in home.records() if one.get("act") == "upstream.approve"]


@pytest.mark.parametrize("act", ["approve", "adopt"])
def test_a_row_that_is_somebody_elses_stops_it_before_anything_is_written(
    home: Managed, swapping: Swapping, act: str
) -> None:
    grown(home, swapping)
    file = home.path / "policy" / "mcp-tools.policy.json"
    manifest = json.loads(file.read_bytes())
    manifest["tools"].append({**manifest["tools"][-1], "name": "stub_third", "x-pack": "upstream-other"})
    file.write_text(json.dumps(manifest))
    before = kept(home)
    assert "not of stub" in run(home, act, "stub", "--roles", "admin", "--yes", code=ExitCode.FAILED)
    assert kept(home) == before


def test_a_new_tool_that_was_approved_for_nobody_is_given_to_somebody_later(home: Managed, swapping: Swapping) -> None:
    grown(home, swapping)
    run(home, "approve", "stub", "--yes")
    assert "stub_third" in run(home, "approve", "stub")  # nothing to approve; it says what nobody may call
    before = kept(home)
    assert "Nobody is at the terminal" in run(home, "approve", "stub", "--roles", "builder", code=ExitCode.FAILED)
    assert kept(home) == before
    said = run(home, "approve", "stub", "--roles", "builder", "--yes")
    assert "stub_third" in said
    assert "Does something else." in said  # it is shown before it is given
    with home.serving() as server:
        call = ("mrt", server.port, ("stub", "third"), {})
        assert ask(*call, home.keys["builder"])[0] == 200
        assert ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["builder"])[0] == 403
    acts = [one for one in home.records() if one.get("act") == "upstream.approve" and one["stage"] == "outcome"]
    assert (acts[-1]["about"]["roles"], acts[-1]["about"]["tools"]) == (["builder"], ["stub_third"])
    assert answer(home, "approve", "stub", "--roles", "admin", "--yes")["changed"] is False  # those known keep theirs


def test_a_new_tool_is_shown_with_its_text_and_what_is_odd_about_it(home: Managed, swapping: Swapping) -> None:
    grown(home, swapping, "one odd tool more")
    for said in (
        run(home, "diff", "stub", code=ExitCode.DRIFT),
        run(home, "approve", "stub", "--roles", "admin", "--yes"),
    ):
        assert "Does a third thing." in said
        assert "UP-003" in said


def test_a_diff_for_programs_has_the_findings_about_what_differs(home: Managed, swapping: Swapping) -> None:
    grown(home, swapping, "one odd tool more")
    found = answer(home, "diff", "stub", code=ExitCode.DRIFT)
    assert ("UP-003", "third") in {(each["rule"], each["tool"]) for each in found["findings"]}
    assert {each["tool"] for each in found["findings"]} == {"third"}


def test_a_tool_with_a_critical_finding_is_left_out(home: Managed, swapping: Swapping) -> None:
    added(home, swapping)
    swapping.behave("turned text")
    run(home, "try", "stub", code=ExitCode.FAILED)
    told = answer(home, "adopt", "stub", "--roles", "admin", "--yes")
    assert (told["tools"], told["left_out"]) == (["stub_other"], ["echo"])
    said = run(home, "approve", "stub", "--tool", "echo", "--roles", "admin", "--yes", code=ExitCode.FAILED)
    assert "critical finding" in said  # nor is it taken when it is named
    sarif = json.loads(run(home, "try", "stub", "--format", "sarif", code=ExitCode.FAILED))
    assert "UP-002" in json.dumps(sarif)


def test_removing_takes_table_pin_and_rows_and_nothing_else(home: Managed, swapping: Swapping) -> None:
    before = (home.path / "toolgate.toml").read_text()
    rows = json.loads((home.path / "policy" / "mcp-tools.policy.json").read_text())
    added(home, swapping)
    run(home, "adopt", "stub", "--roles", "admin", "--yes")
    run(home, "remove", "stub", "--yes")
    assert (home.path / "toolgate.toml").read_text().strip() == before.strip()
    assert json.loads((home.path / "policy" / "mcp-tools.policy.json").read_text()) == rows
    assert list((home.path / "policy" / "upstreams").iterdir()) == []


WRONG: list[tuple[list[str], int, str]] = [
    (["add", "Bad Name", "--", "x"], 1, "small letters"),
    (["add", "x"], 1, "either url or command"),
    (["add", "--env", "T=" + TOKEN, "x", "--", "y"], 1, "file:NAME"),
    (["add", "--env", "nothing", "x", "--", "y"], 2, "K=V"),
    (["try", "nobody"], 1, "upstream list shows them"),
    (["adopt", "nobody", "--roles", "admin"], 1, "no upstream"),
    (["adopt", "nobody"], 2, "--roles"),
    (["adopt", "nobody", "--roles", "king"], 2, "builder, committer, admin"),
    (["import", "/nowhere.json"], 1, "No such file"),
    (["remove", "nobody", "--yes"], 1, "no upstream"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "text"), WRONG, ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None
)
def test_a_mistake_is_told_with_its_fix_and_without_the_secret(
    home: Managed, arguments: list[str], code: int, text: str
) -> None:
    said = run(home, *arguments, code=code)
    assert text in said
    assert TOKEN not in said


def test_an_upstream_that_does_not_start_is_shown_with_its_last_words(home: Managed) -> None:
    run(home, "add", "stub", "--", sys.executable, str(STUB), "exit")
    said = run(home, "try", "stub", code=ExitCode.FAILED)
    assert "exit code 0" in said
    assert "cannot find its settings" in said


def test_in_a_terminal_each_tool_is_shown_and_asked_about(home: Managed, swapping: Swapping) -> None:
    added(home, swapping)
    ours, theirs = pty.openpty()
    command = home.command("upstream", "adopt", "stub", "--roles", "admin")
    with subprocess.Popen(
        command, env=environment(TERM="xterm"), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        answered = 0
        while answered < 2:
            said += os.read(ours, 4096)
            if said.count(b"[y/N]") > answered:
                os.write(ours, b"y\n" if answered == 0 else b"n\n")
                answered += 1
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)
    assert b"Says what it was told." in said
    assert answer(home, "list")[0]["tools"] == 1
