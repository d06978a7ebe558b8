"""Numbers that name the data they come from: text, value and data are one.

<data class="bound" value="0.95" data-lra-source="data/results.json#/p95">0.95</data>
<data class="bound" value="0.9512" data-lra-source="data/results.json#/p95" data-lra-format=".2f">0.95</data>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.model import strictjson
from toolgate.packs.lra.paper import expectations, numbers
from toolgate.packs.lra.paper.page import squeeze
from toolgate.packs.lra.paper.paper import Paper, RuleHit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbohtml import Element

    from toolgate.packs.lra.paper.page import Page

MAX_JSON_BYTES: Final = 2 * 1024 * 1024
MAX_BOUND: Final = 1000
"""Numbers of one page that are compared."""
_SHOWN: Final = 120
_ABSENT: Final = object()


def faults(paper: Paper) -> Iterator[RuleHit]:
    """Of every number that names a JSON file that was read. A file of another kind is hashed, not compared."""
    read: dict[str, Any] = {}
    bound = [element for element in paper.page.by_tag["data"] if element.attr(numbers.SOURCE)]
    for element in bound[:MAX_BOUND]:
        name, _, pointer = (element.attr(numbers.SOURCE) or "").strip().partition("#")
        if not pointer.startswith("/") or not name.endswith(".json") or name not in paper.artifact.files:
            continue
        if name not in read:
            read[name] = _json(paper.artifact.files[name])
        fault = _fault(paper.page, element, name, pointer, _at(read[name], pointer))
        if fault:
            yield paper.at(element, f"a number and its data differ: {fault}")


def _fault(page: Page, element: Element, name: str, pointer: str, found: Any) -> str:
    """Why text, value and data are not one; empty when they are."""
    form, value = element.attr(numbers.FORM), (element.attr("value") or "").strip()
    said = expectations.spoken(element)
    if form == numbers.TEXT:
        differs = not isinstance(found, str) or not squeeze(found) == said == squeeze(value)
        return f"it says {said[:_SHOWN]}, which is not the text at {pointer[:_SHOWN]}" if differs else ""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return f"{name[:_SHOWN]} has no number at {pointer[:_SHOWN]}"
    there = f"{name[:_SHOWN]} has {found} at {pointer[:_SHOWN]}"
    if form is not None and said != numbers.written(found, form, expectations.language(page)):
        return f"it says {said[:_SHOWN]}, {there} (written as {form[:_SHOWN]})"
    is_rounded = form is not None and "expect" in (element.attr("class") or "").split()
    fault = expectations.number_fault(page, element) if form is None or is_rounded else ""
    if not fault and not is_rounded and numbers.exact(str(found)) != numbers.exact(value):
        fault = f"it says {value}, {there}"
    return fault


def _json(data: bytes) -> Any:
    try:
        return strictjson.loads(data, max_bytes=MAX_JSON_BYTES)
    except strictjson.JsonFault:
        return _ABSENT


def _at(value: Any, pointer: str) -> Any:
    """RFC 6901."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key, _ABSENT)
        elif isinstance(value, list) and key.isdigit() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            return _ABSENT
    return value
