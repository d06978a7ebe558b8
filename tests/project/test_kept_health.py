"""The scheduled workflow keeps the contract's history: its own steps, run here, against a remote that is a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import keep_health

ROOT = Path(__file__).parents[2]
JOB: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "contract-health.yml").read_text())["jobs"][
    "contract-health"
]
PATIENCE_S = 60.0


class Clone:
    """One run's checkout: made anew each time, as a provider does."""

    def __init__(self, path: Path, remote: Path) -> None:
        self.path = path
        git(path.parent, "clone", "--quiet", str(remote), path.name)
        (path / "scripts").mkdir()
        (path / "scripts" / "keep_health.py").write_bytes((ROOT / "scripts" / "keep_health.py").read_bytes())
        programs = path / ".venv" / "bin"
        programs.mkdir(parents=True)
        (programs / "toolgate").symlink_to(Path(sys.prefix) / "bin" / "toolgate")

    def step(self, name: str) -> int:
        """A step of the workflow, as it is written there."""
        (found,) = [step["run"] for step in JOB["steps"] if step.get("name") == name]
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_SHA": "c" * 40,
        }
        done = subprocess.run(
            ["bash", "-e", "-c", found], cwd=self.path, env=environment, timeout=PATIENCE_S, check=False
        )
        return done.returncode

    def whole(self) -> list[int]:
        """All steps but those that install and that ask the provider for its runs."""
        first = self.step("What was kept")
        (self.path / "health" / "runs.json").write_text("[]")
        return [first, *map(self.step, ("Check the contract now", "Tell the window", "Keep it"))]


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """With a branch that people work on."""
    made = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", made.name)
    git(tmp_path, "init", "--quiet", "--initial-branch=main", "work")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    git(tmp_path / "work", *identity, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    git(tmp_path / "work", "push", "--quiet", str(made), "main")
    return made


def kept(remote: Path, name: str) -> str:
    return git(remote, "show", f"{keep_health.BRANCH}:{name}")


def test_each_run_adds_to_what_the_one_before_has_kept(tmp_path: Path, remote: Path) -> None:
    before = git(remote, "rev-parse", "main")
    codes = []
    for number in range(2):
        first, checked, *rest = Clone(tmp_path / f"run{number}", remote).whole()
        assert (first, rest) == (0, [0, 0])
        codes.append(checked)  # whether the contract is green here and now is for another test
    lines = [json.loads(line) for line in kept(remote, keep_health.CHECKS).splitlines()]
    assert [(line["ok"], line["commit"]) for line in lines] == [(code == 0, "c" * 40) for code in codes]
    assert 'aria-label="contract: ' in kept(remote, keep_health.BADGE)
    assert git(remote, "rev-list", "--count", keep_health.BRANCH) == "2"
    assert git(remote, "rev-parse", "main") == before, "no other branch is written to"


def test_a_red_check_is_kept_and_the_badge_says_so(tmp_path: Path, remote: Path) -> None:
    clone = Clone(tmp_path / "run", remote)
    assert clone.step("What was kept") == 0
    (clone.path / "health" / "runs.json").write_text("[]")
    line = {"ts": "2020-01-01T00:00:00Z", "ok": True, "commit": "old"}
    with (clone.path / "health" / keep_health.CHECKS).open("w") as file:
        file.write(json.dumps(line) + "\n")
    clone.step("Check the contract now")
    text = (clone.path / "health" / keep_health.CHECKS).read_text().replace('"ok":true', '"ok":false')
    (clone.path / "health" / keep_health.CHECKS).write_text(text)
    assert [clone.step(name) for name in ("Tell the window", "Keep it")] == [0, 0]
    assert "contract: red now" in kept(remote, keep_health.BADGE)
    asked = {step["name"]: step for step in JOB["steps"] if "name" in step}
    assert asked["Check the contract now"]["continue-on-error"], "a red one is told before it ends the job"
    assert asked["Is it green?"]["if"] == "steps.check.outcome != 'success'"


def test_history_is_bounded_and_never_overwritten(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Clone(tmp_path / "one", remote).path)
    monkeypatch.setattr(keep_health, "MOST_LINES", 3)
    folder = Path("health")
    keep_health.restore(folder)
    (folder / keep_health.CHECKS).write_text("".join(f'{{"n":{number}}}\n' for number in range(5)))
    (folder / keep_health.BADGE).write_text("<svg/>")
    keep_health.keep(folder)
    assert kept(remote, keep_health.CHECKS).splitlines() == ['{"n":2}', '{"n":3}', '{"n":4}']
    (folder / keep_health.BADGE).write_text("<svg>by one who has not looked</svg>")
    monkeypatch.setattr(keep_health, "newest", lambda: "")
    with pytest.raises(subprocess.CalledProcessError):
        keep_health.keep(folder)
    assert git(remote, "rev-list", "--count", keep_health.BRANCH) == "1"


def test_the_badge_of_the_readme_is_the_one_that_is_kept() -> None:
    assert f"(../../raw/{keep_health.BRANCH}/{keep_health.BADGE})" in (ROOT / "README.md").read_text()
