"""What is published: built from the tree and from the sdist, installed where nothing of the clone is, and used there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S, first_line

ROOT = Path(__file__).parents[2]


def build(target: str, source: Path, into: Path) -> Path:
    """By the backend that pyproject.toml names, without the network."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)],
        cwd=source,
        env=bare(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    (built,) = into.iterdir()
    return built


def bare(**more: str) -> dict[str, str]:
    """An ordinary shell's environment: what an installer needs for itself is in its own files."""
    return {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/nonexistent"), "LANG": "C.UTF-8"} | more


@pytest.fixture(scope="module")
def from_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("package")
    subprocess.run(["tar", "xzf", build("sdist", ROOT, place / "sdist"), "-C", place], env=bare(), check=True)
    return build("wheel", next(place.glob("toolgate-*")), place / "wheel")


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.guard
def test_p1_a_wheel_built_from_the_sdist_is_the_wheel_built_from_the_tree(from_sdist: Path, tmp_path: Path) -> None:
    built, direct = contents(from_sdist), contents(build("wheel", ROOT, tmp_path / "wheel"))
    assert built.keys() == direct.keys()
    assert [name for name in built if built[name] != direct[name]] == []
    assert "toolgate/policy/default/mcp-tools.policy.json" in built
    assert [name for name in built if not name.startswith(("toolgate/", "toolgate-"))] == []


@pytest.mark.guard
@pytest.mark.parametrize("page", ["README.md", "docs/guides/quickstart.md"])
def test_p12_a_page_for_newcomers_says_how_toolgate_comes_onto_the_path(page: str, from_sdist: Path) -> None:
    text = (ROOT / page).read_text()
    assert "\n. .venv/bin/activate\n" in text
    assert f"pip install dist/{from_sdist.name}\n" in text
    assert "make package" in text


def test_p12_activating_the_environment_of_the_clone_puts_both_programs_on_the_path() -> None:
    script = f". {sys.prefix}/bin/activate && toolgate version && lra --help"
    done = subprocess.run(["/bin/sh", "-c", script], env=bare(), capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.startswith("toolgate ")
    assert "Usage: lra" in done.stdout


@dataclass(frozen=True)
class Installed:
    programs: Path
    place: Path

    def __call__(self, program: str, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [self.programs / program, *arguments],
            cwd=self.place,
            env=bare(HOME=str(self.place), **environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.guard
@pytest.mark.timeout(300)
def test_p1_a_wheel_in_an_empty_environment_makes_a_home_serves_it_and_answers(
    from_sdist: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], env=bare(), timeout=120, check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "install"]
    for wanted in (["--require-hashes", "-r", str(ROOT / "requirements" / "run.txt")], ["--no-deps", str(from_sdist)]):
        subprocess.run([*pip, *wanted], env=bare(), cwd=tmp_path, timeout=240, check=True)
    run = Installed(environment / "bin", tmp_path)
    key = json.loads(run("toolgate", "init", "home", "--json"))["key"]
    assert "toolgate" in run("toolgate", "version")
    run("toolgate", "doctor", "--home", "home", "--port", "0")
    assert run("toolgate", "contract", "check", "--home", "home").startswith("ok: ")
    server = subprocess.Popen(
        [run.programs / "toolgate", "serve", "--home", "home", "--port", "0", "--json"],
        cwd=tmp_path,
        env=bare(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        url = first_line(server)["url"]
        call = ("call", "dummy_experimental", "--json")
        told = json.loads(run("toolgate", *call, "--url", url, TOOLGATE_API_KEY=key))
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)
    assert (told["envelope"]["success"], told["envelope"]["decision"], server.returncode) == (True, "warn", 0)
    run("lra", "init", "paper")
    run("toolgate", "lra", "validate", "paper", "--format", "json")
    verified = run("toolgate", "audit", "verify", "--home", "home")
    assert verified.splitlines()[-1].startswith("verified: ")
