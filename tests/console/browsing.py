"""A person with a real browser: signs in, looks at a page in every way that people do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.homes import PATIENCE_S, Server
from tests.packs.lra.browser import Tab, axe_source

expect.set_options(timeout=PATIENCE_S * 1000)
ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "console"
VIEWS: Mapping[str, Mapping[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "320px": {"viewport": {"width": 320, "height": 640}},
    "wide": {"viewport": {"width": 1920, "height": 1080}},
}


def address(server: Server) -> str:
    return str(server.ready["console"])


def sign_in(page: Page, server: Server, key: str) -> None:
    page.goto(address(server))
    page.fill("#key", key)
    page.press("#key", "Enter")
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.wait_for_load_state()  # keys are heard from then on


def assert_quiet(found: Tab, server: Server) -> None:
    """A page that is not there is answered 404, and a browser says so: nothing else may be said."""
    ended = "(net::ERR_ABORTED)"  # by the browser itself, when it goes on to the next page before all of one is there
    assert [each for each in found.said if "404" not in each and not each.endswith(ended)] == []
    assert {url for url in found.requested if not url.startswith(f"http://127.0.0.1:{server.port}/console/")} == set()


def assert_fits(page: Page, view: str, path: str) -> None:
    """No page is wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= VIEWS[view]["viewport"]["width"], (path, view)


def assert_accessible(page: Page, path: str) -> None:
    page.add_script_tag(content=axe_source())
    answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [(path, one["id"], one["nodes"][0]["target"]) for one in answer["violations"]] == []
