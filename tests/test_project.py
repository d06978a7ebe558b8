"""What the project promises about itself as a whole: rooms, dependencies, no addresses, nothing private."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "toolgate"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def texts() -> Iterator[tuple[Path, str]]:
    for path in committed():
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue


REGISTRIES = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian", re.IGNORECASE)
PRIVATE = re.compile(r"/work/(main|shared)|\.\./shared|/root/\.(pyenv|cache)|/opt/(pypi|wheels)")


def test_no_committed_file_names_a_registry_host() -> None:
    mine = Path(__file__)
    assert [str(path) for path, text in texts() if path != mine and REGISTRIES.search(text)] == []


def test_no_committed_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    own = {Path(__file__), ROOT / ".ci" / "run"}  # the latter looks beside the checkout for published test vectors
    assert [str(path) for path, text in texts() if path not in own and PRIVATE.search(text)] == []


def test_every_locked_requirement_has_hashes_and_no_address() -> None:
    for name in ("run.txt", "dev.txt"):
        text = (ROOT / "requirements" / name).read_text()
        pins = re.findall(r"^[A-Za-z0-9._-]+(?:\[[a-z,]+\])?==", text, re.MULTILINE)
        assert len(pins) > 20
        assert text.count("--hash=sha256:") >= len(pins)
        assert "://" not in text


def test_every_runtime_dependency_is_explained() -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    named = [*PYPROJECT["project"]["dependencies"]]
    for extra in PYPROJECT["project"]["optional-dependencies"].values():
        named += extra
    for group in PYPROJECT["dependency-groups"].values():
        named += group
    packages = {re.match(r"[A-Za-z0-9-]+", one)[0].lower() for one in named}  # type: ignore[index]
    assert {package for package in packages if f"`{package}`" not in explained.lower()} == set()


FORBIDDEN_IN_PACKS = {
    "open": "files come through ctx.files",
    "eval": "no",
    "exec": "no",
    "__import__": "no",
}
FORBIDDEN_MODULES = {
    "socket",
    "subprocess",
    "random",
    "secrets",
    "http.client",
    "urllib.request",
    "ctypes",
    "multiprocessing",
    "requests",
    "httpx2",
}
FORBIDDEN_CALLS = {
    "time.time",
    "time.monotonic",
    "time.sleep",
    "os.system",
    "os.popen",
    "os.open",
    "datetime.now",
    "datetime.utcnow",
    "os.urandom",
}
PEOPLE = re.compile(r"(cli(_.*)?|people)\.py$")
"""A pack's commands for people run on a person's own files, outside the road; they may open them (decision 5)."""


@pytest.mark.parametrize(
    "pack", sorted(path.name for path in (SOURCE / "packs").iterdir() if path.is_dir() and path.name != "__pycache__")
)
def test_a_pack_touches_nothing_but_its_powers(pack: str) -> None:
    found: list[str] = []
    for path in sorted((SOURCE / "packs" / pack).rglob("*.py")):
        if not PEOPLE.search(path.name) and "template" not in path.parts:
            found += [f"{path.name}: {what}" for what in touched(ast.parse(path.read_text()))]
    assert found == []


def touched(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_IN_PACKS.keys() | FORBIDDEN_CALLS:
            yield ast.unparse(node.func)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES:
            yield node.module


def test_the_rule_for_packs_can_fail() -> None:
    assert set(touched(ast.parse("import socket\nfrom random import choice\nopen('x')\ntime.time()"))) == {
        "socket",
        "random",
        "open",
        "time.time",
    }


def test_one_call_is_followed_through_five_files() -> None:
    """bytes -> server -> face -> road -> face -> server: the files a reader opens, in the README's own words."""
    readme = (ROOT / "README.md").read_text()
    walk = ["servers/http.py", "faces/mcp.py", "gate/road.py", "gate/execute.py", "gate/floor.py"]
    assert all(f"src/toolgate/{name}" in readme and (SOURCE / name).exists() for name in walk)


def test_no_module_is_larger_than_a_reader_can_hold() -> None:
    sizes = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {name: size for name, size in sizes.items() if size > 600} == {}
