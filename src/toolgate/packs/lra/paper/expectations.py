"""What a claim expects: the number in its text is the one place that says it (docs/reference/paper-markup.md).

    <li data-lra-claim="1" data-lra-run="wasm/sum.wasm#sum" data-lra-input="2 3">
    <p>Two and three make <data class="expect" value="5">5</data>.</p>

The badge on the page, `validate` and `verify` all read it here. Older papers say what to run, and what to expect, on the element
that shows the evidence; then the claim's text must hold that number.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from turbohtml import Element, Text

from toolgate.packs.lra.paper import numbers
from toolgate.packs.lra.paper.page import squeeze

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolgate.packs.lra.paper.page import Claim, Page

MAX_VALUES: Final = 16
"""Arguments or results of one call."""
MAX_VALUE_CHARS: Final = 40
_RUN: Final = re.compile(r"([^#\s]{1,512})#([^\s#]{1,128})")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
MAX_NODES: Final = 32
"""Of the text of one number: digits, and exponents."""
_SHOWN: Final = 60
"""Characters of a stranger's text in a message."""


class Declared(Struct, frozen=True):
    """What a claim says should happen: this function, called with these values, gives this."""

    module: str
    function: str
    values: tuple[str, ...]
    expected: tuple[str, ...]
    tolerance: str = "0"

    @property
    def is_wasm(self) -> bool:
        return self.module.lower().endswith(".wasm")


class Expectation(Struct, frozen=True):
    declared: Declared | None
    """None when the claim runs nothing, or says so in a way that cannot be read."""
    said: tuple[str, ...] = ()
    """The numbers as the text has them."""
    fault: str = ""
    """Why text and expectation are not one; empty when they are."""


def of_claim(page: Page, claim: Claim) -> Expectation:
    marked = [
        element for element in claim.element.find_all("data") if "expect" in (element.attr("class") or "").split()
    ]
    if len(marked) > MAX_VALUES:
        return Expectation(None, (), f"it marks more than {MAX_VALUES} numbers")
    said = tuple(spoken(element)[:_SHOWN] for element in marked)
    if (claim.element.attr("data-lra-run") or "").strip():
        return _of_marks(page, claim.element, marked, said)
    older = next(
        (target for target in map(page.target, claim.evidence) if target is not None and target.attr("data-lra-run")),
        None,
    )
    if older is None:
        return Expectation(None, said, _mark_fault(page, marked))
    return _of_evidence(page, claim, older, marked, said)


def file_of(reference: str) -> str:
    """The file that `FILE#FUNCTION` names; empty when it names none."""
    named = _RUN.fullmatch(reference.strip())
    return named[1] if named else ""


def _of_marks(page: Page, item: Element, marked: Sequence[Element], said: tuple[str, ...]) -> Expectation:
    if not marked:
        return Expectation(None, said, 'it runs something but marks no number: <data class="expect" value="...">')
    fault = _mark_fault(page, marked)
    if fault:
        return Expectation(None, said, fault)
    declared = _declared(item, [(element.attr("value") or "").strip() for element in marked])
    if declared is None:
        return Expectation(None, said, "what it runs cannot be read: FILE#FUNCTION, and numbers as input")
    return Expectation(declared, said)


def _of_evidence(
    page: Page, claim: Claim, element: Element, marked: Sequence[Element], said: tuple[str, ...]
) -> Expectation:
    expected = (element.attr("data-lra-expect") or "").split()
    declared = _declared(element, expected)
    if declared is None:
        return Expectation(
            None, said, "what its evidence runs cannot be read: FILE#FUNCTION, numbers as input and expect"
        )
    if marked:
        fault = _mark_fault(page, marked) or _differs(
            expected, [(element.attr("value") or "").strip() for element in marked]
        )
        return Expectation(declared, said, fault)
    stated = numbers.numbers_in(claim.text, language(page))
    absent = [number for number in expected if numbers.exact(number) not in stated]
    fault = f"its text does not say {absent[0]}, which its evidence is to give" if absent else ""
    return Expectation(declared, (), fault)


def _declared(element: Element, expected: Sequence[str]) -> Declared | None:
    named = _RUN.fullmatch((element.attr("data-lra-run") or "").strip())
    values = (element.attr("data-lra-input") or "").split()
    tolerance = (element.attr("data-lra-tolerance") or "0").strip()
    readable = 0 < len(expected) <= MAX_VALUES and len(values) <= MAX_VALUES
    if not named or not readable or not all(map(_is_number, (*values, *expected, tolerance))):
        return None
    return Declared(named[1], named[2], tuple(values), tuple(expected), tolerance)


def _is_number(text: str) -> bool:
    return len(text) <= MAX_VALUE_CHARS and _NUMBER.fullmatch(text) is not None


def _mark_fault(page: Page, marked: Sequence[Element]) -> str:
    return next((fault for element in marked if (fault := number_fault(page, element))), "")


def number_fault(page: Page, element: Element) -> str:
    """Why the text of a `data` element is not its value; empty when it is."""
    value, text = (element.attr("value") or "").strip(), spoken(element)
    if not _is_number(value):
        return f"the value {value[:_SHOWN] or '(none)'} is not a number"
    if numbers.spelt(text, language(page)) != numbers.exact(value):
        return f"its text says {text[:_SHOWN] or '(nothing)'}, its value is {value}"
    return ""


def _differs(expected: Sequence[str], marked: Sequence[str]) -> str:
    if list(map(numbers.exact, expected)) == list(map(numbers.exact, marked)):
        return ""
    return f"its text says {' '.join(marked)[:_SHOWN]}, its evidence is to give {' '.join(expected)[:_SHOWN]}"


def language(page: Page) -> str:
    root = page.first("html")
    return (root.attr("lang") or "") if root is not None else ""


def spoken(element: Element) -> str:
    """The text with its exponents marked: `10<sup>3</sup>` is not 103."""
    return squeeze("".join(_pieces(element)))


def _pieces(element: Element) -> Iterator[str]:
    for node in islice(element.descendants, MAX_NODES):
        if isinstance(node, Text):
            parent = node.parent
            is_power = isinstance(parent, Element) and parent.tag == "sup"
            yield f"^{node.data.strip()}" if is_power else node.data
