"""The console in a real browser: every page light, dark, narrow and without script; by keyboard; live; and when a key ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.console.browsing import ARTIFACTS, VIEWS, address, assert_accessible, assert_fits, assert_quiet, sign_in
from tests.console.filling import EVENT, call_for_panels, fill_panels, full_panels
from tests.console.prefix import PrefixProxy
from tests.console.visiting import CONSOLE, call
from tests.homes import Home, Server, make_home
from tests.packs.lra.browser import launch, tab
from tests.waiting import until

pytestmark = pytest.mark.guard
PAGES = [
    "sign-in",
    "",
    "calls",
    "calls?verdict=refused",
    "calls/{call}",
    "tools",
    "tools/dummy_experimental",
    "approvals",
    "approvals/{approval}",
    "keys",
    "nothing",
]
ASKED = {
    "checkType": "validate",
    "operation": "<b>all</b>",
    "resources": [f"a_rather_long_name_of_a_resource_{n}" for n in range(20)],
}
"""Arguments of a call that waits for a person."""
PANELS = [
    "panels/governance/reviews",
    "panels/consensus/rounds",
    "panels/lra/papers",
    "panels/toolgate/contract-health",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    folder = tmp_path_factory.mktemp("console")
    home = make_home(
        folder / "home",
        packs=("governance", "library", "consensus", "lra"),
        settings=CONSOLE + full_panels(folder),
        rows={"check_consent_requirements": {"x-rules": [{"name": "ask-a-person", "require-approval": "true"}]}},
    )
    fill_panels(home)
    with home.serving() as server:
        call_for_panels(home, server)
        assert call(server.port, home.keys["builder"], "check_consent_requirements", ASKED) == 202
        for role in ("builder", "committer", "admin"):
            assert call(server.port, home.keys[role], "dummy_experimental") == 200
        call(server.port, home.keys["builder"], "<script>alert(1)</script>")
        call(server.port, home.keys["builder"], "query_fp_store", {"no": "such"})
        call(server.port, "nobody", "dummy_experimental")
        yield home, server


@pytest.fixture(scope="module")
def engine() -> Iterator[Playwright]:
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


def newest_call(home: Home) -> str:
    return str([each for each in home.calls() if each.get("clamps")][-1]["requestId"])


def waiting(home: Home) -> str:
    return str(next(each["about"]["approval"] for each in home.records() if each.get("act") == "approvals.request"))


@pytest.mark.parametrize("view", VIEWS)
def test_every_page_has_no_violation_no_message_and_fits(
    browser: Browser, served: tuple[Home, Server], view: str
) -> None:
    home, server = served
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    with tab(browser, bypass_csp=True, **VIEWS[view]) as found:
        page = found.page
        for number, path in enumerate([*PAGES, *PANELS]):
            if number == 1:
                sign_in(page, server, home.keys["admin"])
            page.goto(address(server) + path.format(call=newest_call(home), approval=waiting(home)))
            assert_fits(page, view, path)
            page.screenshot(path=ARTIFACTS / f"{number:02d}-{view}.png", full_page=True)
            assert_accessible(page, path)
        assert_quiet(found, server)


def test_every_page_reads_without_script(scriptless: Browser, served: tuple[Home, Server]) -> None:
    home, server = served
    with tab(scriptless, **VIEWS["light"]) as found:
        page = found.page
        page.goto(address(server))
        page.fill("#key", home.keys["auditor"])
        page.click("button.primary")
        for path in [*PAGES[1:], *PANELS]:
            page.goto(address(server) + path.format(call=newest_call(home), approval=waiting(home)))
            assert page.locator("h1").count() == 1
            assert page.locator("#live:visible, #verify:visible").count() == 0, "what needs script is not offered"
        page.goto(address(server) + "calls")
        page.select_option("select[name=verdict]", "unknown_tool")
        page.click("button.primary")
        expect(page.locator("#calls tbody tr")).to_have_count(1)
        page.click("#calls tbody a")
        expect(page.locator(".road li")).to_have_count(9)
        page.click("text=Calls >> nth=1")
        assert "verdict=unknown_tool" in page.url, "filters are kept from page to page"
        assert_quiet(found, server)


def test_a_proof_is_verified_in_the_browser_and_a_changed_record_is_not(
    browser: Browser, served: tuple[Home, Server]
) -> None:
    home, server = served
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, home.keys["auditor"])
        page.goto(address(server) + f"calls/{newest_call(home)}")
        page.click("#verify")
        expect(page.locator("#proof-state")).to_have_text("Verified in this browser: the record is in the log.")
        assert_quiet(found, server)

        def forged(route: object) -> None:
            answer = route.fetch()  # type: ignore[attr-defined]
            changed = answer.text().replace("experimental-never-blocks", "experimental-seldom-blocks")
            route.fulfill(response=answer, body=changed)  # type: ignore[attr-defined]

        page.route("**/proof.json", forged)
        page.click("#verify")
        expect(page.locator("#proof-state")).to_contain_text("the record is not in the log")


def test_a_call_appears_in_the_live_list_and_strangers_words_in_it_are_text(
    browser: Browser, served: tuple[Home, Server]
) -> None:
    home, server = served
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        page.goto(address(server) + "calls")
        page.click("#live")
        expect(page.locator("#live-state")).to_have_text("Live.")
        call(server.port, home.keys["builder"], "dummy_experimental")
        expect(page.locator("#calls tbody tr.fresh")).to_have_count(1)
        call(server.port, home.keys["builder"], "<img src=x onerror=alert(1)>")
        expect(page.locator("#calls tbody tr.fresh")).to_have_count(2)
        assert page.locator("#calls img").count() == 0
        page.click("#calls tbody tr.fresh >> nth=0 >> a")
        expect(page.locator("h1")).to_be_visible()
        assert_quiet(found, server)


def test_the_live_list_says_how_many_calls_it_left_out_and_leads_to_them(
    browser: Browser, served: tuple[Home, Server]
) -> None:
    home, server = served
    left = {"count": 37, "least": False, "since": "2026-11-18T09:30:00.000Z", "until": "2026-11-18T09:30:00.900Z"}
    with tab(browser, **VIEWS["320px"]) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        page.goto(address(server) + "calls?verdict=refused")
        body = f"retry: 60000\n\nevent: left-out\ndata: {json.dumps(left)}\n\n"
        page.route("**/calls/live?*", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
        page.click("#live")
        link = page.locator("#calls tbody tr.left-out a")
        expect(link).to_have_text("37 more calls at this time, not shown here")
        page.screenshot(path=ARTIFACTS / "left-out-320px.png", full_page=True)
        link.click()
        page.wait_for_url("**/calls?verdict=refused&since=2026-11-18T09%3A30%3A00.000Z&until=*")
        expect(page.locator("#calls tbody")).to_contain_text("No record matches")


def test_a_revoked_key_ends_the_live_list_and_the_next_page(browser: Browser, served: tuple[Home, Server]) -> None:
    home, server = served
    key, text = home.ring().create("admin", label="short")
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, text)
        page.goto(address(server) + "calls")
        page.click("#live")
        expect(page.locator("#live-state")).to_have_text("Live.")
        home.ring().revoke(key.id)
        expect(page.locator("#live-state")).to_contain_text("sign in again")
        page.goto(address(server) + "keys")
        expect(page.locator("#key")).to_be_visible()


def test_everything_is_reached_by_keyboard(browser: Browser, served: tuple[Home, Server]) -> None:
    home, server = served
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        press = page.keyboard.press
        press("?")
        expect(page.locator("#help")).to_be_visible()
        press("Escape")
        expect(page.locator("#help")).to_be_hidden()
        press("g")
        press("c")
        page.wait_for_url("**/calls")
        press("/")
        expect(page.locator("[data-search]")).to_be_focused()
        page.keyboard.type("dummy_experimental")
        press("Enter")
        page.wait_for_url("**tool=dummy_experimental**")
        press("j")
        press("j")
        press("k")
        expect(page.locator("#calls tbody tr").first).to_have_attribute("aria-selected", "true")
        press("Enter")
        page.wait_for_url("**/calls/*")
        press("u")
        page.wait_for_url("**/calls?tool=dummy_experimental**")
        press("g")
        press("p")
        page.wait_for_url("**/keys")
        assert_quiet(found, server)


def test_tools_are_searched_chosen_and_opened_by_keyboard_alone(browser: Browser, served: tuple[Home, Server]) -> None:
    home, server = served
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        press, rows = page.keyboard.press, page.locator("tbody tr[data-row]")
        press("g")
        press("t")
        page.wait_for_url("**/tools")
        press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        press("Enter")  # the button that closes it has the focus
        expect(page.locator("#help")).to_be_hidden()
        press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("consensus")
        press("Enter")
        page.wait_for_url("**/tools?q=consensus")
        names = [name.strip() for name in rows.locator("td.name").all_inner_texts()]
        assert len(names) >= 3
        for key, chosen in (("k", -1), ("k", -2), ("j", -1), ("j", -1)):
            press(key)
            expect(rows.nth(chosen)).to_have_attribute("aria-selected", "true")
            expect(rows.nth(chosen).locator("td.name a")).to_be_focused()
        assert page.locator("[aria-selected=true]").count() == 1, "one at a time"
        press("Enter")
        expect(page.get_by_role("heading", level=1, name=names[-1])).to_be_visible()
        press("u")
        page.wait_for_url("**/tools")
        assert_quiet(found, server)


def test_a_request_for_approval_is_found_and_answered_by_keyboard_alone(
    browser: Browser, served: tuple[Home, Server]
) -> None:
    home, server = served
    arguments = {**ASKED, "operation": "by keyboard"}
    assert call(server.port, home.keys["builder"], "check_consent_requirements", arguments) == 202
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        press, rows = page.keyboard.press, page.locator("tbody tr[data-row]")
        press("g")
        press("a")
        page.wait_for_url("**/approvals")
        press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        press("Escape")
        press("j")
        expect(rows.first).to_have_attribute("aria-selected", "true")
        press("j")
        expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
        press("k")
        press("Enter")
        page.wait_for_url("**/approvals/*")
        expect(page.locator("pre")).to_contain_text("by keyboard")
        for _ in range(30):
            press("Tab")
            if page.evaluate("document.activeElement.name") == "reason":
                break
        page.keyboard.type("j k ? /")
        expect(page.locator("input[name=reason]")).to_have_value("j k ? /")
        expect(page.locator("#help")).to_be_hidden()
        press("Tab")
        press("Enter")
        expect(page.locator(".head .badge")).to_have_text("approved")
        expect(page.locator("main")).to_contain_text("j k ? /")
        press("u")
        page.wait_for_url("**/approvals")
        assert_quiet(found, server)


def test_a_key_is_made_and_revoked_on_the_page(browser: Browser, served: tuple[Home, Server]) -> None:
    home, server = served
    with tab(browser, **VIEWS["light"]) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        page.goto(address(server) + "keys")
        page.fill("input[name=label]", "by hand")
        page.click("text=Make a key >> nth=1")
        made = page.locator("#made-key")
        expect(made).to_be_visible()
        assert call(server.port, made.input_value(), "dummy_experimental") in (200, 403)
        page.click("tr:has-text('by hand') summary")
        page.click("button:has-text('Revoke by hand')")
        expect(page.locator("tr:has-text('by hand') .badge")).to_have_text("revoked")
        assert until(lambda: [key for key in home.ring().all() if key.label == "by hand" and key.revoked is not None])
        assert_quiet(found, server)


ATTACKED = {
    "keys": ("keys/create", {"role": "admin", "life": "1d"}, "People and keys"),
    "sign-in": ("sign-in", {"key": "{key}", "next": "./"}, "Toolgate console"),
}
"""The page that is framed, the form that is sent for somebody, and what the page says."""


@pytest.mark.parametrize("framed", ATTACKED)
def test_no_page_can_be_framed_or_driven_by_another_origin(
    browser: Browser, served: tuple[Home, Server], tmp_path: Path, framed: str
) -> None:
    """Another port of this machine is another origin, and the browser sends its cookies there: same site, not same origin."""
    home, server = served
    from tests.packs.lra.browser import served as other_site

    target, (action, sent, title) = address(server), ATTACKED[framed]
    fields = "".join(f'<input name="{k}" value="{v.format(key=home.keys["builder"])}">' for k, v in sent.items())
    form = f'<form method="post" action="{target}{action}">{fields}<button>x</button></form>'
    (tmp_path / "index.html").write_text(
        f'<!DOCTYPE html><title>x</title><iframe src="{target}{framed}"></iframe>{form}'
    )
    before = len(home.ring().all())
    with tab(browser, **VIEWS["light"]) as found, other_site(tmp_path) as attack:
        page = found.page
        if framed == "keys":
            sign_in(page, server, home.keys["admin"])
        page.goto(attack)
        assert title not in page.frames[1].content()
        page.click("button")
        page.wait_for_url(f"**/{action}")
        expect(page.locator("body")).to_contain_text("not one that the server answers to")
        page.goto(target)
        expect(page.locator("h1")).to_have_text("Overview" if framed == "keys" else "Toolgate console")
    assert len(home.ring().all()) == before


def test_every_page_prints_without_controls_and_within_the_paper(browser: Browser, served: tuple[Home, Server]) -> None:
    home, server = served
    with tab(browser, viewport={"width": 700, "height": 990}) as found:
        page = found.page
        sign_in(page, server, home.keys["admin"])
        page.emulate_media(media="print")
        for number, path in enumerate([*PAGES[1:], *PANELS]):
            page.goto(address(server) + path.format(call=newest_call(home), approval=waiting(home)))
            expect(page.locator("h1")).to_be_visible()
            controls = "nav:visible, button:visible, input:visible, select:visible, dialog:visible"
            assert page.locator(controls).count() == 0, path
            assert page.evaluate("document.documentElement.scrollWidth") <= 700, path
            assert page.pdf(path=ARTIFACTS / f"{number:02d}-print.pdf", format="A4").startswith(b"%PDF")


def test_the_console_works_behind_a_prefix(browser: Browser, tmp_path: Path) -> None:
    with PrefixProxy("/ops") as proxy:
        settings = f'{CONSOLE}allowed_hosts = ["{proxy.host}"]\nallowed_origins = ["http://{proxy.host}"]\n'
        packs = ("governance", "library", "consensus")
        home = make_home(tmp_path / "home", packs=packs, settings=settings + full_panels(tmp_path))
        with home.serving() as server, tab(browser, **VIEWS["light"]) as found:
            proxy.target = server.port
            assert call(server.port, home.keys["committer"], "consensus_propose", {"event": EVENT}) == 200
            page, root = found.page, f"http://{proxy.host}/ops/console/"
            page.goto(root)
            page.fill("#key", home.keys["admin"])
            page.press("#key", "Enter")
            page.wait_for_url(root)
            for name in ("Calls", "Tools", "Approvals", "People and keys", "Overview"):
                page.locator(".bar nav").get_by_role("link", name=name).click()
                expect(page.get_by_role("heading", level=1)).to_be_visible()
            page.locator(".bar nav").get_by_role("link", name="Rounds").click()
            page.locator("td[data-label=Votes] a").first.click()
            expect(page.get_by_role("heading", level=1)).to_contain_text("Votes of round")
            expect(page.locator("tbody tr")).to_have_count(1)
            page.keyboard.press("u")
            expect(page.get_by_role("heading", level=1)).to_have_text("Rounds")
            page.goto(f"{root}calls")
            page.click("#live")
            expect(page.locator("#live-state")).to_have_text("Live.")
            call(server.port, home.keys["builder"], "dummy_experimental")
            page.locator("#calls tbody tr.fresh a").first.click()
            page.click("#verify")
            expect(page.locator("#proof-state")).to_have_text("Verified in this browser: the record is in the log.")
            page.locator(".who form button").click()
            expect(page.locator("#key")).to_be_visible()
            assert [url for url in found.requested if not url.startswith(root)] == []
