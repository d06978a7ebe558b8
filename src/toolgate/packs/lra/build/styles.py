"""Citation styles: a few that come with the program, Pandoc's own default, or any CSL file beside the source."""

from __future__ import annotations

import posixpath
from typing import Final

from toolgate.packs.lra.build import shell
from toolgate.packs.lra.build.convert import SourceRequest
from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.source import MAX_SOURCE_BYTES

SHIPPED: Final = ("numeric", "author-year", "label")
DEFAULT: Final = "author-year"


def find(name: str, request: SourceRequest, document: Document) -> bytes | None:
    """The style that the front matter names. A fault when there is none of that name."""
    wanted = name or DEFAULT
    if wanted.removesuffix(".csl") in SHIPPED:
        return shell.data("csl", f"{wanted.removesuffix('.csl')}.csl")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(request.file), wanted))
    data = request.read(path, MAX_SOURCE_BYTES) if not path.startswith("..") else None
    if data is None or b"<style" not in data:
        place = document.source.place("csl:")
        shipped = ", ".join(SHIPPED)
        document.fault(place, f"there is no citation style {wanted}: {shipped}, or a .csl file beside the source")
        return None
    return data
