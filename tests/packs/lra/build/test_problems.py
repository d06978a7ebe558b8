"""What a researcher met when trying `lra build` (problems 7 to 16), each under its number."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.packs.lra.build.sources import (
    FIRST_LINE,
    built,
    failed,
    faults,
    html_of,
    judged,
    paper,
    png,
    shown,
    style_attributes,
    text,
)
from tests.support import need
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.paper import page, scripts

pytestmark = pytest.mark.usefixtures("needs_pandoc")


@pytest.fixture
def needs_pandoc() -> None:
    need("pandoc")


def source_in(directory: Path, name: str = "paper.md") -> Path:
    source = directory / name
    source.write_text(paper("# One\n\nText.\n"))
    return source


def tree(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_problem_7_a_build_refuses_to_replace_a_paper_made_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "handmade", "--tier", "gold"]) == 0
    page_file = tmp_path / "handmade" / "index.html"
    page_file.write_text(page_file.read_text() + "<!-- mine -->")
    before = tree(tmp_path / "handmade")
    source_in(tmp_path, "handmade.md")
    capsys.readouterr()
    assert main(["build", "handmade.md"]) == 1
    said = capsys.readouterr().err
    assert "index.html" in said
    assert "--force" in said
    assert tree(tmp_path / "handmade") == before


def test_problem_7_a_foreign_page_in_a_named_directory_stays(tmp_path: Path) -> None:
    other = tmp_path / "nonempty"
    other.mkdir()
    (other / "index.html").write_text("mine")
    assert main(["build", str(source_in(tmp_path)), "-o", str(other)]) == 1
    assert tree(other) == {"index.html": b"mine"}


def test_problem_7_force_says_what_it_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = source_in(tmp_path)
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "index.html").write_text("mine")
    (tmp_path / "paper" / "notes.txt").write_text("mine, too")
    assert main(["build", str(source), "--force"]) == 0
    assert "Replacing in" in (said := capsys.readouterr().err)
    assert "index.html" in said
    assert "notes.txt" not in said
    assert (tmp_path / "paper" / "notes.txt").read_text() == "mine, too"


def test_problem_7_a_second_build_replaces_its_own_files_but_not_an_edited_one(tmp_path: Path) -> None:
    source = source_in(tmp_path)
    assert main(["build", str(source)]) == 0
    first = tree(tmp_path / "paper")
    source.write_text(paper("# One\n\nOther text.\n"))
    assert main(["build", str(source)]) == 0
    second = tree(tmp_path / "paper")
    assert second["index.html"] != first["index.html"]
    (tmp_path / "paper" / "index.html").write_bytes(second["index.html"] + b"<!-- by hand -->")
    edited = tree(tmp_path / "paper")
    source.write_text(paper("# One\n\nThird text.\n"))
    assert main(["build", str(source)]) == 1
    assert tree(tmp_path / "paper") == edited


def test_problem_7_a_file_that_a_build_no_longer_makes_goes_unless_it_was_edited(tmp_path: Path) -> None:
    source = source_in(tmp_path)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    source.write_text(paper("[a](a.txt) [b](b.txt)\n"))
    assert main(["build", str(source)]) == 0
    (tmp_path / "paper" / "b.txt").write_text("edited")
    source.write_text(paper("No links.\n"))
    assert main(["build", str(source)]) == 0
    assert "a.txt" not in tree(tmp_path / "paper")
    assert tree(tmp_path / "paper")["b.txt"] == b"edited"


def test_problem_8_a_built_bronze_paper_names_its_capability() -> None:
    assert shown(paper("Text.\n")).meta_content("lra:capability") == "t"
    named = shown(paper("Text.\n", "capability: fall-times\n"))
    assert named.meta_content("lra:capability") == "fall-times"


def test_problem_9_images_have_their_width_and_height() -> None:
    body = "![One](a.png){#fig-a}\n\n![Two](a.png){#fig-b width=50%}\n\n![Three](figures/fall.svg){height=10px}\n"
    view = shown(paper(body), {"a.png": png(200, 100)})
    sizes = [(one.attr("width"), one.attr("height")) for one in view.by_tag["img"]]
    assert sizes == [("200", "100"), ("340", "170"), ("20", "10")]


def test_problem_10_the_output_has_no_style_attribute() -> None:
    body = (
        "| a | b | c |\n|--:|:-:|---|\n| 1 | 2 | 3 |\n\n+---+---+\n| a | b |\n+---+---+\n\n"
        "$$\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}$$\n\n```python\nx = 1\n```\n\n![x](figures/fall.svg){width=3cm}\n"
    )
    view = shown(paper(body))
    assert style_attributes(html_of(built(paper(body)).files)) == []
    cells = [one.attr("class") for one in view.by_tag["td"]][:3]
    assert cells == ["num", "mid", None]


def test_problem_11_formulas_mean_what_they_say() -> None:
    body = (
        "Inline $\\lVert x \\rVert_2$, $\\ln 20$, $\\mathrm{d}x$, $\\operatorname*{argmax}_x$, $\\not=$, $\\mathbb{1}$.\n\n"
        "$$x^2$$\n\n$$x^2\n+ y$$\n\n$$\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}$$\n\n"
        "\\begin{equation}\\label{eq:e} E = mc^2 \\end{equation}\n\n"
        "\\begin{align} a &= 1 \\label{eq:f} \\\\ b &= 2 \\label{eq:g} \\end{align}\n\n"
        "$$z = 3 \\tag{Z} \\label{eq:z}$$\n\nSee \\eqref{eq:g}, \\autoref{eq:e}, \\ref{eq:z}.\n"
    )
    view = shown(paper(body))
    main_text = text(view.document.select_one("main"))
    assert "$" not in main_text
    assert "&" not in main_text
    assert "See (3), Equation 1, Z." in main_text
    numbers = [text(one) for one in view.document.select(".equation .number")]
    assert numbers == ["(1)", "(2–3)", "(Z)"]
    assert view.document.select_one("#eq\\:e math[display=block]") is not None
    rows = view.document.select("mtr")
    assert len(rows) == 4
    assert not view.document.select("main li li")


@pytest.mark.parametrize(
    "tex", [r"\textcolor{red}{x}", r"\color{red} x", r"\begin{array}{c|c} a & b \end{array}", r"\ce{H2O}"]
)
def test_problem_11_a_formula_that_would_lose_something_is_a_fault(tex: str) -> None:
    assert any(f"paper.md:{FIRST_LINE + 1}: " in one for one in faults(paper(f"\nHere ${tex}$.\n")))


SYNTAX_12 = """
# Method {#sec-method}

Text[^1] with [@galileo1638, p. 3], [see @newton1687], @doe, [-@galileo1638] and @sec-method.
H~2~O, "smart" -- quotes, <https://x.test/>. \\autoref{fig:x} and @fig-y. <!-- a private note -->

[^1]: A note.

<!-- another
private note -->

![A *caption* with $x$ and [@doe]\\label{fig:x}](figures/fall.svg){width=50%}

![Pandoc's caption](figures/fall.svg){#fig-y}

::: note
Inside a div.
:::

Term
:   Meaning

- [x] task

A table:

  Right  Left
-------  -------
     12  a

Table: A simple table. {#tbl-x}

# Thanks {.unnumbered}

As in \\autoref{tbl-x}.
"""


def test_problem_12_all_of_pandocs_markdown_is_read() -> None:
    view = shown(paper(SYNTAX_12, "csl: numeric\n"))
    main_text = text(view.document.select_one("main"))
    for raw in ("[^1]", "[@", "{#", "{width", ":::", "\\autoref", "~2~", "private note", "<!--"):
        assert raw not in main_text
    assert "[1, p. 3], [see 2], [3], [1] and Section 1." in main_text
    assert "“smart” – quotes" in main_text
    assert [text(one) for one in view.document.select("figcaption b")] == ["Figure 1.", "Figure 2.", "Table 1."]
    assert view.document.select_one("figcaption em") is not None
    assert len(view.document.select("#references .csl-entry")) == 3
    assert "private note" not in html_of(built(paper(SYNTAX_12)).files)
    assert text(view.document.select_one("aside.sidenote")).startswith("1 A note.")


def test_problem_12_the_abstract_has_formulas_emphasis_and_citations() -> None:
    front = paper("Text.\n").replace("abstract: An abstract.", 'abstract: "An *abstract* of $x^2$, see [@doe]."')
    abstract = shown(front).section("abstract")
    assert abstract.select_one("em").text == "abstract"
    assert abstract.select_one("math") is not None
    assert abstract.select_one("a.cite[href='#ref-doe']") is not None


LEFT_12 = [
    ("[^9] here", "[^9]: there is no footnote"),
    ("a [foo][bar] link", "][bar]: there is no link"),
    ("**open emphasis", "**open: this emphasis"),
    ("text {#oops}", "{#oops}: attributes belong"),
    ("text {width=50%}", "{width=50%}: attributes belong"),
    ("{cite}`key`", "{cite}: another tool's role"),
    ("```{python}\nx\n```", "```{python}: another tool's block"),
    ("$ x^2 $ here", "$ x^2 $: this is not a formula"),
    (r"a \(x^2\) b", r"\(x^2\): a formula in backslashed brackets"),
    ("text\n- item", "- item: a list needs a blank line"),
    ("text\n# Heading", "# Heading: a heading needs a blank line"),
    ("{{< include x.md >}}", "there is no file x.md to include"),
    ("see [@doe and more", "[@doe: this citation is not closed"),
    (r"\unknown{x} there", r"the page cannot show the TeX \unknown{x}"),
    ("| a | b |\n|---|\n| 1 | 2 |", "this row has 2 cells"),
    ("::: open\ntext", "Div unclosed"),
]


def test_problem_12_what_pandoc_passes_on_as_text_is_found_with_its_line() -> None:
    body, expected = "", []
    for raw, said in LEFT_12:
        body += "\n"
        at = FIRST_LINE + body.count("\n")
        extra = 1 if raw.startswith("text\n") else 0
        expected.append((f"paper.md:{at + extra}: ", said))
        body += raw + "\n"
    found = faults(paper(body))
    missing = [
        (place, said) for place, said in expected if not any(one.startswith(place) and said in one for one in found)
    ]
    assert missing == [], "\n".join(found)


def test_problem_12_what_is_escaped_in_the_source_is_text() -> None:
    view = shown(paper(r"It costs \$5 and \{#x} and \*\*stars\*\* and $5 and `{#code} $$` and \@nobody." + "\n"))
    assert "costs $5 and {#x} and **stars** and $5 and {#code} $$ and @nobody." in text(
        view.document.select_one("main")
    )


def test_problem_13_linked_local_files_are_copied_and_missing_ones_are_faults() -> None:
    files = {"data/x.csv": b"a,b\n", "code/f.py": b"print(1)\n"}
    made = built(paper("[data](data/x.csv) and [code](code/f.py#L1)\n"), files).files
    assert made["data/x.csv"] == b"a,b\n"
    assert made["code/f.py"] == b"print(1)\n"
    assert faults(paper("\n[data](data/gone.csv)\n")) == [f"paper.md:{FIRST_LINE + 1}: there is no file data/gone.csv"]
    assert "is not a file beside the source" in faults(paper("[up](../secret.txt)\n"))[0]
    assert "no hidden file" in faults(paper("[key](.env)\n"), {".env": b"KEY"})[0]


GOLD_14 = """
# Counting

::: {.claim #clm-count evidence="demo-1" run="wasm/lattice.wasm#count" input="100"}
Exactly [31 417]{.expect} points lie within distance 100.
:::

::: {.demo #demo-1 title="Count" run="wasm/lattice.wasm#count" says="N({r}) = {result}"}
Move the radius.

[Radius]{.slider name=r min=1 max=100 value=20}

[Counts over the radius]{.plot over=r}

::: without-script
For 100 it says 31 417.
:::
:::
"""


def test_problem_14_markdown_reaches_gold() -> None:
    made = built(paper(GOLD_14)).files
    report = judged(made)
    assert report.tier == "GOLD"
    assert failed(report, "A", "B", "S", "G") == []
    view = page.parse(html_of(made))
    claim = view.document.select_one("#claim-2")
    assert claim.attr("data-lra-run") == "wasm/lattice.wasm#count"
    assert claim.select_one("data.expect").attr("value") == "31417"
    assert view.document.select_one("section#demo-1.demo form.controls input[type=range][name=r]") is not None
    assert view.document.select_one("#demo-1 noscript") is not None


def test_problem_14_affiliations_subtitle_numbers_and_contents() -> None:
    front = (
        "---\ntitle: T\nsubtitle: And more\nauthors:\n  - {name: Jane Doe, affiliation: '1, 2', email: j@x.test}\n"
        "  - {name: Ada Lovelace, affiliation: 2}\naffiliations:\n  - {name: First, index: 1}\n  - {name: Second, index: 2}\n"
        "date: 15 November 2026\nabstract: A.\nclaims: [One.]\n---\n"
    )
    view = shown(
        front + "# One\n\n## Sub\n\n# Two {.appendix}\n\n```{.python #lst-a caption='Code'}\nx = 1\n```\n\n@lst-a\n"
    )
    masthead = text(view.document.select_one("header.masthead"))
    for part in ("And more", "First (Jane Doe)", "Second", "j@x.test", "15 November 2026"):
        assert part in masthead
    contents = [text(one) for one in view.document.select("nav.contents a")]
    assert contents == ["Abstract", "Claims", "1 One", "1.1 Sub", "A Two", "References", "How to cite"]
    assert "Listing 1" in text(view.document.select_one("main"))
    assert view.document.select_one("figure.listing code.language-python span") is not None


def test_problem_14_a_german_paper_has_german_words() -> None:
    view = shown(paper("# Eins {#sec-e}\n\n![x](figures/fall.svg){#fig-a}\n\nSiehe @fig-a und @sec-e.\n", "lang: de\n"))
    main_text = text(view.document.select_one("main"))
    assert "Siehe Abbildung 1 und Abschnitt 1." in main_text
    assert "Zusammenfassung" in main_text


@pytest.mark.parametrize(
    ("lang", "said"),
    [
        ("de", ["Zur Zusammenfassung springen", "Inhalt", "Zitieren", "15. November 2026", "Lizenz"]),
        ("fr-CA", ["Aller au résumé", "Sommaire", "Comment citer", "15 novembre 2026", "Licence"]),
        ("es", ["Ir al resumen", "Contenido", "Cómo citar", "15 de noviembre de 2026", "Licencia"]),
        ("nl", ["Skip to the abstract", "Contents", "How to cite", "15 November 2026", "Licence"]),
    ],
)
def test_problem_14_the_page_around_the_text_speaks_its_language(lang: str, said: list[str]) -> None:
    made = built(paper("# S\n\nText.\n", f"lang: {lang}\n")).files
    body = page.parse(html_of(made)).document.select_one("body").text
    assert [word for word in said if word not in body] == []
    parts = scripts.parts("paper.js", made["paper.js"])
    assert [sha256(part).hexdigest() in scripts.released() for part in parts] == [True] * (1 if lang == "nl" else 2)


def test_problem_15_bibtex_as_people_write_it() -> None:
    view = shown(paper("[@galileo1638; @newton1687; @doe]\n"))
    listed = [text(one) for one in view.document.select(".csl-entry")]
    together = " ".join(listed)
    assert "Łukasiewicz" in together
    assert "Lecture Notes" in together
    assert "A School" in together
    assert "https://doi.org/10.1000/xyz." in together
    assert "doi.org/https" not in together
    assert view.document.select_one("a[href='https://x.test/~doe/a']") is not None
    assert view.document.select_one("#references math") is not None
    assert "Doe" in together
    assert "Jr." in together


def test_problem_15_faults_of_a_bibliography_have_their_line() -> None:
    text_of_bib = (
        b"@book{a, title={A}, year=2000}\n@book{a, title={B}, year=2001}\n@book{b,\n title={\\weird{}}, year=2002}\n"
    )
    found = faults(paper("[@a; @b]\n"), {"references.bib": text_of_bib})
    assert "references.bib:2: the key a stands twice" in found
    assert any(one.startswith("references.bib:3: the reference b has TeX") for one in found)
    assert faults(paper("x\n"), {"references.bib": b"@book{a,\n title={A\n"})[0].startswith("references.bib:")


def test_problem_16_all_faults_come_in_one_run_with_their_lines() -> None:
    source = paper(
        "# S\n\nA [@nobody] and @fig-none.\n\n$$ x $$ {#eq-a}\n\n$$ \\foo $$ {#eq-b}\n\n![x](gone.png)\n\n[l](#nowhere)\n",
        "claims2: 1\n",
    )
    at = FIRST_LINE + 1
    assert faults(source) == [
        f"paper.md:{at - 2}: unknown key claims2; is it claims?",
        f"paper.md:{at + 2}: there is no label fig-none",
        f"paper.md:{at + 2}: there is no reference nobody in the bibliography",
        f"paper.md:{at + 6}: this formula cannot be shown: unexpected control sequence \\foo",
        f"paper.md:{at + 8}: there is no image gone.png",
        f"paper.md:{at + 10}: there is no #nowhere in this paper",
    ]


def test_problem_16_a_heading_with_a_reference_is_one_line_of_the_contents() -> None:
    view = shown(paper("# As in @sec-b and [@doe]\n\n# B {#sec-b}\n"))
    entry = view.document.select("nav.contents li")[2]
    assert len(entry.select("a")) == 1
    assert text(entry) == "1 As in Section 2 and (Doe 2001)"
