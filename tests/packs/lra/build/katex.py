"""Make data/formulas.json again: what KaTeX makes of each formula, as trees.

    python -m tests.packs.lra.build.katex

The formulas stay as they are in the file; add one there with any tree and run this. Needs node and npm.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.packs.lra.build.shapes import tree

ROOT = Path(__file__).parents[4]
CACHE = ROOT / ".cache" / "katex"
FORMULAS = Path(__file__).parent / "data" / "formulas.json"
PACKAGE = "katex@0.16.22"
RENDER = r"""
const katex = require("katex");
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const options = { output: "mathml", displayMode: true, strict: false, macros: { "\\bm": "\\boldsymbol{#1}" } };
process.stdout.write(JSON.stringify(given.map((tex) => katex.renderToString(tex, options))));
"""


def main() -> None:
    """Side effects: installs KaTeX into the cache, replaces the file."""
    if not (CACHE / "node_modules" / "katex").is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        install = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--prefix",
            str(CACHE),
            PACKAGE,
        ]
        subprocess.run(install, check=True, timeout=300)
    formulas = [one["tex"] for one in json.loads(FORMULAS.read_text())]
    done = subprocess.run(
        ["node", "-e", RENDER],
        cwd=CACHE,
        input=json.dumps(formulas),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    rows = [
        {"tex": tex, "tree": tree(_semantics(html))}
        for tex, html in zip(formulas, json.loads(done.stdout), strict=True)
    ]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    FORMULAS.write_text(f"[\n{lines}\n]\n")


def _semantics(html: str) -> ET.Element:
    """The formula inside KaTeX's wrapping, without the TeX that it adds."""
    text = html[html.index("<math") : html.index("</math>") + len("</math>")]
    return ET.fromstring(text.replace("&nbsp;", "\u00a0"))  # KaTeX's own output


if __name__ == "__main__":
    main()
