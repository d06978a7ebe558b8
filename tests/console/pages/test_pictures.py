"""The two pictures of the README: the console's overview, light and dark, of a server that has just been called.

They are taken into `build/`, and into `docs/` where `PICTURES` says so (`make pictures`).
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.console.browsing import assert_quiet, sign_in
from tests.console.visiting import CONSOLE, call
from tests.homes import ROOT, Home, Server, make_home
from tests.packs.lra.browser import launch, tab

pytestmark = pytest.mark.guard
SIZE: Final = {"width": 1120, "height": 760}
FOLDER: Final = Path(os.environ.get("PICTURES") or ROOT / "build" / "pictures")
CALLS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("dummy_experimental", {}),
    ("dummy_experimental", {}),
    ("library_search", {"query": "drift"}),
    ("library_search", {"query": "claims"}),
    ("library_search", {"query": "receipts"}),
    ("lra_validate", {"path": "paper"}),
    ("query_fp_store", {"orgId": "example"}),
    ("consensus_finality", {"round_id": 7}),
]
COUNT: Final = 160
COLOURS: Final = 100
"""Of a page with text on it: letters have soft edges."""
LOOK: Final = """async (data) => {
  const image = new Image();
  image.src = `data:image/png;base64,${data}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer);
  const light = pixels.reduce((sum, pixel) => sum + (pixel & 255), 0) / pixels.length;
  return { width: image.width, height: image.height, colours: new Set(pixels).size, light };
}"""
"""What a picture is like; a browser that reads PNG is there anyway."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    packs = ("governance", "library", "consensus", "lra")
    home = make_home(tmp_path_factory.mktemp("pictures") / "home", packs=packs, settings=CONSOLE)
    draw = random.Random(7)
    with home.serving() as server:
        for _ in range(COUNT):
            tool, arguments = draw.choice(CALLS)
            call(server.port, home.keys[draw.choice(["builder", "committer", "admin"])], tool, arguments)
        yield home, server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as engine:
        started = launch(engine)
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_is_pictured_whole_and_in_its_own_colours(
    browser: Browser, served: tuple[Home, Server], scheme: str
) -> None:
    home, server = served
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tab(browser, viewport=SIZE, color_scheme=scheme) as found:
        sign_in(found.page, server, home.keys["admin"])
        taken = found.page.screenshot(path=FOLDER / f"console-{scheme}.png")
        assert_quiet(found, server)
        found.page.goto("about:blank")
        seen = found.page.evaluate(LOOK, base64.b64encode(taken).decode())
    assert {name: seen[name] for name in SIZE} == SIZE
    assert seen["colours"] > COLOURS
    assert (seen["light"] > 128) is (scheme == "light")


def test_the_readme_shows_the_pictures_that_are_taken_here() -> None:
    text = (ROOT / "README.md").read_text()
    for scheme in ("light", "dark"):
        assert f'="docs/console-{scheme}.png"' in text
        assert (ROOT / "docs" / f"console-{scheme}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
