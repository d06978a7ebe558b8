"""The text an author wrote: parts included, front matter found, and the line of anything that turns out to be wrong.

Pandoc's document for Markdown knows no positions. What a fault is about (a key, a label, a path, a formula) stands in the
source letter by letter, so it is looked up there: the n-th one in the document is the n-th one in the source, where code and
comments do not count.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from toolgate.later import later
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace

MAX_SOURCE_BYTES: Final = 8 * 1024 * 1024
"""Of one source file: a thesis has one to two megabytes of text."""
MAX_PARTS: Final = 200
"""Files that one source may include."""
_READ_JSON: Final = later("json:loads")
_INCLUDE: Final = re.compile(r"^\{\{<?\s*(?:include\s+)?([^\s{}#|>]+\.(?:md|markdown|qmd))\s*>?\}\}[ \t]*$")
_INPUT: Final = re.compile(r"^[^%\n]*?\\(?:input|include|subfile)\{([^{}]+)\}")
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_PRIVATE: Final = re.compile(r"<!--.*?(?:-->|\Z)|(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)

Read = Callable[[str, int], bytes | None]
"""A file beside the source, of at most so many bytes; None when it is not there."""


class Source:
    """The whole text, and where each of its lines came from."""

    def __init__(self, file: str, text: str, origins: list[SourcePlace], kind: str, data: bytes = b"") -> None:
        self.file = file
        self.text = text
        self.origins = origins
        self.kind = kind
        """markdown, latex, ipynb or docx."""
        self.data = data
        """What Pandoc reads."""
        self.form = ""
        """The form as the person named it, with Pandoc's extensions."""
        self._starts: list[int] = []
        self._masked = ""
        self._found: dict[str, list[int]] = {}

    def place(self, needle: str, nth: int = 0, *, pattern: str = "", code: bool = False) -> SourcePlace:
        """Where the n-th `needle` stands; the last one when there are fewer, the file when there is none."""
        offsets = self.offsets(pattern or re.escape(needle), code=code)
        if not offsets:
            return SourcePlace(self.file)
        return self.place_at(offsets[min(nth, len(offsets) - 1)])

    def offsets(self, pattern: str, *, code: bool = False) -> list[int]:
        key = f"{int(code)}{pattern}"
        if key not in self._found:
            text = self.text if code else self.masked()
            self._found[key] = [match.start() for match in re.finditer(pattern, text)]
        return self._found[key]

    def place_at(self, offset: int) -> SourcePlace:
        return self.origin(self.line_number(offset))

    def line_number(self, offset: int) -> int:
        if not self._starts:
            self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        return bisect_right(self._starts, offset)

    def origin(self, line: int) -> SourcePlace:
        """Of a line of the whole text, counted from 1."""
        return self.origins[min(max(line, 1), len(self.origins)) - 1] if self.origins else SourcePlace(self.file)

    def masked(self) -> str:
        """The text with code and comments blanked, letter by letter, so that offsets stay true."""
        if not self._masked:
            self._masked = _mask(self.text) if self.kind in {"markdown", "ipynb"} else self.text
        return self._masked


def _mask(text: str) -> str:
    lines = text.split("\n")
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            lines[number] = " " * len(line)
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
    return _PRIVATE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), "\n".join(lines))


def load(file: str, kind: str, read: Read, faults: SourceFaults) -> Source:
    """The source with its parts. A part that is missing is a fault."""
    data = read(file, MAX_SOURCE_BYTES)
    if data is None:
        faults.add(SourcePlace(file), "there is no such file")
        return Source(file, "", [], kind)
    if kind == "docx":
        return Source(file, "", [], kind, data)
    if kind == "ipynb":
        return _notebook(file, data, faults)
    loader = _Loader(kind, read, faults)
    loader.add(file, data)
    text = "\n".join(loader.lines)
    return Source(file, text, loader.origins, kind, text.encode())


def _notebook(file: str, data: bytes, faults: SourceFaults) -> Source:
    """A notebook's text is that of its cells; a place in it is a cell and a line there, not a line of JSON."""
    source = Source(file, "", [], "ipynb", data)
    try:
        cells = _READ_JSON(data.decode())["cells"]
        texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
        "".join(text for _, text in texts).encode()  # half of a character, which JSON can spell, is no text
    except (ValueError, KeyError, TypeError, RecursionError):
        faults.add(SourcePlace(file), "this is not a notebook: JSON with cells that have a type and a source")
        return Source(file, "", [], "ipynb")
    lines: list[str] = []
    for number, (kind, text) in enumerate(texts, 1):
        for line, words in enumerate(text.split("\n"), 1):
            lines.append(words if kind == "markdown" else "")
            source.origins.append(SourcePlace(f"{file} cell {number}", line))
    source.text = "\n".join(lines)
    return source


class _Loader:
    def __init__(self, kind: str, read: Read, faults: SourceFaults) -> None:
        self.kind = kind
        self.read = read
        self.faults = faults
        self.lines: list[str] = []
        self.origins: list[SourcePlace] = []
        self.nested: list[str] = []
        self.parts = 0

    def add(self, file: str, data: bytes) -> None:
        self.nested.append(file)
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as fault:
            self.faults.add(SourcePlace(file, data.count(b"\n", 0, fault.start) + 1), "the file is not UTF-8 text")
            text = ""
        fence = ""
        for number, line in enumerate(text.split("\n"), 1):
            fence = _fence_after(line, fence)
            part = None if fence else self._part(line, file)
            if part:
                self._include(part, SourcePlace(file, number))
            else:
                self.lines.append(line)
                self.origins.append(SourcePlace(file, number))
        self.nested.pop()

    def _part(self, line: str, file: str) -> str:
        match = _INCLUDE.match(line) if self.kind == "markdown" else None
        if self.kind == "latex":
            match = _INPUT.match(line)
        if not match:
            return ""
        name = match[1] if self.kind == "markdown" or posixpath.splitext(match[1])[1] else f"{match[1]}.tex"
        # TeX finds parts from the main file, Markdown from the file that includes.
        base = file if self.kind == "markdown" else self.nested[0]
        return posixpath.normpath(posixpath.join(posixpath.dirname(base), name))

    def _include(self, part: str, place: SourcePlace) -> None:
        self.parts += 1
        data = None
        if part in self.nested:
            self.faults.add(place, f"{part} includes itself")
        elif part.startswith(("..", "/")):
            self.faults.add(place, f"{part} is not beside the source")
        elif self.parts > MAX_PARTS:
            self.faults.add(place, f"more than {MAX_PARTS} parts are included")
        else:
            data = self.read(part, MAX_SOURCE_BYTES)
            if data is None:
                self.faults.add(place, f"there is no file {part} to include")
        if data is not None:
            self.add(part, data)


def _fence_after(line: str, fence: str) -> str:
    """The open code fence after this line, or nothing."""
    mark = _FENCE.match(line)
    if not mark:
        return fence
    if not fence:
        return mark[1]
    return "" if mark[1].startswith(fence) and not line.strip().strip(fence[0]) else fence
