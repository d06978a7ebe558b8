"""References from BibTeX: read strictly, shown as text. A key that is cited and missing is the caller's error to tell."""

from __future__ import annotations

import re
import unicodedata
from html import escape
from typing import Final

from msgspec import Struct

from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.lines import LineIndex

_ENTRY: Final = re.compile(r"@(\w+)\s*\{", re.ASCII)
_KEY: Final = re.compile(r"\s*([^\s,{}=\"#%]+)\s*,")
_FIELD: Final = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*", re.ASCII)
_BARE: Final = re.compile(r"[A-Za-z0-9]+")
_ACCENT: Final = re.compile(r"\\([\"'`^~=.]|[cvuHrk](?![A-Za-z]))\s*(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))")
_ACCENTS: Final = {
    '"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "r": "\u030a", "k": "\u0328",
}  # fmt: skip
_SYMBOLS: Final = {
    "ss": "ß", "o": "ø", "O": "Ø", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł",
    "i": "ı", "textendash": "–", "textemdash": "—", "ldots": "…", "textquoteright": "’",
}  # fmt: skip
_COMMAND: Final = re.compile(r"\\([A-Za-z]+)\s*(?:\{\})?|\\([&%$#_{} ])")


class Entry(Struct, frozen=True):
    key: str
    kind: str
    fields: dict[str, str]
    """Lower-case names; values as plain text."""
    line: int


def read(source: str, file: str) -> dict[str, Entry]:
    """Every entry by key. Raises: BuildFault: what is not BibTeX, or a TeX command that has no plain form."""
    lines = LineIndex(source)
    found: dict[str, Entry] = {}
    position = 0
    while match := _ENTRY.search(source, position):
        line = lines.place(match.start())[0]
        kind = match[1].lower()
        end = _closing(source, match.end() - 1, file, line)
        if kind not in ("comment", "preamble"):
            entry = _entry(source[match.end() : end], kind, file, line)
            if entry.key in found:
                raise BuildFault(file, line, f"the key {entry.key} stands twice")
            found[entry.key] = entry
        position = end + 1
    return found


def _closing(source: str, start: int, file: str, line: int) -> int:
    """Where the brace at `start` is closed."""
    depth = 0
    for match in re.finditer(r"\\.|[{}]", source[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return start + match.start()
    raise BuildFault(file, line, "the entry is not closed")


def _entry(body: str, kind: str, file: str, line: int) -> Entry:
    key = _KEY.match(body)
    if not key:
        raise BuildFault(file, line, "the entry has no key")
    fields: dict[str, str] = {}
    position = key.end()
    while match := _FIELD.match(body, position):
        here = line + body.count("\n", 0, match.start(1))
        value, position = _value(body, match.end(), file, here)
        fields[match[1].lower()] = plain(value, file, here)
        comma = re.compile(r"\s*,?").match(body, position)
        position = comma.end() if comma else position
    rest = body[position:].lstrip()
    if rest:
        raise BuildFault(file, line + body.count("\n", 0, len(body) - len(rest)), "a field is written name = {value}")
    return Entry(key[1], kind, fields, line)


def _value(body: str, start: int, file: str, line: int) -> tuple[str, int]:
    first = body[start : start + 1]
    if first == "{":
        end = _closing(body, start, file, line)
        return body[start + 1 : end], end + 1
    if first == '"':
        end = start + 1
        depth = 0
        while end < len(body) and (body[end] != '"' or depth):
            depth += {"{": 1, "}": -1}.get(body[end], 0)
            end += 1
        return body[start + 1 : end], end + 1
    bare = _BARE.match(body, start)
    if not bare:
        raise BuildFault(file, line, 'a value is {text}, "text" or a number')
    return bare[0], bare.end()


def plain(text: str, file: str, line: int) -> str:
    """TeX's accents and signs as Unicode, braces dropped."""

    def accented(match: re.Match[str]) -> str:
        letter = match[2] or match[3]
        return unicodedata.normalize("NFC", letter + _ACCENTS[match[1]])

    def command(match: re.Match[str]) -> str:
        if match[2]:
            return match[2]
        if match[1] not in _SYMBOLS:
            raise BuildFault(file, line, f"the command \\{match[1]} has no plain form here")
        return _SYMBOLS[match[1]]

    text = _COMMAND.sub(command, _ACCENT.sub(accented, text))
    text = re.sub(r"(?<!\\)[{}]", "", text).replace("---", "—").replace("--", "–").replace("~", " ")
    return " ".join(text.split())


def show(entry: Entry) -> str:
    """One reference as HTML."""
    get = entry.fields.get
    parts = [_people(get("author") or get("editor") or ""), get("title", "")]
    text = ". ".join(escape(part.rstrip("."), quote=False) for part in parts if part)
    venue = get("journal") or get("booktitle") or get("howpublished") or ""
    details = []
    if venue:
        volume = f" {get('volume')}" if get("volume") else ""
        details.append(f"<cite>{escape(venue, quote=False)}</cite>{escape(volume)}")
    details += [escape(one, quote=False) for one in (get("publisher"), get("year"), get("pages"), get("note")) if one]
    text += f". {', '.join(details)}." if details else "."
    address = f"https://doi.org/{get('doi')}" if get("doi") else get("url", "")
    if address.startswith(("https://", "http://")):
        text += f' <a href="{escape(address)}">{escape(get("doi") or address)}</a>.'
    return text


def _people(text: str) -> str:
    names = []
    for one in re.split(r"\s+and\s+", text):
        family, comma, given = one.partition(", ")
        names.append(f"{given} {family}" if comma else one)
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
