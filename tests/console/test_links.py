"""Every number on a page leads to the records behind it."""

from __future__ import annotations

import html
import re

import pytest

from tests.console.visiting import Visitor, call, visitor
from tests.homes import Home, Server

NUMBERS = re.compile(r'<td class="number"[^>]*>(.*?)</td>|<dl class="tiles">(.*?)</dl>', re.DOTALL)
TILE = re.compile(r"<dd>(.*?)</dd>", re.DOTALL)
LINK = re.compile(r'<a href="([^"]+)">')


@pytest.fixture(scope="module")
def admin(served: tuple[Home, Server]) -> Visitor:
    home, server = served
    assert call(server.port, home.keys["builder"], "dummy_experimental") == 200
    assert call(server.port, home.keys["builder"], "dummy_experimental", {"no": "such"}) == 400
    return visitor(server, home.keys["admin"])


def numbers(page: str) -> list[str]:
    """Cells and tiles that show a number other than zero."""
    cells = [tile for cell, tiles in NUMBERS.findall(page) for tile in (TILE.findall(tiles) if tiles else [cell])]
    return [cell for cell in cells if re.search("[1-9]", re.sub("<[^>]*>", "", cell))]


@pytest.mark.parametrize("path", ["", "tools", "keys"])
def test_every_number_of_a_page_links_to_the_records_behind_it(admin: Visitor, path: str) -> None:
    found = numbers(admin.get(path).text)
    assert found
    for cell in found:
        link = LINK.search(cell)
        assert link is not None, cell
        behind = admin.get(html.unescape(link[1]).removeprefix("./"))
        assert (behind.status, "<tr data-row" in behind.text) == (200, True), cell
