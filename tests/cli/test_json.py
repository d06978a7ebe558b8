"""P: `--json` on every command that prints data; what it answers is one JSON value."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.support import Commands
from toolgate.packs.lra.cli import main as lra

FOUND = "the finding's fingerprint"
MARK = ["fp", "mark", FOUND, "--rule", "MD-002", "--reason", "r", "--reviewer", "me", "--ticket", "T-1"]
GRANT = ["consent", "grant", "acme", "fp_metrics", "--by", "me", "--days", "1"]


@pytest.fixture
def here(toolgate: Commands, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is also a repository with one workflow, and one finding's review."""
    monkeypatch.chdir(home)
    workflow = home / ".github" / "workflows" / "ci.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("on: push\npermissions: {}\njobs: {a: {runs-on: x, steps: [{uses: a/b@v1}]}}\n")
    return home


def marked(toolgate: Commands) -> list[str]:
    """`fp mark` of what `analyze` finds here."""
    found = re.search(r"[0-9a-f]{32}", toolgate("analyze").out)
    assert found is not None
    return [found[0] if word is FOUND else word for word in MARK]


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (["version"], {"version"}),
        (["mcp-config", "cursor"], {"file", "configuration"}),
        (["contract", "build"], {"written", "digest", "changes"}),
        (["policy", "docs", ".", "--check"], {"stale"}),
        (["baseline"], {"repository", "files"}),
        (["analyze"], {"analysis"}),
        (["l0"], {"validation"}),
        (MARK, {"fingerprint", "verdict", "suppressedUntil"}),
        (["fp", "export"], {"schemaVersion", "events"}),
        (GRANT, {"org", "granted", "expiresAt", "by"}),
    ],
    ids=lambda part: " ".join(part[:2]) if isinstance(part, list) else "",
)
def test_p_json_is_what_is_answered(toolgate: Commands, here: Path, words: list[str], holds: set[str]) -> None:
    done = toolgate(*(marked(toolgate) if words is MARK else words), "--json")
    assert done.code == 0, done.err
    assert holds <= done.json.keys()


def test_p_json_of_what_changes_a_store(toolgate: Commands, here: Path) -> None:
    assert toolgate(*marked(toolgate)).code == 0
    assert toolgate("fp", "export", "-o", "reviews.json").code == 0
    assert toolgate("fp", "import", "reviews.json", "--json").json == {"added": 0, "known": 1, "suppressions": 1}
    assert toolgate(*GRANT).code == 0
    revoked = toolgate("consent", "revoke", "acme", "fp_metrics", "--by", "me", "--json").json
    assert revoked == {"org": "acme", "revoked": ["fp_metrics"], "by": "me"}


def test_p_json_of_the_logs_commands(toolgate: Commands, here: Path) -> None:
    key = toolgate("keys", "create", "--role", "admin", "--json").json["key"]
    request = toolgate("call", "dummy_experimental", "--key", key, "--json").json["envelope"]["requestId"]
    assert [row["requestId"] for row in toolgate("audit", "show", request, "--json").json] == [request]
    proof = toolgate("audit", "prove", request, "--json")
    (here / "proof.json").write_text(proof.out)
    public = "runs/mcp_server/envelope_validation/audit-log.pub"
    assert toolgate("audit", "check-proof", "proof.json", "--key", public, "--json").json["requestId"] == request
    exported = toolgate("audit", "export", "--json").out.splitlines()
    assert request in [json.loads(line).get("requestId") for line in exported]
    segment = next((here / "runs" / "mcp_server" / "envelope_validation").glob("*.001.jsonl"))
    assert toolgate("audit", "diff", str(segment), str(segment), "--json").json == {"equal": True, "differences": []}


def test_p_json_of_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert lra(["init", "paper"]) == 0
    capsys.readouterr()
    assert lra(["validate", "paper", "--json"]) == 0
    judged = capsys.readouterr().out
    assert lra(["validate", "paper", "--format", "json"]) == 0
    assert json.loads(judged) == json.loads(capsys.readouterr().out)
    assert lra(["keygen", "mine.key", "--keys", str(tmp_path / "keys"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"key", "public_key", "fingerprint", "trust_line"}
