"""`toolgate audit` and `toolgate explain` as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.ledger import world
from tests.ledger.world import ANONYMOUS, OUTCOME, numbered
from toolgate.cli.audit import log as audit
from toolgate.cli.main import main
from toolgate.ledger import LOG_PATH, Anchors, Rules
from toolgate.ledger.files import LATEST, PUBLIC_KEY


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with a finished log of 40 calls, one of them refused."""
    monkeypatch.setenv("TOOLGATE_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "workspace").mkdir()
    rules = Rules(checkpoint_seconds=3600.0, checkpoint_records=16)
    given = {
        "key_file": tmp_path / "secrets" / "audit.key",
        "rules": rules,
        "anchors": Anchors(file=tmp_path / "kept.txt"),
    }
    with world.opened(tmp_path / "runs" / LOG_PATH, run_id="first", **given) as ledger:
        for number in range(39):
            ledger.append(numbered(OUTCOME, number))
        ledger.append(numbered(replace(ANONYMOUS, caller=world.CALLER, tool_id="mcp.tool:lra.init"), "refused"))
    return tmp_path


def segment(home: Path) -> Path:
    return world.segments(home / "runs" / LOG_PATH)[0]


def tampered(home: Path) -> None:
    path = segment(home)
    path.write_bytes(path.read_bytes().replace(b'"requestId":"request-7"', b'"requestId":"request-X"'))


def test_verify_says_what_was_checked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify"]) == 0
    assert capsys.readouterr().out == (
        "good  run first: 44 records, 43 under the last checkpoint\nverified: 1 runs, 44 records, 0 faults\n"
    )


def test_verify_names_the_first_bad_line_and_exits_1(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampered(home)
    assert main(["audit", "verify"]) == 1
    assert f"first bad line  {segment(home).name}:9: run first: this record was changed" in capsys.readouterr().out
    assert main(["audit", "verify", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["faults"][0]["seq"] == 8


def test_verify_takes_a_directory_a_segment_or_the_latest_link(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = home / "runs" / LOG_PATH
    for path in (log, segment(home), log / LATEST):
        assert main(["audit", "verify", str(path)]) == 0
    assert main(["audit", "verify", str(home / "kept.txt")]) == 1
    assert "neither a log's directory nor one of its segments" in capsys.readouterr().err


def test_verify_with_an_anchor_finds_a_log_that_was_cut(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", "--anchor", str(home / "kept.txt")]) == 0
    path = segment(home)
    world.cut(path, 20)
    assert main(["audit", "verify", "--anchor", str(home / "kept.txt")]) == 1
    assert "cut: an anchor saw 44 records, 20 are left" in capsys.readouterr().out


def test_a_pinned_key_decides(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public = home / "runs" / LOG_PATH / PUBLIC_KEY
    assert main(["audit", "verify", "--key", str(public)]) == 0
    assert main(["audit", "verify", "--key", public.read_text()]) == 0
    world.written(tmp_path / "other", 1, key_file=tmp_path / "other.key")
    assert main(["audit", "verify", "--key", str(tmp_path / "other" / PUBLIC_KEY)]) == 1
    assert main(["audit", "verify", "--key", "non+sense"]) == 1
    assert "not a log's public key" in capsys.readouterr().err


def test_a_log_of_another_home_is_checked_with_the_key_beside_it_and_that_is_said(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.written(tmp_path / "other", 1, key_file=tmp_path / "other.key")
    assert main(["audit", "verify", str(tmp_path / "other")]) == 0
    assert "pin a key" in capsys.readouterr().err


def test_a_proof_goes_from_prove_to_check_proof(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "prove", "request-7"]) == 0
    proof = home / "proof.json"
    proof.write_text(capsys.readouterr().out)
    public = str(home / "runs" / LOG_PATH / PUBLIC_KEY)
    assert main(["audit", "check-proof", str(proof), "--key", public]) == 0
    assert json.loads(capsys.readouterr().out)["requestId"] == "request-7"
    proof.write_text(proof.read_text().replace("request-7", "request-8"))
    assert main(["audit", "check-proof", str(proof), "--key", public]) == 1
    proof.write_text("{")
    assert main(["audit", "check-proof", str(proof), "--key", public]) == 1
    assert main(["audit", "check-proof", str(home / "missing"), "--key", public]) == 1
    assert main(["audit", "prove", "nobody"]) == 1
    assert "Find request ids with" in capsys.readouterr().err


def test_tail_shows_the_last_records_for_people_or_programs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "tail", "-n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "request-refused  missing_key" in lines[0]
    assert "checkpoint" in lines[1]
    assert (
        main(["audit", "tail", "-n", "1", "--json", "--status", "error", "--tool", "lra_init", "--caller", "k1"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["requestId"] == "request-refused"


def test_show_and_explain_find_a_request(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "show", "request-3"]) == 0
    assert json.loads(capsys.readouterr().out)["requestId"] == "request-3"
    assert main(["explain", "request-refused"]) == 0
    assert "Decided:  step 1, authenticate: no key was sent" in capsys.readouterr().out
    assert main(["explain", "request-refused", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"][0]["status"] == "error"
    assert main(["explain", "nobody"]) == 1
    assert "The log has no request nobody" in capsys.readouterr().err


def test_export_and_diff(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "export", "--status", "ok", "--since", "2025-11-15"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 39
    assert main(["audit", "export", "--format", "csv", "--caller", "k1"]) == 0
    assert capsys.readouterr().out.startswith("ts,event,requestId")
    copy = home / "copy.jsonl"
    copy.write_bytes(segment(home).read_bytes().replace(b'"inputBytes":40', b'"inputBytes":41', 1))
    assert main(["audit", "diff", str(segment(home)), str(segment(home))]) == 0
    capsys.readouterr()
    assert main(["audit", "diff", str(segment(home)), str(copy)]) == 1
    assert capsys.readouterr().out == "record 1: inputBytes: 40 | 41\n"
    copy.write_text("no json\n")
    assert main(["audit", "diff", str(segment(home)), str(copy)]) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["audit", "export", "--format", "xml"], "There is no format xml"),
        (["audit", "tail", "--since", "yesterday"], "is not a time"),
        (["audit", "tail", "--status", "good"], "Give ok or error"),
        (["audit", "tail", "--log", "/nonexistent"], "There is no audit log at"),
        (["audit", "diff", "/nonexistent", "/nonexistent"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_fix(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(arguments) == 1
    assert text in capsys.readouterr().err


def test_a_long_verification_shows_its_progress_to_people(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "PROGRESS_BYTES", 0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["audit", "verify"]) == 0
    assert "verifying" in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert main(["audit", "verify"]) == 0
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_ends_an_export_quietly(home: Path) -> None:
    world.written(home / "runs" / LOG_PATH, 1000, key_file=home / "secrets" / "audit.key")  # more than a pipe holds
    script = f"'{Path(sys.executable).parent / 'toolgate'}' audit export | head -n 1; echo done"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "done"
    assert done.stderr == ""
