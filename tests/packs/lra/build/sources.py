"""Sources for tests of `lra build`, and what they become."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support import need
from toolgate.packs.lra.build import shell
from toolgate.packs.lra.build.assemble import Built, build
from toolgate.packs.lra.build.convert import SourceRequest
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.checks.validate import PaperReport, validate
from toolgate.packs.lra.cli.making.pandoc import Pandoc
from toolgate.packs.lra.paper import page
from toolgate.packs.lra.paper.artifact import Artifact

FRONT = """---
title: T
author: Jane Doe
date: 2026-11-15
abstract: An abstract.
claims: [One.]
{more}---
"""
BIB = r"""
@string{lncs = "Lecture Notes"}
@book{galileo1638, author = {Galilei, Galileo}, title = {Discorsi}, year = 1638, publisher = "Elzevir"}
@article{newton1687,
  author = {Newton, Isaac and M{\"u}ller, J{\'o}zef and {\L}ukasiewicz, Jan},
  title = {{Philosophi{\ae} Naturalis} \emph{Principia} of $x^2$},
  journal = lncs, date = {1687-07-05}, doi = {https://doi.org/10.1000/xyz}
}
@phdthesis{doe, author = {Doe, Jr., John}, title = {A Thesis}, school = {A School}, year = 2001, url = {https://x.test/~doe/a}}
"""
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"/>'
WASM = shell.data("wasm", "lattice.wasm")
FIRST_LINE = FRONT.count("\n") + 1
"""The line of the body's first line."""


def png(width: int, height: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xc0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@cache
def pandoc() -> Pandoc:
    return Pandoc(need("pandoc"))


def paper(body: str, more: str = "") -> str:
    """A whole source; its body begins on line `FIRST_LINE`, unless there is more front matter."""
    return FRONT.format(more=more) + body


def built(
    source: str | bytes, files: Mapping[str, bytes] | None = None, name: str = "paper.md", form: str = ""
) -> Built:
    there = {
        name: source.encode() if isinstance(source, str) else source,
        "references.bib": BIB.encode(),
        "figures/fall.svg": SVG,
        "wasm/lattice.wasm": WASM,
        **(files or {}),
    }
    return build(SourceRequest(name, lambda path, _: there.get(path), pandoc(), form))


def shown(
    source: str | bytes, files: Mapping[str, bytes] | None = None, name: str = "paper.md", form: str = ""
) -> page.Page:
    return page.parse(built(source, files, name, form).files["index.html"].decode())


def faults(
    source: str | bytes, files: Mapping[str, bytes] | None = None, name: str = "paper.md", form: str = ""
) -> list[str]:
    with pytest.raises(BuildFault) as caught:
        built(source, files, name, form)
    return caught.value.text.split("\n")


def judged(files: Mapping[str, bytes]) -> PaperReport:
    sizes = {name: len(data) for name, data in files.items()}
    return validate(Artifact("index.html", files["index.html"], dict(files), sizes, "p/index.html"), strict=True)


def failed(report: PaperReport, *kinds: str) -> list[str]:
    return [one.rule for one in report.findings if one.rule.startswith(kinds or ("A", "B")) and one.status == "fail"]


def text(element: object) -> str:
    return page.squeeze(element.text)  # type: ignore[attr-defined]


def html_of(files: Mapping[str, bytes]) -> str:
    return files["index.html"].decode()


def style_attributes(html: str) -> list[str]:
    return re.findall(r'<\w+[^>]*\sstyle="[^"]*"', html)


def write(directory: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory
