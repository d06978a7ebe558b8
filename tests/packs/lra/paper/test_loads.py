"""What counts as loading from another server, what does not, and what only running the page would tell."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.packs.lra.papers import BODY, HEAD, artifact, failed, html, judge
from tests.work import lines_run
from toolgate.packs.lra.checks.validate import status_of, validate
from toolgate.packs.lra.paper import page, service_worker
from toolgate.packs.lra.paper.artifact import Artifact
from toolgate.packs.lra.paper.loading import loads, scan_css, scan_js
from toolgate.packs.lra.paper.loading.urls import is_external, local_path

EXTERNAL_HTML = [
    '<link rel="stylesheet" href="https://cdn.test/x.css">',
    '<link href="https://cdn.test/x.css" rel="stylesheet">',
    "<link rel=preconnect href=//fonts.test>",
    "<link rel='dns-prefetch' href='https://cdn.test'>",
    "<link rel=icon href=http://x.test/i.png>",
    "<script defer src='https://cdn.test/x.js'></script>",
    "<script src='//cdn.test/x.js'></script>",
    "<SCRIPT SRC=\\\\cdn.test\\x.js></SCRIPT>",
    "<script type=module>import x from 'https://cdn.test/x.js'</script>",
    '<script type="importmap">{"imports": {"x": "https://cdn.test/x.js"}}</script>',
    "<img alt='' src='http://x.test/a.png'>",
    "<img alt='' src='ht\ntp://x.test/a.png'>",
    "<img alt='' srcset='a.png 1x, https://x.test/b.png 2x'>",
    "<iframe title=x src='https://x.test/'></iframe>",
    "<iframe title=x srcdoc='<img src=https://x.test/a.png>'></iframe>",
    "<video poster=https://x.test/p.png></video>",
    "<audio src=https://x.test/p.ogg></audio>",
    "<picture><source srcset='//x.test/a.webp'></picture>",
    "<video><track src=https://x.test/t.vtt></video>",
    "<object data=https://x.test/o></object>",
    "<embed src=https://x.test/o>",
    "<base href=https://x.test/>",
    "<form action=https://x.test/collect></form>",
    "<a href=#claims ping=https://x.test/p>x</a>",
    "<svg role=img aria-label=x><image href='https://x.test/a.png'/></svg>",
    "<svg role=img aria-label=x><use xlink:href='https://x.test/s.svg#a'/></svg>",
    "<svg role=img aria-label=x><rect fill='url(https://x.test/s.svg#g)'/></svg>",
    "<p style='background: url(https://x.test/a.png)'>x</p>",
    "<style>@import 'https://x.test/a.css';</style>",
    "<style>@import url(//x.test/a.css);</style>",
    "<style>p { background: u\\72l(https://x.test/a.png) }</style>",
    "<p onclick=\"fetch('https://x.test')\">x</p>",
    "<meta http-equiv=refresh content='5; url=https://x.test/'>",
    "<noscript><img alt='' src='https://x.test/pixel.gif'></noscript>",
    "<input type=image alt=x src=https://x.test/i.png>",
    "<button formaction=https://x.test/>x</button>",
]


@pytest.mark.parametrize("markup", EXTERNAL_HTML)
def test_every_element_that_can_load_is_seen(markup: str) -> None:
    assert "G3" in failed(judge(html(body=BODY + markup)))


HARMLESS_HTML = [
    "<a href='https://x.test/'>x</a>",
    "<link rel=canonical href='https://x.test/'>",
    "<link href='https://x.test/' rel='license'>",
    "<link rel=author href='https://x.test/'><link rel=me href='https://x.test/'>",
    "<meta property='og:image' content='https://x.test/a.png'>",
    '<script type="application/ld+json">{"url": "https://x.test/"}</script>',
    "<blockquote cite='https://x.test/'>x</blockquote>",
    "<img alt='' src='data:image/png;base64,AAAA'>",
    "<link rel=icon href='data:,'>",
    "<img alt='' src='figures/a.png'>",
    "<img alt='' src='/figures/a.png'>",
    "<!-- <script src='https://cdn.test/x.js'></script> -->",
    "<template><img src='https://x.test/a.png'></template>",
    "<pre>&lt;script src='https://cdn.test/x.js'></pre>",
    "<textarea><img src='https://x.test/a.png'></textarea>",
    "<svg role=img aria-label=x xmlns:xlink='http://www.w3.org/1999/xlink'><a xlink:href='https://x.test/'/></svg>",
    "<style>@namespace url(http://www.w3.org/1999/xhtml); p::after { content: 'https://x.test' }</style>",
    "<style>/* url(https://x.test/a.png) */ p { background: url(a.png) }</style>",
    "<form action='#'></form>",
    "<p title='fetch(\"https://x.test\")'>x</p>",
]


@pytest.mark.parametrize("markup", HARMLESS_HTML)
def test_what_loads_nothing_is_not_flagged(markup: str) -> None:
    assert failed(judge(html(body=BODY + markup))) == set()


JS = [
    ("fetch('https://x.test/a.json')", "external"),
    ('fetch( "//x.test/a.json" )', "external"),
    ("fetch(`https://x.test/${id}`)", "external"),
    ("fetch('https://x.test/' + id)", "external"),
    ("fetch('\\x68ttps://x.test/')", "external"),
    ("const API = 'https://x.test'; fetch(API)", "external"),
    ("import('https://x.test/m.js')", "external"),
    ("import {a, b} from 'https://x.test/m.js'", "external"),
    ("export * from 'https://x.test/m.js'", "external"),
    ("importScripts('a.js', 'https://x.test/m.js')", "external"),
    ("new WebSocket('wss://x.test')", "external"),
    ("new EventSource('https://x.test/e')", "external"),
    ("new Worker('https://x.test/w.js')", "external"),
    ("navigator.sendBeacon('https://x.test/b', d)", "external"),
    ("x.open('GET', 'https://x.test/')", "external"),
    ("image.src = 'https://x.test/a.png'", "external"),
    ("s.setAttribute('src', 'https://x.test/a.js')", "external"),
    ("const t = `${`${fetch('https://x.test')}`}`", "external"),
    ("a = b / c; fetch('https://x.test') / 2", "external"),
    ("fetch(address)", "undecidable"),
    ("const f = fetch; f('https://x.test')", "undecidable"),
    ("fetch('h' + 'ttps://x.test')", "undecidable"),
    ("eval(code)", "undecidable"),
    ("new Function(code)()", "undecidable"),
    ("f\\u0065tch('https://x.test')", "undecidable"),
    ("import(name)", "undecidable"),
    ("fetch('data.json')", "local"),
    ("fetch('./' + name)", "local"),
    ("fetch(`./data/${name}.json`)", "local"),
    ("fetch('httpcache.json')", "local"),
    ("addEventListener('fetch', (event) => event.respondWith(fetch(event.request)))", "nothing"),
    ("const url = 'https://x.test'; const r = /fetch\\(\"https:/; // fetch('https://x.test')", "nothing"),
    ("/* fetch('https://x.test') */ const o = { fetch: 1 }", "nothing"),
    ("const s = \"fetch('https://x.test')\"", "nothing"),
    ("window.open('https://x.test')", "nothing"),
    ("location.href = 'https://x.test'", "nothing"),
    ("const re = /[/'\"`]/; const a = 'x'", "nothing"),
]


@pytest.mark.parametrize(("code", "expected"), JS)
def test_scripts_are_read_as_a_browser_reads_them(code: str, expected: str) -> None:
    found = loads.of_artifact(artifact(paper_js=code.encode()), page.parse(html()))
    levels = {load.level for load in found if load.file == "paper.js"}
    worst = next((level for level in ("external", "undecidable", "local") if level in levels), "nothing")
    assert worst == expected
    report = judge(paper_js=code.encode())
    (finding, *_) = [one for one in report.findings if one.rule == "G3"]
    assert status_of(finding) == {"external": "fail", "undecidable": "warn"}.get(expected, "pass")


CSS_EXTERNAL = [
    "@import 'https://x.test/a.css';",
    "@import url(https://x.test/a.css) print;",
    "p { background: url( 'https://x.test/a.png' ) }",
    "p { background: URL(//x.test/a.png) }",
    "@font-face { src: url(https://x.test/f.woff2) }",
    "p { background: image-set('https://x.test/a.png' 1x) }",
    "@media print { @supports (a: b) { p { cursor: url(https://x.test/c.cur), auto } } }",
]


@pytest.mark.parametrize("css", CSS_EXTERNAL)
def test_style_sheets_are_seen_too(css: str) -> None:
    assert failed(judge(paper_css=css.encode())) == {"G3"}
    assert failed(judge(html(HEAD + f"<style>{css}</style>"))) == {"G3"}


def test_what_a_script_or_sheet_loads_in_turn_is_followed() -> None:
    assert failed(
        judge(paper_js=b"import './lib/a.js'", **{"lib/a.js": b"import './b.js'", "lib/b.js": b"fetch('//x.test')"})
    ) == {"G3"}
    assert failed(judge(paper_css=b"@import 'more.css';", **{"more.css": b"p { background: url(//x.test) }"})) == {"G3"}
    assert failed(
        judge(paper_js=b"navigator.serviceWorker.register('w.js')", **{"w.js": b"importScripts('//x.test')"})
    ) == {"G3"}
    assert failed(judge(**{"notes/unused.js": b"fetch('//x.test')"})) == set()


@pytest.mark.parametrize(
    ("markup", "files"),
    [
        ("<script src=app.txt></script>", {"app.txt": b"fetch('//x.test')"}),
        ("<script src=\"data:text/javascript,fetch('//x.test')\"></script>", {}),
        ("<script src=big.js></script>", {"big.js": b"\xff"}),
    ],
)
def test_a_script_that_cannot_be_looked_into_is_a_warning_not_a_pass(markup: str, files: dict[str, bytes]) -> None:
    subject = artifact(html(body=BODY + markup), **files)
    unread = type(subject)(
        subject.page, subject.html, {k: v for k, v in subject.files.items() if k != "app.txt"}, subject.sizes
    )
    (finding, *_) = [one for one in validate(unread).findings if one.rule == "G3"]
    assert status_of(finding) == "warn"


def test_a_cycle_of_imports_ends() -> None:
    assert failed(judge(paper_js=b"import './a.js'", **{"a.js": b"import './paper.js'"})) == set()


@pytest.mark.parametrize(
    ("url", "external"),
    [
        ("https:x", True),
        ("//x.test", True),
        ("\\\\x.test", True),
        ("/\\x.test", True),
        (" https://x.test", True),
        ("h\tttps://x.test", True),
        ("ftp://x.test", True),
        ("file:///etc/passwd", True),
        ("data:,x", False),
        ("blob:x", False),
        ("a//b", False),
        ("/a", False),
        ("#a", False),
        ("", False),
    ],
)
def test_addresses_are_read_as_a_browser_reads_them(url: str, external: bool) -> None:
    assert is_external(url) is external


def test_a_relative_address_never_names_a_file_outside_the_paper() -> None:
    assert local_path("a/../b.js?x#y") == "b.js"
    assert local_path("b%2ejs", "lib/a.js") == "lib/b.js"
    assert local_path("../x.js") is None
    assert local_path("../../x.js", "lib/a.js") is None
    assert local_path("/x.js") is None


REPEATED = ["/*", '"\\"', "`${", "(", "/[/", "a/", "fetch('x');"]


@pytest.mark.parametrize("part", REPEATED)
def test_hostile_scripts_are_read_in_linear_time(part: str) -> None:
    small, large = (lines_run(scan_js, scan_js.loads, part * times + "fetch") for times in (500, 4000))
    assert large <= 8 * small + 200, "eight times the text is at most eight times the work"


@pytest.mark.parametrize("part", REPEATED)
def test_hostile_scripts_of_a_megabyte_are_read_to_their_end(part: str) -> None:
    """Quadratic patterns, which the test above does not see, would take hours: the suite's own limit tells."""
    found = scan_js.loads(part * (1_000_000 // len(part)) + "\n;fetch('http://x/')")
    assert any(load.url == "http://x/" for load in found) is (part != "/*"), (
        "all but a comment ends before the last line"
    )


@pytest.mark.parametrize(
    "css", ["{(" * 20_000 + "url(x)", "@media{" * 10_000 + "url(x)", "\\" * 100_000], ids=lambda css: css[:8]
)
def test_hostile_style_sheets_are_read_without_recursion(css: str) -> None:
    scan_css.loads(css)


@pytest.mark.parametrize(
    ("page", "css"),
    [
        ("<div><img src=http://x/y>" * 100_000, ""),
        ("<p " + " ".join(f"on{number}='fetch(1)'" for number in range(60_000)) + ">", ""),
        ("", "a{b:url(x)}" + "1" * 1_500_000),
        ("<p style='a:url(x) " + "1" * 9_000 + "'>", ""),
    ],
    ids=["nested loads", "attributes", "an endless number", "an endless number in an attribute"],
)
def test_what_hostile_pages_load_is_found_in_linear_time(page: str, css: str) -> None:
    """Quadratic time would be minutes; the suite's own limit tells."""
    whole = f"<!doctype html><title>t</title>{page}".encode()
    sizes = {"index.html": len(whole), "paper.css": len(css)}
    assert validate(Artifact("index.html", whole, {"paper.css": css.encode()}, sizes)).tier == "NONE"


HOSTILE = (
    *(
        "ASSETS=[",
        "importScripts(",
        "importScripts(a,",
        "fetch(/[ ",
        "/[ ",
        "/\\/",
        "/[\\/]",
        "$fetch",
        "fetch$",
        "☃fetch",
    ),
    *(
        "<!-- fetch ",
        "fetch(`${",
        "export ",
        "import{import,",
        "export{a,",
        "const a='",
        "fetch(a.",
        "\\u{",
        "=/[a/b/c]\\/",
    ),
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", HOSTILE)
def test_f10_a_script_costs_its_length_whatever_it_repeats(piece: str) -> None:
    """A tenth of a second each. Where cost grows with the square, it is minutes."""
    scan_js.loads(piece * (100_000 // len(piece)))
    assert service_worker.assets(piece * (2_000_000 // len(piece))) is None


def test_a_list_of_assets_ends_at_its_first_bracket() -> None:
    code = "x\nASSETS = [ 'a', \"b\" ]; ASSETS=['c']"
    assert service_worker.assets(code) == ["a", "b"]
    assert service_worker.line_of_assets(code) == 2
    assert service_worker.with_assets(code, ["n"]) == "x\nASSETS = [\"n\"]; ASSETS=['c']"
    assert service_worker.assets("ASSETS=[ 'a'") is None


REGEXES = {
    'x = /[/"]/; fetch("https://a.example/")': ["https://a.example/"],
    'x = /\\/"/; fetch("https://a.example/")': ["https://a.example/"],
    'x = b / c; y = "/"; fetch("https://a.example/")': ["https://a.example/"],
    'x = [/[ /"/, fetch("https://a.example/")\n]': ["https://a.example/"],
    "x = /fetch('https://a.example/')/g": [],
    "x = a\n/ fetch('https://a.example/')": ["https://a.example/"],
    "fetch\u00a0('https://a.example/')": ["https://a.example/"],
    "\ufeffimportScripts\ufeff('https://a.example/')": ["https://a.example/"],
    "import { default as x, import as y } from 'https://a.example/'": ["https://a.example/"],
    "import { 'a b' as x } from 'https://a.example/'": ["https://a.example/"],
    "export default function f() {} 'https://a.example/'": [],
    "$fetch('https://a.example/')": [],
}


@pytest.mark.parametrize(("code", "urls"), REGEXES.items())
def test_slashes_blanks_and_names_are_read_as_a_browser_reads_them(code: str, urls: list[str]) -> None:
    assert [load.url for load in scan_js.loads(code) if load.kind == "literal"] == urls


@given(st.text(alphabet="/[]\\\na", max_size=30))
def test_the_end_of_a_regular_expression_is_where_the_pattern_for_one_ends(text: str) -> None:
    pattern = re.compile(r"/(?:[^/\\\[\n]++|\\.|\[(?:[^\]\\\n]++|\\.)*+\])++/[a-z]*+")
    regexes = scan_js._Regexes(text)
    for place, character in enumerate(text):
        if character == "/" and text[place : place + 2] != "//":
            match = pattern.match(text, place)
            assert regexes.end(place) == (match.end() if match else None)


def test_importscripts_behind_a_computed_argument_is_undecidable() -> None:
    found = scan_js.loads("importScripts('a.js', f('b'), 'c.js')")
    assert [(load.kind, load.url) for load in found] == [("literal", "a.js"), ("dynamic", ""), ("dynamic", "")]
