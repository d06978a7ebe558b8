"""`lra init`: a complete small paper that already passes its tier, to be overwritten with one's own (decision 53).

The sample is true and can be checked on the page, so a fresh project holds no placeholder that could be published.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final, Literal

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.packs.lra import licences, metadata, shell
from toolgate.packs.lra.metadata import Author, Metadata
from toolgate.packs.lra.shell import Script, Section

Tier = Literal["bronze", "silver", "gold"]
TIERS: Final[tuple[Tier, ...]] = ("bronze", "silver", "gold")
MAX_NAME: Final = 255
"""Characters of a project name: document 000's bound, and what file systems take."""
MAX_TITLE: Final = 300
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}")
"""Decision 55. No dot, so no hidden directory and no `..`; no leading dash, so no command takes it for an option."""

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
    "paper.js": "the demo and the page protocol",
    "sw.js": "offline reading",
    "CITATION.cff": "how to cite",
    "LICENSE": "licence text",
    shell.WASM_PATH: "the evidence, compiled",
    shell.WAT_PATH: "the evidence, source",
}


class Wishes(Struct, frozen=True):
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


def scaffold(wishes: Wishes) -> Scaffold:
    """The files of a new paper. Raises: ToolError: INVALID_PROJECT_NAME, INVALID_METADATA."""
    require_name(wishes.name)
    if wishes.licence not in licences.LICENCES:
        raise ToolError("INVALID_METADATA", f"license is one of {', '.join(licences.LICENCES)}")
    title = " ".join(wishes.title.split()) or _title_of(wishes.name)
    if len(title) > MAX_TITLE:
        raise ToolError("INVALID_METADATA", f"a title has at most {MAX_TITLE} characters")
    script = _SCRIPTS[wishes.tier]
    meta = Metadata(
        slug=wishes.name,
        title=title,
        authors=wishes.authors or (Author(f"The {wishes.name} authors"),),
        date=metadata.require_date(wishes.date),
        licence=wishes.licence,
        description=_DESCRIPTION if script != "none" else "Counting grid points in a disc, exactly.",
        abstract=_ABSTRACT if script != "none" else _ABSTRACT.split(", and let")[0] + ".",
        keywords=_KEYWORDS,
        capability="lattice-count" if script != "none" else "",
    )
    html = shell.page(meta, _sections(meta, script), _contents(script), script)
    return Scaffold(wishes.name, wishes.tier, shell.files_of(meta, html, script))


def require_name(name: str) -> None:
    """Raises: ToolError INVALID_PROJECT_NAME."""
    if not NAME.fullmatch(name):
        text = f"a project name has 1 to {MAX_NAME} of the characters A-Z a-z 0-9 _ - and begins with no dash"
        raise ToolError("INVALID_PROJECT_NAME", text)


def _title_of(name: str) -> str:
    words = " ".join(re.split(r"[-_]+", name.strip("-_"))) or name
    return words[:1].upper() + words[1:]


def _sections(meta: Metadata, script: Script) -> str:
    method = {
        "none": "",
        "js": "The program is a dozen lines of JavaScript in <code>paper.js</code>.",
        "wasm": f'The program is <a href="{shell.WAT_PATH}">{shell.WAT_PATH}</a>, fifty lines of WebAssembly text, '
        f'compiled to <a href="{shell.WASM_PATH}">{len(shell.data("wasm", "lattice.wasm"))} bytes</a>.',
    }[script]
    engine = {
        "js": "Your browser counts the points with the paper’s own program.",
        "wasm": "Your browser counts the points with the paper’s own WebAssembly module.",
    }
    runs = (_run("count", "100", "31417"), _run("exceptions", "1000", "0")) if script == "wasm" else ("", "")
    gaps = {"engine": engine.get(script, ""), "count": runs[0], "sweep": runs[1]}
    demo = "" if script == "none" else shell.fill(shell.template("demo.html"), gaps)
    return shell.fill(
        shell.template("sample.html"),
        {"abstract": escape(meta.abstract, quote=False), "claims": _claims(script), "method": method, "demo": demo},
    )


def _run(function: str, value: str, expected: str) -> str:
    """What a verifier runs to check the claim: module and function, input, and the answer it must give."""
    return f' data-lra-run="{shell.WASM_PATH}#{function}" data-lra-input="{value}" data-lra-expect="{expected}"'


def _claims(script: Script) -> str:
    counted = ("demo-1", "100") if script != "none" else ("results", "")
    swept = ("demo-2", "sweep 1000") if script != "none" else ("results", "")
    return "\n".join(
        [
            _claim(
                1, "Exactly 31\u202f417 points with whole coordinates lie within distance 100 of the origin.", *counted
            ),
            _claim(
                2,
                "For every whole radius up to 1000 the count differs from the area by less than a quarter of what "
                "Gauss’s bound allows.",
                *swept,
            ),
            _claim(3, "This page loads nothing from any other server and can be read offline.", "reading", ""),
        ]
    )


def _claim(number: int, text: str, evidence: str, tool_input: str) -> str:
    run = f' data-lra-input="{tool_input}"' if tool_input else ""
    label = "evidence: run it" if tool_input else "evidence"
    # The name a screen reader says must tell one badge from the next.
    hidden = f' aria-label="{label} (claim {number})"'
    return (
        f'<li id="claim-{number}" data-lra-claim="{number}"><p>{text}</p>'
        f'<a class="badge" href="#{evidence}" data-lra-evidence="{evidence}"{run}{hidden}>{label}</a></li>'
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
    """What document 000 prints: the project, then its files with what each is for."""
    width = max(len(file) for file in files)
    lines = [f"  {file:<{width}} — {_LABELS[file]}" if file in _LABELS else f"  {file}" for file in files]
    return "\n".join([f"Created LRA project: {name}/", *lines, ""])


def next_steps(name: str) -> str:
    return f"\nNext:\n  cd {name}\n  lra serve\n  lra validate\n"
