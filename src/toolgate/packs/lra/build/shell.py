"""From metadata and sections to the files of a paper: the page around the text, its scripts, its worker."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from html import escape
from pkgutil import get_data
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from toolgate.packs.lra.build import words
from toolgate.packs.lra.paper import licences, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.packs.lra.paper.metadata import Metadata

Script = Literal["none", "js", "wasm"]
"""What the page runs beside its own script: nothing, functions in JavaScript, or WebAssembly modules."""
PAGE_SCRIPT: Final = "paper.js"
_EVIDENCE_PART: Final = "evidence.js"
"""The part of the page's script that runs claims and demos."""
MATH_STYLE: Final = "math.css"
_MATH_LINK: Final = f'<link rel="stylesheet" href="{MATH_STYLE}">\n'
_STYLED_MATH: Final = re.compile(r"<(?:mtable|menclose)\b")
"""Formulas that MathML Core leaves to style sheets."""
MAX_COPY_BYTES: Final = 256 * 1024
"""Of a module: a larger one is better left without a copy, which would double what every reader downloads."""
_WORDS: Final = ("skip", "cite", "dark", "contents", "copy", "standard", "licence", "machine")
"""What the page itself says around the text."""
_GAP: Final = re.compile(r"\{\{(\w+)\}\}")


class Section(NamedTuple):
    """One entry of the contents list."""

    id: str
    title: str
    """HTML."""
    inner: tuple[Section, ...] = ()


@cache
def data(*parts: str) -> bytes:
    found = get_data("toolgate.packs.lra", "/".join(("data", *parts)))
    if found is None:  # a loader that has no files
        raise FileNotFoundError("/".join(parts))
    return found


def template(name: str) -> str:
    return data("template", name).decode()


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace every `{{name}}` in one pass, so that no value is searched for gaps. Raises: KeyError."""
    return _GAP.sub(lambda gap: values[gap[1]], text)


def policy(script: Script) -> str:
    """What the browser may load: files of the paper, nothing else (checked in a real browser by the tests)."""
    wasm = " 'wasm-unsafe-eval'" if script == "wasm" else ""
    return (
        f"default-src 'none'; script-src 'self'{wasm}; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "media-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
    )


def page(
    meta: Metadata,
    sections: str,
    contents: Sequence[Section],
    script: Script,
    *,
    own_scripts: Sequence[str] = (),
    modules: Mapping[str, bytes] | None = None,
    masthead: str = "",
    subtitle: str = "",
) -> str:
    """`own_scripts`: the author's files, run first. `modules`: carried as copies for reading from a disk.

    `masthead`: HTML below the authors, such as their affiliations.
    """
    licence = licences.LICENCES[meta.licence]
    run = [*own_scripts, PAGE_SCRIPT]
    return fill(
        template("shell.html"),
        {
            **{f"word_{key}": escape(words.word(meta.lang, key)) for key in _WORDS},
            "lang": escape(meta.lang),
            "policy": policy(script),
            "title": escape(meta.title, quote=False),
            "description": escape(meta.description),
            "head": metadata.head(meta),
            "scripts": "\n".join(f'<script src="{escape(name)}" defer></script>' for name in run),
            "json_ld": metadata.json_ld(meta),
            "authors": ", ".join(_author(author) for author in meta.authors),
            "styles": _MATH_LINK if _STYLED_MATH.search(sections) else "",
            "masthead": masthead,
            "subtitle": f'<p class="subtitle">{escape(subtitle, quote=False)}</p>\n' if subtitle else "",
            "date": meta.date,
            "long_date": words.long_date(meta.lang, meta.date),
            "licence": meta.licence,
            "licence_name": escape(licence.name),
            "contents": _contents(contents),
            "sections": sections.strip("\n"),
            "apa": escape(metadata.apa(meta), quote=False),
            "bibtex": escape(metadata.bibtex(meta), quote=False),
            "ris": escape(metadata.ris(meta), quote=False),
            "address": f'<span class="print-only">{escape(meta.url)}. </span>' if meta.url else "",
            "modules": "".join(_copy(name, code) for name, code in (modules or {}).items()),
        },
    )


def _copy(name: str, code: bytes) -> str:
    """The copy of a module as a page carries it (`paper/modules.py` compares it); nothing for a module that is too large."""
    if len(code) > MAX_COPY_BYTES:
        return ""
    return f'<script type="text/plain" data-lra-module="{escape(name)}">{b64encode(code).decode()}</script>\n'


def _contents(sections: Sequence[Section]) -> str:
    return "\n".join(
        f'<li><a href="#{section.id}">{section.title}</a>{f"<ol>{_contents(section.inner)}</ol>" if section.inner else ""}</li>'
        for section in sections
    )


def _author(author: metadata.Author) -> str:
    name = escape(author.name)
    return f'<a href="https://orcid.org/{author.orcid}">{name}</a>' if author.orcid else name


def sw_js(assets: Sequence[str]) -> str:
    return fill(template("sw.js"), {"assets": ", ".join(f'"{name}"' for name in assets)})


def page_script(script: Script, lang: str, program: bytes = b"") -> bytes:
    """The author's own functions, then the parts that verifiers know: words, reading aids, claims and demos."""
    spoken = [f"words-{words.base(lang)}.js"] if words.base(lang) in words.OTHERS else []
    parts = [*spoken, PAGE_SCRIPT, *([_EVIDENCE_PART] if script != "none" else [])]
    return program + b"".join(data("template", name) for name in parts)


def files_of(
    meta: Metadata, html: str, script: Script, extra: Mapping[str, bytes] | None = None, program: bytes = b""
) -> dict[str, bytes]:
    """The six files that every paper has, and what the text needs (`extra`). `program`: functions of the paper's own script."""
    more = dict(extra or {})
    found = {
        "index.html": html.encode(),
        "paper.css": data("template", "paper.css"),
        PAGE_SCRIPT: page_script(script, meta.lang, program),
        "sw.js": b"",
        "CITATION.cff": metadata.citation_cff(meta).encode(),
        "LICENSE": licences.text_of(meta.licence, year=meta.year, holder=_holders(meta)).encode(),
    }
    if _MATH_LINK in html:
        found[MATH_STYLE] = data("template", MATH_STYLE)
    found |= more
    # Everything a reader can reach from the page is there without a network, too.
    found["sw.js"] = sw_js(["./", *sorted(name for name in found if name != "sw.js")]).encode()
    return found


def _holders(meta: Metadata) -> str:
    return ", ".join(author.name for author in meta.authors)
