"""Tests lie where the code lies that they test: `tests/` mirrors `src/toolgate/`, but for a few folders about the whole."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.homes import ROOT

TESTS = ROOT / "tests"
SOURCE = ROOT / "src" / "toolgate"
ABOUT_THE_WHOLE = {
    "benchmarks": "the programs in benchmarks/",
    "clients": "clients that others wrote, against a real server",
    "fail_closed": "what happens to calls while something that a server depends on is broken",
    "offers": "prompts, resources, sessions and streams of a real server: model, gate, face and packs together",
    "project": "the repository itself: rules, documents, packaging, scripts",
    "rough": "a real server under hostile load",
    "stranger": "a pack that is built and installed elsewhere",
    "upstreams": "servers that others wrote, behind the gate: client, pins, pack and commands together",
    "wire": "MCP as a client meets it, beside the official SDK",
}
"""Folders of tests that are about no one folder of the source, and what they are about."""
PATH = re.compile(r"(?<![\w/.-])tests/[a-z][\w/]*+(?:\.\w+)?(?!\{)")


def folders() -> set[str]:
    """Every folder that holds tests, from `tests` on."""
    return {str(path.parent.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")} - {"."}


def mirrors(folder: str) -> bool:
    """`powers/net` is for `powers/net.py`, or would be for a folder of that name."""
    return (SOURCE / folder).is_dir() or (SOURCE / f"{folder}.py").is_file()


def test_each_folder_of_tests_is_one_of_the_source_or_about_the_whole() -> None:
    own = {folder for folder in folders() if folder.partition("/")[0] not in ABOUT_THE_WHOLE}
    assert sorted(folder for folder in own if not mirrors(folder)) == []


def test_a_folder_that_the_source_does_not_have_is_noticed() -> None:
    assert mirrors("powers/net")
    assert mirrors("packs/lra/build")
    assert not mirrors("net")


def test_pytest_passes_over_no_folder_of_tests(pytestconfig: pytest.Config) -> None:
    passed_over = pytestconfig.getini("norecursedirs")
    parts = {part for folder in folders() for part in folder.split("/")}
    assert sorted(part for part in parts if any(fnmatch(part, pattern) for pattern in passed_over)) == []


def test_each_folder_about_the_whole_is_there() -> None:
    assert sorted(name for name in ABOUT_THE_WHOLE if not any((TESTS / name).glob("test_*.py"))) == []


def test_each_file_beside_the_folders_is_about_a_module_beside_the_folders() -> None:
    modules = tuple(f"test_{path.stem}" for path in SOURCE.glob("*.py") if path.stem != "__init__")
    assert [path.name for path in TESTS.glob("test_*.py") if not path.stem.startswith(modules)] == []


def test_every_path_of_a_test_that_is_written_down_leads_somewhere() -> None:
    """In code and in documents; a superseded decision record tells of its own time."""
    assert [
        f"{page.relative_to(ROOT)}: {name}"
        for page in written()
        for name in PATH.findall(page.read_text())
        if not (ROOT / name).exists()
    ] == []


def written() -> list[Path]:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    code = [*SOURCE.rglob("*.py"), *(ROOT / "scripts").glob("*.py"), *(ROOT / ".github" / "workflows").glob("*.yml")]
    return sorted(page for page in [*pages, *code] if "**Status:** Superseded" not in page.read_text())
