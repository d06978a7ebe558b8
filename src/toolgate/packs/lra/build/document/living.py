"""Claims, evidence and demos, written as fenced blocks and spans (docs/reference/paper-markup.md says what they become)."""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final

from toolgate.packs.lra.build.document import ast, media
from toolgate.packs.lra.build.document.flow import Flow
from toolgate.packs.lra.build.document.state import ClaimBlock, Document
from toolgate.packs.lra.build.faults import SourcePlace
from toolgate.packs.lra.build.front_matter import ClaimSource
from toolgate.packs.lra.paper import numbers

CLAIM_KEYS: Final = frozenset({"evidence", "run", "input", "tolerance"})
DEMO_KEYS: Final = frozenset({"title", "run", "says", "script"})
CONTROLS: Final = {
    "slider": frozenset({"name", "min", "max", "step", "value"}),
    "number": frozenset({"name", "min", "max", "step", "value"}),
    "select": frozenset({"name", "options", "value"}),
}
PICTURES: Final = {"plot": frozenset({"run", "over"}), "raster": frozenset({"run", "x", "y"})}
WITHOUT_SCRIPT: Final = "without-script"
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SOURCE: Final = re.compile(r'data-lra-source="([^"]*)"(?: data-lra-format="([^"]*)")?')


class Living:
    """The blocks that make a paper more than text. One for a document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.scripts: dict[str, None] = {}
        """The author's own scripts, in order."""
        self.evidence: list[tuple[str, str, SourcePlace]] = []
        """Claim, id of the evidence, place: from blocks that say which claim they are for."""

    def block(self, flow: Flow, node: ast.Node) -> ast.Nodes:
        classes = node["c"][0][1]
        if "claim" in classes:
            return self._claim(flow, node)
        return self._evidence(flow, node) if "evidence" in classes else _Demo(self, flow, node).blocks()

    # -- claims ------------------------------------------------------------------------------------------------

    def add(self, flow: Flow, claim: ClaimSource) -> None:
        """One claim of the paper, from the front matter or from a block."""
        number = len(self.document.claims) + 1
        blocks, expected = self._expectations(claim.blocks, claim.place)
        self.document.claims.append(
            ClaimBlock(
                number, flow.blocks(blocks), list(claim.evidence), claim.place, claim.run, claim.input, claim.tolerance
            )
        )
        for label in {claim.label, f"claim-{number}"} - {""}:
            self.document.label(label, "clm", str(number), f"claim-{number}")
        if claim.run:
            self.program(claim.run, claim.place)
            if not expected:
                self.document.fault(claim.place, "a claim that runs says what must come out: [31 417]{.expect}")
        for name, value in (("input", claim.input), ("tolerance", claim.tolerance)):
            if any(not _NUMBER.fullmatch(word) for word in value.split()):
                self.document.fault(claim.place, f"{name} of a claim is numbers, divided by blanks")

    def _claim(self, flow: Flow, node: ast.Node) -> ast.Nodes:
        (ident, _, pairs), blocks = node["c"]
        place = self.document.place(".claim", pattern=r"(?:\.claim\b|::: *claim\b|\\begin\{claim\})")
        attributes = self.known(dict(pairs), CLAIM_KEYS, "a claim", place)
        evidence = tuple(
            ident.removeprefix("#") for ident in re.split(r"[,\s]+", attributes.pop("evidence", "")) if ident
        )
        self.add(flow, ClaimSource(blocks, evidence, place, label=ident, **attributes))
        return []

    def _expectations(self, blocks: ast.Nodes, place: SourcePlace) -> tuple[ast.Nodes, int]:
        count = 0

        def expected(node: ast.Node) -> ast.Nodes | None:
            nonlocal count
            if "expect" not in node["c"][0][1]:
                return None
            count += 1
            return self._expected(node, place)

        return ast.rewrite(blocks, {"Span": expected}), count

    def _expected(self, node: ast.Node, place: SourcePlace) -> ast.Nodes:
        attributes, inlines = dict(node["c"][0][2]), node["c"][1]
        source, form = attributes.get("data", ""), ""
        for inline in inlines:
            bound = _SOURCE.search(inline["c"][1]) if inline["t"] == "RawInline" else None
            source, form = (bound[1], bound[2] or "") if bound else (source, form)
        shown = [inline for inline in inlines if inline["t"] != "RawInline"]
        value = numbers.spelt(ast.text_of(shown), self.document.lang)
        if value is None:
            self.document.fault(place, f"what is expected is one number, not {ast.text_of(shown)[:40]!r}")
        named = f' data-lra-source="{source}"' if source else ""
        named += f' data-lra-format="{form}"' if form else ""
        return [ast.html_inline(f'<data class="expect" value="{value}"{named}>'), *shown, ast.html_inline("</data>")]

    def _evidence(self, flow: Flow, node: ast.Node) -> ast.Nodes:
        (ident, _, pairs), blocks = node["c"]
        place = self.document.place(".evidence", pattern=r"(?:\.evidence\b|::: *evidence\b)")
        attributes = self.known(dict(pairs), frozenset({"for"}), "evidence", place)
        self.document.counts["evidence"] += 1
        anchor = ident or self.document.free_id(f"evidence-{self.document.counts['evidence']}")
        if ident:
            self.document.claim_id(ident, place)
        for claim in re.split(r"[,\s]+", attributes.get("for", "")):
            if claim:
                self.evidence.append((claim.removeprefix("#"), anchor, place))
        return [ast.div(flow.blocks(blocks), anchor, ["evidence"])]

    def finish(self) -> None:
        """When everything has been read: which evidence is for which claim, and is it there?"""
        for name, anchor, place in self.evidence:
            label = self.document.labels.get(name)
            if label is None or label.kind != "clm":
                self.document.fault(place, f"there is no claim {name}")
            else:
                self.document.claims[int(label.number) - 1].evidence.append(anchor)
        for claim in self.document.claims:
            claim.evidence = [self._known_evidence(ident, claim.place) for ident in dict.fromkeys(claim.evidence)]

    def _known_evidence(self, name: str, place: SourcePlace) -> str:
        label = self.document.labels.get(name)
        if label is not None:
            return label.anchor
        if name not in self.document.ids:
            self.document.fault(place, f"the evidence {name} is not an id of this paper")
        return name

    # -- what both need ----------------------------------------------------------------------------------------

    def program(self, run: str, place: SourcePlace) -> None:
        """`FILE#FUNCTION`: the file is carried with the paper."""
        file, hash_sign, function = run.partition("#")
        if not hash_sign or not _NAME.fullmatch(function) or not file.endswith((".wasm", ".js")):
            self.document.fault(place, f"{run[:60]} is not FILE.wasm#FUNCTION or FILE.js#FUNCTION")
            return
        media.take(self.document, file, "program", lambda: place)
        if file.endswith(".js"):
            self.scripts[file] = None
        else:
            self.document.modules.setdefault(file, place)

    def known(self, attributes: dict[str, str], keys: frozenset[str], what: str, place: SourcePlace) -> dict[str, str]:
        for key in sorted(set(attributes) - keys):
            self.document.fault(place, f"unknown key {key} in {what}; known are {', '.join(sorted(keys))}")
        return {key: value for key, value in attributes.items() if key in keys}

    def claims_html(self) -> ast.Nodes:
        """The list of claims, as the page and every verifier look for it."""
        found = [ast.html('<ol class="claims">')]
        for claim in self.document.claims:
            runs = "".join(
                f' data-lra-{name}="{escape(value)}"'
                for name, value in (("run", claim.run), ("input", claim.input), ("tolerance", claim.tolerance))
                if value
            )
            found.append(ast.html(f'<li id="claim-{claim.number}" data-lra-claim="{claim.number}"{runs}>'))
            found += claim.blocks
            found.append(ast.html("".join(self._badge(claim, ident) for ident in claim.evidence) + "</li>"))
        return [*found, ast.html("</ol>")]

    def _badge(self, claim: ClaimBlock, evidence: str) -> str:
        name = f"{self.document.word('of-claim')} {claim.number}"
        more = f" ({evidence})" if len(claim.evidence) > 1 else ""
        where = escape(evidence)
        return (
            f'<a class="badge" href="#{where}" data-lra-evidence="{where}" aria-label="{escape(name + more)}">'
            f"{escape(self.document.word('evidence'))}</a>"
        )


class _Demo:
    """One demo: prose, controls, a result, pictures; or HTML of the author's own."""

    def __init__(self, living: Living, flow: Flow, node: ast.Node) -> None:
        (ident, _, pairs), self.content = node["c"]
        self.living = living
        self.flow = flow
        self.document = living.document
        self.place = self.document.place(".demo", pattern=r"(?:\.demo\b|::: *demo\b)")
        self.attributes = living.known(dict(pairs), DEMO_KEYS, "a demo", self.place)
        self.document.demos += 1
        self.ident = ident or self.document.free_id(f"demo-{self.document.demos}")
        if ident:
            self.document.claim_id(ident, self.place)
        self.document.label(self.ident, "sec", "", self.ident)
        self.prose: ast.Nodes = []
        self.controls: ast.Nodes = []
        self.names: list[str] = []
        self.pictures: list[str] = []
        self.without: ast.Nodes = []

    def blocks(self) -> ast.Nodes:
        for block in self.content:
            self._sort(block)
        run = self.attributes.get("run", "")
        if run:
            self.living.program(run, self.place)
        if self.attributes.get("script"):
            script = self.attributes["script"]
            media.take(self.document, script, "program", lambda: self.place)
            self.living.scripts[script] = None
        if run and not self.controls:
            self.document.fault(self.place, "a demo that runs has a control: [Radius]{.slider name=r min=1 max=10}")
        title = self.attributes.get("title") or self.document.word("demo")
        called = f' data-lra-demo="{escape(run)}"' if run else ""
        level = 3 if self.document.headings else 2
        opening = (
            f'<section id="{self.ident}" class="demo" aria-labelledby="{self.ident}-name"{called}>'
            f'<h{level} id="{self.ident}-name">{escape(title)}</h{level}>'
        )
        return [
            ast.html(opening),
            *self.prose,
            *self._noscript(),
            *self._form(),
            *self._shown(),
            ast.html("</section>"),
        ]

    def _sort(self, block: ast.Node) -> None:
        if block["t"] == "Div" and WITHOUT_SCRIPT in block["c"][0][1]:
            self.without += self.flow.blocks(block["c"][1])
            return
        inlines = (
            [item for item in block["c"] if item["t"] not in ast.BREAKS] if block["t"] in {"Para", "Plain"} else []
        )
        kinds = [_kind(inline) for inline in inlines]
        if not kinds or not all(kinds):
            self.prose += self.flow.blocks([block])
            return
        for kind, inline in zip(kinds, inlines, strict=True):
            (_, _, pairs), text = inline["c"]
            if kind in CONTROLS:
                self._control(kind, self.living.known(dict(pairs), CONTROLS[kind], f"a {kind}", self.place), text)
            else:
                self._picture(kind, self.living.known(dict(pairs), PICTURES[kind], f"a {kind}", self.place), text)

    def _control(self, kind: str, attributes: dict[str, str], text: ast.Nodes) -> None:
        name = attributes.get("name", "")
        if not _NAME.fullmatch(name) or name in self.names:
            self.document.fault(self.place, f"a {kind} has a name of its own, such as name=r")
            return
        self.names.append(name)
        ident = f"{self.ident}-{name}"
        label = [ast.html(f'<p><label for="{ident}">'), ast.plain(self.flow.inlines(text)), ast.html("</label>")]
        self.controls += [*label, ast.html(self._input(kind, ident, attributes) + "</p>")]

    def _input(self, kind: str, ident: str, attributes: dict[str, str]) -> str:
        name = attributes["name"]
        if kind == "select":
            options = attributes.get("options", "").split()
            chosen = attributes.get("value", options[0] if options else "")
            if not options or any(not _NUMBER.fullmatch(option) for option in options):
                self.document.fault(self.place, 'a select has numbers to choose from: options="1 2 5"')
            listed = "".join(
                f"<option{' selected' if option == chosen else ''}>{escape(option)}</option>" for option in options
            )
            return f'<select id="{ident}" name="{name}">{listed}</select>'
        bad = [key for key in ("min", "max") if key not in attributes]
        bad += [key for key in ("min", "max", "step", "value") if not _NUMBER.fullmatch(attributes.get(key, "0"))]
        if bad:
            self.document.fault(self.place, f"the {kind} {name} needs a number for {bad[0]}")
        given = {"step": "1", "value": attributes.get("min", "0"), **attributes}
        numbers_given = "".join(
            f' {key}="{escape(given[key])}"' for key in ("min", "max", "step", "value") if key in given
        )
        shape = "range" if kind == "slider" else "number"
        return f'<input id="{ident}" name="{name}" type="{shape}"{numbers_given}>'

    def _picture(self, kind: str, attributes: dict[str, str], text: ast.Nodes) -> None:
        run = attributes.get("run") or self.attributes.get("run", "")
        self.living.program(run, self.place)
        given = {"over": attributes.get("over") or (self.names[0] if self.names else "")} if kind == "plot" else {}
        given |= {key: attributes.get(key, "-10 10") for key in ("x", "y")} if kind == "raster" else {}
        if kind == "plot" and given["over"] not in self.names:
            self.document.fault(self.place, f"a plot is over one of the controls before it, not {given['over'][:40]!r}")
        named = "".join(f' data-lra-{key}="{escape(value)}"' for key, value in given.items())
        words = escape(ast.text_of(text))
        if not words:
            self.document.fault(self.place, f"a {kind} has a text for those who cannot see it")
        self.pictures.append(
            f'<div class="picture" data-lra-{kind}="{escape(run)}"{named} role="img" aria-label="{words}"></div>'
        )

    def _noscript(self) -> ast.Nodes:
        default = [ast.para(ast.words(self.document.word("no-script")))]
        return [ast.html("<noscript>"), *(self.without or default), ast.html("</noscript>")]

    def _form(self) -> ast.Nodes:
        if not self.controls:
            return []
        return [ast.html('<form class="controls" hidden>'), *self.controls, ast.html("</form>")]

    def _shown(self) -> ast.Nodes:
        if not self.attributes.get("run"):
            return [ast.html(picture) for picture in self.pictures]
        fields = " ".join(f"{self.ident}-{name}" for name in self.names)
        says = escape(self.attributes.get("says", "{result}"))
        output = f'<p class="result"><output for="{fields}" data-lra-says="{says}" aria-live="polite"></output></p>'
        return [ast.html(output), *(ast.html(picture) for picture in self.pictures)]


def _kind(node: ast.Node) -> str:
    classes: list[Any] = node["c"][0][1] if node["t"] == "Span" else []
    return next((name for name in classes if name in CONTROLS or name in PICTURES), "")
