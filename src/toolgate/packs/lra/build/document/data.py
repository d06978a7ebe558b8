"""Numbers and tables that come from files, so that prose cannot drift from data.

`{{results.json#/p95}}` stands for the number at that place; `[0.95]{data="results.json#/p95"}` is compared with it. A CSV file
shown as if it were a picture is a table: `![Times in ms](times.csv){#tbl-times}`.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from html import escape
from typing import Any, Final

from toolgate.later import later
from toolgate.packs.lra.build.document import ast, media
from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.faults import SourcePlace
from toolgate.packs.lra.paper import numbers
from toolgate.packs.lra.paper.loading.urls import local_path

_PARSE_JSON: Final = later("orjson:loads")
BINDING: Final = re.compile(r"\{\{\s*([^\s{}#|]+)#([^\s{}|]*)(?:\|([^\s{}]+))?\s*\}\}")
MAX_CELLS: Final = 20_000
"""Of a table from a file: more is data to link, not a table to read."""
_NUMBER: Final = re.compile(r"[+\-−]?[0-9][0-9 \u00a0\u202f,']*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?%?")
_MISSING: Final = object()


def bound(document: Document, match: re.Match[str]) -> ast.Nodes:
    """The number that `{{file#pointer|format}}` names."""
    found = _of(document, match)
    if found is None:
        return ast.words("?")
    value, text = found
    opening = _open(match[1], match[2], value, match[3])
    return [ast.html_inline(opening), *ast.words(text), ast.html_inline("</data>")]


def text_bound(document: Document, text: str) -> str:
    """The same inside a formula: the number alone, as TeX."""

    def number(match: re.Match[str]) -> str:
        found = _of(document, match)
        return match[0] if found is None else _tex(found[1])

    return BINDING.sub(number, text)


def _of(document: Document, match: re.Match[str]) -> tuple[Any, str] | None:
    """What the file has there, and how the text writes it; None when that cannot be (and the fault is told)."""
    source, form = f"{match[1]}#{match[2]}", match[3] or ""

    def place() -> SourcePlace:
        return document.place(match[0], pattern=rf"\{{\{{\s*{re.escape(source)}")

    value = _look_up(document, match[1], match[2], place)
    if value is _MISSING:
        return None
    text = value if isinstance(value, str) and not form else numbers.written(value, form, document.lang)
    if text is None:
        document.fault(
            place(), f"{form[:20]} is not a format of {_text(value)[:40]}; formats are such as .2f, ,d and .1%"
        )
        return None
    return value, text


def _tex(text: str) -> str:
    shown = text.replace("−", "-").replace("%", r"\%").replace(",", "{,}")
    return re.sub(r"e([+-]?)0*([0-9]+)$", lambda power: rf" \times 10^{{{power[1].strip('+')}{power[2]}}}", shown)


def compared(document: Document, inlines: ast.Nodes, source: str) -> ast.Nodes:
    """A number in the text that must be the one in the file."""
    file, _, pointer = source.partition("#")

    def place() -> SourcePlace:
        return document.place(source)

    value = _look_up(document, file, pointer, place)
    if value is _MISSING:
        return inlines
    written = ast.text_of(inlines)
    if not same_number(written, value, document.lang):
        document.fault(place(), f"the text says {written[:40]}, {source} is {_text(value)[:40]}")
    return [ast.html_inline(_open(file, pointer, value)), *inlines, ast.html_inline("</data>")]


def same_number(written: str, value: Any, lang: str) -> bool:
    if isinstance(value, str):
        return written == " ".join(value.split())
    return numbers.spelt(written, lang) == numbers.exact(_text(value))


def _open(file: str, pointer: str, value: Any, form: str | None = None) -> str:
    path = local_path(file) or file
    named = numbers.TEXT if isinstance(value, str) else form
    written = f' {numbers.FORM}="{escape(named)}"' if named else ""
    source = f"{escape(path)}#{escape(_pointer(pointer))}"
    return f'<data class="bound" value="{escape(_text(value))}" {numbers.SOURCE}="{source}"{written}>'


def _pointer(path: str) -> str:
    """`latency.p95` and `/latency/p95` are the same place."""
    return path if path.startswith("/") or not path else "/" + path.replace(".", "/")


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _look_up(document: Document, file: str, pointer: str, place: Any) -> Any:
    media.take(document, file, "file", place)
    path = local_path(file) or ""
    content = document.files.get(path)
    if content is None:
        return _MISSING
    if path not in document.data:
        document.data[path] = _parsed(content)
    value = document.data[path]
    if value is _MISSING:
        document.fault(place(), f"{file[:80]} is not JSON; a number comes from a JSON file")
        return _MISSING
    for step in _pointer(pointer).split("/")[1:]:
        value = _step(value, step.replace("~1", "/").replace("~0", "~"))
        if value is _MISSING:
            break
    if value is _MISSING or not isinstance(value, str | int | float) or isinstance(value, bool):
        what = "is not a number or text" if value is not _MISSING else "is not there"
        document.fault(place(), f"{pointer[:80] or 'the whole'} {what} in {file[:80]}")
        return _MISSING
    return value


def _parsed(content: bytes) -> Any:
    try:
        return _PARSE_JSON(content)
    except ValueError:  # what orjson raises is one
        return _MISSING


def _step(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step, _MISSING)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return _MISSING


# -- tables --------------------------------------------------------------------------------------------------


def is_table(url: str) -> bool:
    return posixpath.splitext(url)[1].lower() in {".csv", ".tsv"}


def table(document: Document, url: str, pairs: dict[str, str], place: Any) -> ast.Node | None:
    """A table from a CSV or TSV file beside the source; None when it cannot be made (and the fault is told)."""
    media.take(document, url, "table", place)
    content = document.files.get(local_path(url) or "")
    return None if content is None else from_csv(document, content.decode("utf-8-sig", "replace"), pairs, url, place)


def from_csv(document: Document, text: str, pairs: dict[str, str], name: str, place: Any) -> ast.Node | None:
    delimiter = "\t" if name.lower().endswith(".tsv") else pairs.get("delimiter", ",")[:1]
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter, strict=True) if row]
    except (csv.Error, ValueError) as fault:
        document.fault(place(), f"{name[:80]} is not a table: {fault}")
        return None
    rows = _columns(document, rows, pairs.get("columns", ""), place)
    if not rows or sum(map(len, rows)) > MAX_CELLS:
        document.fault(place(), f"{name[:80]} has no rows" if not rows else f"{name[:80]} has over {MAX_CELLS} cells")
        return None
    uneven = next((number for number, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    if uneven:
        document.fault(place(), f"row {uneven} of {name[:80]} has {len(rows[uneven - 1])} cells, not {len(rows[0])}")
        return None
    aligns = [{"t": "AlignRight" if _is_numeric(rows, at) else "AlignLeft"} for at in range(len(rows[0]))]
    columns = [[align, {"t": "ColWidthDefault"}] for align in aligns]
    head = [ast.attr(), [_row(rows[0])]]
    body = [ast.attr(), 0, [], [_row(row) for row in rows[1:]]]
    return {"t": "Table", "c": [ast.attr(), [None, []], columns, head, [body], [ast.attr(), []]]}


def _columns(document: Document, rows: list[list[str]], wanted: str, place: Any) -> list[list[str]]:
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not names or not rows:
        return rows
    missing = [name for name in names if name not in rows[0]]
    if missing:
        document.fault(place(), f"there is no column {missing[0][:60]}; there are {', '.join(rows[0])[:200]}")
        return rows
    at = [rows[0].index(name) for name in names]
    return [[row[number] if number < len(row) else "" for number in at] for row in rows]


def _is_numeric(rows: list[list[str]], at: int) -> bool:
    cells = [row[at].strip() for row in rows[1:] if row[at].strip()]
    return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)


def _row(cells: list[str]) -> list[Any]:
    found = [[ast.attr(), {"t": "AlignDefault"}, 1, 1, [ast.plain(ast.words(cell.strip()))]] for cell in cells]
    return [ast.attr(), found]
