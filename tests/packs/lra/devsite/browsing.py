"""A dev site that runs beside a real browser, and what tests ask of its tabs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from playwright.sync_api import Page

from tests.homes import PATIENCE_S
from tests.packs.lra.deployed.papers import CAREFUL, PAGE
from tests.packs.lra.devsite.test_devsite import in_thread
from toolgate.packs.lra.devsite import overlay
from toolgate.packs.lra.devsite.site import DevSite, DevSites
from toolgate.powers.files import Workspace

LONG = "".join(f"<p>Paragraph {number}</p>" for number in range(200))


def page_saying(word: str) -> str:
    marked = PAGE.replace("<h1>Small</h1>", f'<h1 id="word">{word}</h1>{LONG}')
    return marked.replace("<title>", f"{CAREFUL}<title>")


class Background:
    """The dev site in a thread with a loop of its own, as a server process would run it."""

    def __init__(self, workspace: Path, port: int = 0) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        start = DevSites(workspace, Workspace(workspace), in_thread)(overlay.site("paper", port))
        self.site: DevSite = asyncio.run_coroutine_threadsafe(start, self.loop).result(5)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.site.port}/"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.site.stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


def listening(page: Page) -> None:
    """Until the overlay is there: then the tab hears of changes."""
    page.wait_for_selector("lra-findings", state="attached")
