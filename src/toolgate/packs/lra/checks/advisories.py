"""What the specification and good practice ask beyond the 23 checks. Advisories never change the tier unless asked to."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from turbohtml import Element, Namespace, Text

from toolgate.model import strictjson
from toolgate.packs.lra.paper import cff, expectations, modules, scripts, service_worker, sources
from toolgate.packs.lra.paper import page as pages
from toolgate.packs.lra.paper.loading.urls import is_external, local_path
from toolgate.packs.lra.paper.paper import Paper, RuleHit

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PAGE_BYTES: Final = 1024 * 1024
"""Page, scripts and styles together: about three seconds on a slow phone line."""
MAX_SCRIPT_BYTES: Final = 256 * 1024
MAX_STYLE_BYTES: Final = 64 * 1024
_MAX_EXAMINED: Final = 500

_PLACEHOLDER: Final = re.compile(
    r"\b(?:REPLACE|REPLACE_\w+|REPLACE ME|TODO|FIXME|TBD|PLACEHOLDER)\b|(?i:\blorem ipsum\b|\byour (?:paper )?title\b"
    r"|\byour name\b|\[(?:insert|your) [^\]]{1,60}\])|\{\{\s*[\w.-]{1,60}\s*\}\}|<!--"
)
_PLACEHOLDER_WORDS: Final = ("REPLACE", "TODO", "FIXME", "TBD", "PLACEHOLDER", "{{", "<!--")
_GAP: Final = re.compile(r"\{\{\s*[\w.-]{1,60}\s*\}\}")
_PLACEHOLDER_PHRASES: Final = ("lorem ipsum", "your title", "your paper title", "your name", "[insert", "[your")
_NAME: Final = re.compile(r"[^\s\"'`/\\()<>?#=,;]++")
"""What may be the name of a file, between marks that separate addresses."""
_WASM: Final = re.compile(r"\.wasm(?![^\s\"'`/\\()<>?#=,;])")
MAX_NAME: Final = 255
"""Characters of a file's name, as file systems have it."""
_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_QUOTING: Final = frozenset({"script", "style", "pre", "code", "textarea", "kbd", "samp"})


def a101(paper: Paper) -> Iterator[RuleHit]:
    for claim in paper.page.claims():
        if claim.id != f"claim-{claim.number}":
            yield paper.at(claim.element, f"claim {claim.number[:20]} has the id {claim.id[:40] or '(none)'}")


def a102(paper: Paper) -> Iterator[RuleHit]:
    claims = paper.page.claims()
    for expected, claim in enumerate(claims, start=1):
        if claim.number != str(expected):
            yield paper.at(claim.element, f"the claim in place {expected} is numbered {claim.number[:20]}")
            return


def a103(paper: Paper) -> Iterator[RuleHit]:
    for claim in paper.page.claims():
        for link in pages.evidence_links(claim.element):
            ident, href = pages.evidence_id(link), (link.attr("href") or "").removeprefix("#")
            if paper.page.target(ident) is None:
                yield paper.at(link, f"there is no element with the id {ident[:60]}")
            elif href != ident:
                yield paper.at(link, f"the link leads to {href[:60]}, the evidence is {ident[:60]}")


def a104(paper: Paper) -> Iterator[RuleHit]:
    named = {link.attr("name") for link in paper.page.by_tag["a"]}  # the older way to mark a place, still a target
    for link in paper.page.by_tag["a"]:
        href = link.attr("href") or ""
        ident = unquote(href[1:])
        if (
            href.startswith("#")
            and ident
            and href != "#top"
            and ident not in named
            and paper.page.target(ident) is None
        ):
            yield paper.at(link, f"there is no element with the id {ident[:60]}")


def a105(paper: Paper) -> Iterator[RuleHit]:
    for ident, elements in paper.page.by_id.items():
        yield from (paper.at(element, f"the id {ident[:60]} is used before") for element in elements[1:])


def a201(paper: Paper) -> Iterator[RuleHit]:
    for element in paper.page.by_tag["meta"]:
        if _PLACEHOLDER.search(element.attr("content") or ""):
            yield paper.at(element, "the content is a placeholder")
    for element in _with_placeholder(paper.page):
        yield paper.at(element, "placeholder text is left")
    citation = paper.artifact.text("CITATION.cff") or ""
    for number, line in enumerate(citation.splitlines(), start=1):
        if _PLACEHOLDER.search(line):
            yield RuleHit("placeholder text is left", "CITATION.cff", number, 1)


def _with_placeholder(page: pages.Page) -> Iterator[Element]:
    """Plain searches first, on the source and on each piece of text: the pattern takes a second on ten megabytes."""
    lowered = page.source.lower()
    words = [word for word in _PLACEHOLDER_WORDS if word in page.source]
    if "{{" in words and not _GAP.search(page.source):
        words.remove("{{")  # BibTeX doubles braces around titles
    phrases = [phrase for phrase in _PLACEHOLDER_PHRASES if phrase in lowered]
    if not words and not phrases:
        return
    for node in page.document.descendants:
        if not isinstance(node, Text):
            continue
        text = node.data
        suspicious = any(word in text for word in words) or (
            phrases and any(phrase in text.lower() for phrase in phrases)
        )
        parent = node.parent
        if suspicious and isinstance(parent, Element) and parent.tag not in _QUOTING and _PLACEHOLDER.search(text):
            yield parent


def json_ld(paper: Paper) -> tuple[Element | None, dict[str, Any] | str]:
    """The block that describes the article, and its value, or what is wrong."""
    blocks = [
        script for script in paper.page.by_tag["script"] if (script.attr("type") or "").lower() == "application/ld+json"
    ]
    for block in blocks:
        try:
            value = strictjson.loads(block.text.encode())
        except strictjson.JsonFault as fault:
            return block, f"JSON-LD is {fault}"
        if isinstance(value, dict) and value.get("@type") == "ScholarlyArticle":
            return block, value
    return (blocks[0], "no block is a ScholarlyArticle") if blocks else (None, "there is no JSON-LD block")


def a202(paper: Paper) -> Iterator[RuleHit]:
    block, value = json_ld(paper)
    if isinstance(value, str):
        yield paper.at(block, value) if block is not None else paper.missing(value)


def a203(paper: Paper) -> Iterator[RuleHit]:
    block, value = json_ld(paper)
    citation = paper.citation
    if block is None or isinstance(value, str) or not isinstance(citation, cff.Citation):
        return
    title = str(value.get("name") or value.get("headline") or "")
    if title != citation.title:
        yield paper.at(block, "the title differs from CITATION.cff")
    if title and title not in paper.page.title():
        yield paper.at(block, "the title differs from the title element")
    if _author_names(value) != list(citation.authors):
        yield paper.at(block, "the authors differ from CITATION.cff")
    licence = str(value.get("license") or "")
    if paper.licence and licence and not _names_licence(licence, paper):
        yield paper.at(block, "the license differs from LICENSE")


def _author_names(value: dict[str, Any]) -> list[str]:
    authors = value.get("author")
    listed = authors if isinstance(authors, list) else [authors]
    return [str(item.get("name", "")) if isinstance(item, dict) else str(item) for item in listed if item]


def _names_licence(text: str, paper: Paper) -> bool:
    licence = paper.licence
    assert licence is not None
    spdx = {f"https://spdx.org/licenses/{name}{end}" for name in licence.agrees for end in ("", ".html")}
    return text in licence.agrees | spdx | {licence.url}


def a204(paper: Paper) -> Iterator[RuleHit]:
    if isinstance(paper.citation, cff.Citation):
        for fault in paper.citation.faults():
            yield RuleHit(fault.text, "CITATION.cff", fault.line, fault.column)


def a205(paper: Paper) -> Iterator[RuleHit]:
    wanted = ["og:title", "og:description", "og:type", "lra:abstract", "lra:keywords", "lra:license"]
    missing = [name for name in wanted if paper.page.meta(name) is None]
    if missing:
        yield paper.missing(f"missing: {', '.join(missing)}")
    elif paper.page.meta_content("og:type") != "article":
        yield paper.missing("og:type is not article")


def a206(paper: Paper) -> Iterator[RuleHit]:
    for link in paper.page.by_tag["a"]:
        relations = (link.attr("rel") or "").lower().split()
        if ("license" in relations or (link.attr("href") or "") in ("LICENSE", "./LICENSE")) and link.text.strip():
            return
    yield paper.missing("no visible link leads to the licence")


def a301(paper: Paper) -> Iterator[RuleHit]:
    for image in paper.page.by_tag["img"]:
        if image.attr("alt") is None:
            yield paper.at(image, "the image has no alt")
    for drawing in paper.page.by_tag["svg"][:_MAX_EXAMINED]:
        hidden = drawing.attr("aria-hidden") == "true"
        named = drawing.attr("aria-label") or drawing.attr("aria-labelledby") or drawing.select_one("svg > title")
        if drawing.namespace is Namespace.SVG and not hidden and not named and drawing.closest("svg svg") is None:
            yield paper.at(drawing, "the drawing has neither a title nor aria-label")


def a302(paper: Paper) -> Iterator[RuleHit]:
    labelled = {label.attr("for") for label in paper.page.by_tag["label"]}
    for tag in ("input", "select", "textarea", "button"):
        for control in paper.page.by_tag[tag][:_MAX_EXAMINED]:
            if not _has_name(control, labelled):
                yield paper.at(control, f"the {tag} has no name")


def _has_name(control: Element, labelled: set[str | None]) -> bool:
    kind = (control.attr("type") or "").lower()
    if kind == "hidden" or (control.attr("id") and control.attr("id") in labelled):
        return True
    if any((control.attr(name) or "").strip() for name in ("aria-label", "aria-labelledby", "title")):
        return True
    if control.tag == "button":
        return bool(control.text.strip()) or control.select_one("img[alt], svg title") is not None
    if kind in ("submit", "reset", "button"):
        return kind != "button" or bool(control.attr("value"))
    if kind == "image":
        return bool(control.attr("alt"))
    return control.closest("label") is not None


def a303(paper: Paper) -> Iterator[RuleHit]:
    headings = [element for tag in _HEADINGS for element in paper.page.by_tag[tag]]
    headings.sort(key=lambda heading: heading.position or (0, 0))
    ones = [element for element in headings if element.tag == "h1"]
    if len(ones) != 1:
        text = f"the page has {len(ones)} h1 elements"
        yield paper.at(ones[1], text) if len(ones) > 1 else paper.missing(text)
    level = 0
    for heading in headings:
        depth = int(heading.tag[1])
        if depth > level + 1:
            yield paper.at(heading, f"h{depth} follows {f'h{level}' if level else 'no heading'}")
        level = depth


def a304(paper: Paper) -> Iterator[RuleHit]:
    element = paper.page.meta("viewport")
    content = re.sub(r"\s", "", paper.page.meta_content("viewport").lower())
    if element is not None and re.search(r"user-scalable=(?:no|0)|maximum-scale=(?:0|1(?:\.0*)?)(?:,|$)", content):
        yield paper.at(element, "the viewport forbids zooming")


def a401(paper: Paper) -> Iterator[RuleHit]:
    sizes = paper.artifact.sizes
    own = own_files(paper)
    scripts = sum(sizes[name] for name in own if name.endswith((".js", ".mjs")))
    styles = sum(sizes[name] for name in own if name.endswith(".css"))
    total = len(paper.artifact.html) + sum(sizes[name] for name in own)
    for what, size, limit in (
        ("scripts", scripts, MAX_SCRIPT_BYTES),
        ("style sheets", styles, MAX_STYLE_BYTES),
        ("page and its files", total, MAX_PAGE_BYTES),
    ):
        if size > limit:
            yield paper.missing(f"{what}: {size // 1024} KB, more than {limit // 1024} KB")


def own_files(paper: Paper) -> set[str]:
    """Files of the artifact that the page or its styles load by name (not what scripts may fetch later)."""
    found: set[str] = set()
    for load in paper.loads:
        if load.level == "local" and load.file != "sw.js":
            path = local_path(load.url, load.file)
            if path and path in paper.artifact.sizes and path not in ("sw.js", paper.artifact.page):
                found.add(path)
    return found


def a402(paper: Paper) -> Iterator[RuleHit]:
    code = paper.artifact.text("sw.js")
    listed = service_worker.assets(code) if code else None
    if code is None or listed is None:
        return
    line = service_worker.line_of_assets(code)
    there = set(paper.artifact.sizes)
    absent = sorted(name for name in listed if name not in ("./", ".") and name.removeprefix("./") not in there)
    forgotten = sorted(own_files(paper) - {name.removeprefix("./") for name in listed})
    if absent:
        yield RuleHit(f"the worker lists files that are not there: {', '.join(absent)[:200]}", "sw.js", line, 1)
    if forgotten:
        yield RuleHit(f"the worker misses files of the page: {', '.join(forgotten)[:200]}", "sw.js", line, 1)


def a403(paper: Paper) -> Iterator[RuleHit]:
    for element in paper.page.by_tag["meta"]:
        if (element.attr("http-equiv") or "").strip().lower() == "content-security-policy":
            policy = (element.attr("content") or "").lower()
            if not re.search(r"default-src\s+('none'|'self')", policy):
                yield paper.at(element, "the policy does not restrict default-src to 'none' or 'self'")
            return
    yield paper.missing("the page has no content security policy")


def a404(paper: Paper) -> Iterator[RuleHit]:
    for load in paper.loads:
        path = local_path(load.url, load.file) if load.level == "local" else None
        if path and path not in paper.artifact.sizes and not is_external(load.url) and load.what != "form action":
            beside_page = local_path(load.url, paper.artifact.page)
            if beside_page not in paper.artifact.sizes and "." in path.rsplit("/", 1)[-1]:
                yield RuleHit(
                    f"{load.what}: there is no file {path[:120]}", load.file, load.line, load.column, load.selector
                )


def a405(paper: Paper) -> Iterator[RuleHit]:
    code = "\n".join(
        [paper.page.source, *(paper.artifact.text(n) or "" for n in paper.artifact.files if n.endswith("js"))]
    )
    named = _modules_named(code) if paper.wasm else set()  # once: there may be 10 000 modules
    good = Counter(fault is None for fault in paper.wasm.values())[True]
    for name, fault in paper.wasm.items():
        if fault is not None and good:
            yield RuleHit(f"this is not a WebAssembly module: {fault}", name)
        elif fault is None and not named.intersection(_NAME.findall(name)[-1:]):
            yield RuleHit("nothing on the page names this module", name)


def _modules_named(code: str) -> set[str]:
    """Names of files that end with `.wasm`."""
    found = set()
    for ending in _WASM.finditer(code):
        before = _NAME.findall(code, max(0, ending.start() - MAX_NAME), ending.end())
        found.add(before[-1])
    return found


def a406(paper: Paper) -> Iterator[RuleHit]:
    yield from modules.copy_faults(paper)


def a407(paper: Paper) -> Iterator[RuleHit]:
    for claim in paper.page.claims()[:_MAX_EXAMINED]:
        fault = expectations.of_claim(paper.page, claim).fault
        if fault:
            yield paper.at(claim.element, f"claim {claim.number[:20]}: {fault}")


def a408(paper: Paper) -> Iterator[RuleHit]:
    for name in scripts.classify_scripts(paper).forged:
        yield RuleHit(
            f"{name} says it is the script of a release and is none: badges of this page prove nothing", name, 1, 1
        )


def a409(paper: Paper) -> Iterator[RuleHit]:
    yield from sources.faults(paper)


FUNCTIONS: Final = {
    function.__name__.upper(): function
    for function in (
        *(a101, a102, a103, a104, a105, a201, a202, a203, a204, a205, a206),
        *(a301, a302, a303, a304, a401, a402, a403, a404, a405, a406, a407, a408, a409),
    )
}
