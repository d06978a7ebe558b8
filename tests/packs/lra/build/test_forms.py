"""Other sources than Markdown, other outputs than the page, parts, data, claims and what is refused."""

from __future__ import annotations

import base64
import io
import json
import sys
import zipfile
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree as ET

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.lra.build.sources import FIRST_LINE, SVG, built, faults, html_of, pandoc, paper, png, shown, text
from tests.support import need
from toolgate.packs.lra.build import convert
from toolgate.packs.lra.build.convert import SourceRequest
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.export import export
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.paper import page, sources
from toolgate.packs.lra.paper import paper as papers
from toolgate.packs.lra.paper.artifact import Artifact

pytestmark = pytest.mark.usefixtures("needs_pandoc")

SIDE = b"title: T\nauthor: Jane Doe\ndate: 2026-11-15\nabstract: A.\nclaims: [One.]\n"
LATEX = r"""\documentclass{article}
\newtheorem{theorem}{Theorem}
\title{From \emph{LaTeX}}\author{Jane Doe \and Ada Lovelace}\date{15 November 2026}
\begin{document}\maketitle
\begin{abstract}An abstract with $x$.\end{abstract}
\section{One}\label{sec:one} See \ref{sec:one}, \cite[p.~3]{doe}, \eqref{eq:a}, \ref{fig:x}, \ref{tab:x}.
\begin{equation}\label{eq:a} x=1 \end{equation}
\begin{theorem}[Gauss]\label{thm:a} Something. \end{theorem}
\begin{proof} Easy. \end{proof}
\begin{figure}\includegraphics[width=0.5\textwidth]{figures/fall.svg}\caption{A fall}\label{fig:x}\end{figure}
\begin{table}\caption{Numbers}\label{tab:x}\begin{tabular}{lr}a&1\\b&2\end{tabular}\end{table}
% a private note
Text.\footnote{A note.}
\begin{claim} It holds. \end{claim}
\input{part}
\appendix
\section{More}
\bibliography{references}
\end{document}
"""


@pytest.fixture
def needs_pandoc() -> None:
    need("pandoc")


def test_a_latex_source_builds_with_its_labels_theorems_notes_and_appendices() -> None:
    view = shown(LATEX, {"part.tex": b"A part from a file.\n"}, "paper.tex")
    main_text = text(view.document.select_one("main"))
    assert "See 1, (Doe 2001, p. 3), (1), 1, 1." in main_text
    assert "Theorem 1" in main_text
    assert "A part from a file." in main_text
    assert "private note" not in main_text
    assert [text(one) for one in view.document.select("main h2")][2:4] == ["1 One", "A More"]
    assert [one.text for one in view.claims()] == ["It holds."]
    assert view.document.select_one("aside.sidenote") is not None
    assert view.document.select_one("td.num") is not None


def test_a_latex_command_that_would_be_left_out_is_a_fault_with_its_line() -> None:
    found = faults(LATEX.replace("Text.", "Text \\mystery{x}."), {"part.tex": b"x \\riddle{y}\n"}, "paper.tex")
    assert "paper.tex:13: this cannot be shown: \\mystery{x}" in found
    assert "part.tex:1: this cannot be shown: \\riddle{y}" in found


def notebook() -> bytes:
    picture = base64.b64encode(png(20, 10)).decode()
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["42\n"]},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture, "text/plain": ["<Figure>"]}},
    ]
    code = {
        "cell_type": "code",
        "metadata": {},
        "execution_count": 1,
        "source": ["print(6 * 7)"],
        "outputs": outputs,
        "id": "b",
    }
    hidden = {
        **code,
        "metadata": {"tags": ["remove-cell"]},
        "source": ["import secret_setup"],
        "outputs": [],
        "id": "c",
    }
    prose = {
        "cell_type": "markdown",
        "metadata": {},
        "source": ["# A notebook\n", "\n", "Text $x^2$ <!-- private -->"],
        "id": "a",
    }
    cells = [prose, code, hidden]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}, indent=1).encode()


def test_a_notebook_builds_with_code_output_and_pictures() -> None:
    side = SIDE.replace(b"title: T\n", b"")
    made = built(notebook(), {"paper.yaml": side}, "paper.ipynb").files
    view = page.parse(html_of(made))
    assert view.title() == "A notebook"
    main_text = text(view.document.select_one("main"))
    assert "print(6 * 7)" in main_text
    assert "42" in main_text
    assert "secret_setup" not in main_text
    assert "private" not in html_of(made)
    images = view.by_tag["img"]
    assert [(one.attr("width"), one.attr("height")) for one in images] == [("20", "10")]
    assert made[images[0].attr("src")] == png(20, 10)


def test_a_word_document_builds_with_the_front_matter_beside_it() -> None:
    document = pandoc().start(
        ["--from=markdown", "--to=docx", "--output=-"],
        b"# One\n\nText with $x^2$ and a note.^[Here.]\n\n| a |\n|---|\n| 1 |\n",
    )
    view = shown(document.result().data, {"paper.yaml": SIDE}, "paper.docx")
    main_text = text(view.document.select_one("main"))
    assert "Text with" in main_text
    assert view.document.select_one("math") is not None
    assert view.document.select_one("aside.sidenote") is not None


def test_a_form_that_is_unknown_is_named() -> None:
    with pytest.raises(Exception, match="name its form: --from markdown, latex, ipynb, docx"):
        built("x", name="paper.xyz")


def test_extensions_of_pandoc_may_be_named() -> None:
    view = shown(paper("A \\(x^2\\) formula.\n"), form="markdown+tex_math_single_backslash")
    assert view.document.select_one("main math msup") is not None


# -- parts, data, numbers --------------------------------------------------------------------------------------


def test_parts_are_included_and_their_faults_are_theirs() -> None:
    files = {
        "chapters/one.md": b"# One\n\nFrom a part.\n\n{{two.md}}\n",
        "chapters/two.md": b"\nDeep, see [@nobody].\n",
    }
    assert faults(paper("{{chapters/one.md}}\n"), files) == [
        "chapters/two.md:2: there is no reference nobody in the bibliography"
    ]
    files["chapters/two.md"] = b"Deep.\n"
    assert "Deep." in text(shown(paper("{{chapters/one.md}}\n"), files).document.select_one("main"))
    assert "includes itself" in faults(paper("{{a.md}}\n"), {"a.md": b"{{a.md}}\n"})[0]


RESULTS = {"results.json": b'{"p95": 0.95, "n": 31417, "runs": [{"ms": 12.5}]}'}


def test_numbers_come_from_data_and_cannot_drift_from_it() -> None:
    body = 'P {{results.json#p95}}, {{ results.json#/runs/0/ms }}, [31 417]{data="results.json#n"}, $x = {{results.json#n}}$.\n'
    made = built(paper(body), RESULTS).files
    view = page.parse(html_of(made))
    bound = [(one.text, one.attr("value"), one.attr("data-lra-source")) for one in view.document.select("data.bound")]
    assert bound == [
        ("0.95", "0.95", "results.json#/p95"),
        ("12.5", "12.5", "results.json#/runs/0/ms"),
        ("31 417", "31417", "results.json#/n"),
    ]
    assert "31417" in view.document.select_one("main math").text
    assert made["results.json"] == RESULTS["results.json"]


@pytest.mark.parametrize("lang", ["en", "de"])
def test_numbers_from_data_are_written_in_a_format_and_pass_verify(lang: str) -> None:
    """Rounded, in groups, as percentages, negative, as text: by the signs of the paper's language."""
    data = {"p": 0.95126, "n": 31417, "low": -2.5, "tiny": 1.5e-7, "name": "Run 1.5", "version": "1.5"}
    forms = ["p", "p|.2f", "p|.1%", "n", "n|,d", "low", "low|.2e", "tiny", "name", "version"]
    rows = " and ".join(f"{{{{r.json#{one}}}}}" for one in forms)
    claim = '::: {.claim run="wasm/lattice.wasm#count" input="100"}\n[{{r.json#n|,d}}]{.expect}, [{{r.json#n}}]{.expect}\n:::'
    made = built(
        paper(f"{rows}, $x = {{{{r.json#p|.3f}}}}$.\n\n{claim}\n", f"lang: {lang}\n"), {"r.json": orjson.dumps(data)}
    ).files
    view = page.parse(html_of(made))
    shown = [one.text for one in view.document.select("main data.bound")]
    english = ["0.95126", "0.95", "95.1%", "31417", "31,417", "−2.5", "−2.50e+00", "1.5e-07"]
    german = ["0,95126", "0,95", "95,1%", "31417", "31.417", "−2,5", "−2,50e+00", "1,5e-07"]
    assert shown == [*(english if lang == "en" else german), "Run 1.5", "1.5"]
    assert page.squeeze(view.document.select_one("main math").text).startswith({"en": "x=0.951", "de": "x=0,951"}[lang])
    subject = papers.read(Artifact("index.html", made["index.html"], made, {n: len(d) for n, d in made.items()}, "p"))
    assert [hit.message for hit in sources.faults(subject)] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (">0.95<", ">0.96<"),
        (">0.95<", ">0.951<"),
        (">95.1%<", ">96%<"),
        (">31,417<", ">31,418<"),
        ('value="0.95126"', 'value="0.95127"'),
        (">Ada<", ">Eve<"),
        ('data-lra-format=".2f"', 'data-lra-format=".1f"'),
        ('data-lra-format=".2f"', 'data-lra-format="x"'),
    ],
)
def test_a_formatted_number_that_no_longer_says_its_data_fails(old: str, new: str) -> None:
    body = "{{r.json#p|.2f}} {{r.json#p|.1%}} {{r.json#n|,d}} {{r.json#name}}\n"
    made = built(paper(body), {"r.json": b'{"p": 0.95126, "n": 31417, "name": "Ada"}'}).files
    html = html_of(made)
    assert old in html
    made = {**made, "index.html": html.replace(old, new).encode()}
    subject = papers.read(Artifact("index.html", made["index.html"], made, {n: len(d) for n, d in made.items()}, "p"))
    assert "a number and its data differ" in next(hit.message for hit in sources.faults(subject))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{{results.json#p95|d}}", "d is not a format of 0.95"),
        ("{{results.json#p95|.2q}}", ".2q is not a format of 0.95"),
        ("$x = {{results.json#p95|99}}$", "99 is not a format of 0.95"),
        ('[0.97]{data="results.json#p95"}', "the text says 0.97, results.json#p95 is 0.95"),
        ("{{results.json#p99}}", "p99 is not there in results.json"),
        ("{{results.json#runs}}", "runs is not a number or text in results.json"),
        ("{{gone.json#p95}}", "there is no file gone.json"),
        ("{{paper.md#p95}}", "paper.md is not JSON"),
    ],
)
def test_a_number_that_is_not_the_datas_is_a_fault(body: str, said: str) -> None:
    assert f"paper.md:{FIRST_LINE}: {said}" in faults(paper(body + "\n"), RESULTS)[0]


def test_a_csv_file_becomes_a_table() -> None:
    files = {"t.csv": b"name,r,count\na,1,5\nb,10,317\n"}
    body = '![Counts *by* radius](t.csv){#tbl-t columns="r,count"}\n\nSee @tbl-t.\n'
    view = shown(paper(body), files)
    assert [text(one) for one in view.document.select("figure#tbl-t th")] == ["r", "count"]
    assert [one.attr("class") for one in view.document.select("figure#tbl-t td")] == ["num"] * 4
    assert text(view.document.select_one("figure#tbl-t figcaption")) == "Table 1. Counts by radius"
    found = faults(paper('![x](t.csv){columns="r,nope"}\n'), files)
    assert found == [f"paper.md:{FIRST_LINE}: there is no column nope; there are name, r, count"]


def test_panels_callouts_theorems_and_side_notes_have_their_markup() -> None:
    body = (
        "::: {#fig-both}\n![Left](figures/fall.svg){#fig-l}\n\n![Right](figures/fall.svg){#fig-r}\n\nBoth.\n:::\n\n"
        "> [!TIP]\n> Do.\n\n::: {.theorem #thm-a name=Gauss}\nSo.\n:::\n\n::: proof\nEasy.\n:::\n\n"
        "Text[in the margin]{.aside} and @thm-a, @fig-both.\n"
    )
    view = shown(paper(body))
    assert len(view.document.select("figure.panels#fig-both > figure")) == 2
    assert text(view.document.select_one(".callout[data-kind=tip][role=note] .callout-title")) == "Tip"
    assert text(view.document.select_one("#thm-a")) == "Theorem 1 (Gauss). So."
    assert text(view.document.select_one("aside.sidenote#note-1")).startswith("1 in the margin")
    assert "Theorem 1, Figure 1" in text(view.document.select_one("main"))


# -- claims and demos ------------------------------------------------------------------------------------------

CLAIM_FAULTS = [
    ('::: {.claim evidence="nowhere"}\nX.\n:::', "the evidence nowhere is not an id of this paper"),
    ('::: {.claim run="wasm/lattice.wasm#count" input="100"}\nX.\n:::', "a claim that runs says what must come out"),
    ('::: {.claim run="wasm/lattice.wasm#nope"}\n[1]{.expect}\n:::', "wasm/lattice.wasm exports no function nope"),
    ('::: {.claim run="gone.wasm#f"}\n[1]{.expect}\n:::', "there is no program gone.wasm"),
    ('::: {.claim run="fake.wasm#f"}\n[1]{.expect}\n:::', "fake.wasm is not a module to run"),
    ("::: {.claim colour=red}\nX.\n:::", "unknown key colour in a claim"),
    ('::: {.claim run="wasm/lattice.wasm#count"}\n[many]{.expect}\n:::', "what is expected is one number, not 'many'"),
    ('::: {.evidence for="clm-x"}\nX.\n:::', "there is no claim clm-x"),
    ('::: {.demo run="wasm/lattice.wasm#count"}\nX.\n:::', "a demo that runs has a control"),
    (
        '::: {.demo run="wasm/lattice.wasm#count"}\n[R]{.slider name=r min=1}\n:::',
        "the slider r needs a number for max",
    ),
    (
        '::: {.demo run="wasm/lattice.wasm#count"}\n[R]{.slider name=r min=1 max=9}\n\n[P]{.plot over=q}\n:::',
        "a plot is over one of",
    ),
]


@pytest.mark.parametrize(("block", "said"), CLAIM_FAULTS, ids=range(len(CLAIM_FAULTS)))
def test_a_claim_or_demo_that_cannot_work_is_a_fault_at_its_block(block: str, said: str) -> None:
    found = faults(paper(f"\n{block}\n"), {"fake.wasm": b"\0asm"})
    assert any(one.startswith(f"paper.md:{FIRST_LINE + 1}: {said}") for one in found), found


def test_evidence_blocks_name_their_claim_and_claims_may_be_referred_to() -> None:
    body = "::: {.claim #clm-a}\nIt is so.\n:::\n\n::: {.evidence #ev for=clm-a}\nSee this.\n:::\n\nBy @clm-a.\n"
    view = shown(paper(body))
    claim = view.document.select_one("#claim-2")
    assert claim.select_one("a.badge").attr("data-lra-evidence") == "ev"
    assert view.document.select_one("div.evidence#ev") is not None
    assert view.document.select_one("a.ref[href='#claim-2']").text == "Claim\u00a02"


def test_a_demo_of_the_authors_own_html_keeps_it_and_loads_its_script() -> None:
    body = (
        '::: {.demo title="Own" script="tool.js"}\n```{=html}\n<p><label for="n">N</label> <input id="n" type="number">'
        '<svg viewBox="0 0 1 1" role="img" aria-label="x"><circle r="1"/></svg></p>\n```\n:::\n'
    )
    made = built(paper(body), {"tool.js": b"'use strict';\n"}).files
    html = html_of(made)
    assert '<script src="tool.js" defer></script>' in html
    assert '<input id="n" type="number">' in html
    assert made["tool.js"] == b"'use strict';\n"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("<script>x</script>", "<script> has no place in a paper"),
        ("<iframe src='https://x.test'></iframe>", "<iframe> has no place in a paper"),
        ('<p onclick="x()">y</p>', "the attribute onclick of <p> is against"),
        ('<p style="color:red">y</p>', "style"),
        ('<video src="https://x.test/a.mp4"></video>', "<video> loads https://x.test/a.mp4"),
        ("![x](https://x.test/a.png)", "an image is a file beside the source"),
    ],
)
def test_what_the_pages_policy_forbids_is_a_fault(raw: str, said: str) -> None:
    assert any(said in one and one.startswith(f"paper.md:{FIRST_LINE + 1}:") for one in faults(paper(f"\n{raw}\n")))


# -- front matter ------------------------------------------------------------------------------------------------

FRONT_FAULTS = [
    ("title: T\n", "", "paper.md:1: the front matter lacks title"),
    ("author: Jane Doe\n", "", "paper.md:1: the front matter lacks author"),
    ("date: 2026-11-15", "date: today", "paper.md:4: a date is written 2026-11-15, not today"),
    ("abstract: An abstract.\n", "", "paper.md:1: there is no abstract"),
    ("claims: [One.]\n", "", "paper.md:1: a living paper states 1 to 100 claims, this one 0"),
    ("claims: [One.]", "claims: [{text: One., evidence: nowhere}]", "paper.md:6: the evidence nowhere is not an id"),
    ("claims: [One.]", "claims: [{text: One., proof: x}]", "paper.md:6: unknown key proof in a claim"),
    ("author: Jane Doe", "author: {name: J D, orcid: 1}", "paper.md:3: an ORCID iD is"),
    ("author: Jane Doe", "author: {name: J D, hat: red}", "paper.md:3: unknown key hat in an author"),
    ("title: T", "title: T\ntitle: U", "paper.md:3: a key stands twice"),
    ("title: T", "title: [", "paper.md:"),
    ("title: T", "title: !x T", "paper.md:2: an explicit tag"),  # which Pandoc passes over
    ("date: 2026-11-15", "date: 2026-11-15\nlicense: GPL", "paper.md:5: license is one of"),
    ("date: 2026-11-15", "date: 2026-11-15\nbibliography: gone.bib", "paper.md:5: there is no bibliography gone.bib"),
    ("date: 2026-11-15", "date: 2026-11-15\ncsl: gone", "paper.md:5: there is no citation style gone"),
]


@pytest.mark.parametrize(("old", "new", "said"), FRONT_FAULTS, ids=range(len(FRONT_FAULTS)))
def test_front_matter_that_cannot_be_used_is_a_fault_with_its_line(old: str, new: str, said: str) -> None:
    found = faults(paper("[@doe]\n").replace(old, new))
    assert any(one.startswith(said) for one in found), found


def test_the_same_source_gives_the_same_bytes() -> None:
    source = paper("# One\n\nText [@doe], $x$, `code`.\n\n```python\nx = 1\n```\n")
    assert built(source).files == built(source).files


@cases(15, 60)
@given(st.text(alphabet="$@[]{}#|`*_<>\\!(): \nab1-", max_size=80))
def test_any_body_gives_a_page_that_keeps_its_policy_or_faults_of_its_file(body: str) -> None:
    named, html = {"paper.md"}, ""
    try:
        html = html_of(built(paper(body)).files)
    except BuildFault as fault:
        named = {one.place.file for one in fault.faults}
    assert named == {"paper.md"}
    if html:
        view = page.parse(html)
        assert len(view.by_tag["script"]) == 2
        assert view.section("citation") is not None


# -- export --------------------------------------------------------------------------------------------------------


def exported(to: str) -> bytes:
    body = (
        "# One {#sec-one}\n\nText[^1] in @sec-one, @fig-a, @eq-a, [@doe].\n\n[^1]: Note.\n\n$$x^2$$ {#eq-a}\n\n"
        "![A fall](a.png){#fig-a}\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n"
    )
    there = {"paper.md": paper(body).encode(), "a.png": png(20, 10)}
    there["references.bib"] = b"@book{doe, author={Doe, Jane}, title={A}, year=2001}"
    return export(SourceRequest("paper.md", lambda path, _: there.get(path), pandoc()), to)


def test_the_paper_is_exported_with_the_pages_numbers() -> None:
    latex = exported("latex").decode()
    assert r"\author{Jane Doe}" in latex
    assert r"\tag{1}" in latex
    assert "Section~1" in latex


def test_an_export_stops_where_a_build_does_at_front_matter_that_pandoc_passes_over() -> None:
    source = paper("Text.\n").replace("title: T", "title: !x T").encode()
    with pytest.raises(BuildFault, match=r"paper\.md:2: an explicit tag"):
        export(SourceRequest("paper.md", lambda path, _: {"paper.md": source}.get(path), pandoc()), "latex")


def test_a_word_export_read_back_says_what_the_page_says() -> None:
    done = pandoc().start(["--from=docx", "--to=json"], exported("docx"), media=True).result()
    tree = json.loads(done.data)
    blocks = tree["blocks"]
    assert ast.text_of(tree["meta"]["title"]["c"]) == "T"
    titles = [ast.text_of(one["c"][2]) for one in ast.each(blocks, "Header")]
    assert titles == ["Claims", "1 One", "References"]
    text = ast.text_of(blocks).replace("\xa0", " ")
    for words in ("in Section 1, Figure 1, Equation 1, (Doe 2001).", "Figure 1. A fall", "Doe, J. (2001). A."):
        assert words in text
    assert [ast.text_of(one["c"]) for one in ast.each(blocks, "Note")] == ["Note."]
    assert [one["c"][1] for one in ast.each(blocks, "Math")] == [r"x^{2}\quad\quad(1)"]
    (table,) = ast.each(blocks, "Table")
    assert ast.text_of(table["c"][3:5]) == "a b 1 2"
    assert [name.rpartition(".")[2] for name in done.media] == ["png"]


def test_an_epub_export_has_every_part_in_its_spine_and_manifest() -> None:
    names = {"c": "urn:oasis:names:tc:opendocument:xmlns:container", "o": "http://www.idpf.org/2007/opf"}
    with zipfile.ZipFile(io.BytesIO(exported("epub"))) as archive:
        assert archive.namelist()[0] == "mimetype"
        assert archive.read("mimetype") == b"application/epub+zip"
        (root,) = ET.fromstring(archive.read("META-INF/container.xml")).findall(".//c:rootfile", names)
        where = PurePosixPath(root.attrib["full-path"])
        package = ET.fromstring(archive.read(str(where)))
        parts = {one.attrib["id"]: one.attrib for one in package.findall(".//o:manifest/o:item", names)}
        assert {str(where.parent / one["href"]) for one in parts.values()} <= set(archive.namelist())
        assert any(one["media-type"] == "image/png" for one in parts.values())
        spine = [parts[one.attrib["idref"]] for one in package.findall(".//o:spine/o:itemref", names)]
        assert {one["media-type"] for one in spine} == {"application/xhtml+xml"}
        pages = [ET.fromstring(archive.read(str(where.parent / one["href"]))) for one in spine]
        text = page.squeeze(" ".join(" ".join(one.itertext()) for one in pages)).replace("\xa0", " ")
        for words in ("Claims", "1 One", "Figure 1", "Note.", "Doe, J. (2001)."):
            assert words in text
        assert any(one.find(".//{http://www.w3.org/1998/Math/MathML}msup") is not None for one in pages)


JATS = {
    "front/article-meta/title-group/article-title": "T",
    "front/article-meta/contrib-group/contrib/name/surname": "Doe",
    "front/article-meta/abstract": "An abstract.",
    "body/sec[2]/title": "1 One",
    "body/sec[2]//fig/caption": "Figure 1. A fall",
    "body/sec[2]//disp-formula": "",
    "body/sec[2]//table-wrap/table/tbody/tr/td[2]": "2",
    "back//fn": "Note.",
    "back/ref-list/ref/mixed-citation": "Doe, J. (2001).",
}


def test_a_jats_export_has_the_elements_of_an_article() -> None:
    root = ET.fromstring(exported("jats"))
    assert (root.tag, root.get("dtd-version")) == ("article", "1.2")
    for path, words in JATS.items():
        found = root.find(path)
        assert found is not None, path
        assert words in page.squeeze(" ".join(found.itertext())).replace("\xa0", " "), path
    linked = {one.get("rid") for one in root.iter("xref")}
    there = {one.get("id") for one in root.iter() if one.get("id")}
    assert linked
    assert linked <= there, "every reference leads somewhere"
    graphics = [one.get("{http://www.w3.org/1999/xlink}href") for one in root.iter("graphic")]
    assert graphics == ["a.png"]


def test_an_export_never_replaces_a_file_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "paper.md"
    source.write_text(paper("Text.\n"))
    (tmp_path / "paper.tex").write_text("mine")
    assert main(["export", str(source), "--to", "latex"]) == 1
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "paper.tex").read_text() == "mine"
    assert main(["export", str(source), "--to", "latex", "--force"]) == 0
    assert "documentclass" in (tmp_path / "paper.tex").read_text()


def test_pdf_without_a_browser_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toolgate.packs.lra.cli.making import browser

    source = tmp_path / "paper.md"
    source.write_text(paper("Text.\n"))
    monkeypatch.setattr(browser, "NAMES", ())
    monkeypatch.setattr(browser, "PLACES", ())
    assert main(["export", str(source), "--to", "pdf"]) == 1
    assert "PDF is printed by a browser, and there is none here" in capsys.readouterr().err


@pytest.mark.guard
def test_pdf_is_printed_by_the_browser_that_is_there(tmp_path: Path) -> None:
    need("browser")
    source = tmp_path / "paper.md"
    source.write_text(paper("![A fall](a.svg)\n"))
    (tmp_path / "a.svg").write_bytes(SVG)
    assert main(["export", str(source), "--to", "pdf"]) == 0
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF-")


def test_json_tells_the_faults_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "paper.md"
    source.write_text(paper("\n[@nobody]\n"))
    assert main(["build", str(source), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["faults"] == [
        {"file": "paper.md", "line": FIRST_LINE + 1, "text": "there is no reference nobody in the bibliography"}
    ]


@pytest.mark.parametrize(
    "tree", [{"é": ["\u2028", 1.5, None, True, -3, 'a"b\\\n']}, [], {"blocks": [{"t": "Str", "c": "x"}]}]
)
def test_a_document_is_written_and_read_alike_with_orjson_and_without(
    tree: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = convert.as_json(tree)
    assert convert.from_json(fast) == tree
    monkeypatch.delitem(sys.modules, "orjson")
    assert convert.as_json(tree) == fast
    assert convert.from_json(fast) == tree
