"""The five rules with real files and the real command line: on a copy of the project, and on a deployment of its own."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.policy.support import ROOT, Project, edit_manifest, home, install, json_row, pack_source, python
from toolgate.cli.main import main
from toolgate.policy import contract
from toolgate.policy.manifest import default_file

if TYPE_CHECKING:
    from pathlib import Path

DUMMY = "dummy_experimental"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def _rules(answer: str, *severities: str) -> list[tuple[str, str]]:
    breaches = json.loads(answer)["breaches"]
    return [(each["rule"], each["subject"]) for each in breaches if each["severity"] in severities]


@pytest.mark.req("001-P2")
def test_a_tool_without_a_row_ends_every_command_with_1_and_changes_nothing(project: Project) -> None:
    edit_manifest(
        project.policy,
        lambda content: content.update(tools=[each for each in content["tools"] if each["name"] != DUMMY]),
    )
    lock = (project.policy / "mcp-contract.json").read_bytes()
    lint, check, build = project.run("policy lint --json", "contract check", "contract build")
    assert (lint.code, check.code, build.code) == (1, 1, 1)
    assert ("code-without-policy", DUMMY) in _rules(lint.out, "fatal")
    assert f"{DUMMY} has no row" in build.out
    assert (project.policy / "mcp-contract.json").read_bytes() == lock


@pytest.mark.req("001-P3")
def test_a_row_without_a_tool_is_a_warning_and_ends_with_0(project: Project) -> None:
    edit_manifest(project.policy, lambda content: content["tools"].append(json_row("some_day")))
    lint, check = project.run("policy lint --json", "contract check")
    assert (lint.code, check.code) == (0, 0)
    assert ("policy-without-code", "some_day") in _rules(lint.out, "warning")


@pytest.mark.req("001-P4")
def test_drift_ends_with_3_until_the_contract_is_built(project: Project) -> None:
    project.row(DUMMY, **{"x-visibilityHint": "Another hint"})
    lint, check, diff, build, again = project.run(
        "policy lint --json", "contract check --json", "contract diff", "contract build", "contract check"
    )
    assert (lint.code, check.code, diff.code, build.code, again.code) == (3, 3, 3, 0, 0)
    assert _rules(lint.out, "fatal", "drift") == [("contract-drift", DUMMY)]
    assert [(each["kind"], each["what"]) for each in json.loads(check.out)["changes"]] == [("text-only", "hint")]
    assert "Another hint" in (project.root / "src/toolgate/policy/default/mcp-contract.json").read_text()


@pytest.mark.req("001-P4", "001-P8")
def test_changed_code_is_drift_and_an_unannounced_breaking_change_ends_diff_with_1(project: Project) -> None:
    project.replace("src/toolgate/packs/governance/tools/dummy_experimental.py", "deadline_s=10", "deadline_s=9")
    check, diff = project.run("contract check", "contract diff --json")
    assert (check.code, diff.code) == (3, 1)
    assert json.loads(diff.out)["changes"] == [
        {"kind": "breaking", "tool": DUMMY, "what": "deadline", "text": "10 s became 9 s", "unannounced": True}
    ]


@pytest.mark.req("001-P5")
def test_an_authoritative_tool_without_an_accepted_record_ends_with_1(project: Project) -> None:
    project.row(DUMMY, **{"x-tier": "authoritative", "x-adr": None})
    (nameless,) = project.run("policy lint")
    assert nameless.code == 1
    assert f"{DUMMY} is authoritative and names no ADR" in nameless.out

    project.row(DUMMY, **{"x-adr": "ADR-0999"})
    project.adr("ADR-0999", "Proposed")
    (proposed,) = project.run("contract build")
    assert proposed.code == 1
    assert "whose status is proposed" in proposed.out

    project.adr("ADR-0999", "Accepted")
    build, lint = project.run("contract build", "policy lint")
    assert (build.code, lint.code) == (0, 0)
    bound = json.loads((project.policy / "mcp-contract.json").read_text())["adrs"]
    assert "ADR-0999" in [each["id"] for each in bound if each["status"] == "accepted"]


@pytest.mark.req("001-P6")
def test_an_experimental_tool_that_claims_to_bind_ends_with_1(project: Project) -> None:
    project.row(DUMMY, **{"x-visibilityHint": "Can BLOCK a merge"})
    (lint,) = project.run("policy lint --json")
    assert lint.code == 1
    assert _rules(lint.out, "fatal") == [("tier2-claims-l0", DUMMY)]

    project.row(DUMMY, **{"x-visibilityHint": "Test tool for the governance floor"})
    project.replace(
        "src/toolgate/packs/governance/tools/dummy_experimental.py",
        'decisions=("warn",)',
        'decisions=("block",), error_codes=("CONSENT_REQUIRED",)',
    )
    (check,) = project.run("contract check")
    assert check.code == 1
    assert "it declares CONSENT_REQUIRED, it declares the decision block" in check.out


def test_a_broken_manifest_is_told_on_stderr_with_its_place(project: Project) -> None:
    project.row(DUMMY, **{"x-tier": "gold"})
    for answer in project.run("policy lint", "contract check", "contract build", "contract diff"):
        assert (answer.code, answer.out) == (1, "")
        assert f"row {DUMMY}: x-tier" in answer.err
        assert "Traceback" not in answer.err


# From here on in this process: the same function that the console script calls.


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose settings enable a stranger's pack that is installed."""
    site = tmp_path / "site"
    site.mkdir()
    install(site, "stray", pack_source())
    monkeypatch.syspath_prepend(site)
    return home(tmp_path / "home", "stray")


def _main(capsys: pytest.CaptureFixture[str], place: Path, *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments, "--home", str(place)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_strangers_pack_lives_after_a_row_and_a_build(deployment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _main(capsys, deployment, "contract", "check")
    assert code == 1
    assert "stray_probe has no row" in out

    edit_manifest(deployment / "policy", lambda content: content["tools"].append(json_row("stray_probe")))
    assert _main(capsys, deployment, "contract", "check")[0] == 3
    assert _main(capsys, deployment, "contract", "build")[0] == 0
    assert _main(capsys, deployment, "contract", "check")[0] == 0
    code, out, _ = _main(capsys, deployment, "policy", "show", "stray_probe", "--json")
    assert code == 0
    assert json.loads(out)["tools"][0]["state"] == "live"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("stray_probe", {"x-tier": "authoritative"}),
        ("stray_probe", {"x-tier": "authoritative", "x-adr": "ADR-0001"}),
        (DUMMY, {"x-tier": "authoritative", "x-adr": "ADR-0001"}),
        ("lra_sign", {"x-roles": ["builder", "committer", "admin"]}),
    ],
)
def test_a_deployment_cannot_widen(
    deployment: Path, capsys: pytest.CaptureFixture[str], name: str, changes: dict[str, Any]
) -> None:
    def widen(content: Any) -> None:
        content["tools"].append(json_row("stray_probe"))
        next(each for each in content["tools"] if each["name"] == name).update(changes)

    edit_manifest(deployment / "policy", widen)
    for command in (["policy", "lint"], ["contract", "build"], ["contract", "check"]):
        code, out, err = _main(capsys, deployment, *command)
        assert (code, out) == (1, "")
        assert f"row {name}" in err


def test_a_strangers_tool_binds_by_an_accepted_record_of_the_deployment(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (deployment / "policy" / "adr").mkdir()
    record = deployment / "policy" / "adr" / "ADR-0900-our-rule.md"
    binding = json_row("stray_probe", **{"x-tier": "authoritative", "x-adr": "ADR-0900"})
    edit_manifest(deployment / "policy", lambda content: content["tools"].append(binding))
    record.write_text("# ADR-0900: Our rule\n\n**Status:** Proposed\n")
    assert _main(capsys, deployment, "contract", "build")[0] == 1
    record.write_text("# ADR-0900: Our rule\n\n**Status:** Accepted\n")
    assert _main(capsys, deployment, "contract", "build")[0] == 0
    record.write_text("# ADR-0900: Our rule\n\n**Status:** Accepted\n\nEdited later.\n")
    assert _main(capsys, deployment, "contract", "check")[0] == 3


def test_a_deployment_may_withdraw_a_tool_and_show_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = home(tmp_path)
    edit_manifest(
        place / "policy",
        lambda content: content.update(tools=[each for each in content["tools"] if each["name"] != DUMMY]),
    )
    assert _main(capsys, place, "contract", "build")[0] == 0
    assert _main(capsys, place, "policy", "lint")[0] == 0
    assert DUMMY not in (place / "policy" / "mcp-contract.json").read_text()
    _, out, _ = _main(capsys, place, "policy", "show")
    assert [line.split()[-1] for line in out.splitlines() if line.startswith(DUMMY)] == ["withdrawn"]


@pytest.mark.req("001-P4")
@pytest.mark.parametrize("edit", ["digest", "layout"])
def test_a_lock_that_nobody_built_is_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: str) -> None:
    place = home(tmp_path)
    lock = place / "policy" / "mcp-contract.json"
    text = lock.read_text()
    lock.write_text(text.replace(json.loads(text)["digest"], "0" * 64) if edit == "digest" else text + "\n")
    assert _main(capsys, place, "contract", "check")[0] == 3


def test_an_unreadable_lock_is_refused_by_check_and_replaced_by_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = home(tmp_path)
    good = (place / "policy" / "mcp-contract.json").read_bytes()
    (place / "policy" / "mcp-contract.json").write_text("{")
    code, _, err = _main(capsys, place, "contract", "check")
    assert code == 1
    assert "toolgate contract build" in err
    assert _main(capsys, place, "contract", "build")[0] == 0
    assert (place / "policy" / "mcp-contract.json").read_bytes() == good


def test_a_lock_that_cannot_be_written_leaves_nothing_half_done(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_manifest(deployment / "policy", lambda content: content["tools"].append(json_row("stray_probe")))
    lock = deployment / "policy" / "mcp-contract.json"
    lock.unlink()
    lock.mkdir()
    (lock / "in-the-way").touch()
    code, _, err = _main(capsys, deployment, "contract", "build")
    assert code == 1
    assert "directory" in err
    assert sorted(path.name for path in lock.parent.iterdir()) == [
        "mcp-contract.json",
        "mcp-tools.policy.json",
        "policy-schema.json",
    ]


def _announced(days: int) -> str:
    return (datetime.now(UTC).date() - timedelta(days=days)).isoformat()


@pytest.mark.parametrize(("days", "code"), [(14, 0), (13, 1), (None, 1)])
def test_diff_of_two_files_takes_a_breaking_change_only_after_two_weeks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int | None, code: int
) -> None:
    base = contract.read_lock(None)
    notice = {"tool": DUMMY, "what": "tool", "announced": _announced(days or 0), "text": "Use none."}
    tools = [each for each in base["tools"] if each["name"] != DUMMY]
    before = contract.assemble(tools=base["tools"], adrs=base["adrs"], deprecations=[notice] if days else [])
    # The announcement in the new file alone is worth nothing.
    after = contract.assemble(tools=tools, adrs=base["adrs"], deprecations=[notice])
    (tmp_path / "old.json").write_bytes(contract.render(before))
    (tmp_path / "new.json").write_bytes(contract.render(after))
    assert main(["contract", "diff", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == code
    said = capsys.readouterr().out
    assert f"breaking  {DUMMY}: the tool is gone" in said
    assert ("not announced" in said) is bool(code)
    # The way back adds a tool: compatible.
    assert main(["contract", "diff", str(tmp_path / "new.json"), str(tmp_path / "old.json")]) == 0


def test_show_of_an_unknown_tool_ends_with_6(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _main(capsys, home(tmp_path), "policy", "show", "nothing")
    assert (code, out) == (6, "")
    assert "nothing has no row" in err


@pytest.mark.req("001-P4", "001-P8")
def test_the_committed_contract_is_what_the_code_says_without_extras_servers_or_stores() -> None:
    """Modules that only an extra brings cannot be imported here; and neither servers nor stores are loaded."""
    guard = (
        "import sys\n"
        "for name in ('psycopg', 'nats', 'wasmtime', 'redis', 'opentelemetry'): sys.modules[name] = None\n"
        "from toolgate.cli.main import main\n"
        "code = main(['contract', 'check'])\n"
        "heavy = {'sqlalchemy', 'httpx2', 'watchfiles', 'toolgate.app', 'toolgate.servers', 'toolgate.powers'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    answer = python(guard, cwd=ROOT, PYTHONHASHSEED="1")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stderr.strip() == "[]"


def test_outside_a_source_tree_the_records_are_known_by_the_lock(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "src" / "toolgate", site / "toolgate")
    code = (
        "from toolgate.cli.main import main\n"
        "from toolgate.policy import bundle\n"
        "assert bundle.adr_directory() is None\n"
        "assert all(record.accepted for record in bundle.load_policy(None).adrs.values())\n"
        "raise SystemExit(main(['contract', 'check']))\n"
    )
    answer = python(code, cwd=tmp_path, PYTHONPATH=str(site))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_made_documents_are_renewed_and_staleness_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "adr"
    shutil.copytree(ROOT / "docs" / "adr", folder)
    place = home(tmp_path / "home")
    (folder / "ADR-0901-new.md").write_text("# ADR-0901: Something new\n\n**Status:** Proposed\n")
    assert _main(capsys, place, "policy", "docs", str(folder), "--check")[0] == 3
    assert _main(capsys, place, "policy", "docs", str(folder))[0] == 0
    assert "| [ADR-0901](ADR-0901-new.md) | Something new | proposed |" in (folder / "README.md").read_text()
    assert _main(capsys, place, "policy", "docs", str(folder), "--check") == (0, "", "")


def test_the_packaged_files_are_the_ones_at_the_root_of_the_project() -> None:
    for name in ("mcp-tools.policy.json", "policy-schema.json", "mcp-contract.json"):
        assert (ROOT / "policy" / name).read_bytes() == default_file(name).read_bytes()
    assert main(["policy", "lint", "--home", str(ROOT)]) == 0
