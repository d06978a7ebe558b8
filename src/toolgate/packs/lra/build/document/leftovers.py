"""Syntax that Pandoc did not understand and passed on as text: found in the document, looked up in the source.

A dollar, a brace or a pair of stars in the text may be meant so; then the author has escaped it, and the source shows it. What
stands there without a backslash was meant as syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.state import Document


class Suspect(NamedTuple):
    pattern: re.Pattern[str]
    text: str
    needle: str = ""
    """What to look for in the source; without it, the first word of what was found."""


def _suspect(pattern: str, text: str, needle: str = "") -> Suspect:
    return Suspect(re.compile(pattern, re.MULTILINE), text, needle)


SUSPECTS: Final = (
    _suspect(r"\[\^[^\]\s]+\]", "there is no footnote of that name"),
    _suspect(r"\$\$", "a formula is not closed, or a blank line is in it", r"\$\$"),
    _suspect(
        r"\$[^$\n]*[\\^_][^$\n]*\$",
        "this is not a formula to Pandoc: no blank after the first $ and none before the last",
    ),
    _suspect(r"\{[#.][\w:.-][^{}]*\}|\{\s*[\w-]+=[^{}]*\}", "attributes belong to nothing here"),
    _suspect(
        r"^:{3,}|(?<=\s):{3,}", "a fenced block needs a blank line before it, and as many colons to close it", ":::"
    ),
    _suspect(r"\{\{<", "another tool's command; a part is included by {{part.md}} on a line of its own", r"\{\{<"),
    _suspect(r"\{\{", "a number from a file is written {{file.json#/name}}", r"\{\{"),
    _suspect(r"\\[A-Za-z]+", "TeX that is not TeX to Pandoc"),
    _suspect(r"\*\*|~~", "this emphasis is not closed"),
    _suspect(r"\]\[[^\]]*\]", "there is no link of that name", r"\]\["),
    _suspect(r"!\[|\]\(", "this link or image is not complete"),
    _suspect(r"(?<=\n)#{1,6} \S", "a heading needs a blank line before it"),
    _suspect(r"^#{1,6}[^\s#.,;:)\]0-9]\S*\s+\S", "a heading needs a blank after #"),
    _suspect(r"(?<=\n)[-*+] \S", "a list needs a blank line before it"),
    _suspect(r"(?<=\n)> \S", "a quotation needs a blank line before it"),
    _suspect(r"\|\s*:?-{2,}|\|[ ]*[—–]{1,}:?[ ]*\|", "this table is none to Pandoc", r"\|\s*:?-{2,}"),
    _suspect(r"<!--", "this comment is not closed", "<!--"),
)
_CELL: Final = re.compile(r"\{[A-Za-z][\w-]*[^{}]*\}(?=\s)")
_DASHES: Final = re.compile(r"\s*\|?\s*:?-+:?\s*(?:[|+]\s*:?-+:?\s*)*\|?\s*")
_ROLE: Final = re.compile(r"\{[a-z][\w:-]*\}$")
_OPENED: Final = re.compile(r"(?:^|[\s(])\[$")
_PARENTHESES: Final = re.compile(r"(?<!\\)\\\((.+?)\\\)|(?<!\\)\\\[(.+?)\\\]", re.DOTALL)
_LIKE_MATHS: Final = re.compile(r"[\\^_=<>]|^\s*[A-Za-z]\s*$")


def report_leftovers(document: Document, blocks: ast.Nodes) -> None:
    """SourceFaults for everything that was passed on as text."""
    if document.source.kind not in {"markdown", "ipynb"}:
        return
    for inlines in _paragraphs(blocks):
        _look_at(document, inlines)
    # A notebook's own program shows these as formulas, and so does Pandoc there.
    if document.source.kind == "markdown" and "tex_math" not in document.source.form:
        _lost_formulas(document)
    _lost_cells(document)


def _paragraphs(value: Any) -> Iterator[ast.Nodes]:
    """Every list of inlines."""
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and value[0].get("t") in ast.INLINES:
            yield value
        for item in value:
            if isinstance(item, list) or (isinstance(item, dict) and isinstance(item.get("c"), list)):
                yield from _paragraphs(item)
    elif isinstance(value, dict) and value.get("t") not in {"Code", "CodeBlock", "Math", "RawBlock", "RawInline"}:
        yield from _paragraphs(value.get("c"))


def _look_at(document: Document, inlines: ast.Nodes) -> None:
    text = _flat(inlines)
    if _HINT.search(text):
        for suspect in SUSPECTS:
            for match in suspect.pattern.finditer(text):
                _tell(document, suspect, match)
    for inline in inlines:
        cell = _CELL.match(inline["c"][1]) if inline["t"] == "Code" else None
        if cell:
            _tell_text(document, f"```{cell[0].strip()}", "another tool's block; Pandoc runs no code", code=True)
    for inline, following in pairwise(inlines):
        if inline["t"] != "Str":
            continue
        role = _ROLE.search(inline["c"]) if following["t"] == "Code" else None
        if role:
            _tell_text(document, role[0], "another tool's role; Pandoc knows [@key], @fig-x and links")
        if following["t"] == "Cite" and _OPENED.search(inline["c"]) and "]" not in text:
            key = following["c"][0][0]["citationId"]
            _tell_text(document, f"[@{key}", "this citation is not closed by ]")


_HINT: Final = re.compile(r"[\\{}$\[\]*~|<]|:::|\n[#>+*-]|^#")


def _flat(inlines: ast.Nodes) -> str:
    """The text of one paragraph; what is not plain text is a sign that no suspect matches."""
    parts = []
    for inline in inlines:
        kind = inline["t"]
        parts.append(
            inline["c"] if kind == "Str" else "\n" if kind == "SoftBreak" else " " if kind in ast.BREAKS else "\ufffc"
        )
    return "".join(parts)


def _tell(document: Document, suspect: Suspect, match: re.Match[str]) -> None:
    shown = _first_words(match)
    pattern = suspect.needle or r"\s+".join(re.escape(word) for word in shown.split())
    pattern = (
        rf"(?m:^)[ \t]*{pattern}" if match.string[match.start() - 1 : match.start()] == "\n" else rf"(?<!\\){pattern}"
    )
    offsets = document.source.offsets(pattern)
    if not offsets:
        return  # escaped in the source: meant as text
    nth = document.nth(f"leftover {pattern}")
    place = document.source.place_at(offsets[min(nth, len(offsets) - 1)])
    document.fault(place, f"{shown[:40]}: {suspect.text}")


def _first_words(match: re.Match[str]) -> str:
    """What was found and the rest of its word, up to three words, as long as they are plain text."""
    end = re.compile(r"\S*").match(match.string, match.end())
    text = match[0] + (end[0] if end and match[0][-1:] not in "]}$" else "")
    return " ".join(text.split("\ufffc")[0].split()[:3]) or match[0]


def _tell_text(document: Document, text: str, what: str, *, code: bool = False) -> None:
    document.fault(document.place(text, code=code), f"{text[:40]}: {what}")


def _lost_cells(document: Document) -> None:
    """A row with more cells than the line of dashes has: Pandoc drops the rest without a word."""
    lines = document.source.masked().split("\n")
    for number, line in enumerate(lines):
        if "|" not in line or not _DASHES.fullmatch(line) or number == 0:
            continue
        columns = _cells(line)
        rows = [number - 1, *_rows_below(lines, number)]
        for row in rows:
            if _cells(lines[row]) > columns:
                text = f"this row has {_cells(lines[row])} cells, the table {columns} columns: the rest would be lost"
                document.fault(document.source.origin(row + 1), text)


def _rows_below(lines: list[str], number: int) -> Iterator[int]:
    for row in range(number + 1, len(lines)):
        if "|" not in lines[row]:
            return
        yield row


def _cells(line: str) -> int:
    return len(re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|")))


def _lost_formulas(document: Document) -> None:
    r"""`\(x\)` and `\[x\]` are escaped brackets in Pandoc's Markdown: the formula would be printed as text."""
    for match in _PARENTHESES.finditer(document.source.masked()):
        inner = match[1] or match[2] or ""
        if _LIKE_MATHS.search(inner) and "\n\n" not in inner:
            place = document.source.place_at(match.start())
            hint = "write $...$ or $$...$$, or build with --from markdown+tex_math_single_backslash"
            document.fault(
                place, f"{match[0].strip()[:40]}: a formula in backslashed brackets is text to Pandoc; {hint}"
            )
