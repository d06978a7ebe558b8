"""Formulas: TeX to MathML at build time, so the page needs no script and no font for them.

The converter passes through what it does not know and does not escape text; both are caught here.
"""

from __future__ import annotations

import re
from html import escape, unescape
from importlib import import_module
from typing import TYPE_CHECKING, Final

from toolgate.errors import ToolError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_FORMULA: Final = 5000
"""Characters: bounds the converter's recursion with `MAX_BRACES`."""
MAX_BRACES: Final = 60

_KNOWN_ENVIRONMENTS: Final = frozenset(
    f"{name}{star}"
    for name in (
        "align",
        "array",
        "bmatrix",
        "Bmatrix",
        "cases",
        "matrix",
        "pmatrix",
        "smallmatrix",
        "split",
        "vmatrix",
        "Vmatrix",
    )
    for star in ("", "*")
) | {"aligned", "gathered"}
_ATTRIBUTE: Final = re.compile(r"[a-z]+")


class FormulaFault(ValueError):
    """Why this is no formula we can show."""


def to_mathml(tex: str, *, block: bool) -> str:
    """Raises: FormulaFault; ToolError UNAVAILABLE: the converter is not installed."""
    _require_balanced(tex)
    try:
        converter = import_module("latex2mathml.converter")  # only papers with formulas need it
    except ImportError:
        raise ToolError("UNAVAILABLE", "formulas need latex2mathml: pip install latex2mathml") from None
    try:
        root: Element = converter.convert_to_element(tex, display="block" if block else "inline")
    except RecursionError:
        raise FormulaFault("it is nested too deeply") from None
    except Exception as fault:  # noqa: BLE001 (border: the converter raises classes of its own for every kind of fault)
        raise FormulaFault(_words(type(fault).__name__)) from None
    return _serialise(root)


def _require_balanced(tex: str) -> None:
    if not tex.strip():
        raise FormulaFault("it is empty")
    if len(tex) > MAX_FORMULA:
        raise FormulaFault(f"it is longer than {MAX_FORMULA} characters")
    depth = 0
    for sign in re.findall(r"\\.|[{}]", tex, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0 or depth > MAX_BRACES:
            break
    if depth:
        raise FormulaFault("its braces do not match" if depth <= MAX_BRACES else "it is nested too deeply")
    for name in re.findall(r"\\begin\{([^}]*)\}", tex):
        if name not in _KNOWN_ENVIRONMENTS:
            raise FormulaFault(f"the environment {name[:40]} is not known")


def _words(name: str) -> str:
    """`MissingEndError` -> `missing end`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Error")).lower()


def _serialise(element: Element) -> str:
    attributes = "".join(
        f' {name}="{escape(unescape(value))}"'
        for name, value in element.attrib.items()
        if _ATTRIBUTE.fullmatch(name) and name != "xmlns"
    )
    text = unescape(element.text or "")
    if element.tag != "mtext" and re.search(r"\\[A-Za-z]", text):
        raise FormulaFault(f"the command {text.strip()[:40]} is not known")
    inner = escape(text, quote=False) + "".join(_serialise(child) for child in element)
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>"
