"""Everything the paper would load, from every place that can load: elements, styles, scripts, and what those load in turn.

Links, canonical addresses, metadata and JSON-LD load nothing and are not here.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from turbohtml import Namespace

from toolgate.model import strictjson
from toolgate.packs.lra.paper import page as pages
from toolgate.packs.lra.paper.lines import LineIndex
from toolgate.packs.lra.paper.loading import scan_css, scan_js
from toolgate.packs.lra.paper.loading.urls import clean, is_external, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from turbohtml import Element

    from toolgate.packs.lra.paper.artifact import Artifact

Level = Literal["external", "undecidable", "local"]


class Load(Struct, frozen=True):
    level: Level
    file: str
    what: str
    """How it is loaded: `img src`, `url()`, `fetch`."""
    url: str
    line: int | None = None
    column: int | None = None
    element: Element | None = None
    is_script: bool = False
    is_style: bool = False

    @property
    def selector(self) -> str | None:
        """Asked for when it is shown: a path through 100 000 nested elements takes as long as it is."""
        return pages.selector(self.element) if self.element is not None else None


_ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "frame": ("src",),
    "embed": ("src",),
    "object": ("data", "codebase"),
    "applet": ("archive", "codebase"),
    "portal": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "input": ("src", "formaction"),
    "button": ("formaction",),
    "form": ("action",),
    "a": ("ping",),
    "area": ("ping",),
    "base": ("href",),
    "html": ("manifest",),
    "body": ("background",),
    "table": ("background",),
    "td": ("background",),
    "th": ("background",),
}
_LINK_LOADS: Final = frozenset(
    {"stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon", "manifest", "preload"}
    | {"modulepreload", "prefetch", "preconnect", "dns-prefetch", "prerender", "expect"}
)
"""Relations whose address a browser fetches or connects to; canonical, license, author, alternate and the like are not."""
_SVG_PAINT: Final = (
    "fill",
    "stroke",
    "filter",
    "mask",
    "clip-path",
    "marker-start",
    "marker-mid",
    "marker-end",
    "cursor",
)
_ALWAYS: Final = ("paper.css", "paper.js", "sw.js")
"""Files of the artifact that are looked into even when the page does not name them literally."""
_SRCSET: Final = re.compile(r"[^\s,][^\s]*")
_REFRESH: Final = re.compile(r"^\s*[0-9.]*\s*[;,]?\s*(?:url\s*=\s*)?[\"']?([^\"']*)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z]+:", re.IGNORECASE)
UNREAD: Final = "this file cannot be looked into"
_MAX_NESTED_PAGES: Final = 3
"""`srcdoc` inside `srcdoc`: deeper is reported as undecidable."""


def of_artifact(artifact: Artifact, page: pages.Page) -> list[Load]:
    """All loads, page first, then each script and style sheet once, in the order in which they are found."""
    found = list(of_page(page, artifact.page))
    queue = deque(load for load in found if load.level == "local")
    seen: set[str] = set()
    pending = [name for name in _ALWAYS if name in artifact.files]
    while queue or pending:
        name = _next_file(queue, pending, artifact)
        if name is None or name in seen:
            continue
        seen.add(name)
        of_file = _of_file(artifact, name)
        found.extend(of_file)
        queue.extend(load for load in of_file if load.level == "local")
    return found


def _next_file(queue: deque[Load], pending: list[str], artifact: Artifact) -> str | None:
    if not queue:
        return pending.pop(0)
    load = queue.popleft()
    if not (load.is_script or load.is_style):
        return None
    # A worker or an import named by a script is relative to the page or to the script: both are beside each other here.
    for base in (load.file, artifact.page):
        path = local_path(load.url, base)
        if path in artifact.sizes:
            return path
    return None


def _of_file(artifact: Artifact, name: str) -> list[Load]:
    text = artifact.text(name)
    if text is None:
        # Not read: too large, not UTF-8, or a script under another ending than .js and .mjs.
        return [Load("undecidable", name, UNREAD, "")]
    if name.lower().endswith(".css"):
        return [
            _load(
                name, "@import" if load.is_import else "url()", load.url, load.line, load.column, style=load.is_import
            )
            for load in scan_css.loads(text)
        ]
    return list(_of_script(text, name))


def of_page(page: pages.Page, name: str, depth: int = 0) -> Iterator[Load]:
    bare = [element for tag in _SPECIAL for element in page.by_tag[tag] if not element.attrs]
    for element in [*page.attributed, *bare]:
        if not _may_load(element):
            continue
        where = None
        for load in _of_element(element, name, depth):
            where = where or pages.place(element)
            yield Load(
                load.level,
                name,
                load.what,
                load.url,
                load.line or where.line,
                load.column or where.column,
                element if load.level != "local" else None,
                load.is_script,
                load.is_style,
            )


def _may_load(element: Element) -> bool:
    """Most elements of a paper are paragraphs and links: a look at the tag and at the attributes' names is enough."""
    if element.tag in _LOADING_TAGS or element.namespace is Namespace.SVG:
        return True
    return any(name in ("style", "ping") or name.startswith("on") for name in element.attrs)


def _of_element(element: Element, name: str, depth: int) -> Iterator[Load]:
    special = _SPECIAL.get(element.tag)
    if special:
        yield from special(element, name, depth)
    if not element.attrs:
        return
    if element.namespace is Namespace.SVG:
        yield from _of_svg(element, name)
    for attribute in _ATTRIBUTES.get(element.tag, ()) if element.namespace is Namespace.HTML else ():
        value = element.attr(attribute)
        if value and value.strip():
            yield from _of_attribute(element, attribute, value, name)
    for attribute, given in element.attrs.items():  # asking for each by its name would look through all of them
        text = given if isinstance(given, str) else ""
        if attribute == "style":
            for found in scan_css.loads_of_style(text):
                yield _load(name, "style url()", found.url)
        elif attribute.startswith("on"):
            yield from _without_place(_of_script(text, name))


def _of_attribute(element: Element, attribute: str, value: str, name: str) -> Iterator[Load]:
    what = f"{element.tag} {attribute}"
    if attribute == "srcset":
        for url in _SRCSET.findall(value):
            if not re.fullmatch(r"[0-9.]+[wxh],?", url):
                yield _load(name, what, url.rstrip(","))
    elif attribute == "ping":
        for url in value.split():
            yield _load(name, what, url)
    else:
        yield _load(name, what, value, script=element.tag == "script")


def _of_link(element: Element, name: str, _depth: int) -> Iterator[Load]:
    relations = set((element.attr("rel") or "").lower().split())
    loading = relations & _LINK_LOADS
    if loading and (href := element.attr("href")):
        yield _load(name, f"link {'/'.join(sorted(loading))}", href, style="stylesheet" in loading)
    if loading and (srcset := element.attr("imagesrcset")):
        yield from (_load(name, "link imagesrcset", url.rstrip(",")) for url in _SRCSET.findall(srcset))


def _of_meta(element: Element, name: str, _depth: int) -> Iterator[Load]:
    if (element.attr("http-equiv") or "").strip().lower() == "refresh":
        match = _REFRESH.match(element.attr("content") or "")
        if match and match[1].strip():
            yield _load(name, "meta refresh", match[1])


def _of_svg(element: Element, name: str) -> Iterator[Load]:
    if element.tag != "a":
        for attribute in ("href", "xlink:href"):
            value = element.attr(attribute)
            if value:
                yield _load(name, f"svg {element.tag} {attribute}", value, script=element.tag == "script")
    for attribute in _SVG_PAINT:
        value = element.attr(attribute)
        if value and "(" in value:
            for found in scan_css.loads_of_style(value):
                yield _load(name, f"svg {attribute}", found.url)


def _of_style_element(element: Element, name: str, _depth: int) -> Iterator[Load]:
    for found in scan_css.loads(element.text):
        yield _load(name, "@import" if found.is_import else "url()", found.url, style=found.is_import)


def _of_inline_script(element: Element, name: str, _depth: int) -> Iterator[Load]:
    kind = (element.attr("type") or "").strip().lower()
    if kind == "importmap":
        yield from _of_import_map(element.text, name)
    elif pages.is_script(element) and not element.attr("src"):
        start = pages.place(element)
        for load in _of_script(element.text, name):
            if load.line is None or start.line is None:
                yield load
                continue
            # Lines inside the element; the column only counts where the line is the script's own.
            column = load.column if load.line > 1 else None
            yield _moved(load, start.line + load.line - 1, column)


def _of_import_map(text: str, name: str) -> Iterator[Load]:
    try:
        value = strictjson.loads(text.encode())
    except strictjson.JsonFault:
        return
    tables = [value.get("imports")] if isinstance(value, dict) else []
    if isinstance(value, dict) and isinstance(value.get("scopes"), dict):
        tables.extend(value["scopes"].values())
    for table in tables:
        if isinstance(table, dict):
            yield from (_load(name, "import map", url) for url in table.values() if isinstance(url, str))


def _of_srcdoc(element: Element, name: str, depth: int) -> Iterator[Load]:
    if not element.attr("srcdoc"):
        return
    if depth >= _MAX_NESTED_PAGES:
        yield Load("undecidable", name, "iframe srcdoc", "nested too deeply")
        return
    yield from _without_place(of_page(pages.parse(element.attr("srcdoc") or ""), name, depth + 1))


_SPECIAL: Final[dict[str, Callable[[Element, str, int], Iterator[Load]]]] = {
    "style": _of_style_element,
    "script": _of_inline_script,
    "link": _of_link,
    "meta": _of_meta,
    "iframe": _of_srcdoc,
}


_LOADING_TAGS: Final = (_ATTRIBUTES.keys() | _SPECIAL.keys()) - {"a", "area"}


def _of_script(code: str, name: str) -> Iterator[Load]:
    found = scan_js.loads(code)
    lines = LineIndex(code) if found else None
    for load in found:
        line, column = lines.place(load.offset) if lines else (None, None)
        if load.kind == "dynamic" or (load.kind == "prefix" and not _decides(load.url)):
            yield Load("undecidable", name, load.what, load.url, line, column)
        else:
            yield _load(name, load.what, load.url, line, column, script=load.is_module and load.kind == "literal")


def _decides(prefix: str) -> bool:
    """Does the beginning of an address already say where it leads? `https://`, `./`, `/x` do; `x` + … does not."""
    return (
        is_external(prefix)
        or clean(prefix).startswith(("./", "../"))
        or re.match(r"[./]*[\w-]+[/.]", prefix) is not None
    )


def _load(
    file: str,
    what: str,
    url: str,
    line: int | None = None,
    column: int | None = None,
    *,
    script: bool = False,
    style: bool = False,
) -> Load:
    level: Level = "external" if is_external(url) else "local"
    if level == "local" and script and _SCHEME.match(clean(url)):
        level = "undecidable"  # a script inside a data: address
    return Load(level, file, what, url, line, column, is_script=script, is_style=style)


def _moved(load: Load, line: int | None, column: int | None) -> Load:
    return Load(load.level, load.file, load.what, load.url, line, column, load.element, load.is_script, load.is_style)


def _without_place(loads: Iterator[Load]) -> Iterator[Load]:
    """For code inside an attribute: the element's place is the one to show."""
    return (_moved(load, None, None) for load in loads)
