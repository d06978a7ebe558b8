"""First step: everything raw gets a meaning. Comments go, TeX becomes equations and references, notebook cells become text.

In the order of the source, so that what is met here can be counted for its line.
"""

from __future__ import annotations

import re
from typing import Any, Final

from toolgate.later import later
from toolgate.packs.lra.build.convert import APPENDIX
from toolgate.packs.lra.build.document import ast, data, tex
from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.faults import SourcePlace
from toolgate.packs.lra.build.words import CALLOUTS

_CHECKED: Final = later("toolgate.packs.lra.build.document.rawhtml:checked")
_ALERT: Final = re.compile(r"\[!([A-Za-z]+)\]")
_TAG: Final = re.compile(r"</?[A-Za-z][\w-]*")
_LABEL: Final = re.compile(r"\{#([\w:.-]+)\}")
_HIDDEN: Final = {"remove-cell", "remove_cell", "hide-cell"}
_NO_INPUT: Final = {"remove-input", "remove_input", "hide-input", "hide_input"}
_NO_OUTPUT: Final = {"remove-output", "remove_output", "hide-output"}


def prepare(document: Document, blocks: ast.Nodes) -> ast.Nodes:
    step = _Step(document)
    actions: dict[str, ast.Action] = {
        "RawBlock": step.raw_block,
        "RawInline": step.raw_inline,
        "Cite": step.cite,
        "Para": step.para,
        "Plain": step.para,
        "Div": step.div,
        "BlockQuote": step.quote,
        "Str": step.string,
        "Math": step.math,
        "Note": step.note,
        "Figure": step.figure,
        "Table": step.table,
    }
    step.actions = actions
    found: ast.Nodes = ast.rewrite(blocks, actions)
    return found


def _comment_only(raw: str) -> bool:
    return re.fullmatch(r"\s*(?:<!--.*?-->\s*)*", raw, re.DOTALL) is not None


class _Step:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.actions: dict[str, ast.Action] = {}

    def inside(self, value: Any) -> Any:
        return ast.rewrite(value, self.actions)

    def raw_block(self, node: ast.Node) -> ast.Nodes:
        form, text = node["c"]
        if form == "html":
            if _comment_only(text):
                return []
            return [ast.html(self._checked(text))]
        if form != "tex":
            return []  # written for another format, and marked so
        if tex.is_environment(text):
            return [ast.para([_display(text)])]
        if tex.is_appendix(text):
            return [_appendix()]
        inlines = self._passed(text)
        return [ast.para(inlines)] if inlines else []

    def raw_inline(self, node: ast.Node) -> ast.Nodes:
        form, text = node["c"]
        if form == "html":
            if _comment_only(text):
                return []
            return [ast.html_inline(self._checked(text))]
        if form != "tex":
            return []
        return [_display(text)] if tex.is_environment(text) else self._passed(text)

    def _checked(self, text: str) -> str:
        """Pandoc writes attributes its own way, so a tag is found by its name."""
        match = _TAG.match(text)
        name = match[0] if match else text.strip().split("\n")[0]
        nth = self.document.nth(name)
        pattern = re.escape(name) + (r"(?![\w-])" if match else "")
        checked: str = _CHECKED(
            self.document, text, lambda: self.document.source.place(name, nth, pattern=pattern, code=True)
        )
        return checked

    def _passed(self, text: str) -> ast.Nodes:
        found = tex.read_raw_tex(text)
        if found.unknown:
            self.document.fault(self._place(found.unknown), f"the page cannot show the TeX {found.unknown}")
        return [self._counted(inline) for inline in found.inlines]

    def _place(self, text: str) -> SourcePlace:
        return self.document.place(text.strip().split("\n")[0])

    def cite(self, node: ast.Node) -> ast.Nodes:
        return [self._counted(node)]

    def _counted(self, node: ast.Node) -> ast.Node:
        """Number the citations of one key: `citationHash` is there for a program's own use."""
        if node["t"] != "Cite":
            return node
        citations = []
        for citation in node["c"][0]:
            nth = self.document.nth(f"@{citation['citationId']}")
            parts = {key: self.inside(citation[key]) for key in ("citationPrefix", "citationSuffix")}
            citations.append(citation | parts | {"citationHash": nth})
        return {"t": "Cite", "c": [citations, node["c"][1]]}

    def para(self, node: ast.Node) -> ast.Nodes | None:
        inlines = node["c"]
        if len(inlines) == 1 and inlines[0].get("c") == APPENDIX:
            return [_appendix()]
        inlines = self.inside(_joined_bindings(_labelled_formulas(inlines)))
        shown = [inline for inline in inlines if inline["t"] not in ast.BREAKS]
        return [{"t": node["t"], "c": inlines}] if shown else []

    def div(self, node: ast.Node) -> ast.Nodes | None:
        classes = node["c"][0][1]
        if "cell" in classes:
            return self._cell(node)
        if "thebibliography" in classes:
            self.document.fault(
                self.document.place("\\begin{thebibliography}"),
                "references stand in a .bib file, not in thebibliography",
            )
            return []
        strange = next((name for name in classes if name.startswith("{")), "")
        if strange:
            self.document.fault(
                self.document.place(strange), f"{strange} is another tool's; write ::: {{.{strange[1:-1]}}}"
            )
        if any(key == "style" for key, _ in node["c"][0][2]):
            self.document.fault(self.document.place("style="), "a style attribute is against the page's own policy")
        return None

    def _cell(self, node: ast.Node) -> ast.Nodes:
        """A notebook's cell: its text, or its code and what the code gave."""
        (_, classes, pairs), blocks = node["c"]
        tags = set(re.findall(r"[\w-]+", dict(pairs).get("tags", "")))
        if tags & _HIDDEN or "raw" in classes:
            return []
        if "code" in classes:
            blocks = [
                each
                for each in blocks
                if not (each["t"] == "CodeBlock" and tags & _NO_INPUT)
                and not (each["t"] == "Div" and tags & _NO_OUTPUT)
            ]
        found: ast.Nodes = []
        for block in self.inside(blocks):
            found += block["c"][1] if block["t"] == "Div" and "output" in block["c"][0][1] else [block]
        return found

    def quote(self, node: ast.Node) -> ast.Nodes | None:
        """`> [!NOTE]` is a callout."""
        first = node["c"][0] if node["c"] else None
        inlines = first["c"] if first is not None and first["t"] == "Para" else []
        alert = _ALERT.fullmatch(inlines[0].get("c", "")) if inlines and inlines[0]["t"] == "Str" else None
        if not alert or alert[1].lower() not in CALLOUTS:
            return None
        rest = [ast.para(inlines[2:])] if inlines[2:] else []
        return [ast.div(self.inside([*rest, *node["c"][1:]]), classes=[f"callout-{alert[1].lower()}"])]

    def string(self, node: ast.Node) -> ast.Nodes | None:
        if "{{" not in node["c"]:
            return None
        found: ast.Nodes = []
        at = 0
        for match in data.BINDING.finditer(node["c"]):
            found += [{"t": "Str", "c": node["c"][at : match.start()]}] if match.start() > at else []
            found += data.bound(self.document, match)
            at = match.end()
        return [*found, {"t": "Str", "c": node["c"][at:]}] if at < len(node["c"]) else found

    def math(self, node: ast.Node) -> ast.Nodes | None:
        if "{{" not in node["c"][1]:
            return None
        return [{"t": "Math", "c": [node["c"][0], data.text_bound(self.document, node["c"][1])]}]

    def figure(self, node: ast.Node) -> ast.Nodes:
        """The text of a figure's picture repeats its caption: it is said once, in plain words."""
        attributes, caption, blocks = node["c"]
        for image in ast.each(blocks, "Image"):
            image["c"][1] = ast.words(ast.spoken(image["c"][1]))
        return [{"t": "Figure", "c": [attributes, self.inside(caption), self.inside(blocks)]}]

    def table(self, node: ast.Node) -> ast.Nodes | None:
        """A label at the end of a caption, which not every Pandoc takes for one."""
        blocks = node["c"][1][1]
        last = blocks[-1]["c"][-1] if blocks and blocks[-1]["t"] in {"Plain", "Para"} and blocks[-1]["c"] else {"t": ""}
        match = _LABEL.fullmatch(last["c"]) if last["t"] == "Str" else None
        if match:
            blocks[-1]["c"][-1] = ast.span([], ["label"], {"to": match[1]})
        return None

    def note(self, node: ast.Node) -> ast.Nodes:
        return [{"t": "Note", "c": self.inside(node["c"])}]


def _display(text: str) -> ast.Node:
    return {"t": "Math", "c": [{"t": "DisplayMath"}, text.strip()]}


def _appendix() -> ast.Node:
    return ast.div([], classes=[APPENDIX])


def _labelled_formulas(inlines: ast.Nodes) -> ast.Nodes:
    """`$$x$$ {#eq-a}`: the label goes into the formula, as TeX has it."""
    if not any(inline["t"] == "Math" for inline in inlines):
        return inlines
    found: ast.Nodes = []
    for inline in inlines:
        match = _LABEL.match(inline["c"]) if inline["t"] == "Str" else None
        before = next((at for at in range(len(found) - 1, -1, -1) if found[at]["t"] not in ast.BREAKS), None)
        formula = found[before] if before is not None else None
        if match and formula is not None and formula["t"] == "Math" and formula["c"][0]["t"] == "DisplayMath":
            del found[before + 1 :]  # type: ignore[operator]  # there is a formula, so there is a place
            found[-1] = {"t": "Math", "c": [formula["c"][0], f"{formula['c'][1]}\\label{{{match[1]}}}"]}
            found += [{"t": "Str", "c": inline["c"][match.end() :]}] if inline["c"][match.end() :] else []
        else:
            found.append(inline)
    return found


def _joined_bindings(inlines: ast.Nodes) -> ast.Nodes:
    """`{{ file#place }}` with blanks is five nodes; one is easier to see."""
    if not any(inline["t"] == "Str" and inline["c"].endswith("{{") for inline in inlines):
        return inlines
    found: ast.Nodes = []
    at = 0
    while at < len(inlines):
        part = inlines[at : at + 5]
        kinds = [inline["t"] for inline in part]
        if (
            kinds == ["Str", "Space", "Str", "Space", "Str"]
            and part[0]["c"].endswith("{{")
            and part[4]["c"][:2] == "}}"
        ):
            found.append({"t": "Str", "c": part[0]["c"] + part[2]["c"] + part[4]["c"]})
            at += 5
        else:
            found.append(inlines[at])
            at += 1
    return found
