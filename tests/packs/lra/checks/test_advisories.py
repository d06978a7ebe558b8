"""Advisories: each is hit by its fault, and by nothing else."""

from __future__ import annotations

import pytest

from tests.packs.lra.build.test_scaffold import artifact
from tests.packs.lra.papers import WASM
from toolgate.packs.lra.build.scaffold import ScaffoldOptions, scaffold
from toolgate.packs.lra.checks import rules
from toolgate.packs.lra.checks.validate import PaperReport, validate
from toolgate.packs.lra.paper.artifact import Artifact

_MADE = artifact(scaffold(ScaffoldOptions("my-paper", "2026-11-15", tier="gold")))
_DATA = b'{"a": [2.5]}'
GOLD = Artifact(
    "index.html", _MADE.html, {**_MADE.files, "data.json": _DATA}, {**_MADE.sizes, "data.json": len(_DATA)}, _MADE.shown
)


def spoiled(file: str, old: str, new: str) -> PaperReport:
    text = (GOLD.html if file == "index.html" else GOLD.files[file]).decode()
    assert old in text
    data = text.replace(old, new).encode()
    files = {**GOLD.files, file: data}
    html = data if file == "index.html" else GOLD.html
    return validate(
        Artifact("index.html", html, files, {name: len(each) for name, each in files.items()}, "p/index.html")
    )


FAULTS = [
    ("A101", "index.html", 'id="claim-2" data-lra-claim="2"', 'id="second" data-lra-claim="2"'),
    ("A101", "index.html", 'id="claim-2" data-lra-claim="2"', 'data-lra-claim="2"'),
    ("A102", "index.html", 'id="claim-3" data-lra-claim="3"', 'id="claim-4" data-lra-claim="4"'),
    ("A103", "index.html", 'href="#reading" data-lra-evidence="reading"', 'href="#reading" data-lra-evidence="nowhere"'),
    ("A103", "index.html", 'href="#reading" data-lra-evidence="reading"', 'href="#results" data-lra-evidence="reading"'),
    ("A104", "index.html", 'href="#ref-hardy"', 'href="#ref-gauss"'),
    ("A105", "index.html", 'id="fig-error"', 'id="fig-disc"'),
    ("A201", "index.html", "Draw a circle", "TODO: draw a circle"),
    ("A201", "index.html", "Draw a circle", "Lorem ipsum"),
    ("A201", "index.html", "Counting grid points in a disc, with", "REPLACE_DESCRIPTION with"),
    ("A201", "CITATION.cff", "please cite", "REPLACE please cite"),
    ("A202", "index.html", '"@type": "ScholarlyArticle"', '"@type": "Thing"'),
    ("A202", "index.html", '"@type": "ScholarlyArticle",', '"@type": "ScholarlyArticle",,'),
    ("A203", "CITATION.cff", 'title: "My paper"\nauthors', 'title: "Another"\nauthors'),
    ("A203", "CITATION.cff", '  - name: "The my-paper authors"\ndate', '  - name: "Others"\ndate'),
    ("A203", "index.html", "https://www.gnu.org/licenses/gpl-3.0.html", "https://opensource.org/license/mit"),
    ("A204", "CITATION.cff", "cff-version: 1.2.0", "cff-version: 1.1.0"),
    ("A204", "CITATION.cff", "message: ", "massage: "),
    ("A204", "CITATION.cff", '"2026-11-15"', '"15.11.2026"'),
    ("A205", "index.html", 'name="lra:keywords"', 'name="keywords"'),
    ("A206", "index.html", 'rel="license" href="LICENSE"', 'href="terms.html"'),
    ("A301", "index.html", "</main>", '<img src="data:,x"></main>'),
    ("A301", "index.html", "</main>", "<svg><path/></svg></main>"),
    ("A302", "index.html", '<label for="demo-1-r">', "<label>"),
    ("A302", "index.html", "</main>", "<button></button></main>"),
    ("A303", "index.html", '<h2 id="method-title">Method</h2>', '<h4 id="method-title">Method</h4>'),
    ("A303", "index.html", "</main>", "<h1>Again</h1></main>"),
    ("A304", "index.html", "initial-scale=1", "initial-scale=1, user-scalable=no"),
    ("A401", "paper.css", "body {", "/*" + "x" * 70_000 + "*/ body {"),
    ("A402", "sw.js", '"paper.js", ', '"paper.js", "gone.png", '),
    ("A402", "sw.js", ', "paper.js"', ""),
    ("A403", "index.html", "http-equiv=", "name="),
    ("A403", "index.html", "default-src 'none'", "default-src *"),
    ("A404", "index.html", "</main>", '<img alt="" src="figures/gone.png"></main>'),
    ("A406", "index.html", 'module="wasm/lattice.wasm">AGFzbQ', 'module="wasm/lattice.wasm">BGFzbQ'),
    ("A406", "index.html", 'data-lra-module="wasm/lattice.wasm"', 'data-lra-module="wasm/other.wasm"'),
    ("A407", "index.html", 'value="31417"', 'value="31418"'),
    ("A407", "index.html", ">31\u202f417</data>", ">99\u202f999</data>"),
    ("A407", "index.html", '<data class="expect" value="31417">31\u202f417</data>', "31\u202f417"),
    ("A408", "paper.js", 'dataset.state = state', 'dataset.state = "ok"'),
    ("A408", "sw.js", "fetch(request)", "Promise.reject()"),
    ("A409", "index.html", "</main>", '<data value="1" data-lra-source="data.json#/a/0">1</data></main>'),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "file", "old", "new"), FAULTS, ids=[f"{one[0]}-{n}" for n, one in enumerate(FAULTS)])
def test_a_fault_gives_its_advisory_and_never_changes_the_tier(rule: str, file: str, old: str, new: str) -> None:
    report = spoiled(file, old, new)
    hit = {one.rule for one in report.advisories}
    assert rule in hit
    assert hit <= {rule} | FOLLOWS.get(rule, set())
    assert report.tier == "GOLD"
    for one in report.advisories:
        assert one.why
        assert one.fix
        assert one.file


FOLLOWS = {"A102": set(), "A105": {"A104"}, "A204": {"A203"}, "A201": {"A203"}}


@pytest.mark.parametrize("module", [WASM, b"\0asm"], ids=["unused", "no module"])
def test_a_module_that_nothing_names_or_that_is_none_is_told(module: bytes) -> None:
    files = {**GOLD.files, "wasm/extra.wasm": module}
    sizes = {name: len(each) for name, each in files.items()}
    report = validate(Artifact("index.html", GOLD.html, files, sizes, "p/index.html"))
    assert [(one.rule, one.file) for one in report.advisories] == [("A405", "wasm/extra.wasm")]
    assert report.tier == "GOLD"


def test_every_advisory_of_the_catalogue_is_tried_here() -> None:
    assert {one[0] for one in FAULTS} | {"A405"} == set(rules.ADVISORIES)
