"""`toolgate pack new`: a stranger's pack from nothing to a governed call, and what it cannot do."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.support import Commands, Done, clean_environment, narrow, process
from toolgate.errors import ExitCode

MODULE = "toolgate_pack_word_count"


@pytest.fixture
def pack(toolgate: Commands, tmp_path: Path) -> Path:
    assert toolgate("pack", "new", "word-count").code == 0
    return tmp_path / "word-count"


@pytest.fixture
def installed(pack: Path) -> Path:
    """The pack's sources with the metadata an installer would write: what entry points are found by."""
    info = pack / "src" / "toolgate_pack_word_count-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolgate-pack-word-count\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[toolgate.packs]\nword-count = {MODULE}:PACK\n")
    return pack / "src"


class Gate:
    """A home that knows the installed pack. `run` asks it; each time anew, as a new process would."""

    def __init__(self, home: Path, run: Callable[..., Done]) -> None:
        self.home, self._run = home, run

    def run(self, *arguments: str) -> Done:
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()
        return self._run(*arguments, "--home", str(self.home))

    def call(self) -> Done:
        return self.run("call", "word_count_count", "text=hello governed world", "--json")

    def enable(self) -> None:
        file = self.home / "toolgate.toml"
        text, found = re.subn(r"(?m)^# enabled = \[.*$", 'enabled = ["governance", "word-count"]', file.read_text())
        assert found == 1
        file.write_text(text)

    def add_row(self, pack: Path, **changes: object) -> None:
        file = self.home / "policy" / "mcp-tools.policy.json"
        document = json.loads(file.read_text())
        document["tools"].append(json.loads((pack / "policy-row.json").read_text()) | changes)
        file.write_text(json.dumps(document))


@pytest.fixture
def gate(toolgate: Commands, tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setenv("TOOLGATE_API_KEY", toolgate("init", "home", "--json").json["key"])
    monkeypatch.syspath_prepend(installed)
    narrow(tmp_path / "home", {"dummy_experimental"})
    gate = Gate(tmp_path / "home", toolgate)
    assert gate.run("contract", "build").code == 0
    yield gate
    sys.modules.pop(MODULE, None)


def test_a_new_pack_is_whole_and_its_python_parses(pack: Path) -> None:
    files = sorted(str(file.relative_to(pack)) for file in pack.rglob("*") if file.is_file())
    assert files == [
        "README.md",
        "policy-row.json",
        "pyproject.toml",
        f"src/{MODULE}/__init__.py",
        "tests/test_word_count.py",
    ]
    for file in files:
        assert "$" not in (pack / file).read_text()
        if file.endswith(".py"):
            ast.parse((pack / file).read_text())
    row = json.loads((pack / "policy-row.json").read_text())
    assert row["x-tier"] == "experimental"


@pytest.mark.parametrize(
    "name", ["Bad", "a_b", "-a", "a-", "a--b", "", "../x", "x" * 41, "lra", "governance", "toolgate", "é", "a b", "a/b"]
)
def test_a_name_of_another_form_or_of_ours_is_refused(name: str, toolgate: Commands, tmp_path: Path) -> None:
    assert toolgate("pack", "new", "--", name).code == ExitCode.USAGE
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_not_touched(toolgate: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    done = toolgate("pack", "new", "mine")
    assert done.code == ExitCode.FAILED
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["notes"]


@pytest.mark.req("001-pack-needs-policy")
def test_an_installed_pack_lives_only_when_it_is_named_has_a_row_and_is_locked(gate: Gate, pack: Path) -> None:
    assert gate.call().code == ExitCode.UNKNOWN_TOOL, "installed, not named: not there"
    gate.enable()
    refused = gate.call()
    assert refused.code == ExitCode.FAILED, "named, without a row: no start"
    assert "word_count_count" in refused.err
    assert "row" in refused.err
    gate.add_row(pack)
    unlocked = gate.call()
    assert unlocked.code == ExitCode.FAILED, "with a row, not in the lock: no start"
    assert "contract build" in unlocked.err
    assert gate.run("contract", "build").code == 0
    done = gate.call()
    assert done.code == 0, done.err
    assert done.json["envelope"]["data"] == {"words": 3, "characters": 20}
    assert done.json["envelope"]["tier"] == "experimental"


@pytest.mark.req("001-tier-from-policy")
def test_a_pack_cannot_bind_anyone_by_what_it_answers(gate: Gate, pack: Path, installed: Path) -> None:
    gate.enable()
    gate.add_row(pack)
    assert gate.run("contract", "build").code == 0
    source = installed / MODULE / "__init__.py"
    source.write_text(
        source.read_text().replace("return Result(", 'return Result(decision="block", code="INVARIANT_VIOLATION", ')
    )
    envelope = gate.call().json["envelope"]
    assert envelope["tier"] == "experimental"
    assert envelope["decision"] == "warn"
    assert "code" not in envelope
    assert {clamp["field"] for clamp in envelope["clamps"]} == {"decision", "code"}


@pytest.mark.req("001-tier-from-policy")
def test_a_pack_cannot_give_itself_a_tier_or_roles(gate: Gate, pack: Path, installed: Path) -> None:
    gate.enable()
    gate.add_row(pack)
    source = installed / MODULE / "__init__.py"
    honest = source.read_text()
    for claim in ('tier="authoritative",', 'roles=["admin"],'):
        source.write_text(honest.replace("run=count,", f"run=count, {claim}"))
        done = gate.run("contract", "build")
        assert done.code == ExitCode.FAILED
        assert "word-count" in done.err


@pytest.mark.req("001-tier-from-policy")
@pytest.mark.parametrize(
    "changes",
    [
        {"x-tier": "authoritative"},
        {"x-tier": "authoritative", "x-adr": "ADR-0001"},
        {"x-tier": "authoritative", "x-adr": "ADR-9999"},
    ],
    ids=["no ADR", "an ADR of Toolgate's own", "an ADR that is not there"],
)
def test_its_row_cannot_make_it_authoritative_without_a_decision_of_the_deployment(
    gate: Gate, pack: Path, changes: dict[str, object]
) -> None:
    gate.enable()
    gate.add_row(pack, **changes)
    done = gate.run("contract", "build")
    assert done.code == ExitCode.FAILED
    assert "word_count_count" in done.err + done.out


@pytest.mark.guard
def test_the_five_steps_of_its_readme_end_in_a_call(toolgate: Commands, pack: Path, tmp_path: Path) -> None:
    """With a real installer, and the pack's own tests."""
    site = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "--target",
            str(site),
            str(pack),
        ],
        env=clean_environment(PIP_DISABLE_PIP_VERSION_CHECK="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    key = toolgate("init", "home", "--json").json["key"]
    home = tmp_path / "home"
    gate = Gate(home, partial(process, cwd=home, PYTHONPATH=str(site), TOOLGATE_API_KEY=key))
    gate.enable()
    gate.add_row(pack)
    built = gate.run("contract", "build")
    assert built.code == 0, built.err
    told = gate.run("call", "word_count_count", "text=hello world")
    assert told.code == 0, told.err
    assert json.loads(told.out) == {"words": 2, "characters": 11}
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=pack,
        env=clean_environment(PYTHONPATH=str(site)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout
