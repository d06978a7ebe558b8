"""Whole papers: four that others published, read where they lie, and two of our own in the forms of a notebook and a thesis.

All are built, judged, verified as a stranger would, and looked at in a real browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.packs.lra.browser import ARTIFACTS, axe_source, launch, served, tab
from tests.packs.lra.build.sources import failed, html_of, judged, style_attributes
from tests.support import need
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.paper import page

pytestmark = pytest.mark.guard

REAL = ("basix", "gwpopulation", "optim", "phasefieldx")
OWN = {"notebook": "summation.ipynb", "thesis": "thesis.tex"}
HERE = Path(__file__).parent / "papers"
EXPECTED = {
    "basix": ["a living paper states"],
    "gwpopulation": ["a living paper states", "a date is written"],
    "optim": ["a living paper states"],
    "phasefieldx": ["a living paper states"],
}
"""What the published papers lack, and nothing else: claims, which journals do not ask for, and a date."""
MENDED = {
    "a living paper states": (
        r"\Abibliography:",
        "claims:\n  - The software does what this paper says.\nbibliography:",
    ),
    "a date is written": (r"\Adate: ---", "date: 2024-12-01"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need("browser")
    with sync_playwright() as playwright:
        yield launch(playwright)


def mend(source: Path, said: list[str]) -> None:
    """Change the lines that the faults are about, and no other."""
    lines = source.read_text().split("\n")
    for one in said:
        pattern, new = next(change for key, change in MENDED.items() if key in one)
        at = next(number for number, line in enumerate(lines) if re.match(pattern, line))
        lines[at] = re.sub(pattern, new, lines[at])
    source.write_text("\n".join(lines))


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each paper's built directory."""
    need("pandoc")
    place = tmp_path_factory.mktemp("papers")
    built = {}
    for name in REAL:
        source = copied(Path(need("papers")) / name, place / name) / "paper.md"
        mend(source, faults_of(source))
        assert main(["build", str(source), "-o", str(place / f"{name}-built")]) == 0
        built[name] = place / f"{name}-built"
    for name, file in OWN.items():
        assert main(["build", str(HERE / name / file), "-o", str(place / f"{name}-built")]) == 0
        built[name] = place / f"{name}-built"
    return built


def landed(view: Page, selector: str) -> bool:
    """Whether the element is at the top of the window, as soon as everything has been laid out."""
    for _ in range(50):
        box = view.locator(selector).bounding_box()
        if box is not None and abs(box["y"]) < 120:
            return True
        view.wait_for_timeout(100)
    return False


def copied(source: Path, target: Path) -> Path:
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    return target


def faults_of(source: Path) -> list[str]:
    from tests.packs.lra.build.sources import faults

    there = {
        path.relative_to(source.parent).as_posix(): path.read_bytes()
        for path in source.parent.rglob("*")
        if path.is_file()
    }
    return faults(there.pop(source.name), {"references.bib": b"", **there}, source.name)


@pytest.mark.parametrize("name", REAL)
def test_a_published_paper_has_all_its_faults_named_in_one_run(name: str, tmp_path: Path) -> None:
    need("pandoc")
    found = faults_of(copied(Path(need("papers")) / name, tmp_path / name) / "paper.md")
    assert len(found) == len(EXPECTED[name])
    assert all(any(key in one for one in found) for key in EXPECTED[name])


ALL = (*REAL, *OWN)


@pytest.mark.parametrize("name", ALL)
def test_a_whole_paper_is_bronze_and_has_nothing_raw_in_it(name: str, papers: dict[str, Path]) -> None:
    files = {
        path.relative_to(papers[name]).as_posix(): path.read_bytes()
        for path in papers[name].rglob("*")
        if path.is_file()
    }
    files.pop(".lra-build.json")
    report = judged(files)
    assert report.tier == "BRONZE"
    assert failed(report) == []
    html = html_of(files)
    assert style_attributes(html) == []
    text = page.parse(html).document.select_one("main").text
    for raw in ("\\autoref", "\\begin{", "[@", "{#", "$$", ":::", "[^"):
        assert raw not in text


@pytest.mark.parametrize("name", ALL)
def test_a_whole_paper_verifies_as_a_stranger_would(name: str, papers: dict[str, Path]) -> None:
    with served(papers[name]) as address:
        assert main(["verify", address]) == 0


@pytest.mark.parametrize("name", ALL)
def test_a_whole_paper_is_quiet_in_the_browser_and_its_links_land(
    name: str, papers: dict[str, Path], browser: Browser
) -> None:
    with served(papers[name]) as address, tab(browser, viewport={"width": 1280, "height": 400}) as opened:
        opened.page.goto(address)
        opened.page.wait_for_load_state("networkidle")
        assert opened.said == []
        assert all(url.startswith((address, "data:")) for url in opened.requested)
        opened.page.goto(f"{address}#references")
        assert landed(opened.page, "#references")
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        opened.page.screenshot(path=ARTIFACTS / f"built-{name}.png", full_page=True)


@pytest.mark.parametrize("name", ALL)
def test_a_whole_paper_has_no_accessibility_violation(name: str, papers: dict[str, Path], browser: Browser) -> None:
    script = axe_source()
    with (
        served(papers[name]) as address,
        tab(browser, viewport={"width": 375, "height": 800}, bypass_csp=True) as opened,
    ):
        opened.page.goto(address)
        opened.page.add_script_tag(content=script)
        found = opened.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(one["id"], len(one["nodes"])) for one in found["violations"]] == []


@pytest.mark.parametrize("name", ["phasefieldx", "thesis"])
def test_a_whole_paper_is_read_from_a_disk_and_without_javascript(
    name: str, papers: dict[str, Path], browser: Browser
) -> None:
    with tab(browser, java_script_enabled=False) as opened:
        opened.page.goto((papers[name] / "index.html").as_uri())
        text = opened.page.inner_text("main")
        assert len(text.split()) > 1500
        assert opened.page.locator("math").count() > 20
        assert opened.said == []


@pytest.mark.parametrize("name", OWN)
def test_our_own_papers_are_long_enough_to_mean_something(name: str, papers: dict[str, Path]) -> None:
    view = page.parse((papers[name] / "index.html").read_text())
    assert len(view.document.select_one("main").text.split()) > 2000
    for selector in (".equation", "figure.table", "figure img", "aside.sidenote", ".theorem", "figure.listing"):
        assert view.document.select_one(selector) is not None, selector
    assert any(text.startswith("A ") for text in (page.squeeze(one.text) for one in view.document.select("main h2")))
