"""The badge that a reader sees, in a real browser: green only for what the page's own run gave, else red with both values."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.packs.lra.browser import ARTIFACTS, launch, served, tab
from tests.packs.lra.test_signals import CLAIM, GOLD, LYING_WASM, SPELT, examined, put, with_page
from toolgate.packs.lra.build import shell

pytestmark = pytest.mark.guard
COPY = base64.b64encode(GOLD["wasm/lattice.wasm"]).decode()
LYING_COPY = base64.b64encode(LYING_WASM).decode()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as engine:
        started = launch(engine)
        yield started
        started.close()


def told(page: Page, number: int = 1) -> tuple[str | None, str]:
    """The badge's state and the verdict's words, once there are any."""
    return told_at(page.locator(f"#claim-{number}"))


def told_at(claim: Locator) -> tuple[str | None, str]:
    claim.locator(".check").click()
    verdict = claim.locator(".verdict")
    expect(verdict).not_to_have_text(re.compile("Computing …|Wird berechnet …"))
    expect(verdict).not_to_be_empty()
    return claim.locator(".badge").get_attribute("data-state"), verdict.inner_text()


LIES: dict[str, tuple[dict[str, bytes], list[str]]] = {
    "another number in the text": (
        with_page(CLAIM, CLAIM.replace("31\u202f417", "99\u202f999")),
        ["the text says 99\u202f999, the value beside it is 31\u202f417", "computed here 31\u202f417"],
    ),
    "another number in text and value": (
        with_page(CLAIM, CLAIM.replace("31\u202f417", "99\u202f999").replace("31417", "99999")),
        ["claimed 99\u202f999, computed here 31\u202f417"],
    ),
    "another value": (
        with_page(CLAIM, CLAIM.replace("31417", "31418")),
        ["the text says 31\u202f417, the value beside it is 31\u202f418"],
    ),
    "no number": (with_page(CLAIM, "Very many"), ["marks no number", "computed here 31\u202f417"]),
    "a module that adds a thousand": (
        {**GOLD, "wasm/lattice.wasm": LYING_WASM},
        ["claimed 31\u202f417, computed here 32\u202f417"],
    ),
    "evidence that is not on the page": (
        with_page('data-lra-evidence="demo-1" aria-label="evidence (claim 1)"', 'data-lra-evidence="demo-9"'),
        ["its evidence is not on the page", "computed here 31\u202f417"],
    ),
    "another input": (with_page('data-lra-input="100"', 'data-lra-input="101"'), ["computed here 32\u202f017"]),
}


@pytest.mark.parametrize("lie", LIES)
def test_papers_1_a_claim_that_its_evidence_does_not_bear_out_turns_red_and_both_values_are_said(
    browser: Browser, tmp_path: Path, lie: str
) -> None:
    files, words = LIES[lie]
    with served(put(tmp_path, files)) as site, tab(browser) as found:
        found.page.goto(site)
        state, text = told(found.page)
        assert state == "bad"
        assert text.startswith("Not confirmed: ")
        for word in words:
            assert word in text
        expect(found.page.locator("#claim-1 .badge")).to_have_text("evidence: differs")
        assert told(found.page, 2)[0] == ("bad" if "module" in lie else "ok"), "the other claim runs the same module"
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        found.page.locator("#claims").screenshot(path=ARTIFACTS / f"claim-{lie.replace(' ', '-')}.png")


def changes_of_the_claim() -> Iterator[bytes]:
    """The page with one byte of the first claim's markup changed: every digit of it, and some of the rest."""
    page = GOLD["index.html"]
    begin = page.index(b'<li id="claim-1"')
    end = page.index(b"</li>", begin)
    for place in range(begin, end):
        if page[place : place + 1].isdigit() or place % 25 == 0:
            yield page[:place] + bytes([page[place] ^ 1]) + page[place + 1 :]


def changes_of_the_module() -> Iterator[bytes]:
    module = GOLD["wasm/lattice.wasm"]
    for place in range(8, len(module), 30):
        yield module[:place] + bytes([module[place] ^ 1]) + module[place + 1 :]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["index.html", "wasm/lattice.wasm"])
def test_whatever_byte_changes_the_badge_is_green_only_if_verify_says_the_claim_holds(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    """What a reader sees of a change after deployment: the claim, its number, what it runs. Two judges, one verdict."""
    changes = changes_of_the_claim() if name == "index.html" else changes_of_the_module()
    seen = Counter[str]()
    with served(put(tmp_path, GOLD)) as site, tab(browser, service_workers="block") as found:
        found.page.route("**/*", lambda route: route.continue_())  # who looks at requests gets no cached answers
        for data in changes:
            (tmp_path / name).write_bytes(data)
            found.page.goto(site)
            claim = found.page.locator("#claims .claims > li").first  # its id may be what changed
            if not claim.locator(".check").count() or not claim.locator(".badge").count():
                seen["no badge"] += 1
                continue
            state = told_at(claim)[0]
            said = "\n".join(examined({**GOLD, name: data}, run=True))
            assert (state == "ok") is ("evidence ran and matched: 31417" in said), (state, data, said)
            seen[state or "none"] += 1
    assert seen.total() >= 15
    assert seen["bad"] + seen["none"] >= 5
    assert seen["ok"] > 0, "a change of prose beside the number, or of bytes that nothing runs"


def test_papers_2_from_a_server_the_page_runs_the_file_and_from_a_disk_the_copy(
    browser: Browser, tmp_path: Path
) -> None:
    put(tmp_path / "copy", with_page(COPY, LYING_COPY))
    with served(tmp_path) as site, tab(browser) as found:
        found.page.goto(f"{site}copy/")
        assert told(found.page)[0] == "ok", "the file is what it was"
        assert f"{site}copy/wasm/lattice.wasm" in found.requested
        found.page.goto((tmp_path / "copy" / "index.html").as_uri())
        assert told(found.page) == ("bad", "Not confirmed: claimed 31\u202f417, computed here 32\u202f417.")


def test_papers_2_a_module_that_cannot_be_loaded_checks_nothing(browser: Browser, tmp_path: Path) -> None:
    put(tmp_path, {name: data for name, data in with_page(COPY, "").items() if not name.endswith(".wasm")})
    with served(tmp_path) as site, tab(browser) as found:
        found.page.goto(site)
        state, text = told(found.page)
        assert state == "none"
        assert text == "Not checked: wasm/lattice.wasm could not be loaded (HTTP 404)."


def test_problem_14_the_badge_speaks_the_language_of_the_paper_and_no_element_changes_its_words(
    browser: Browser, tmp_path: Path
) -> None:
    clobbering = '<a id="lraWords"></a><a id="lraWords" name="Not confirmed" href="cid:Confirmed">x</a></body>'
    german = {**with_page('lang="en"', 'lang="de"'), "paper.js": shell.page_script("wasm", "de")}
    english = with_page("</body>", clobbering, with_page(CLAIM, CLAIM.replace("31417", "31418").replace("417", "418")))
    put(tmp_path / "de", german)
    put(tmp_path / "en", english)
    assert not [line for line in examined(german) if "FAIL" in line]
    with served(tmp_path) as site, tab(browser) as found:
        found.page.goto(f"{site}de/")
        state, text = told(found.page)
        assert (state, text) == ("ok", "Bestätigt: behauptet 31\u202f417, hier berechnet 31\u202f417.")
        expect(found.page.locator("#claim-1 .badge")).to_have_text("Beleg: geprüft")
        found.page.goto(f"{site}en/")
        assert told(found.page)[1].startswith("Not confirmed: claimed 31\u202f418")


def test_the_page_reads_numbers_as_the_verifier_does(browser: Browser, tmp_path: Path) -> None:
    for lang in {one[1] for one in SPELT}:
        put(tmp_path / lang, with_page('lang="en"', f'lang="{lang}"'))
    with served(tmp_path) as site, tab(browser) as found:
        for lang in {one[1] for one in SPELT}:
            found.page.goto(f"{site}{lang}/")
            for text, of, value in SPELT:
                if of == lang:
                    expression = "([text, value]) => [lraEvidence.spelt(text), value && lraEvidence.plain(value)]"
                    got, want = found.page.evaluate(expression, [text, value])
                    assert got == want, (text, lang)


def test_papers_1_floats_large_integers_and_several_results_are_compared(browser: Browser, tmp_path: Path) -> None:
    import wasmtime

    module = bytes(
        wasmtime.wat2wasm("""(module
          (func (export "half") (param f64) (result f64) (f64.div (local.get 0) (f64.const 2)))
          (func (export "big") (param i64) (result i64) (i64.add (local.get 0) (i64.const 1)))
          (func (export "two") (param i32) (result i32 i32) (local.get 0) (i32.add (local.get 0) (i32.const 1))))""")
    )
    rows = [
        ("m.wasm#half", "1", '<data class="expect" value="0.5">0.5</data>', "ok"),
        ("m.wasm#half", "1", '<data class="expect" value="0.4">0.4</data>', "bad"),
        ("m.wasm#half", '1" data-lra-tolerance="0.2', '<data class="expect" value="0.4">0.4</data>', "ok"),
        (
            "m.wasm#big",
            "9007199254740993",
            '<data class="expect" value="9007199254740994">9\u202f007\u202f199\u202f254\u202f740\u202f994</data>',
            "ok",
        ),
        (
            "m.wasm#big",
            "9007199254740993",
            '<data class="expect" value="9007199254740993">9\u202f007\u202f199\u202f254\u202f740\u202f993</data>',
            "bad",
        ),
        (
            "m.wasm#two",
            "4",
            '<data class="expect" value="4">4</data> and <data class="expect" value="5">5</data>',
            "ok",
        ),
        ("m.wasm#two", "4", '<data class="expect" value="4">4</data>', "bad"),
        ("m.wasm#half", "1 2", '<data class="expect" value="0.5">0.5</data>', "none"),
        ("m.wasm#half", "1e23", '<data class="expect" value="5e22">5 × 10<sup>22</sup></data>', "ok"),
    ]
    items = "".join(
        f'<li id="claim-{at}" data-lra-claim="{at}" data-lra-run="{run}" data-lra-input="{values}"><p>{text}</p>'
        f'<a class="badge" href="#claims" data-lra-evidence="claims">evidence</a></li>'
        for at, (run, values, text, _) in enumerate(rows, 1)
    )
    page = GOLD["index.html"].decode()
    begin, end = page.index('<ol class="claims">'), page.index("</ol>", page.index('<ol class="claims">'))
    files = {**GOLD, "m.wasm": module, "index.html": f'{page[:begin]}<ol class="claims">{items}{page[end:]}'.encode()}
    with served(put(tmp_path, files)) as site, tab(browser) as found:
        found.page.goto(site)
        for at, row in enumerate(rows, 1):
            assert told(found.page, at)[0] == row[3], (row, found.page.locator(f"#claim-{at} .verdict").inner_text())
    report = examined(files, run=True)
    for at, row in enumerate(rows, 1):
        assert (f"[PASS] Claim {at}: evidence ran and matched" in "\n".join(report)) is (row[3] == "ok"), row
