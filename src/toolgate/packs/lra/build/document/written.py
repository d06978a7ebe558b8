"""Pandoc's HTML as the page has it, and its MathML as browsers show it well: they know no enclosures, put no space after `sin`,
and stretch every accent.

Imported while Pandoc writes.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

_MATH: Final = re.compile(
    r'([(\[“‘]?)<math display="(block|inline)" xmlns="[^"]*"><semantics>(.*?)<annotation [^>]*>.*?</annotation></semantics>'
    r"</math>([.,;:!?)\]’”]*)",
    re.DOTALL,
)
_MATH_STYLE: Final = re.compile(r' style="text-align: (?:left|right|center)(; padding-(?:left|right): 0)?"')
_CODE: Final = re.compile(
    r'<div class="sourceCode" id="cb\d+"(?:[^>]*)><pre\s+class="sourceCode ([^"]*)">'
    r'<code\s+class="sourceCode [^"]*">(.*?)</code></pre></div>',
    re.DOTALL,
)
_CODE_LINE: Final = re.compile(r'<span id="cb\d+-\d+"><a href="#cb\d+-\d+"[^>]*></a>')
_PLAIN_CODE: Final = re.compile(r'<pre(?: class="([^"]*)")?><code>')
_CITED: Final = re.compile(r'<a href="(#ref-[^"]*)" role="doc-biblioref">')


def tidy(html: str) -> str:
    """Pandoc's HTML as the page has it: no style attributes, no anchors in code, formulas without their TeX twice."""
    html = _MATH.sub(_math, html)
    html = _CODE.sub(_code, html)
    html = _PLAIN_CODE.sub(lambda found: f"<pre><code{_language(found[1] or '')}>", html)
    return _CITED.sub(r'<a class="cite" href="\1" role="doc-biblioref">', html).replace(
        '<math display="inline"', "<math"
    )


def _math(found: re.Match[str]) -> str:
    """Browsers break lines between a formula and its full stop or bracket, whatever stands there: these stay together."""
    before, display, inner, after = found.groups()
    shown = ' display="block"' if display == "block" else ""
    formula = mend(f"<math{shown}>{_MATH_STYLE.sub(_joint, inner)}</math>")
    return f'<span class="nb">{before}{formula}{after}</span>' if before or after else formula


def _joint(found: re.Match[str]) -> str:
    """Columns that meet at a sign; the side is told by `columnalign`, which stays."""
    return ' class="joint"' if found[1] else ""


def _code(found: re.Match[str]) -> str:
    return f"<pre><code{_language(found[1])}>{_CODE_LINE.sub('<span>', found[2])}</code></pre>"


def _language(classes: str) -> str:
    names = [name for name in classes.split() if name not in {"numberLines", "number-lines", "sourceCode", "literate"}]
    return f' class="language-{names[0]}"' if names else ""


# -- formulas -----------------------------------------------------------------------------------------------

_TO_MEND: Final = re.compile(r'mathvariant="normal">[^<]{2}|accent="true"|\u2225|[′″‴]</m[oi]></msup>')
_APPLY: Final = "\u2061"
_THIN: Final = "0.1667em"
_SCRIPTS: Final = frozenset({"msub", "msup", "msubsup", "munder", "mover", "munderover"})
_ACCENTS: Final = {
    "\u0302": "^", "\u0303": "~", "\u203e": "¯", "\u0307": "˙", "\u0308": "¨", "\u0301": "´", "\u0300": "`",
    "\u030c": "ˇ", "\u0306": "˘", "\u2192": "→", "\u20d6": "←", "\u20d7": "→",
}  # fmt: skip
"""Pandoc's combining marks, which fonts draw over nothing, by marks that stand for themselves."""
_WIDE_HAT: Final = "\u0302"
"""Browsers and fonts stretch this mark over several letters, and its free-standing form over one only: `xŷz` means something
else. There is no such mark for a tilde."""
_LINES: Final = {("mover", "¯"): "top", ("munder", "_"): "bottom"}
_PRIMES: Final = frozenset("′″‴")


def mend(math: str) -> str:
    """One `<math>` element."""
    if not _TO_MEND.search(math):
        return math
    # The text is Pandoc's own, not a stranger's: it has no entities but those of XML, and no doctype.
    root = ET.fromstring(math)  # noqa: S314 (as said)
    _mend(root)
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)


def _mend(parent: ET.Element) -> None:
    for at, child in enumerate(list(parent)):
        _mend(child)
        parent[at] = _mended(child)
    if parent.tag in {"mrow", "math", "mtd", "mstyle"}:
        _space_functions(parent)


def _mended(node: ET.Element) -> ET.Element:
    if node.tag == "mo" and node.text == "\u2225" and node.get("form") in {"prefix", "postfix"}:
        node.text = "\u2016"  # a norm's bars, not the relation `parallel` with its spaces
    mark = node[1] if node.tag in {"mover", "munder"} and len(node) == 2 else None
    if mark is not None and mark.get("accent") == "true":
        return _accent(node, mark)
    if node.tag == "msup" and len(node) == 2 and node[1].tag in {"mo", "mi"} and (node[1].text or "") in _PRIMES:
        node.tag = "mrow"  # fonts raise a prime by themselves; a raised one flies away
        node[1].tag = "mo"
        node[1].set("lspace", "0")
        node[1].set("rspace", "0")
    return node


def _accent(node: ET.Element, mark: ET.Element) -> ET.Element:
    side = _LINES.get((node.tag, mark.text or ""))
    if side:
        line = ET.Element("menclose", {"notation": side})
        line.append(node[0])
        return line
    sign = _ACCENTS.get(mark.text or "")
    if sign:
        alone = node[0].tag == "mi" and len(node[0].text or "") == 1
        mark.text = mark.text if mark.text == _WIDE_HAT and not alone else sign
        mark.attrib.pop("accent")
        node.set("accent", "true")
        mark.set("stretchy", "false" if alone else "true")
    return node


def _is_function(node: ET.Element) -> bool:
    if node.tag in _SCRIPTS:
        return len(node) > 0 and _is_function(node[0])
    if node.tag == "mrow":
        return len(node) == 2 and node[1].tag == "mo" and node[1].text == _APPLY
    return node.tag == "mi" and node.get("mathvariant") == "normal" and len(node.text or "") > 1


def _space_functions(row: ET.Element) -> None:
    """`ln 20`, `a sin x`: a thin space where TeX has one."""
    children = list(row)
    for at, child in enumerate(children):
        if not _is_function(child):
            continue
        before = children[at - 1] if at else None
        after = children[at + 1] if at + 1 < len(children) else None
        if after is not None and after.tag not in {"mo", "mspace"} and not _is_fence(after):
            row.insert(list(row).index(child) + 1, ET.Element("mspace", {"width": _THIN}))
        closed = before is not None and before.get("form") == "postfix"
        if before is not None and (closed or before.tag not in {"mo", "mspace"}) and not _is_function(before):
            row.insert(list(row).index(child), ET.Element("mspace", {"width": _THIN}))


def _is_fence(node: ET.Element) -> bool:
    return node.tag == "mrow" and len(node) > 0 and node[0].tag == "mo" and node[0].get("form") == "prefix"
