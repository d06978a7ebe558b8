"""Third step: references to numbered things, citations, and links inside the document, now that everything has its number."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from toolgate.later import later
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.state import Document, Label
from toolgate.packs.lra.build.faults import SourcePlace

_NEAR: Final = later("difflib:get_close_matches")
_LABEL_LIKE: Final = re.compile(
    r"(?:fig|tbl|tab|eq|eqn|sec|lst|app|clm|thm|lem|cor|prp|def|exm|rem|cnj|asm|exr|alg)[-:]", re.IGNORECASE
)
_KEY_END: Final = r"(?![\w:.#$%&+?<>~/-]*\w)"


class ReferenceResolver:
    """`known`: the keys of the bibliography. What is cited is collected in `cited`, in order."""

    def __init__(self, document: Document, known: set[str]) -> None:
        self.document = document
        self.known = known
        self.cited: dict[str, None] = {}
        self.actions: dict[str, ast.Action] = {"Cite": self._cite, "Span": self._span, "Link": self._link}

    def resolve(self, blocks: Any) -> Any:
        return ast.rewrite(blocks, self.actions)

    def _cite(self, node: ast.Node) -> ast.Nodes:
        citations, shown = node["c"]
        labelled = [citation["citationId"] in self.document.labels for citation in citations]
        if all(labelled):
            return self._references(citations)
        if any(labelled):
            self.document.fault(
                self._place(citations[0]), "a citation and a reference to a figure stand in one bracket: divide them"
            )
        kept = []
        for citation in citations:
            key = citation["citationId"]
            if key in self.known:
                self.cited[key] = None
            else:
                self.document.fault(self._place(citation), self._unknown(key))
            parts = {name: self.resolve(citation[name]) for name in ("citationPrefix", "citationSuffix")}
            kept.append(citation | parts | {"citationHash": 0})
        return [{"t": "Cite", "c": [kept, shown]}]

    def _place(self, citation: dict[str, Any]) -> SourcePlace:
        key = citation["citationId"]
        before = "@\\{?" if self.document.source.kind != "latex" else r"(?<=[{,\s])"
        return self.document.source.place(
            f"@{key}", citation["citationHash"], pattern=before + re.escape(key) + _KEY_END
        )

    def _unknown(self, key: str) -> str:
        if _LABEL_LIKE.match(key):
            near = _NEAR(key, self.document.labels, 1)
            return f"there is no label {key}{f'; is it {near[0]}?' if near else ''}"
        near = _NEAR(key, self.known, 1)
        return f"there is no reference {key} in the bibliography{f'; is it {near[0]}?' if near else ''}"

    def _references(self, citations: list[dict[str, Any]]) -> ast.Nodes:
        found: ast.Nodes = []
        for citation in citations:
            form = "ref" if citation["citationMode"]["t"] == "SuppressAuthor" else "autoref"
            found += [{"t": "Str", "c": ","}, ast.SPACE] if found else []
            found += [*citation["citationPrefix"], ast.SPACE] if citation["citationPrefix"] else []
            found += self._shown(self.document.labels[citation["citationId"]], form)
            found += self.resolve(citation["citationSuffix"])
        return found

    def _shown(self, label: Label, form: str) -> ast.Nodes:
        number = f"({label.number})" if form == "eqref" else label.number
        if form not in {"ref", "eqref"} or not number.strip("()"):
            number = f"{self.document.word(label.kind)} {label.number}".strip()
        return [ast.link(ast.words(number.replace(" ", "\u00a0")), f"#{label.anchor}", ["ref"])]

    def _span(self, node: ast.Node) -> ast.Nodes | None:
        _, classes, pairs = node["c"][0]
        if classes != ["xref"]:
            return None
        attributes = dict(pairs)
        name = attributes["to"]
        label = self.document.labels.get(name)
        if label is None:
            near = _NEAR(name, self.document.labels, 1)
            hint = f"; is it {near[0]}?" if near else ""
            pattern = r"\{[^{}]*" + re.escape(name)
            self.document.fault(self.document.place(name, pattern=pattern), f"there is no label {name}{hint}")
            return ast.words(name)
        return self._shown(label, attributes["form"])

    def _link(self, node: ast.Node) -> ast.Nodes | None:
        attributes, inlines, (url, title) = node["c"]
        if not url.startswith("#") or url == "#" or "ref" in attributes[1]:
            return None
        name = unquote(url[1:])
        label = self.document.labels.get(name)
        if label is not None:
            url = f"#{label.anchor}"
        elif name not in self.document.ids and not name.startswith(("ref-", "note-", "claim-")):
            self.document.fault(self.document.place(url), f"there is no {url} in this paper")
        return [{"t": "Link", "c": [attributes, self.resolve(inlines), [url, title]]}]
