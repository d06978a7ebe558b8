"""The two pictures of the README: the console's overview, light and dark, of a server that has just been called.

    python -m scripts.console_pictures

Side effects: replaces docs/console-light.png and docs/console-dark.png.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from tests.console.visiting import CONSOLE, call
from tests.homes import ROOT, Home, Server, make_home
from tests.packs.lra.browser import launch, tab

SIZE: Final = {"width": 1120, "height": 760}
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


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        packs = ("governance", "library", "consensus", "lra")
        home = make_home(Path(place) / "home", packs=packs, settings=CONSOLE)
        for label, role in (("build agent", "builder"), ("review agent", "committer")):
            home.ring().create(role, label=label)
        with home.serving() as server:
            _work(home, server)
            _take(home, server)


def _work(home: Home, server: Server) -> None:
    draw = random.Random(7)
    for _ in range(COUNT):
        tool, arguments = draw.choice(CALLS)
        call(server.port, home.keys[draw.choice(["builder", "committer", "admin"])], tool, arguments)


def _take(home: Home, server: Server) -> None:
    address = str(server.ready["console"])
    with sync_playwright() as engine:
        browser = launch(engine)
        for scheme in ("light", "dark"):
            with tab(browser, viewport=SIZE, color_scheme=scheme) as found:
                page = found.page
                page.goto(address)
                page.fill("#key", home.keys["admin"])
                page.press("#key", "Enter")
                page.wait_for_selector(".tiles")
                page.goto(f"{address}?span=24h")
                page.screenshot(path=ROOT / "docs" / f"console-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
