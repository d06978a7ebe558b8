"""What the checks judge: the files and everything read out of them once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.packs.lra.paper import cff, licences, page, wasm
from toolgate.packs.lra.paper.lines import LineIndex
from toolgate.packs.lra.paper.loading import loads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turbohtml import Element

    from toolgate.packs.lra.paper.artifact import Artifact


class RuleHit(Struct, frozen=True):
    """One place where a rule does not hold. `warns` marks what cannot be decided without running the page."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    selector: str | None = None
    warns: bool = False


class Paper(Struct, frozen=True):
    artifact: Artifact
    page: page.Page
    licence: licences.Licence | None
    """The recognised text of LICENSE."""
    citation: cff.Citation | cff.CffFault | None
    """None: there is no CITATION.cff."""
    loads: list[loads.Load]
    wasm: Mapping[str, str | None]
    """Every `.wasm` file with what is wrong with it, None for a module."""

    def at(self, element: Element, message: str, *, warns: bool = False) -> RuleHit:
        where = page.place(element)
        return RuleHit(message, self.artifact.page, where.line, where.column, page.selector(element), warns)

    def missing(self, message: str) -> RuleHit:
        """Nothing to point at: the page as a whole."""
        return RuleHit(message, self.artifact.page)


def read(artifact: Artifact) -> Paper:
    """Raises: ToolError IO_ERROR: the page is not UTF-8 text."""
    parsed = page.parse(decode(artifact))
    licence = artifact.text("LICENSE")
    citation = artifact.text("CITATION.cff")
    if citation is None and "CITATION.cff" in artifact.sizes:
        found: cff.Citation | cff.CffFault | None = cff.CffFault("the file is too large or not UTF-8 text")
    else:
        found = cff.read(citation) if citation is not None else None
    return Paper(
        artifact=artifact,
        page=parsed,
        licence=licences.recognise(licence) if licence else None,
        citation=found,
        loads=loads.of_artifact(artifact, parsed),
        wasm={
            name: wasm.fault(artifact.files[name]) if name in artifact.files else "it is too large to be looked into"
            for name in artifact.sizes
            if name.lower().endswith(".wasm")
        },
    )


def decode(artifact: Artifact) -> str:
    """Raises: ToolError IO_ERROR: the page is not UTF-8; the message says where."""
    try:
        return artifact.html.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        readable = artifact.html[: fault.start].decode("utf-8", "replace")
        line, column = LineIndex(readable).place(len(readable))
        text = f"I/O error: {artifact.shown or artifact.page} is not UTF-8 text (line {line}, column {column})"
        raise ToolError("IO_ERROR", text) from None
