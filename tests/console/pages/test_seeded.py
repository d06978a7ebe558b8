"""Pages with something on them, in a real browser: an upstream that changed, panels with rows, and strangers' words as text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from tests.console.browsing import ARTIFACTS, VIEWS, assert_accessible, assert_fits, assert_quiet, sign_in
from tests.console.pages.seeded import ELEMENT, LABEL, ORG, PAPER, STEERING, Seeded, seeded
from tests.console.visiting import visitor
from tests.packs.lra.browser import launch, tab

pytestmark = pytest.mark.guard
MOST_BYTES = 100_000
"""Of a page, whatever strangers have written on it."""
BUTTONS = ("Approve what is shown", "Refuse")
SEEN = {
    "panels/governance/reviews": ["1 call", ORG, "MD-001", "0.25", "fp_metrics", "granted", LABEL],
    "panels/consensus/rounds": ["QUORUM", "Evidence", "ACCEPT root"],
    "panels/toolgate/contract-health": ["The last 30 days", "First red commit", f"<{ELEMENT}>"],
    "panels/lra/papers": [f"{PAPER}/index.html", "verification-receipt.json", "cannot be read"],
    "upstreams/stub": ["Approved", "Offered now", "Then it tells others.", "New: new_one", "marked: description"],
    "upstreams/tidy": ["Says it twice.", *BUTTONS],
}
"""What each page must show of what is there."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    with seeded(tmp_path_factory.mktemp("seeded")) as made:
        yield made


@pytest.fixture(scope="module")
def engine(there: Seeded) -> Iterator[Playwright]:
    """After the server: what makes that needs the event loop for itself."""
    with sync_playwright() as engine:
        yield engine


@pytest.fixture(scope="module")
def browser(engine: Playwright) -> Iterator[Browser]:
    started = launch(engine)
    yield started
    started.close()


@pytest.fixture(scope="module")
def scriptless(engine: Playwright) -> Iterator[Browser]:
    started = launch(engine, "--blink-settings=scriptEnabled=false")
    yield started
    started.close()


def assert_shown(page: Page, path: str, *but: str) -> None:
    text = page.locator("main").inner_text()
    assert [each for each in SEEN.get(path, ()) if each not in but and each not in text] == [], path


def assert_text_only(page: Page, path: str) -> None:
    """Nothing that a stranger wrote became an element, ran, or turned the text."""
    assert page.locator(f"{ELEMENT}, main script, main img").count() == 0, path
    assert page.locator("main :not(svg *)[style]").count() == 0, path
    text = page.locator("html").evaluate("each => each.outerHTML")
    assert [char for char in STEERING if char in text] == [], path


def test_every_page_is_there_and_what_each_must_show_belongs_to_one(there: Seeded) -> None:
    admin = visitor(there.server, there.home.keys["admin"])
    assert [path for path in there.pages() if admin.get(path).status != 200] == []
    assert SEEN.keys() <= set(there.pages())


@pytest.mark.parametrize("view", VIEWS)
def test_every_page_with_something_on_it_fits_and_has_no_violation(browser: Browser, there: Seeded, view: str) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    with tab(browser, bypass_csp=True, **VIEWS[view]) as found:
        page = found.page
        sign_in(page, there.server, there.home.keys["admin"])
        for number, path in enumerate(there.pages()):
            page.goto(there.address + path)
            assert_fits(page, view, path)
            assert_shown(page, path)
            page.screenshot(path=ARTIFACTS / f"seeded-{number:02d}-{view}.png", full_page=True)
            assert_accessible(page, path)
        assert_quiet(found, there.server)


def test_strangers_words_make_no_element_and_run_nothing(browser: Browser, there: Seeded) -> None:
    """With the policy of the pages in force, and as if a browser had none: escaping alone must do."""
    for bypassed in (False, True):
        with tab(browser, bypass_csp=bypassed, **VIEWS["light"]) as found:
            page = found.page
            page.on("dialog", lambda dialog: found.said.append(f"dialog: {dialog.message}"))
            sign_in(page, there.server, there.home.keys["admin"])
            hostile = 0
            for path in there.pages():
                answer = page.goto(there.address + path)
                assert answer is not None
                assert len(answer.body()) < MOST_BYTES, path
                assert_text_only(page, path)
                assert page.evaluate("window.ran") is None, path
                hostile += f"<{ELEMENT}>" in page.locator("main").inner_text()
            assert hostile >= 8, "the words were there to be read"
            assert_quiet(found, there.server)


def test_every_page_with_something_on_it_reads_without_script(scriptless: Browser, there: Seeded) -> None:
    with tab(scriptless, **VIEWS["light"]) as found:
        page = found.page
        page.goto(there.address)
        page.fill("#key", there.home.keys["auditor"])
        page.click("button.primary")
        for path in there.pages():
            page.goto(there.address + path)
            assert page.locator("h1").count() == 1
            assert_shown(page, path, *BUTTONS)
        assert_quiet(found, there.server)


def test_an_upstream_that_changed_is_refused_and_approved_on_its_page(
    scriptless: Browser, browser: Browser, there: Seeded
) -> None:
    """Refused without script, then approved with it: forms need none."""
    pin = there.home.path / "policy" / "upstreams" / "tidy.pin.json"
    before = pin.read_bytes()
    with tab(scriptless, **VIEWS["320px"]) as found:
        page = found.page
        page.goto(there.address)
        page.fill("#key", there.home.keys["admin"])
        page.click("button.primary")
        page.goto(f"{there.address}upstreams/tidy")
        page.get_by_role("button", name="Refuse").click()
        expect(page.get_by_role("status")).to_contain_text("The refusal is on record")
        assert pin.read_bytes() == before
        assert_quiet(found, there.server)
    with tab(browser, **VIEWS["wide"]) as found:
        page = found.page
        sign_in(page, there.server, there.home.keys["admin"])
        page.goto(f"{there.address}upstreams/tidy")
        left, right = (page.locator("table.diff").first.locator(f"th >> nth={n}").bounding_box() for n in (0, 1))
        assert left is not None
        assert right is not None
        assert (left["y"], left["x"] + left["width"] <= right["x"] + 1) == (right["y"], True), "side by side"
        changed = page.locator("section.change", has_text="echo: description")
        expect(changed.locator("tr.same td")).to_have_text(["Says what it was told."] * 2)
        expect(changed.locator("tr.new ins")).to_have_text("Says it twice.")
        page.goto(f"{there.address}upstreams/stub")
        schema = page.locator("section.change", has_text="plain: inputSchema")
        assert schema.locator("del").all_inner_texts() == [], "what stands elsewhere is not a difference"
        assert '"more": {' in "".join(schema.locator("ins").all_inner_texts())
        page.goto(f"{there.address}upstreams/tidy")
        page.get_by_role("button", name="Approve what is shown").click()
        expect(page.get_by_role("status")).to_contain_text("Approved.")
        expect(page.locator("main")).to_contain_text("It offers what was approved.")
        assert_quiet(found, there.server)
    assert pin.read_bytes() != before
    done = [
        each
        for each in there.home.records()
        if str(each.get("act")).startswith("upstream.") and each["stage"] == "outcome"
    ]
    assert [each["act"] for each in done if each["act"] in ("upstream.refuse", "upstream.approve")] == [
        "upstream.refuse",
        "upstream.approve",
    ]


def test_an_auditor_sees_what_changed_and_is_offered_no_button(browser: Browser, there: Seeded) -> None:
    there.tidy.behave("one more tool")
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, there.server, there.home.keys["auditor"])
        page.goto(f"{there.address}upstreams/tidy")
        expect(page.locator("main")).to_contain_text("New: third")
        expect(page.locator("main")).to_contain_text("An admin approves or refuses this.")
        assert page.locator("main form").count() == 0
    assert visitor(there.server, there.home.keys["builder"]).get("upstreams/tidy").status == 404
