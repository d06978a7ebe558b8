"""Pages that people read: every link leads somewhere, and what the README says is there is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    found = LINK.findall(page.read_text())
    # Beside the pages of this branch a code host has those of others, at `../../raw/BRANCH`.
    targets = [each for each in found if "://" not in each and not each.startswith(("mailto:", "../../raw/"))]
    assert [target for target in targets if not (page.parent / target).exists()] == []


NAMED_FILE = re.compile(r"`((?:tests|src|scripts|benchmarks)/[A-Za-z0-9_/.]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    if "**Status:** Superseded" not in text:  # such a record describes what was
        assert [name for name in NAMED_FILE.findall(text) if not (ROOT / name).exists()] == []


def test_every_make_target_that_a_page_names_exists() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)$", page.read_text(), re.MULTILINE))
        assert {first or second for first, second in named} <= known, page


def test_make_help_lists_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"run", "test", "check", "guard", "mutations", "bench"} <= set(shown.split())


def test_every_page_of_the_documentation_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    queue = [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        queue += [(page.parent / target).resolve() for target in LINK.findall(page.read_text()) if "://" not in target]
    unreachable = {
        str(page.relative_to(ROOT)) for page in PAGES if page.resolve() not in {one.resolve() for one in seen}
    }
    assert unreachable <= {"CHANGELOG.md"}
