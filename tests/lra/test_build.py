"""Markdown to a paper: what it makes, that it is deterministic, and what it refuses, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate.packs.lra import page
from toolgate.packs.lra.artifact import Artifact
from toolgate.packs.lra.build import bibtex
from toolgate.packs.lra.build.assemble import build
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.build.math import FormulaFault, to_mathml
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.validate import validate

FRONT = """---
title: "Falling <bodies> & others"
authors:
  - Galileo Galilei
  - name: Jane Doe
    orcid: 0000-0002-1825-0097
date: 2026-11-15
license: CC-BY-4.0
keywords: [gravity, time]
claims:
  - text: The distance grows with the square of the time.
    evidence: fig-fall
  - All bodies fall alike.
---
"""
BODY = """
Text before any heading.

## Abstract

Bodies fall *equally* fast,
$g$ being constant.

## Method {#sec-method}

See @sec-method, @fig-fall, @tbl-times and @eq-fall. As shown [@galileo1638] and again [@galileo1638; @newton1687].
It costs $5 and $10; here $s = \\frac{1}{2} g t^2$ holds. `$code$ [@not]` stays. <script>alert(1)</script>

$$
s = \\frac{1}{2} g t^2
$$ {#eq-fall}

![A curve that bends upwards](figures/fall.svg "The fall of a ball."){#fig-fall}

| t | s |
|---|---|
| 1 | 5 |

: Times and *distances*. {#tbl-times}

### Details

More.

### Details

Again.
"""
BIB = r"""
@book{galileo1638, author = {Galilei, Galileo}, title = {Discorsi}, year = 1638, publisher = "Elzevir"}
@book{newton1687,
  author = {Newton, Isaac and M{\"u}ller, J{\'o}zef and {\L}ukasiewicz, Jan},
  title = {{Philosophi{\ae} Naturalis Principia Mathematica}},
  year = {1687}, doi = {10.1000/x<y>}
}
@comment{nothing}
"""
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>'


def made(source: str = FRONT + BODY, bib: str | None = BIB, **files: bytes) -> dict[str, bytes]:
    there = {"paper.md": source.encode(), "figures/fall.svg": SVG, **files}
    if bib is not None:
        there["references.bib"] = bib.encode()
    return build("paper.md", lambda path, _limit: there.get(path))


def simple(body: str, front: str = "") -> str:
    return f"---\ntitle: T\nauthor: Jane Doe\ndate: 2026-11-15\nabstract: A.\nclaims: [One.]\n{front}---\n{body}"


@pytest.fixture(scope="module")
def built() -> page.Page:
    return page.parse(made()["index.html"].decode())


def test_the_paper_is_bronze_without_an_advisory() -> None:
    files = made()
    sizes = {name: len(data) for name, data in files.items()}
    report = validate(Artifact("index.html", files["index.html"], files, sizes, "p/index.html"), strict=True)
    assert [one for one in report.findings if one.rule.startswith(("A", "B")) and one.status == "fail"] == []
    assert report.tier == "BRONZE"
    assert files["figures/fall.svg"] == SVG


def test_claims_evidence_and_metadata_come_from_the_front_matter(built: page.Page) -> None:
    assert built.title() == "Falling <bodies> & others"
    assert [(one.id, one.text, one.evidence) for one in built.claims()] == [
        ("claim-1", "The distance grows with the square of the time.", ("fig-fall",)),
        ("claim-2", "All bodies fall alike.", ()),
    ]
    assert built.meta_content("lra:abstract") == "Bodies fall equally fast, $g$ being constant."
    assert built.section("abstract").select_one("em").text == "equally"
    assert built.document.select_one('.authors a[href="https://orcid.org/0000-0002-1825-0097"]').text == "Jane Doe"


def test_references_labels_and_formulas_are_resolved(built: page.Page) -> None:
    method = built.section("sec-method")
    text = page.squeeze(method.text)
    assert "See Section “Method”, Figure 1, Table 1 and Equation 1. As shown [1] and again [1, 2]." in text
    assert "It costs $5 and $10;" in text
    assert [one.text for one in method.find_all("code")] == ["$code$ [@not]"]
    assert len(method.find_all("math")) == 2
    assert method.select_one("#eq-fall math[display=block]") is not None
    assert method.select_one("figure#fig-fall > img[alt='A curve that bends upwards']") is not None
    assert page.squeeze(method.select_one("figcaption").text) == "Figure 1. The fall of a ball."
    assert page.squeeze(method.select_one("table caption#tbl-times").text) == "Table 1. Times and distances."
    assert [one.attr("id") for one in method.find_all("h3")] == ["details", "details-x"]
    assert method.select_one("script") is None
    references = [page.squeeze(one.text) for one in built.document.select("#references li")]
    assert references == [
        "Galileo Galilei. Discorsi. Elzevir, 1638.",
        "Isaac Newton, Józef Müller and Jan Łukasiewicz. Philosophiæ Naturalis Principia Mathematica. 1687. 10.1000/x<y>.",
    ]


def test_the_same_source_gives_the_same_bytes() -> None:
    source = simple("## One\n\nText [@galileo1638].\n")
    assert made(source) == made(source)


FAULTS = [
    (simple("\n\nA [@nobody] here.\n"), "paper.md:10: there is no reference nobody in the bibliography"),
    (simple("## S\n\nline\nsee @fig-none\n"), "paper.md:11: there is no label fig-none"),
    (simple("![](figures/fall.svg)\n"), "paper.md:8: the image has no text"),
    (simple("![x](figures/gone.png)\n"), "paper.md:8: there is no image figures/gone.png"),
    (simple("![x](https://x.test/a.png)\n"), "paper.md:8: an image is a file beside the Markdown"),
    (simple("![x](../secret.png)\n"), "paper.md:8: an image is a file beside the Markdown"),
    (simple("# Title\n"), "paper.md:8: the title is in the front matter"),
    (simple("## A {#x}\n\n## B {#x}\n"), "paper.md:10: the id x is used already"),
    (simple("## Claims\n"), "paper.md:8: the id claims is used already"),
    (simple("## Abstract\n\nAgain.\n"), "paper.md: the abstract is in the front matter and in a section"),
    (simple("", "claims2: 1\n"), "paper.md:7: unknown key"),
    (simple("", "license: GPL\n"), "paper.md:7: license is one of"),
    (simple("", "title: again\n"), "paper.md:7: a key stands twice"),
    (simple("").replace("date: 2026-11-15", "date: today"), "paper.md:4: a date is written 2026-11-15"),
    (simple("").replace("author: Jane Doe", "author: {name: J D, orcid: 1}"), "paper.md:3: an ORCID iD is"),
    (simple("").replace("claims: [One.]", "claims: []"), "paper.md:6: claims is a list of 1 to 100"),
    (simple("").replace("[One.]", "[{text: One., evidence: nowhere}]"), "paper.md:6: the evidence nowhere is no id"),
    (simple("").replace("title: T\n", ""), "paper.md:1: the front matter lacks title"),
    (simple("").replace("abstract: A.\n", ""), "paper.md:1: there is no abstract"),
    ("# No front matter", "paper.md:1: the file begins with front matter"),
    ("---\ntitle: T\n", "paper.md:1: the front matter is not closed"),
    ("---\ntitle: [\n---\n", "paper.md:3: not YAML"),
    ("---\n" + "[" * 10_000 + "\n---\n", "paper.md:2: nested more than 64 levels"),
    ("---\n- a\n---\n", "paper.md:2: the front matter is a mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text"), FAULTS, ids=range(len(FAULTS)))
def test_what_cannot_be_resolved_is_an_error_with_its_line(source: str, text: str) -> None:
    with pytest.raises(BuildFault) as caught:
        made(source)
    assert caught.value.text.startswith(text)


FORMULA_FAULTS = [
    (r"\ce{H2O}", r"the command \ce is not known"),
    (r"\begin{tikzpicture}x\end{tikzpicture}", "the environment tikzpicture is not known"),
    (r"{x", "its braces do not match"),
    (r"x}", "its braces do not match"),
    (r"x_", "missing super script or subscript"),
    (r"\left( x", "extra left or missing right"),
    ("{" * 70 + "}" * 70, "it is nested too deeply"),
    (" ", "it is empty"),
]


@pytest.mark.parametrize(("tex", "text"), FORMULA_FAULTS)
def test_a_formula_that_cannot_be_shown_is_an_error(tex: str, text: str) -> None:
    with pytest.raises(FormulaFault, match="^" + text.replace("\\", "\\\\")):
        to_mathml(tex, block=False)


def test_a_bad_formula_is_told_with_its_line() -> None:
    with pytest.raises(BuildFault) as caught:
        made(simple("## S\n\none\ntwo $\\ce{x}$\n"))
    assert caught.value.text == "paper.md:11: this formula cannot be shown: the command \\ce is not known"
    with pytest.raises(BuildFault) as caught:
        made(simple("\n$$\n\\ce{x}\n$$\n"))
    assert caught.value.text.startswith("paper.md:10: this formula")


def test_text_in_a_formula_cannot_become_markup() -> None:
    shown = to_mathml(r"a < b \text{<img src=x onerror=alert(1)>} \& c", block=False)
    parsed = page.parse(shown)
    assert not parsed.by_tag["img"]
    assert "<img src=x" in parsed.document.text.replace("\xa0", " ")


BIB_FAULTS = [
    ("@book{x, title = {T}", "r.bib:1: the entry is not closed"),
    ("\n\n@book{title = {T}}", "r.bib:3: the entry has no key"),
    ("@book{x,\n title = {T},\n oops }", "r.bib:3: a field is written name"),
    ("@book{x,\n title = {\\frac12}}", "r.bib:2: the command \\frac has no plain form"),
    ("@book{x, title={A}}\n@book{x, title={B}}", "r.bib:2: the key x stands twice"),
    ("@book{x, title = }", "r.bib:1: a value is"),
]


@pytest.mark.parametrize(("source", "text"), BIB_FAULTS)
def test_a_bad_bibliography_is_an_error_with_its_line(source: str, text: str) -> None:
    with pytest.raises(BuildFault) as caught:
        bibtex.read(source, "r.bib")
    assert caught.value.text.startswith(text)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="$@[]{}#|`*_<>\\!(): \nab1-", max_size=80))
def test_any_body_gives_a_page_or_a_fault_with_a_line(body: str) -> None:
    try:
        files = made(simple(body))
    except BuildFault as fault:
        words = fault.text
    else:
        parsed = page.parse(files["index.html"].decode())
        words = "paper.md:"
        assert len(parsed.by_tag["script"]) == 2
        assert parsed.section("citation") is not None
    assert words.startswith("paper.md")


def test_the_command_builds_a_directory_and_builds_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "paper.md"
    source.write_text(simple("## S\n\nText.\n"))
    assert main(["build", str(source)]) == 0
    assert capsys.readouterr().out.startswith(f"Built: {source} -> {tmp_path / 'paper'}/ (")
    first = {path.name: path.read_bytes() for path in (tmp_path / "paper").iterdir()}
    (tmp_path / "paper" / "notes.txt").write_text("mine")
    assert main(["build", str(source)]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "paper").iterdir()} == first | {"notes.txt": b"mine"}
    capsys.readouterr()
    assert main(["validate", str(tmp_path / "paper"), "--min-tier", "bronze"]) == 0
    source.write_text("x")
    capsys.readouterr()
    assert main(["build", str(source)]) == 1
    assert capsys.readouterr().err.startswith("error: paper.md:1: the file begins with front matter")
    assert main(["build", str(tmp_path / "gone.md")]) == 1
