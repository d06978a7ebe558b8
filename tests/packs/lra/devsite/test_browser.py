"""Live reload in a real browser: edits arrive in every tab, at once, and lose neither place nor style."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

import pytest
from playwright.sync_api import Browser, Page

from tests.packs.lra.deployed.papers import WORKER, save
from tests.packs.lra.devsite.browsing import Background, listening, page_saying
from tests.packs.lra.static import hosted

pytestmark = [pytest.mark.guard, pytest.mark.timeout(120)]

CACHING = (
    WORKER
    + b"""self.addEventListener("install", (event) => event.waitUntil(
  caches.open("old").then((cache) => cache.addAll(["./"])).then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => event.respondWith(
  caches.match(event.request, { ignoreSearch: true }).then((kept) => kept || fetch(event.request))));
"""
)


WATCH_PAINTS = """
window.painted = {};
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) painted[entry.identifier] = performance.timeOrigin + entry.renderTime;
}).observe({ type: "element", buffered: true });
"""
"""When the browser first showed an element that asks for it, on the clock of this machine."""


def page_with(word: str) -> str:
    return page_saying(word).replace("</h1>", f'</h1><p id="{word}" elementtiming="{word}">{word}</p>')


def test_ten_edits_in_a_row_arrive_painted_in_two_tabs_without_a_reload(
    workspace: Path, site: Background, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts = [browser.new_context() for _ in range(2)]  # a window each: both tabs are in view
    messages: list[str] = []
    tabs = []
    for context in contexts:
        context.add_init_script(WATCH_PAINTS)
        tabs.append(tab := context.new_page())
        tab.on("console", lambda message: messages.append(message.text))
        tab.goto(site.url)
        listening(tab)
        tab.evaluate("() => { window.mark = 1; }")
    took: list[float] = []
    for number in range(10):
        word = f"edit-{number}"
        saved = time()
        save(workspace / "paper" / "index.html", page_with(word))
        for tab in tabs:
            tab.wait_for_function("word => word in painted", arg=word)
            took.append(tab.evaluate("word => painted[word]", word) - saved * 1000)
            assert tab.evaluate("() => [document.getElementById('word').textContent, window.mark]") == [word, 1]
    median = sorted(took)[len(took) // 2]
    with capsys.disabled():
        print(
            f"\n  save to painted, two tabs, load {os.getloadavg()[0]:.1f}: median {median:.0f} ms, worst {max(took):.0f} ms"
        )
    assert messages == []  # nothing refused by the paper's own policy, nothing broken
    # 150 ms is the goal on a desk. Here browser, tabs and server share what cores there are: only what is broken is slower.
    assert median < 600
    for context in contexts:
        context.close()


def test_a_style_is_swapped_in_place_without_a_reload(workspace: Path, site: Background, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(site.url)
    listening(page)
    page.evaluate("() => { window.mark = 1; scrollTo(0, 700); }")
    save(workspace / "paper" / "paper.css", "h1 { color: rgb(1, 2, 3) }")
    page.wait_for_function("() => getComputedStyle(document.getElementById('word')).color === 'rgb(1, 2, 3)'")
    assert page.evaluate("() => [window.mark, Math.round(scrollY)]") == [1, 700]
    page.wait_for_function("() => document.querySelectorAll('link[rel=stylesheet]').length === 1")
    page.close()


def test_a_reload_keeps_the_place_and_the_overlay_tells_the_new_tier(
    workspace: Path, site: Background, browser: Browser
) -> None:
    page = browser.new_page()
    page.goto(site.url)
    listening(page)
    assert page.locator("lra-findings").get_attribute("data-tier") == "GOLD"
    page.evaluate("() => scrollTo(0, 900)")
    save(workspace / "paper" / "index.html", page_saying("worse").replace('lang="en"', ""))
    page.wait_for_function("() => document.getElementById('word')?.textContent === 'worse'")
    page.wait_for_selector('lra-findings[data-tier="NONE"][data-failing="B1"]', state="attached")
    page.wait_for_function("() => Math.round(scrollY) === 900")
    page.close()


def test_a_worker_that_cached_the_paper_before_does_not_hide_an_edit(workspace: Path, browser: Browser) -> None:
    """A worker of the deployed paper, cache first, was installed on this very origin; then the author starts the dev site."""
    context = browser.new_context()
    page = context.new_page()
    (workspace / "paper" / "sw.js").write_bytes(CACHING)
    port = _serve_plainly_and_install(workspace / "paper", page)
    save(workspace / "paper" / "index.html", page_saying("edited"))
    running = Background(workspace, port)
    try:
        page.goto(running.url)
        page.wait_for_function("() => document.getElementById('word')?.textContent === 'edited'")
        listening(page)
        save(workspace / "paper" / "index.html", page_saying("again"))
        page.wait_for_function("() => document.getElementById('word')?.textContent === 'again'")
    finally:
        context.close()
        running.stop()


def _serve_plainly_and_install(directory: Path, page: Page) -> int:
    """Any static server, with the paper's own worker; returns the port it used, free again."""
    with hosted(directory) as port:
        page.goto(f"http://localhost:{port}/")
        page.wait_for_function("() => navigator.serviceWorker.controller !== null")
        page.goto("about:blank")
    return port
