"""The constructs of KaTeX's list: each becomes MathML of the same structure as KaTeX makes of it.

`data/formulas.json` holds, for each formula, the tree of signs and structures in the MathML of KaTeX 0.16.22;
`katex.py` makes it. `shapes.py` says what counts as the same.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.packs.lra.build.shapes import tree
from tests.packs.lra.build.sources import built, html_of, paper, shown
from tests.support import need
from toolgate.packs.lra.build import shell
from toolgate.packs.lra.build.document import written

FORMULAS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "formulas.json").read_text())


@pytest.fixture(scope="module")
def rendered() -> list[ET.Element]:
    need("pandoc")
    html = html_of(built(paper("\n\n".join(f"$${one['tex']}$$" for one in FORMULAS) + "\n")).files)
    parts = html.split('<math display="block">')[1:]
    return [ET.fromstring(f"<math>{part.split('</math>')[0]}</math>") for part in parts]


def test_there_are_120_formulas_and_each_is_rendered(rendered: list[ET.Element]) -> None:
    assert len(FORMULAS) >= 120
    assert len(rendered) == len(FORMULAS)


@pytest.mark.parametrize("at", range(len(FORMULAS)), ids=[one["tex"][:40] for one in FORMULAS])
def test_a_formula_has_the_structure_that_katex_gives_it(at: int, rendered: list[ET.Element]) -> None:
    assert tree(rendered[at]) == FORMULAS[at]["tree"]


@pytest.mark.parametrize(
    "formula", [r"a < b \text{<img src=x onerror=alert(1)>} \& c", r"\mathrm{<script>alert(1)</script>}"]
)
def test_text_in_a_formula_cannot_become_markup(formula: str) -> None:
    need("pandoc")
    view = shown(paper(f"# One\n\nBefore ${formula}$ after.\n"))
    (math,) = view.document.select("math")
    assert not math.select("img, script")
    assert "<img src=x" in math.text.replace("\xa0", " ") or "script" in math.text


def test_a_hat_over_several_letters_is_the_mark_that_stretches_and_over_one_the_one_that_does_not() -> None:
    over_one = '<math><mover><mi>x</mi><mo accent="true">\u0302</mo></mover></math>'
    mark = ET.fromstring(written.mend(over_one))[0][1]
    assert (mark.text, mark.get("stretchy")) == ("^", "false")
    over_two = over_one.replace("<mi>x</mi>", "<mrow><mi>x</mi><mi>y</mi></mrow>")
    mark = ET.fromstring(written.mend(over_two))[0][1]
    assert (mark.text, mark.get("stretchy")) == ("\u0302", "true")


@pytest.mark.parametrize(
    ("notation", "ways"),
    [
        ("=updiagonalstrike", ["to bottom right"]),  # a gradient's stripes lie across its direction
        ("=downdiagonalstrike", ["to top right"]),
        ('*=" "][notation*=strike', ["to bottom right", "to top right"]),
    ],
    ids=["cancel", "bcancel", "xcancel"],
)
def test_what_is_struck_out_is_struck_in_its_direction(notation: str, ways: list[str]) -> None:
    style = shell.template(shell.MATH_STYLE)
    (rule,) = re.findall(rf"menclose\[notation{re.escape(notation)}\] \{{([^}}]*)\}}", style)
    assert re.findall(r"to \w+ \w+", rule) == ways
