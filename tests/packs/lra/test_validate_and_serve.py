"""Validate, serve and the small commands: the problems that a trial found, by their numbers."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.packs.lra.deployed.papers import CAREFUL, PAGE, plant, save
from tests.packs.lra.devsite.browsing import Background, listening, page_saying
from tests.packs.lra.papers import artifact, html
from toolgate.packs.lra.checks import fixes, rules
from toolgate.packs.lra.checks.validate import validate
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.devsite import overlay
from toolgate.powers.files import Workspace


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


FOREIGN = """<html><head><title>A manual</title></head><body>
<a name="intro"></a><h1>Manual</h1><p>Text <a href="#intro">of old</a>.</p>
<section><h2>Abstract</h2><p>Short.</p></section></body></html>"""
"""A page of another tool, as far from a paper as a real manual is."""


def test_papers_17_only_what_fix_really_mends_is_said_to_be_mendable() -> None:
    before = artifact(FOREIGN, CITATION=b"title: x\n", LICENSE=None)
    report = validate(before)
    promised = {one.rule for one in report.findings if one.fixable}
    mended = fixes.repairs(before, "2026")
    files = {**before.files, **{name: data for name, data in mended.items() if name != "index.html"}}
    after = validate(artifact(mended["index.html"].decode(), CITATION=files["CITATION.cff"], LICENSE=None))
    failing = {one.rule for one in after.findings if one.status == "fail"}
    assert promised == {"B2", "B3", "B6", "B14"}
    assert promised & failing == set()
    assert {"B7", "B8", "B9", "B11", "B15"} <= failing


@pytest.mark.parametrize("tag", ["<html>", '<html lang="">', '<html lang=" ">'])
def test_papers_18_a_language_is_the_author_s_decision(tag: str) -> None:
    page = html(tag=tag)
    assert "B1" in {one.rule for one in validate(artifact(page)).findings if one.status == "fail"}
    assert "index.html" not in fixes.repairs(artifact(page), "2026")
    assert not rules.CHECKS["B1"].fixable


def test_papers_19_an_anchor_of_the_older_kind_is_a_target() -> None:
    def told(page: str) -> list[str]:
        return [one.message for one in validate(artifact(page)).findings if one.rule == "A104"]

    assert told(FOREIGN) == []
    assert told(FOREIGN.replace('href="#intro"', 'href="#%69ntro"')) == []
    assert told(FOREIGN.replace('href="#intro"', 'href="#outro"')) == ["there is no element with the id outro"]


def test_papers_19_a_figure_behind_a_link_is_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(here / "p")
    page = (here / "p" / "index.html").read_text()
    (here / "p" / "index.html").write_text(page.replace("</body>", '<img alt="" src="figures/a.png"></body>'))
    (here / "store").write_bytes(b"annexed")
    (here / "p" / "figures").mkdir()
    (here / "p" / "figures" / "a.png").symlink_to(here / "store")
    assert main(["validate", "p"]) == 0
    assert "there is no file figures" not in capsys.readouterr().out
    (here / "store").unlink()
    assert main(["validate", "p"]) == 0
    assert "there is no file figures/a.png" in capsys.readouterr().out


def test_papers_20_markdown_names_the_tier_and_junit_the_checks_in_their_order(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "p"]) == 0
    capsys.readouterr()
    assert main(["validate", "p", "-f", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("**Tier: SILVER (22/23 pass)**\n\n")
    assert main(["validate", "p", "-f", "junit"]) == 0
    cases = [one.get("name", "") for one in ET.fromstring(capsys.readouterr().out).iter("testcase")]
    assert [name.split()[0] for name in cases] == list(rules.CHECKS)
    assert cases[0] == "B1 html lang attribute"


def test_papers_21_a_badge_is_a_picture_of_one_s_own_and_takes_no_tier_away(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "p", "--tier", "gold"]) == 0
    assert main(["badge", "p", "-o", "p/badge.svg"]) == 0
    picture = (here / "p" / "badge.svg").read_text()
    assert ET.fromstring(picture).get("aria-label") == "LRA-1.0: gold"
    assert not re.search(r"(?:href|src|url\((?!#))", picture)
    page = here / "p" / "index.html"
    page.write_text(page.read_text().replace("</main>", '<p><img src="badge.svg" alt="LRA-1.0: gold"></p></main>'))
    capsys.readouterr()
    assert main(["validate", "p", "--min-tier", "gold"]) == 0


def test_papers_22_the_list_of_papers_has_titles_and_leaks_no_markup(here: Path) -> None:
    plant(here / "a")
    plant(here / "b", **{"index.html": PAGE.replace("<title>Small<", "<title>&lt;b&gt; &amp; co<").encode()})
    plant(here / "c", **{"index.html": b"<title></title>"})
    files = Workspace(here)
    page = overlay.home_page(files, ".").decode()
    files.close()
    assert '<a href="a/"><strong>Small</strong><span>a/</span></a>' in page
    assert "<strong>&lt;b&gt; &amp; co</strong>" in page
    assert "<strong>c</strong>" in page


FAULTY = b"""navigator.serviceWorker?.register("sw.js");
window.addEventListener("load", () => { Promise.reject(new Error("nobody waits")); undefinedThing(); });
"""


@pytest.mark.guard
def test_papers_22_script_errors_stand_in_the_overlay(browser: Browser, workspace: Path) -> None:
    plant(workspace / "paper", **{"index.html": page_saying("zero").encode(), "paper.js": FAULTY})
    site = Background(workspace)
    try:
        page = browser.new_page()
        page.goto(site.url)
        listening(page)
        host = page.locator("lra-findings")
        expect(host).to_have_attribute("data-faults", re.compile("undefinedThing is not defined"))
        expect(host).to_have_attribute("data-faults", re.compile("nobody waits"))
        page.close()
    finally:
        site.stop()


@pytest.mark.guard
def test_papers_22_the_overlay_covers_the_text_only_when_there_is_no_tier(browser: Browser, workspace: Path) -> None:
    site = Background(workspace)
    try:
        page = browser.new_page()
        page.goto(site.url)
        listening(page)
        expect(page.locator("lra-findings")).to_have_attribute("data-tier", "GOLD")
        folded = page.evaluate("document.querySelector('lra-findings').getBoundingClientRect().height")
        broken = PAGE.replace("<title>", f"{CAREFUL}<title>").replace(' lang="en"', "")
        save(workspace / "paper" / "index.html", broken)
        expect(page.locator("lra-findings")).to_have_attribute("data-tier", "NONE")
        page.wait_for_function(f"document.querySelector('lra-findings').getBoundingClientRect().height > {folded} + 20")
        page.close()
    finally:
        site.stop()


def test_validate_json_says_what_fix_does_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "x.html").write_text(FOREIGN)
    assert main(["validate", "x.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {one["rule"] for one in found if one["fixable"]} == {"B2", "B3", "B6", "B14"}
