"""Edits shown in place, in a real browser: the page becomes what a reload would show, or it is reloaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.packs.lra.deployed.papers import POLICY, plant, save
from tests.packs.lra.devsite.browsing import Background, listening
from tests.packs.lra.papers import HEAD, html
from tests.waiting import until
from toolgate.packs.lra.devsite import pages

pytestmark = [pytest.mark.guard, pytest.mark.timeout(300)]

CANONICAL = """() => {
  // A form's own fields may hide its properties, so they are asked of the prototype.
  const asked = (name) => (node) => Object.getOwnPropertyDescriptor(Node.prototype, name).get.call(node);
  const [typeOf, nameOf, childrenOf] = ["nodeType", "nodeName", "childNodes"].map(asked);
  const told = (node) => {
    if (typeOf(node) !== 1) return [typeOf(node), node.data ?? node.name];
    const attributes = [...node.attributes].map((one) => [one.namespaceURI, one.name, one.value]).sort();
    const inside = node instanceof HTMLTemplateElement ? node.content : node;
    const children = [...childrenOf(inside)].filter((one) => nameOf(one) !== "LRA-FINDINGS");
    return [node.namespaceURI, nameOf(node), attributes, children.map(told)];
  };
  return JSON.stringify([document.compatMode, [...document.childNodes].map(told)]);
}"""
"""The whole document, attribute order aside: two pages that look and read alike have the same text."""

STATIC_HEAD = HEAD.replace('<script src="paper.js" defer></script>', "")
BODY = """<h1 id="top">Paper</h1>
<section id="one"><h2>One</h2><p>First <em>words</em> here.</p><p class="note">A note.</p></section>
<!-- between -->
<section id="two"><h2>Two</h2><p>Second. <a href="#one" title="up">Up</a></p>
<ul><li>a</li><li>b</li></ul>
<table><caption>Counts</caption><tbody><tr><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></tbody></table>
<math><mfrac><mi>x</mi><mn>2</mn></mfrac></math>
<svg viewBox="0 0 4 4" width="20"><circle r="1"/></svg>
<details><summary>More</summary><p>Hidden at first.</p></details></section>
<form><input name="radius" value="1"><button>Run</button></form><output id="result">none</output>
<noscript><p>No demo.</p></noscript>
<template><p>Row</p></template>"""


@dataclass(frozen=True)
class Edit:
    """`old` is replaced by `new` in the page; `scripts` are the paper's own (none: a static page)."""

    name: str
    old: str
    new: str
    scripts: str | None = ""
    head: str = ""
    returns: bool = True
    """Can be taken back in place: not if a kind of element left the page and comes anew."""


IN_PLACE = [
    Edit("text", "Second.", "Zweitens."),
    Edit("text in an inline element", "<em>words</em>", "<em>other words</em>"),
    Edit("text of a heading", "<h2>One</h2>", "<h2>Uno</h2>"),
    Edit("entities", "Second.", "a &lt; b &amp;&amp; c &gt; d &nbsp; &#x1F600; &notit; &unknown; &"),
    Edit("markup that is text", "Second.", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    Edit("right to left, joined and astral characters", "Second.", "שלום 👩‍👩‍👧 𝔘𝔫𝔦 \u202e x"),
    Edit("a replacement character and controls", "Second.", "\ufffd \x01 \x7f \x85 \u2028"),
    Edit("a NUL", "Second.", "a\x00b"),
    Edit("line ends of another system", "<li>a</li><li>b</li>", "<li>a\r\nb\rc</li>\r\n<li>b</li>"),
    Edit("a comment", "<!-- between -->", "<!-- <p>between</p> - > -->"),
    Edit("a comment less", "<!-- between -->", ""),
    Edit("a comment that never ends well", "<!-- between -->", "<!-- a --!> <p>b</p> <!--> <p>c</p>"),
    Edit("an attribute", 'title="up"', 'title="&quot;to&quot; <top>"'),
    Edit("an attribute more", 'title="up"', 'title="up" hreflang="en"'),
    Edit("an attribute less", ' title="up"', ""),
    Edit("an attribute twice", 'title="up"', 'title="first" title="second" TITLE="third"'),
    Edit("an id", '<h1 id="top">', '<h1 id="bottom">'),
    Edit("a class that is known", "<p>Second.", '<p class="note">Second.'),
    Edit(
        "a section more", "<!-- between -->", '<section id="new"><h2>New</h2><p>Text <em>with</em> more.</p></section>'
    ),
    Edit("a section at the start", '<h1 id="top">', '<section id="new"><h2>New</h2></section><h1 id="top">'),
    Edit("parts of a section less", "<h2>One</h2><p>First <em>words</em> here.</p>", "", returns=False),
    Edit("an item more", "<li>b</li>", "<li>b</li><li>c</li><li>d</li>"),
    Edit("an item less and one changed", "<li>a</li><li>b</li>", "<li>B</li>"),
    Edit("a row more", "<tr><td>3</td>", "<tr><td>2</td><td>2</td></tr><tr><td>3</td>"),
    Edit("a cell", "<td>4</td>", "<td>5</td>"),
    Edit("text that a table throws out", "<tr><td>3</td>", "stray<tr><td>3</td>"),
    Edit("a table without body", "<tbody><tr><td>1</td><td>2</td></tr>", "<tr><td>1</td><td>2</td></tr><tbody>"),
    Edit("a formula of MathML", "<mi>x</mi>", "<msup><mi>x</mi><mn>3</mn></msup>", scripts=None),
    Edit("a drawing", '<circle r="1"/>', '<circle r="2"/><circle r="1"/>'),
    Edit("a size of a drawing", 'viewBox="0 0 4 4"', 'viewBox="0 0 8 8"'),
    Edit("paragraphs that are not closed", "<p>Second.", "<p>One<p>Two<p>Second."),
    Edit("misnested tags", "First <em>words</em> here.", "First <em>wo<a href=#two>rds</em> he</a>re."),
    Edit("end tags of nothing", "Second.", "</div></em>Second.</section></p>"),
    Edit("a tag that is not finished", "<h2>Two</h2>", "<h2>Two</h2 <p>"),
    Edit("ids that occur twice", "<!-- between -->", '<section id="one"><p>Again</p></section>'),
    Edit("in a page without scripts, a formula", "Second.", "Costs $5, or \\(x\\).", scripts=None),
    Edit("in a page without scripts, a new kind", "Second.", '<code class="language-c">int</code>', scripts=None),
    Edit("in a page without scripts, data", "<p>Second.", '<p data-x="1">Second.', scripts=None),
    Edit("a thousand paragraphs", "<!-- between -->", "<p>More.</p>" * 1000),
    Edit(
        "everything that is prose", BODY.partition("<form>")[0], '<h1 id="top">Paper</h1><p>Second.</p>', returns=False
    ),
    Edit("no more than saved again", "Second.", "Second."),
]
RELOADED = [
    Edit("a script more", "<!-- between -->", '<script src="paper.js?2"></script>'),
    Edit("a script's text", "<!-- 1 -->", "<!-- 2 -->", scripts="", head="<script>/*<!-- 1 -->*/</script>"),
    Edit("data for scripts", "<p>Second.", '<p data-value="1">Second.'),
    Edit("a handler", 'title="up"', 'onclick="f()"', scripts=None),
    Edit("a style", 'title="up"', 'style="color: red"', scripts=None),
    Edit("an element with a handler", "<!-- between -->", '<p onclick="f()">x</p>', scripts=None),
    Edit("an element with a style", "<!-- between -->", '<p style="color: red">x</p>', scripts=None),
    Edit("a control", 'value="1"', 'value="2"', scripts=None),
    Edit("a button's text", "Run", "Go"),
    Edit("a control more", "<!-- between -->", "<input>", scripts=None),
    Edit("the text where results are shown", ">none<", ">nothing<", scripts=None),
    Edit("a frame", "<!-- between -->", "<iframe></iframe>", scripts=None),
    Edit("a custom element", "<!-- between -->", "<x-plot></x-plot>", scripts=None),
    Edit("a style sheet inside", "<!-- between -->", "<style>p { color: red }</style>", scripts=None),
    Edit("a script in a drawing", '<circle r="1"/>', "<script>1</script>", scripts=None),
    Edit("foreign content", '<circle r="1"/>', "<foreignObject><p>x</p></foreignObject>", scripts=None),
    Edit("a template", "<p>Row</p>", "<p>Line</p>", scripts=None),
    Edit("a shadow tree", "<!-- between -->", '<div><template shadowrootmode="open">x</template></div>', scripts=None),
    Edit("a text for readers without scripts", "<p>No demo.</p>", "<p>No demo at all.</p>", scripts=None),
    Edit("a formula that a script may render", "Second.", "Second, $x$."),
    Edit("a kind that is new to the page", "Second.", '<code class="language-c">int</code>'),
    Edit("a place to be filled", "<!-- between -->", '<p id="contents"></p>'),
    Edit("the title", "<title>Small", "<title>Large"),
    Edit("the policy", "<title>", "<meta http-equiv=Content-Security-Policy content=\"script-src 'self'\"><title>"),
    Edit("the base", "<title>", '<base href="/"><title>'),
    Edit("an import map", "<title>", '<script type="importmap">{}</script><title>'),
    Edit("the style sheet's name", 'href="paper.css"', 'href="./paper.css"'),
    Edit("the language", '<html lang="en">', '<html lang="de">'),
    Edit("the body's attributes", "<body>", '<body class="dark">'),
    Edit("the document type", "<!doctype html>", ""),
    Edit("what stands after the page", "</html>", "</html><!-- end -->"),
    Edit("a head that ends early", "<title>", "<noscript><img src=x></noscript><title>"),
    Edit("frames instead of a body", "<body>", "<frameset><frame></frameset><body>", scripts=None),
    Edit("all the rest a comment", "<h2>Two</h2>", "<h2>Two</h2><!--"),
    Edit("all the rest plain text", "<h2>Two</h2>", "<plaintext>"),
    Edit("nothing is left", "", ""),
    Edit("too much to be pushed", "Second.", "x" * (pages.MAX_PUSHED_BYTES + 1)),
    Edit(
        "names that hide those of the DOM", "<input name", '<input name="childNodes"><input name="nodeType"><input name'
    ),
]


def before(edit: Edit) -> str:
    base = STATIC_HEAD if edit.scripts is None else HEAD
    return html(base + edit.head, BODY)


def after(edit: Edit) -> str:
    if not edit.old:
        return ""
    page = before(edit)
    assert edit.old in page
    return page.replace(edit.old, edit.new, 1)


class Desk:
    """An author's page open in one tab, and in another, deaf to changes, as a reload shows it."""

    def __init__(self, workspace: Path, browser: Browser) -> None:
        self.paper = plant(workspace / "paper")
        self.site = Background(workspace)
        self.contexts = [browser.new_context() for _ in range(2)]
        self.page, self.other = (context.new_page() for context in self.contexts)
        self.other.route("**/__lra/events*", lambda route: route.abort())
        self.messages: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))

    def open(self, source: str, script: str = "") -> None:
        self.page.goto("about:blank")
        self.write("paper.js", script)
        self.write("index.html", source)
        self.page.goto(self.site.url)
        listening(self.page)
        self.page.evaluate("() => { window.mark = 1; }")
        self.messages.clear()

    def write(self, name: str, text: str) -> None:
        """Until the site has noticed, so that what is opened next hears nothing of it."""
        version = self.site.site._pages.version
        save(self.paper / name, text)
        until(lambda: self.site.site._pages.version != version, "the site notices the change")

    def edit(self, source: str) -> bool:
        """Save, wait until the page is what a fresh one is; True if it was not reloaded for that."""
        self.write("index.html", source)
        expected = self.fresh()
        self.page.wait_for_function(f"expected => ({CANONICAL})() === expected", arg=expected)
        return self.is_same()

    def is_same(self) -> bool:
        return bool(self.page.evaluate("() => window.mark === 1"))

    def fresh(self) -> str:
        self.other.goto(self.site.url)
        return str(self.other.evaluate(CANONICAL))

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        self.site.stop()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk"), browser)
    yield desk
    desk.close()


@pytest.mark.parametrize("edit", IN_PLACE, ids=lambda edit: edit.name)
def test_an_edit_of_prose_is_shown_in_place_as_a_reload_would_show_it(desk: Desk, edit: Edit) -> None:
    desk.open(before(edit))
    assert desk.edit(after(edit))
    assert desk.edit(before(edit)) is edit.returns  # from what was patched


@pytest.mark.parametrize("edit", RELOADED, ids=lambda edit: edit.name)
def test_an_edit_of_more_than_prose_is_reloaded(desk: Desk, edit: Edit) -> None:
    desk.open(before(edit))
    assert not desk.edit(after(edit))


# -- what scripts and readers made -------------------------------------------------------------------------------

WRITTEN = """<h1>Paper</h1>
<section id="one"><h2>Motion</h2><p>Bodies fall.</p><p id="law">As <span class="math">x^2</span> says.</p></section>
<section id="two"><h2>Times</h2><p>They take time.</p>
<table><tbody><tr><td>b</td><td>1</td></tr><tr><td>a</td><td>1</td></tr></tbody></table></section>
<details><summary>More</summary><p>Little.</p></details>
<p><input id="field" value="1"><button id="run">Run</button> <output id="result">none</output></p>"""
CONTENTS = """
const list = document.createElement("ol");
for (const head of document.querySelectorAll("h2")) {
  list.append(Object.assign(document.createElement("li"), { textContent: head.textContent }));
}
document.querySelector("h1").after(list);
"""
FORMULAS = """
for (const one of document.querySelectorAll(".math")) {
  const [base, power] = one.textContent.split("^");
  one.replaceChildren(base, Object.assign(document.createElement("sup"), { textContent: power }));
}
"""
SORTED = """
const rows = [...document.querySelectorAll("tr")];
document.querySelector("tbody").append(...rows.sort((a, b) => (a.textContent < b.textContent ? -1 : 1)));
"""
LINKS = """for (const one of document.querySelectorAll("p")) one.lang = "en";"""
DEMO = """
let runs = 0;
document.getElementById("run").addEventListener("click", () => {
  document.getElementById("result").textContent = `run ${++runs}`;
});
"""
RENDERED = [
    ("text far from what a script made", CONTENTS, "Bodies fall.", "All bodies fall.", True),
    ("a heading that a script listed", CONTENTS, "<h2>Times</h2>", "<h2>Durations</h2>", False),
    ("a section that a script would list", CONTENTS, "<details>", "<section><h2>End</h2></section><details>", False),
    ("text beside a formula", FORMULAS, "says.", "shows.", True),
    ("text far from a formula", FORMULAS, "They take time.", "They take some time.", True),
    ("a formula", FORMULAS, "x^2", "y^3", False),
    ("a formula more", FORMULAS, "fall.", 'fall by <span class="math">g^1</span>.', False),
    (
        "a row that a script moved, whose cell reads alike",
        SORTED,
        "<td>b</td><td>1</td>",
        "<td>b</td><td>2</td>",
        False,
    ),
    ("text far from a sorted table", SORTED, "Bodies fall.", "All bodies fall.", True),
    ("a paragraph of a kind whose attributes a script set", LINKS, "<details>", "<p>More.</p><details>", False),
    ("an attribute that a script set", LINKS, "<p>Bodies", '<p lang="de">Bodies', False),
    ("text in a paragraph whose attributes a script set", LINKS, "Bodies fall.", "All bodies fall.", True),
]


@pytest.mark.parametrize(
    ("script", "old", "new", "stays"), [row[1:] for row in RENDERED], ids=[row[0] for row in RENDERED]
)
def test_what_scripts_made_stays_or_is_made_again(desk: Desk, script: str, old: str, new: str, stays: bool) -> None:
    source = html(HEAD, WRITTEN)
    assert old in source
    desk.open(source, script)
    assert desk.edit(source.replace(old, new)) is stays


def test_an_edit_in_place_keeps_results_fields_focus_scroll_and_what_was_opened(desk: Desk) -> None:
    source = html(HEAD, WRITTEN + "<p>Long.</p>" * 200)
    desk.open(source, DEMO)
    page = desk.page
    page.click("#run")
    page.click("#run")
    page.fill("#field", "42")
    page.evaluate("() => { document.querySelector('details').open = true; scrollTo(0, 700); }")
    state = """() => [document.getElementById('result').textContent, document.getElementById('field').value,
      document.activeElement.id, document.querySelector('details').open, Math.round(scrollY), window.mark]"""
    assert page.evaluate(state) == ["run 2", "42", "field", True, 700, 1]
    desk.write("index.html", source.replace("Little.", "A little."))
    page.wait_for_function("() => document.querySelector('details p').textContent === 'A little.'")
    assert page.evaluate(state) == ["run 2", "42", "field", True, 700, 1]
    page.click("#run")
    assert page.text_content("#result") == "run 3"


def test_a_page_and_its_style_saved_together_are_both_swapped(desk: Desk) -> None:
    source = html(HEAD, BODY)
    desk.open(source)
    save(desk.paper / "paper.css", "h1 { color: rgb(4, 5, 6) }")
    save(desk.paper / "index.html", source.replace("Second.", "Next."))
    desk.page.wait_for_function(
        """() => document.body.textContent.includes("Next.") &&
          getComputedStyle(document.querySelector("h1")).color === "rgb(4, 5, 6)\"""",
    )
    assert desk.is_same()


def test_a_changed_script_runs_afresh(desk: Desk) -> None:
    desk.open(html(HEAD, WRITTEN), "document.body.title = 'old';")
    desk.write("paper.js", "document.body.title = 'new';")
    desk.page.wait_for_function("() => document.body.title === 'new'")
    assert not desk.is_same()


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ("", True),
        ("; require-trusted-types-for 'script'", True),
        ("; trusted-types 'none'; require-trusted-types-for 'script'", False),
    ],
)
def test_the_strictest_policy_allows_it_or_has_the_page_reloaded(desk: Desk, more: str, stays: bool) -> None:
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}{more}">'
    source = html(policy + HEAD, BODY)
    desk.open(source)
    assert desk.edit(source.replace("Second.", "Next.")) is stays
    assert not stays or desk.messages == []
