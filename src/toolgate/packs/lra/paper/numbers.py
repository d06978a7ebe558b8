"""A number as a reader sees it: `31 417`, `−0,5`, `6.02 × 10²³`. The page's script reads by the same rules (`evidence.js`)."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_COMMA_LANGUAGES: Final = (
    " af bg ca cs da de el es et eu fi fr gl hr hu id is it lt lv nb nl nn no pl pt ro ru sk sl sr sv tr uk vi "
)
"""Where a comma divides the fraction, and a point the groups."""
MAX_CHARS: Final = 60
"""Of one number in a text: what people write, and cheap to read."""
SOURCE: Final = "data-lra-source"
FORM: Final = "data-lra-format"
"""How the text writes a number from data (`.2f`): rounded, or in groups. A claim's expectation is then the rounded number."""
TEXT: Final = "text"
"""The format of what comes from data and is not a number."""
FORMAT: Final = re.compile(r",?(?:\.[0-9]{1,2}[feg%]|d)?")
"""How a number from data may be written: the part of Python's formats that has a meaning in prose."""
_SUPERSCRIPTS: Final = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹", "-+0123456789")
_POWER: Final = r"(?:e(?P<e>[+-]?[0-9]{1,3})|\s?[×·]\s?10(?:\^(?P<p>[+\-−]?[0-9]{1,3})|(?P<s>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3})))?"


def _grammar(group: str, point: str) -> re.Pattern[str]:
    grouped = rf"[0-9]{{1,3}}(?:(?P<g>[ \u00a0\u2009\u202f'’{group}])[0-9]{{3}})(?:(?P=g)[0-9]{{3}})*(?![0-9])"
    whole = rf"(?:{grouped}|[0-9]+)"
    return re.compile(rf"(?P<sign>[-−+]?)(?P<body>{whole}(?:{point}[0-9]+)?|{point}[0-9]+){_POWER}", re.IGNORECASE)


_POINT: Final = _grammar(",", r"\.")
_COMMA: Final = _grammar(".", ",")


def exact(text: str) -> Decimal | None:
    """A machine's spelling: the value of an attribute."""
    try:
        value = Decimal(text) if len(text) <= MAX_CHARS and "_" not in text else None
    except InvalidOperation:
        return None
    return value if value is not None and value.is_finite() else None


def spelt(text: str, lang: str = "en") -> Decimal | None:
    """The number that the whole text says, None when it says none or more than one thing."""
    plain = text.strip()
    match = _of(lang).fullmatch(plain) if len(plain) <= MAX_CHARS else None
    return _value(match, lang) if match else None


def written(value: Any, form: str = "", lang: str = "en") -> str | None:
    """A number from data as prose has it, with the signs of the language; None when it is not a number of that form."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not FORMAT.fullmatch(form) or not (is_whole or (isinstance(value, float) and not form.endswith("d"))):
        return None
    text = format(value, form) if form else repr(value)
    group, point = (".", ",") if _has_comma(lang) else (",", ".")
    shown = text.translate({ord(","): group, ord("."): point})
    return "−" + shown[1:] if shown.startswith("-") else shown


def numbers_in(text: str, lang: str = "en") -> set[Decimal]:
    """Every number in a sentence."""
    return {_value(match, lang) for match in _of(lang).finditer(text)}


def _of(lang: str) -> re.Pattern[str]:
    return _COMMA if _has_comma(lang) else _POINT


def _has_comma(lang: str) -> bool:
    return f" {lang.strip().lower().partition('-')[0]} " in _COMMA_LANGUAGES


def _value(match: re.Match[str], lang: str) -> Decimal:
    group, point = (".", ",") if _has_comma(lang) else (",", ".")
    body = re.sub(rf"[ \u00a0\u2009\u202f'’{group}]", "", match["body"]).replace(point, ".")
    power = match["e"] or match["p"] or (match["s"] or "").translate(_SUPERSCRIPTS) or "0"
    sign = "-" if match["sign"] in ("-", "−") else ""
    return Decimal(f"{sign}{body}e{power.replace('−', '-')}")
