"""What a repository decides for itself (profiles, writers), mends (--fix) and is called (identity)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.packs.governance.cli.commands import CLEAN, SHA, put, repo, run
from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.repository.identity import named_after, remote_of
from toolgate.packs.governance.repository.suppressions import SuppressionEntry, appended, knows, read_suppressions
from toolgate.packs.governance.rules.catalogue import RULES
from toolgate.packs.governance.workflows.fixes import fixed, read_pins

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.packs.governance.cli.commands import Done
    from tests.packs.governance.desk import Desk

__all__ = ["repo", "run"]  # fixtures

ROOT = Path(__file__).parents[4]
WORKFLOW = ".github/workflows/ci.yml"
OFF = ("--zizmor", "off")


def loose(count: int) -> str:
    return CLEAN + "".join(f"      - uses: a/b{number}@v1\n" for number in range(count))


# Profiles


@pytest.mark.parametrize(
    ("profile", "mediums", "code"),
    [
        ("relaxed", 50, 0),
        ("relaxed", 51, 1),
        ("default", 10, 0),
        ("default", 11, 1),
        ("strict", 5, 0),
        ("strict", 6, 1),
    ],
)
def test_a_repository_chooses_its_thresholds(
    run: Callable[..., Done], repo: Path, profile: str, mediums: int, code: int
) -> None:
    put(repo, WORKFLOW, loose(mediums))
    put(repo, ".toolgate.toml", f'profile = "{profile}"\n')
    assert run("analyze", *OFF).code == code


def test_strict_on_the_command_line_and_the_merge_queue_win(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, loose(6))
    put(repo, ".toolgate.toml", 'profile = "relaxed"\n')
    assert [run("analyze", *OFF, *more).code for more in ([], ["--strict"], ["--mode", "merge_group"])] == [0, 1, 1]


def test_behind_a_server_the_operator_sets_the_mildest_profile(desk: Desk) -> None:
    desk.write(WORKFLOW, loose(20))
    desk.write(".toolgate.toml", 'profile = "relaxed"\n')
    args: dict[str, Any] = {"files": [WORKFLOW]}
    assert desk.call("analyze_dissonance", args).decision == "block", "default, unless the operator says otherwise"
    desk.settings["least_profile"] = "relaxed"
    assert desk.call("analyze_dissonance", args).decision == "warn"
    desk.settings["least_profile"] = "strict"
    assert desk.call("analyze_dissonance", args).data["analysis"]["profile"] == "strict"


# Fixes

PINS = f'[pins]\n"actions/checkout@v4" = "{SHA}"\n"alpine:3.20" = "sha256:{SHA}0123456789abcdef01234567"\n'
BEFORE = """# CI of ours
name: CI
on: [push]
jobs:   # all of them
  test:
    runs-on: ubuntu-latest
    container: alpine:3.20
    steps:
      - uses: actions/checkout@v4
      - name: again
        uses: "actions/checkout@v4"   # keep me
      - uses: docker://alpine:3.20
      - uses: other/action@v4
"""


def test_fix_adds_permissions_and_pins_and_leaves_everything_else(run: Callable[..., Done], repo: Path) -> None:
    path = put(repo, WORKFLOW, BEFORE)
    path.chmod(0o640)
    put(repo, "pins.toml", PINS)
    done = run("analyze", "--fix", "--pins", "pins.toml", "--json", *OFF)
    assert f"fixed {WORKFLOW}: 4 pinned, permissions: contents: read" in done.err
    digest = f"sha256:{SHA}0123456789abcdef01234567"
    assert path.read_text() == (
        BEFORE.replace("jobs:", "permissions:\n  contents: read\n\njobs:")
        .replace("container: alpine:3.20", f"container: alpine:3.20@{digest}")
        .replace("- uses: actions/checkout@v4\n", f"- uses: actions/checkout@{SHA} # v4\n")
        .replace('"actions/checkout@v4"   # keep me', f'"actions/checkout@{SHA}"   # keep me')
        .replace("docker://alpine:3.20", f"docker://alpine:3.20@{digest}")
    )
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one["title"].split()[2] for one in done.json["analysis"]["findings"]] == ["other/action@v4"]
    assert run("analyze", "--fix", *OFF).err.count("fixed") == 0, "and there is nothing left to do"


def test_the_lock_of_the_repository_is_used_without_being_named(run: Callable[..., Done], repo: Path) -> None:
    path = put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    put(repo, ".toolgate/pins.toml", PINS)
    assert run("analyze", "--fix", *OFF).code == 0
    assert f"@{SHA} # v4" in path.read_text()


@pytest.mark.parametrize(
    "content", ["", "[pins\n", '[pins]\n"a/b@v1" = "v1"\n', '[pins]\n"alpine" = "latest"\n', "[pins]\nx = 1\n[y]\n"]
)
def test_a_lock_that_pins_nothing_down_is_an_error(run: Callable[..., Done], repo: Path, content: str) -> None:
    path = put(repo, WORKFLOW, BEFORE)
    put(repo, "pins.toml", content)
    assert run("analyze", "--fix", "--pins", "pins.toml").code == 2
    assert path.read_text() == BEFORE
    with pytest.raises(YamlFault):
        read_pins(content.encode())


@pytest.mark.parametrize(
    "text",
    [
        CLEAN,
        "on: workflow_call\njobs:\n  a: {steps: [{run: make}]}\n",
        "on: push\njobs:\n  a:\n    permissions: {}\n    steps: [{run: make}]\n",
        "{on: push, jobs: {a: {steps: [{run: make}]}}}\n",
    ],
    ids=["stated", "only called", "stated by every job", "flow style"],
)
def test_permissions_are_added_only_where_they_are_missing_and_have_a_line(text: str) -> None:
    assert fixed(WORKFLOW, text.encode(), {}) == (text.encode(), [])


def test_line_ends_stay_as_they_are() -> None:
    text = b"on: push\r\njobs:\r\n  a: {steps: [{run: make}]}\r\n"
    assert fixed(WORKFLOW, text, {})[0] == text.replace(b"jobs:", b"permissions:\r\n  contents: read\r\n\r\njobs:")


# Identity


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/acme/shop.git", "acme/shop"),
        ("https://user:token@github.com/acme/shop", "acme/shop"),
        ("git@github.com:acme/shop.git", "acme/shop"),
        ("ssh://git@github.com:22/acme/shop.git", "acme/shop"),
        ("https://GitLab.example.org/acme/tools/shop.git", "gitlab.example.org/acme/tools/shop"),
        ("git@codeberg.org:acme/shop", "codeberg.org/acme/shop"),
        ("/srv/git/shop.git", None),
        ("", None),
    ],
)
def test_one_repository_has_one_name_however_its_address_is_written(url: str, name: str | None) -> None:
    assert named_after(url) == name
    assert remote_of(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url or "x"}\n\tfetch = y\n') == name


def test_a_remote_of_another_name_is_not_the_origin() -> None:
    assert remote_of('[remote "upstream"]\n\turl = https://github.com/acme/shop\n') is None


def test_a_worktree_is_its_repository(run: Callable[..., Done], repo: Path) -> None:
    put(repo, ".git/config", '[remote "origin"]\nurl = https://github.com/acme/shop\n')
    put(repo, ".git/worktrees/w/commondir", "../..\n")
    put(repo, "../w/.git", f"gitdir: {repo}/.git/worktrees/w\n")
    put(repo, f"../w/{WORKFLOW}", CLEAN)
    assert run("analyze", "../w", "--json", *OFF).json["analysis"]["repository"] == "acme/shop"


def test_the_repository_can_say_its_name_itself(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".toolgate.toml", 'repository = "acme/renamed"\n')
    told = run("analyze", "--json", *OFF).json["analysis"]["repository"]
    assert told == "acme/renamed"
    assert run("analyze", "--json", "--context", "acme/other", *OFF).json["analysis"]["repository"] == "acme/other"


# Suppressions that `fp mark` writes into the repository


def test_marking_in_the_repository_needs_no_home_and_is_read_back(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLGATE_HOME")
    put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    (found,) = run("analyze", "--json", *OFF).json["analysis"]["findings"]
    said = ("--reason", 'he said "fine"\\', "--reviewer", "änn", "--ticket", "T-1", "--in-repository")
    done = run("fp", "mark", found["fingerprint"], *said)
    assert done.code == 0
    assert "not counted in the rule's rate" in done.err
    (hidden,) = run("analyze", "--json", *OFF).json["analysis"]["suppressed"]
    assert hidden["suppression"] == {
        "source": "file",
        "reason": 'he said "fine"\\',
        "reviewer": "änn",
        "ticket": "T-1",
    }
    assert sorted(path.name for path in repo.iterdir()) == [".git", ".github", ".toolgate"]


def test_an_entry_replaces_the_one_of_its_fingerprint_and_leaves_the_others() -> None:
    def entry(mark: str, reason: str) -> SuppressionEntry:
        return SuppressionEntry(mark * 32, "MD-002", reason, "ann", "T-1", "2999-01-01", 1)

    text = appended("# decided with the team\n", entry("a", "first"))
    text = appended(appended(text, entry("b", "other\u202e\n")), entry("a", "second"))
    assert text.startswith("# decided with the team\n")
    read = read_suppressions(text.encode()).entries
    assert [(one.fingerprint[0], one.reason) for one in read] == [("b", "other\u202e\n"), ("a", "second")]


def test_every_rule_can_be_named_in_a_suppression() -> None:
    assert all(knows(rule.id) for rule in RULES)
    assert not any(knows(name) for name in ("GATE", "SUPPRESSION", "MD-999", "zizmor/", "zizmor/A"))


# What is shipped for CI


def test_the_action_runs_its_script_on_a_repository(repo: Path, tmp_path: Path) -> None:
    """The install step needs a registry; the judging one runs here, with the program of this environment."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = action["runs"]["steps"][-1]["run"]
    (tmp_path / "runner" / "toolgate").mkdir(parents=True)
    (tmp_path / "runner" / "toolgate" / "bin").symlink_to(Path(sys.executable).parent)
    put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    given = {"RUNNER_TEMP": str(tmp_path / "runner"), "DIRECTORY": ".", "SARIF": "out.sarif", "ARGUMENTS": ""}
    for arguments, code in (("", 0), ("--fail-on warn", 4), ("--require-evaluated", 2)):
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=repo,
            env=os.environ | given | {"ARGUMENTS": arguments},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
    assert (repo / "out.sarif").stat().st_size > 500


def test_our_own_workflows_actions_and_hooks_pass_our_own_rules(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLGATE_HOME")
    monkeypatch.chdir(ROOT)
    done = run("analyze", "--json", "--base", "HEAD")
    assert [one["title"] for one in done.json["analysis"]["findings"] if one["ruleId"] != "SUPPRESSION"] == []
    assert run("l0").code == 0
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["entry"] for hook in hooks] == ["toolgate analyze", "toolgate adr check"]
