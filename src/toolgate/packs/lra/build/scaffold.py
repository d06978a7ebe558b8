"""`lra init`: a complete small paper that already passes its tier, to be overwritten with one's own (ADR-0011).

The sample is true and can be checked on the page, so a fresh project holds no placeholder that could be published.
"""

from __future__ import annotations

import re
import shlex
from html import escape
from typing import Final, Literal

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.packs.lra.build import shell
from toolgate.packs.lra.build.shell import Script, Section
from toolgate.packs.lra.paper import licences, metadata
from toolgate.packs.lra.paper.metadata import Author, Metadata
from toolgate.packs.lra.paper.naming import require_name

Tier = Literal["bronze", "silver", "gold"]
TIERS: Final[tuple[Tier, ...]] = ("bronze", "silver", "gold")
MAX_TITLE: Final = 300
WASM_PATH: Final = "wasm/lattice.wasm"
WAT_PATH: Final = "wasm/lattice.wat"
_TOOL: Final = "tool.js"
"""The sample's own functions, at the top of the page's script."""
_PROGRAMS: Final[dict[Script, str]] = {"none": "", "js": shell.PAGE_SCRIPT, "wasm": WASM_PATH}
_SCRIPTS: Final[dict[Tier, Script]] = {"bronze": "none", "silver": "js", "gold": "wasm"}
_ABSTRACT: Final = (
    "How many points with whole coordinates lie in a disc of radius r around the origin? We count them exactly, "
    "compare the count with the area of the disc, and let the reader repeat the count."
)
_DESCRIPTION: Final = "Counting grid points in a disc, with evidence that runs in the reader’s browser."
_KEYWORDS: Final = ("lattice points", "Gauss circle problem", "living paper")
_LABELS: Final = {
    "index.html": "your paper (edit this!)",
    "paper.css": "styling",
    "paper.js": "scripts",
    "sw.js": "offline reading",
    "CITATION.cff": "how to cite",
    "LICENSE": "licence text",
    "wasm/lattice.wasm": "your program, compiled",
    "wasm/lattice.wat": "your program, source",
}


class ScaffoldOptions(Struct, frozen=True):
    """What the author asked for; everything but the name has a default."""

    name: str
    date: str
    title: str = ""
    authors: tuple[Author, ...] = ()
    licence: str = licences.DEFAULT
    tier: Tier = "silver"


class Scaffold(Struct, frozen=True):
    name: str
    tier: Tier
    files: dict[str, bytes]


def scaffold(wishes: ScaffoldOptions) -> Scaffold:
    """The files of a new paper. Raises: ToolError: INVALID_PROJECT_NAME, INVALID_METADATA."""
    name = require_name(wishes.name)
    if wishes.licence not in licences.LICENCES:
        raise ToolError("INVALID_METADATA", f"license is one of {', '.join(licences.LICENCES)}")
    title = " ".join(wishes.title.split()) or _title_of(name)
    if len(title) > MAX_TITLE:
        raise ToolError("INVALID_METADATA", f"a title has at most {MAX_TITLE} characters")
    script = _SCRIPTS[wishes.tier]
    meta = Metadata(
        slug=name,
        title=title,
        authors=wishes.authors or (Author(f"The {' '.join(name.split())} authors"),),
        date=metadata.require_date(wishes.date),
        licence=wishes.licence,
        description=_DESCRIPTION if script != "none" else "Counting grid points in a disc, exactly.",
        abstract=_ABSTRACT if script != "none" else _ABSTRACT.split(", and let")[0] + ".",
        keywords=_KEYWORDS,
        capability="lattice-count" if script != "none" else "",
    )
    wasm = {WASM_PATH: shell.data("wasm", "lattice.wasm")} if script == "wasm" else {}
    source = {WAT_PATH: shell.data("wasm", "lattice.wat")} if script == "wasm" else {}
    program = shell.data("template", _TOOL) if script == "js" else b""
    html = shell.page(meta, _sections(meta, script), _contents(script), script, modules=wasm)
    return Scaffold(name, wishes.tier, shell.files_of(meta, html, script, wasm | source, program))


def _title_of(name: str) -> str:
    words = " ".join(re.split(r"[-_ ]+", name.strip("-_"))) or name
    return words[:1].upper() + words[1:]


def _sections(meta: Metadata, script: Script) -> str:
    method = {
        "none": "",
        "js": f'The program is a dozen lines of JavaScript at the top of <a href="{shell.PAGE_SCRIPT}">{shell.PAGE_SCRIPT}</a>.',
        "wasm": f'The program is <a href="{WAT_PATH}">{WAT_PATH}</a>, sixty lines of WebAssembly text, '
        f'compiled to <a href="{WASM_PATH}">{len(shell.data("wasm", "lattice.wasm"))} bytes</a>.',
    }[script]
    engine = {
        "js": "your browser counts the points with the paper’s own program.",
        "wasm": "your browser counts the points with the paper’s own WebAssembly module.",
    }
    gaps = {"engine": engine.get(script, ""), "program": _PROGRAMS[script]}
    demo = "" if script == "none" else shell.fill(shell.template("demo.html"), gaps)
    return shell.fill(
        shell.template("sample.html"),
        {"abstract": escape(meta.abstract, quote=False), "claims": _claims(script), "method": method, "demo": demo},
    )


def _claims(script: Script) -> str:
    program = _PROGRAMS[script]
    evidence = "demo-1" if program else "results"
    counted = "Exactly {} points with whole coordinates lie within distance 100 of the origin."
    swept = (
        "Among the whole radii up to 1000 there are {} for which the count differs from the area by a quarter of Gauss’s bound "
        "or more."
    )
    return "\n".join(
        [
            claim(1, counted.format(expected("31417", "31\u202f417")), evidence, program and f"{program}#count", "100"),
            claim(2, swept.format(expected("0", "0")), evidence, program and f"{program}#exceptions", "1000"),
            claim(3, "This page loads nothing from any other server and can be read offline.", "reading"),
        ]
    )


def expected(value: str, shown: str) -> str:
    """The number in a claim's text: what its evidence must give."""
    return f'<data class="expect" value="{value}">{shown}</data>'


def claim(number: int, html: str, evidence: str, run: str = "", values: str = "") -> str:
    """One claim, as docs/reference/paper-markup.md has it."""
    runs = f' data-lra-run="{escape(run)}" data-lra-input="{escape(values)}"' if run else ""
    # The name a screen reader says must tell one badge from the next.
    return (
        f'<li id="claim-{number}" data-lra-claim="{number}"{runs}><p>{html}</p>'
        f'<a class="badge" href="#{evidence}" data-lra-evidence="{evidence}" aria-label="evidence (claim {number})">'
        "evidence</a></li>"
    )


def _contents(script: Script) -> list[Section]:
    rows = [
        ("abstract", "Abstract"),
        ("claims", "Claims"),
        ("question", "The question"),
        ("method", "Method"),
        ("results", "Results"),
        *([("demo-1", "Count for yourself")] if script != "none" else []),
        ("reading", "Reading and checking"),
        ("references", "References"),
        ("citation", "How to cite"),
    ]
    return [Section(ident, title) for ident, title in rows]


def created_text(name: str, files: list[str]) -> str:
    """What lra_init prints: the project, then its files with what each is for."""
    width = max(len(file) for file in files)
    lines = [f"  {file:<{width}} — {_LABELS[file]}" if file in _LABELS else f"  {file}" for file in files]
    return "\n".join([f"Created LRA project: {name}/", *lines, ""])


def next_steps(name: str) -> str:
    return f"\nNext:\n  cd {shlex.quote(name)}\n  lra serve\n  lra validate\n"
