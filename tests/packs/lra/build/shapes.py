"""A formula's MathML as a tree of what it means, so that two renderers can be compared: which signs, and what stands where.

Rows, styles and spaces go; a limit below a sign and a subscript are one thing; and two renderers choose different characters for
the same sign (`SAME`). Nothing else may differ.
"""

from __future__ import annotations

import unicodedata
from typing import TypeAlias
from xml.etree import ElementTree as ET

Tree: TypeAlias = "list[str | Tree]"
"""Signs in reading order, and structures among them: `["x", ["sup", [""], ["2"]]]`; the first of a structure is its name."""

SAME = str.maketrans(
    {
        "∣": "|", "∥": "‖", "ˆ": "^", "\u0302": "^", "˜": "~", "ˊ": "´", "ˋ": "`", "⃗": "→", "∖": "\\",
        "⟺": "⇔", "⟶": "→", "∗": "*", "∙": "•", "⟂": "⊥", "⌀": "∅", "⁣": "", "⋯": "…", "′": "'",
    }
)  # fmt: skip
_UNSEEN = {0x2061: None, 0x2062: None, 0x200B: None, 0xA0: None, 0x20: None}
_LINES = str.maketrans(dict.fromkeys("¯‾ˉ_\u0304\u0305", "—"))
"""Bars over and under."""
_SCRIPTS = {"munder": "sub", "msub": "sub", "msup": "sup", "mover": "sup", "msubsup": "both", "munderover": "both"}
_NAMED = {"mfrac": "frac", "msqrt": "sqrt", "mroot": "root"}
_TOKENS = {"mi", "mn", "mo", "mtext", "ms"}
_PRIMES = {"′", "″", "‴", "'"}


def signs(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.translate(_UNSEEN).translate(_LINES).translate(SAME)).translate(SAME)
    return plain.replace(" ", "").replace("...", "…")


def tree(root: ET.Element) -> Tree:
    found: Tree = []
    for node in root:
        for part in _parts(node):
            if isinstance(part, str) and found and isinstance(found[-1], str):
                found[-1] += part
            elif part:
                found.append(part)
    return found


def _parts(node: ET.Element) -> Tree:
    tag = node.tag.rpartition("}")[2]
    if tag in _TOKENS and not len(node):  # KaTeX makes whole structures operators
        return [signs(node.text or "")]
    if tag in {"annotation", "mspace", "none", "mprescripts"}:
        return []
    if tag in _SCRIPTS:
        is_over_all = tag.startswith(("mo", "mu"))
        return [[_SCRIPTS[tag], *map(_inside, node)]] if is_over_all else _attached(_SCRIPTS[tag], list(node))
    if tag == "menclose" and node.get("notation") in {"top", "bottom"}:  # how the page draws a line over or under
        return [["sup" if node.get("notation") == "top" else "sub", tree(node), ["—"]]]
    if tag == "mrow" and [(one.text or "") in _PRIMES for one in node] == [False, True]:
        return _attached("sup", list(node))  # a prime that is not raised by hand
    if tag == "mtable":
        return [["table", *(["row", *(["cell", *tree(cell)] for cell in row)] for row in node)]]
    if tag in _NAMED:
        parts = [tree(node)] if tag == "msqrt" else [_inside(one) for one in node]
        return [[_NAMED[tag], *parts]]
    return tree(node)


def _attached(name: str, parts: list[ET.Element]) -> Tree:
    """Renderers differ in how much of what stands before it carries a script: `|x|` or its last bar, which looks the same."""
    base, *scripts = (_inside(one) for one in parts)
    before = base[:-1]
    last = base[-1] if base else ""
    if isinstance(last, str):
        before, last = [*before, last[:-1]], last[-1:]
    return [*before, [name, [last], *scripts]]


def _inside(node: ET.Element) -> Tree:
    holder = ET.Element("mrow")
    holder.append(node)
    return tree(holder)
