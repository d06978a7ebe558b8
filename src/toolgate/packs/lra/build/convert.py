"""What the build asks of Pandoc: first of all to read the source.

The program itself is started by the commands (`cli/making/pandoc.py`), never by a tool.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from toolgate.errors import ToolError
from toolgate.later import later
from toolgate.packs.lra.build.faults import SourceFaults
from toolgate.packs.lra.build.source import MAX_SOURCE_BYTES, Read, Source, load

KINDS: Final = {
    ".md": "markdown", ".markdown": "markdown", ".qmd": "markdown", ".rmd": "markdown", ".txt": "markdown",
    ".tex": "latex", ".latex": "latex", ".ipynb": "ipynb", ".docx": "docx",
}  # fmt: skip
FORMS: Final = ("markdown", "latex", "ipynb", "docx")
_READERS: Final = {
    "ipynb": "ipynb+bracketed_spans+citations+definition_lists+escaped_line_breaks+example_lists+fancy_lists+fenced_divs"
    "+fenced_code_attributes+footnotes+grid_tables+header_attributes+implicit_figures+implicit_header_references+smart"
    "+inline_code_attributes+inline_notes+latex_macros+line_blocks+link_attributes+multiline_tables+native_divs+startnum"
    "+native_spans+raw_attribute+raw_tex+simple_tables+subscript+superscript+table_captions"
}
"""A notebook's cells are Pandoc's Markdown here, as every other text; by itself Pandoc reads a part of it in them."""
APPENDIX: Final = "lra-appendix-starts-here"
"""Stands for the command of LaTeX, which Pandoc's reader drops, and with it where the appendices begin."""
ORJSON_FROM: Final = 1_000_000
"""Bytes of a document from which it is worth loading: a thesis."""
_READ: Final = later("json:loads")
_WRITE: Final = later("json:dumps")
_READ_FAST: Final = later("orjson:loads")
_WRITE_FAST: Final = later("orjson:dumps")
NOTHING: Final[Mapping[str, bytes]] = {}


class Converted(NamedTuple):
    data: bytes
    messages: list[dict[str, Any]]
    """Pandoc's own log, as JSON: `type`, `pretty`, and `line` where it knows one."""
    media: Mapping[str, bytes] = NOTHING
    """Pictures that were inside the source."""
    error: str = ""
    """What Pandoc said when it gave up; then there is no data."""


class Pending(Protocol):
    def result(self) -> Converted:
        """Wait for it. Raises: ToolError UNAVAILABLE: it took too long, or too much memory."""
        ...


class Converter(Protocol):
    def start(
        self, arguments: Sequence[str], data: bytes, files: Mapping[str, bytes] | None = None, *, media: bool = False
    ) -> Pending:
        """Convert `data`; `files` are those that the arguments name. Several may run at once."""
        ...


class SourceRequest(NamedTuple):
    """What to read, and by what."""

    file: str
    read: Read
    pandoc: Converter
    form: str = ""
    """markdown, latex, ipynb or docx, with Pandoc's extensions (`markdown+hard_line_breaks`); else by the ending."""

    @property
    def kind(self) -> str:
        base = self.form.replace("-", "+").split("+")[0]
        return base or KINDS.get(posixpath.splitext(self.file)[1].lower(), "")

    @property
    def reader(self) -> str:
        """Pandoc's reader for it, with its extensions."""
        return self.form or _READERS.get(self.kind, self.kind)


def as_json(tree: Any) -> bytes:
    """A document for Pandoc, by the fastest writer that is loaded: to load orjson takes longer than to write a paper."""
    if "orjson" in sys.modules:
        written: bytes = _WRITE_FAST(tree)
        return written
    text: str = _WRITE(tree, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def from_json(data: bytes) -> Any:
    """A document of Pandoc's: as above."""
    is_large = len(data) > ORJSON_FROM
    return _READ_FAST(data) if is_large or "orjson" in sys.modules else _READ(data)


class Opened(NamedTuple):
    """A source that Pandoc reads now."""

    source: Source
    faults: SourceFaults
    side: bytes
    """Front matter that stands beside a source which can have none inside: paper.yaml for paper.docx."""
    running: Pending


def open_source(request: SourceRequest) -> Opened:
    """Side effect: Pandoc starts to read. Raises: BuildFault: the source cannot be read at all."""
    if request.kind not in FORMS:
        raise ToolError("INVALID_ARGUMENT", f"{request.file}: name its form: --from {', '.join(FORMS)}")
    faults = SourceFaults()
    source = load(request.file, request.kind, request.read, faults)
    source.form = request.form
    if not source.data and not source.text:
        faults.stop_if_any()
    side = b"" if source.kind == "markdown" else request.read(side_name(source), MAX_SOURCE_BYTES) or b""
    return Opened(source, faults, side, start_reading(request, source, side))


def side_name(source: Source) -> str:
    return posixpath.splitext(source.file)[0] + ".yaml"


def start_reading(request: SourceRequest, source: Source, side: bytes) -> Pending:
    data = source.data
    if source.kind == "latex":
        data = data.replace(b"\\appendix", f"\\par {APPENDIX}\\par ".encode())
    arguments = [f"--from={request.reader}", "--to=json"]
    arguments += ["--metadata-file=front.yaml"] if side else []
    files = {"front.yaml": side} if side else None
    return request.pandoc.start(arguments, data, files, media=source.kind in {"ipynb", "docx"})
