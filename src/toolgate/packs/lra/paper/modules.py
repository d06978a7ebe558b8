"""One module: the copy of a module that a page carries for reading from a disk is the module's file, byte for byte.

<script type="text/plain" data-lra-module="wasm/sum.wasm">AGFzbQEAAAA...</script>
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from toolgate.packs.lra.paper.paper import Paper, RuleHit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbohtml import Element

    from toolgate.packs.lra.paper.page import Page

_SHOWN: Final = 120


def copies(page: Page) -> list[tuple[str, Element]]:
    """Names of modules with the element that carries their copy."""
    found = ((script.attr("data-lra-module"), script) for script in page.by_tag["script"])
    return [(name.strip(), element) for name, element in found if name is not None]


def copy_faults(paper: Paper) -> Iterator[RuleHit]:
    for name, element in copies(paper.page):
        there = paper.artifact.files.get(name)
        if there is None:
            yield paper.at(element, f"a copy of {name[:_SHOWN]}, which is not there or too large to be compared")
        elif _decoded(element.text) != there:
            yield paper.at(element, f"the copy is not {name[:_SHOWN]} byte for byte: the page would run another module")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
