"""From metadata and sections to the files of a paper: the page around the text, its scripts, its worker."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from toolgate.packs.lra import licences, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.packs.lra.metadata import Metadata

Script = Literal["none", "js", "wasm"]
"""Which tool the page carries: none, one in JavaScript, or one in WebAssembly."""

WASM_PATH: Final = "wasm/lattice.wasm"
WAT_PATH: Final = "wasm/lattice.wat"
_GAP: Final = re.compile(r"\{\{(\w+)\}\}")


class Section(Struct, frozen=True):
    """One entry of the contents list."""

    id: str
    title: str
    """HTML."""


@cache
def data(*parts: str) -> bytes:
    found = files("toolgate.packs.lra") / "data"
    for part in parts:
        found = found / part
    return found.read_bytes()


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


def page(meta: Metadata, sections: str, contents: Sequence[Section], script: Script) -> str:
    licence = licences.LICENCES[meta.licence]
    return fill(
        template("shell.html"),
        {
            "lang": escape(meta.lang),
            "policy": policy(script),
            "title": escape(meta.title, quote=False),
            "description": escape(meta.description),
            "head": metadata.head(meta),
            "json_ld": metadata.json_ld(meta),
            "authors": ", ".join(_author(one) for one in meta.authors),
            "date": meta.date,
            "long_date": meta.long_date,
            "licence": meta.licence,
            "licence_name": escape(licence.name),
            "contents": "\n".join(f'<li><a href="#{one.id}">{one.title}</a></li>' for one in contents),
            "sections": sections.strip("\n"),
            "apa": escape(metadata.apa(meta), quote=False),
            "bibtex": escape(metadata.bibtex(meta), quote=False),
            "ris": escape(metadata.ris(meta), quote=False),
        },
    )


def _author(one: metadata.Author) -> str:
    name = escape(one.name)
    return f'<a href="https://orcid.org/{one.orcid}">{name}</a>' if one.orcid else name


def paper_js(script: Script) -> str:
    if script == "none":
        return "const tool = null;\n\n" + template("core.js")
    if script == "wasm":
        module = b64encode(data("wasm", "lattice.wasm")).decode()
        engine = fill(template("engine_wasm.js"), {"module": module})
    else:
        engine = template("engine_js.js")
    return fill(template("tool.js"), {"engine": engine}) + template("core.js")


def sw_js(assets: Sequence[str]) -> str:
    return fill(template("sw.js"), {"assets": ", ".join(f'"{name}"' for name in assets)})


def files_of(meta: Metadata, html: str, script: Script, extra: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """The six files of document 000, the WASM module with its source where there is one, and what the text needs."""
    more = dict(extra or {})
    assets = ["./", "index.html", "paper.css", "paper.js", *sorted(more)]
    found = {
        "index.html": html.encode(),
        "paper.css": data("template", "paper.css"),
        "paper.js": paper_js(script).encode(),
        "sw.js": sw_js(assets).encode(),
        "CITATION.cff": metadata.citation_cff(meta).encode(),
        "LICENSE": licences.text_of(meta.licence, year=meta.year, holder=_holders(meta)).encode(),
    }
    if script == "wasm":
        found |= {WASM_PATH: data("wasm", "lattice.wasm"), WAT_PATH: data("wasm", "lattice.wat")}
    return found | more


def _holders(meta: Metadata) -> str:
    return ", ".join(one.name for one in meta.authors)
