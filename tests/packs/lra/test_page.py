"""The scaffold's page in a real browser: accessible, silent, offline, from a disk, without JavaScript, by keyboard."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from tests.packs.lra.browser import ARTIFACTS, axe_source, launch, served, tab
from tests.packs.lra.build.sources import built as built_paper
from tests.packs.lra.build.sources import paper as source_of
from toolgate.packs.lra.build.scaffold import TIERS, ScaffoldOptions, scaffold
from toolgate.packs.lra.paper import metadata

pytestmark = pytest.mark.guard
CHECKED = "Confirmed: claimed 31\u202f417, computed here 31\u202f417."


def check_claims(page: Page) -> None:
    for number, verdict in ((1, CHECKED), (2, "Confirmed: claimed 0, computed here 0.")):
        page.click(f"#claim-{number} .check")
        expect(page.locator(f"#claim-{number} .verdict")).to_have_text(verdict)
        expect(page.locator(f"#claim-{number} .badge")).to_have_text("evidence: checked")
        assert page.locator(f"#claim-{number} .badge").get_attribute("data-state") == "ok"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("papers")
    people = (metadata.author("Jane Q. Doe", "0000-0002-1825-0097"), metadata.author("Erika Mustermann"))
    for tier in TIERS:
        made = scaffold(ScaffoldOptions(tier, "2026-11-15", "Counting lattice points in a circle", people, tier=tier))
        for name, data in made.files.items():
            (root / tier / name).parent.mkdir(parents=True, exist_ok=True)
            (root / tier / name).write_bytes(data)
    return root


@pytest.fixture(scope="module")
def site(papers: Path) -> Iterator[str]:
    with served(papers) as address:
        yield address


@pytest.fixture(scope="module")
def engine() -> Iterator[Playwright]:
    with sync_playwright() as engine:
        yield engine


@pytest.fixture(scope="module")
def browser(engine: Playwright) -> Iterator[Browser]:
    browser = launch(engine)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def scriptless(engine: Playwright) -> Iterator[Browser]:
    """Switched off in the browser itself: the protocol's own switch comes too late for the parser to show noscript."""
    browser = launch(engine, "--blink-settings=scriptEnabled=false")
    yield browser
    browser.close()


VIEWS = {
    "light": {"viewport": {"width": 1400, "height": 1000}},
    "dark": {"viewport": {"width": 1400, "height": 1000}, "color_scheme": "dark"},
    "print": {"viewport": {"width": 794, "height": 1123}},
    "320px": {"viewport": {"width": 320, "height": 640}},
    "forced": {"viewport": {"width": 1400, "height": 1000}, "forced_colors": "active"},
    "zoom": {"viewport": {"width": 700, "height": 500}, "device_scale_factor": 2},
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("tier", TIERS)
def test_axe_finds_no_violation(browser: Browser, site: str, tier: str, view: str) -> None:
    with tab(browser, bypass_csp=True, **VIEWS[view]) as found:
        page = found.page
        page.goto(site + tier + "/")
        if view == "print":
            page.emulate_media(media="print")
        elif tier != "bronze":
            check_claims(page)
        page.add_script_tag(content=axe_source())
        answer = page.evaluate("axe.run(document, {resultTypes: ['violations', 'incomplete']})")
        report = [(one["id"], [node["target"] for node in one["nodes"]]) for one in answer["violations"]]
        assert report == []
        assert answer["testEngine"]["version"] == "4.14.0"


BUILT = """
# Method

As shown [@doe], see @fig-fall, @tbl-times and @eq-fall.[^1]

[^1]: A note.

$$\\begin{aligned} s &= \\frac{1}{2} g t^2 \\\\ &= 5 t^2 \\end{aligned}$$ {#eq-fall}

![A fall](figures/fall.svg){#fig-fall}

| t | s |
|--:|--:|
| 1 | 5 |

: Times. {#tbl-times}
"""


@pytest.fixture(scope="module")
def built(papers: Path) -> str:
    """A paper built from Markdown, with formulas, a figure, a table and citations."""
    for name, data in built_paper(source_of(BUILT)).files.items():
        (papers / "built" / name).parent.mkdir(parents=True, exist_ok=True)
        (papers / "built" / name).write_bytes(data)
    return "built/"


@pytest.mark.parametrize("view", ["light", "dark", "print", "320px"])
def test_a_paper_built_from_markdown_is_as_good(browser: Browser, site: str, built: str, view: str) -> None:
    with tab(browser, bypass_csp=True, **VIEWS[view]) as found:
        page = found.page
        page.goto(site + built)
        page.emulate_media(media="print" if view == "print" else "screen")
        assert found.said == []
        assert page.evaluate("document.querySelector('#eq-fall math').getBoundingClientRect().height") > 20
        assert page.evaluate("document.documentElement.scrollWidth") <= VIEWS[view]["viewport"]["width"]
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"built-{view}.png", full_page=True)
        page.add_script_tag(content=axe_source())
        answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in answer["violations"]] == []


def test_the_page_reflows_without_a_horizontal_bar(browser: Browser, site: str) -> None:
    for width in (320, 390, 700, 1000, 1216, 1343, 1344, 1400):
        with tab(browser, viewport={"width": width, "height": 700}) as found:
            found.page.goto(site + "gold/")
            assert found.page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("tier", TIERS)
def test_nothing_is_requested_elsewhere_and_nothing_is_said(browser: Browser, site: str, tier: str) -> None:
    with tab(browser) as found:
        page = found.page
        page.goto(site + tier + "/")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        if tier != "bronze":
            check_claims(page)
            page.click("#claim-1 .badge")
            expect(page.locator("#demo-1 .result")).to_contain_text(f"N(100) = 31\u202f417 points{CHECKED}")
        assert found.said == []
        assert [url for url in found.requested if not url.startswith((site, "data:"))] == []


def test_the_policy_stops_what_the_paper_must_not_do(browser: Browser, site: str) -> None:
    with tab(browser) as found:
        found.page.goto(site + "gold/")
        blocked = "(url) => fetch(url).then(() => 'loaded', () => 'blocked')"
        assert found.page.evaluate(blocked, "https://example.org/") == "blocked"
        inline = """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = 1";
          document.head.append(script);
          return window.ran;
        }"""
        assert found.page.evaluate(inline) is None


@pytest.mark.parametrize("tier", TIERS)
def test_a_visited_paper_opens_without_a_network(browser: Browser, site: str, tier: str) -> None:
    with tab(browser) as found:
        page = found.page
        page.goto(site + tier + "/")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        page.reload()
        names = page.evaluate("caches.keys()")
        assert any(name.startswith(f"lra:/{tier}/:") and len(name.rsplit(":", 1)[1]) == 16 for name in names)
        page.context.set_offline(True)
        page.reload()
        expect(page.locator("h1")).to_have_text("Counting lattice points in a circle")
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).textWrapStyle") == "balance"
        if tier != "bronze":
            check_claims(page)
        for name in ("LICENSE", "CITATION.cff"):
            assert page.evaluate("(name) => fetch(name).then((answer) => answer.ok)", name) is True


def test_a_changed_file_gives_another_cache_and_the_old_one_goes(
    browser: Browser, papers: Path, tmp_path: Path
) -> None:
    made = scaffold(ScaffoldOptions("p", "2026-11-15"))
    for name, data in made.files.items():
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (0, 0))  # HTTP knows seconds: a change within one would be no change to a browser
    ours = "caches.keys().then((names) => names.filter((name) => name.startsWith('lra:')))"
    with served(tmp_path) as site, tab(browser) as found:
        found.page.goto(site)
        found.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        (first,) = found.page.evaluate(ours)
        (tmp_path / "paper.css").write_bytes(made.files["paper.css"] + b"h1 { color: navy }")
        found.page.reload()
        assert found.page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(0, 0, 128)"
        found.page.wait_for_function(
            f"async () => {{ const names = await {ours}; return names.length === 1 && names[0] !== '{first}' }}"
        )


@pytest.mark.parametrize("tier", ["silver", "gold"])
def test_from_a_disk_the_demo_runs_too(browser: Browser, papers: Path, tier: str) -> None:
    with tab(browser) as found:
        found.page.goto((papers / tier / "index.html").as_uri())
        assert found.page.evaluate("getComputedStyle(document.querySelector('h1')).textWrapStyle") == "balance"
        check_claims(found.page)
        expect(found.page.locator("#demo-1 .result")).to_contain_text("N(12) = 441 points")
        assert found.said == []


@pytest.mark.parametrize("tier", TIERS)
def test_without_javascript_everything_can_be_read(scriptless: Browser, site: str, tier: str) -> None:
    with tab(scriptless) as found:
        page = found.page
        page.goto(site + tier + "/")
        for ident in ("abstract", "claims", "results", "references", "citation"):
            expect(page.locator(f"#{ident}")).to_be_visible()
        expect(page.locator("[data-lra-claim]")).to_have_count(3)
        expect(page.locator("button:visible")).to_have_count(0)
        if tier != "bronze":
            # By its box: the text engine of the driver looks past noscript, shown or not.
            box = page.locator("#demo-1 noscript p").bounding_box()
            assert box is not None
            assert box["height"] > 10
        assert found.said == []


def test_the_demo_can_be_used_by_keyboard_alone(browser: Browser, site: str) -> None:
    with tab(browser) as found:
        page = found.page
        page.goto(site + "gold/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the abstract"
        reached = []
        for _ in range(60):
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
            if reached[-1] == "demo-1-r":
                break
            page.keyboard.press("Tab")
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert "check" in reached
        page.keyboard.press("ArrowRight")
        expect(page.locator("#demo-1 .result")).to_contain_text("N(13) = 529 points")
        page.keyboard.press("End")
        expect(page.locator("#demo-1 .result")).to_contain_text("N(120) = 45\u202f225 points")
        assert page.locator("#demo-1 output[data-lra-says]").get_attribute("aria-live") == "polite"


def test_a_demo_shows_its_result_its_picture_and_the_verdict_of_its_claim_at_once(browser: Browser, site: str) -> None:
    with tab(browser, viewport={"width": 1280, "height": 800}) as found:
        page = found.page
        page.goto(site + "gold/")
        expect(page.locator("#demo-1 .result")).to_contain_text("N(12) = 441 points")
        marks = """() => {
          const canvas = document.querySelector("#demo-1 canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return data.reduce((a, b) => a + b, 0);
        }"""
        few = page.evaluate(marks)
        assert few > 0
        assert page.locator("#demo-1 svg path.mark").count() == 1
        page.click("#claim-1 .badge")
        verdict = page.locator("#demo-1 .verdict")
        expect(verdict).to_have_text(CHECKED)
        expect(verdict).to_be_in_viewport()
        assert page.evaluate(marks) != few
        page.locator("#demo-1-r").fill("99")
        expect(verdict).to_have_text("")
        expect(page.locator("#claim-1 .verdict")).to_have_text(CHECKED)
        assert [one for one in found.said if "getImageData" not in one] == []


def test_the_theme_is_remembered(browser: Browser, site: str) -> None:
    with tab(browser) as found:
        page = found.page
        page.goto(site + "silver/")
        page.click("#theme")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark == "rgb(21, 23, 27)"
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        expect(page.locator("#theme")).to_have_text("Light")


ASK_WORKER = """async (request) => {
  const registration = await navigator.serviceWorker.ready;
  return new Promise((resolve) => {
    navigator.serviceWorker.addEventListener("message", ({ data }) => data?.id === request.id && resolve(data));
    registration.active.postMessage(request);
    setTimeout(() => resolve("silence"), 1500);
  });
}"""


def test_the_worker_answers_the_protocol(browser: Browser, site: str) -> None:
    with tab(browser) as found:
        page = found.page
        page.goto(site + "gold/")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        page.wait_for_function("caches.open('lra-state:/gold/').then((cache) => cache.match('./state')).then(Boolean)")

        def ask(method: object, **params: object) -> object:
            number = ask.number = getattr(ask, "number", 0) + 1
            return page.evaluate(ASK_WORKER, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})

        assert ask("lra.ping")["result"] == {
            "status": "ok",
            "version": "1.0",
            "capability": "lattice-count",
            "headless_methods": ["lra.ping", "lra.meta", "lra.claims", "lra.cite"],
            "tool_requires_tab": True,
        }
        meta = ask("lra.meta")["result"]
        assert (meta["title"], meta["authors"]) == (
            "Counting lattice points in a circle",
            ["Jane Q. Doe", "Erika Mustermann"],
        )
        assert (meta["license"], meta["claims_count"], meta["date"]) == ("GPL-3.0-or-later", 3, "2026-11-15")
        claims = ask("lra.claims")["result"]
        assert [(one["id"], one["evidence_href"]) for one in claims] == [
            ("claim-1", "#demo-1"),
            ("claim-2", "#demo-1"),
            ("claim-3", "#reading"),
        ]
        assert ask("lra.cite")["result"]["citation"].startswith("@misc{doe-2026-gold,")
        assert ask("lra.cite", format="ris")["result"]["citation"].startswith("TY  - GEN")
        assert ask("lra.cite", format="__proto__")["error"]["code"] == -32602
        assert ask("lra.run_tool", input="100")["result"]["ok"] == {
            "function": "wasm/lattice.wasm#count",
            "results": ["31417"],
        }
        assert "numbers" in ask("lra.run_tool", input="x")["result"]["err"]
        assert "takes 1 numbers, not 2" in ask("lra.run_tool", input="1 2")["result"]["err"]
        assert ask("lra.run_tool", input="1" * 65537)["error"]["code"] == -32602
        assert ask("lra.run_tool", input=7)["error"]["code"] == -32602
        assert ask("constructor")["error"]["code"] == -32601
        assert ask("lra.shutdown")["error"]["code"] == -32601
        assert ask(7) == "silence"
        assert found.said == []


def test_the_worker_limits_how_often_it_answers(browser: Browser, site: str) -> None:
    with tab(browser) as found:
        found.page.goto(site + "silver/")
        answers = found.page.evaluate("""async () => {
          const registration = await navigator.serviceWorker.ready;
          const answers = [];
          const done = new Promise((resolve) => navigator.serviceWorker.addEventListener("message", ({ data }) => {
            if (data?.jsonrpc && answers.push(data) === 70) resolve();
          }));
          for (let id = 0; id < 70; id++) registration.active.postMessage({ jsonrpc: "2.0", id, method: "lra.none" });
          await done;
          return answers.map((one) => one.error.code);
        }""")
        assert (answers.count(-32601), answers.count(-32000)) == (60, 10)


ASK_FRAME = """(request) => new Promise((resolve) => {
  addEventListener("message", (event) => event.data?.id === request.id && resolve({ data: event.data, origin: event.origin }));
  document.querySelector("iframe").contentWindow.postMessage(request, "*");
  setTimeout(() => resolve("silence"), 1500);
})"""


def test_only_the_papers_own_origin_is_answered_unless_the_author_names_another(
    browser: Browser, papers: Path, tmp_path: Path
) -> None:
    request = {"jsonrpc": "2.0", "id": "a", "method": "lra.ping"}
    with served(papers) as site, served(tmp_path) as other:
        silver = (papers / "silver" / "index.html").read_text()
        named = silver.replace("</title>", f'</title><meta name="lra:allow-origin" content="{other.rstrip("/")}">')
        (papers / "silver" / "open.html").write_text(named)
        frame = '<!doctype html><iframe src="{}"></iframe>'
        (tmp_path / "closed.html").write_text(frame.format(site + "silver/"))
        (tmp_path / "open.html").write_text(frame.format(site + "silver/open.html"))
        (papers / "frame.html").write_text(frame.format("silver/"))
        for address, answered in (
            (other + "closed.html", False),
            (other + "open.html", True),
            (site + "frame.html", True),
        ):
            with tab(browser) as found:
                found.page.goto(address)
                answer = found.page.evaluate(ASK_FRAME, request)
                assert (answer != "silence") is answered, address
                if answered:
                    assert answer["data"]["result"]["status"] == "ok"
                    assert answer["origin"] + "/" == site


def test_pictures_of_every_view_are_kept(browser: Browser, site: str) -> None:
    """Look at them: artifacts/papers/. The test holds that they are made, and that the print has a sane number of pages."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    shots = {
        "desktop": {"viewport": {"width": 1400, "height": 1000}},
        "dark": {"viewport": {"width": 1400, "height": 1000}, "color_scheme": "dark"},
        "tablet": {"viewport": {"width": 820, "height": 1180}},
        "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True},
    }
    for name, options in shots.items():
        with tab(browser, **options) as found:
            found.page.goto(site + "gold/")
            check_claims(found.page)
            found.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
    with tab(browser) as found:
        found.page.goto(site + "gold/")
        printed = found.page.pdf(path=ARTIFACTS / "print.pdf", format="A4", print_background=True, tagged=True)
    assert 2 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 5
    assert b"/StructTreeRoot" in printed
    sizes = {path.name: path.stat().st_size for path in ARTIFACTS.iterdir()}
    (ARTIFACTS / "sizes.json").write_text(json.dumps(sizes, indent=2))
