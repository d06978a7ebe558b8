"""Live reload in a real browser: edits arrive in every tab, at once, and lose neither place nor style."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.lra_review.papers import CAREFUL, PAGE, WORKER, plant
from tests.lra_review.static import hosted
from tests.lra_review.test_devsite import in_thread
from tests.support import need
from toolgate.packs.lra import serve
from toolgate.powers.files import Workspace
from toolgate.servers.devsite import DevSite, DevSites

pytestmark = [pytest.mark.guard, pytest.mark.timeout(120)]

LONG = "".join(f"<p>Paragraph {number}</p>" for number in range(200))
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
PAINTED = f"word => document.getElementById('word')?.textContent === word && {FIRST_PAINT} > 0".replace("[0].", "[0]?.")
CACHING = (
    WORKER
    + b"""self.addEventListener("install", (event) => event.waitUntil(
  caches.open("old").then((cache) => cache.addAll(["./"])).then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => event.respondWith(
  caches.match(event.request, { ignoreSearch: true }).then((kept) => kept || fetch(event.request))));
"""
)


def page_saying(word: str) -> str:
    marked = PAGE.replace("<h1>Small</h1>", f'<h1 id="word">{word}</h1>{LONG}')
    return marked.replace("<title>", f"{CAREFUL}<title>")


class Background:
    """The dev site in a thread with a loop of its own, as a server process would run it."""

    def __init__(self, workspace: Path, port: int = 0) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        start = DevSites(workspace, Workspace(workspace), in_thread)(serve.site("paper", port))
        self.site: DevSite = asyncio.run_coroutine_threadsafe(start, self.loop).result(5)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.site.port}/"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.site.stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    plant(tmp_path / "paper", **{"index.html": page_saying("zero").encode()})
    return tmp_path


@pytest.fixture
def site(workspace: Path) -> Iterator[Background]:
    running = Background(workspace)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=need("browser"), args=["--no-sandbox"])
        yield started
        started.close()


def listening(page: Page) -> None:
    """Until the overlay is there: then the tab hears of changes."""
    page.wait_for_selector("lra-findings", state="attached", timeout=5000)


def test_ten_edits_in_a_row_arrive_painted_in_two_tabs(
    workspace: Path, site: Background, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    context = browser.new_context()
    tabs = [context.new_page() for _ in range(2)]
    messages: list[str] = []
    for tab in tabs:
        tab.on("console", lambda message: messages.append(message.text))
        tab.goto(site.url)
        listening(tab)
    took: list[float] = []
    for number in range(10):
        word = f"edit-{number}"
        saved = time()
        (workspace / "paper" / "index.html").write_text(page_saying(word))
        for tab in tabs:
            tab.wait_for_function(PAINTED, arg=word, timeout=5000)
            took.append((tab.evaluate("() => performance.timeOrigin + " + FIRST_PAINT) / 1000 - saved) * 1000)
        for tab in tabs:
            listening(tab)
    median = sorted(took)[len(took) // 2]
    with capsys.disabled():
        print(
            f"\n  save to painted, two tabs, load {os.getloadavg()[0]:.1f}: median {median:.0f} ms, worst {max(took):.0f} ms"
        )
    assert messages == []  # nothing refused by the paper's own policy, nothing broken
    # 150 ms is the goal on a desk. Here browser, tabs and server share what cores there are: only what is broken is slower.
    assert median < 600
    context.close()


def test_a_style_is_swapped_in_place_without_a_reload(workspace: Path, site: Background, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(site.url)
    listening(page)
    page.evaluate("() => { window.mark = 1; scrollTo(0, 700); }")
    (workspace / "paper" / "paper.css").write_text("h1 { color: rgb(1, 2, 3) }")
    page.wait_for_function(
        "() => getComputedStyle(document.getElementById('word')).color === 'rgb(1, 2, 3)'", timeout=5000
    )
    assert page.evaluate("() => [window.mark, Math.round(scrollY)]") == [1, 700]
    page.wait_for_function("() => document.querySelectorAll('link[rel=stylesheet]').length === 1", timeout=5000)
    page.close()


def test_a_reload_keeps_the_place_and_the_overlay_tells_the_new_tier(
    workspace: Path, site: Background, browser: Browser
) -> None:
    page = browser.new_page()
    page.goto(site.url)
    listening(page)
    assert page.locator("lra-findings").get_attribute("data-tier") == "GOLD"
    page.evaluate("() => scrollTo(0, 900)")
    (workspace / "paper" / "index.html").write_text(page_saying("worse").replace('lang="en"', ""))
    page.wait_for_function("() => document.getElementById('word')?.textContent === 'worse'", timeout=5000)
    page.wait_for_selector('lra-findings[data-tier="NONE"][data-failing="B1"]', state="attached", timeout=5000)
    page.wait_for_function("() => Math.round(scrollY) === 900", timeout=5000)
    page.close()


def test_a_worker_that_cached_the_paper_before_does_not_hide_an_edit(workspace: Path, browser: Browser) -> None:
    """A worker of the deployed paper, cache first, was installed on this very origin; then the author starts the dev site."""
    context = browser.new_context()
    page = context.new_page()
    (workspace / "paper" / "sw.js").write_bytes(CACHING)
    port = _serve_plainly_and_install(workspace / "paper", page)
    (workspace / "paper" / "index.html").write_text(page_saying("edited"))
    running = Background(workspace, port)
    try:
        page.goto(running.url)
        page.wait_for_function("() => document.getElementById('word')?.textContent === 'edited'", timeout=10_000)
        listening(page)
        (workspace / "paper" / "index.html").write_text(page_saying("again"))
        page.wait_for_function("() => document.getElementById('word')?.textContent === 'again'", timeout=5000)
    finally:
        context.close()
        running.stop()


def _serve_plainly_and_install(directory: Path, page: Page) -> int:
    """Any static server, with the paper's own worker; returns the port it used, free again."""
    with hosted(directory) as port:
        page.goto(f"http://localhost:{port}/")
        page.wait_for_function("() => navigator.serviceWorker.controller !== null", timeout=10_000)
        page.goto("about:blank")
    return port
