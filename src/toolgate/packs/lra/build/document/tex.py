"""TeX that stands in the text: equations with their labels and tags, references, citations, and what only moves paper."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from toolgate.packs.lra.build.document import ast

_ENVIRONMENT: Final = re.compile(
    r"\s*\\begin\{(equation|align|gather|multline|eqnarray|flalign|alignat|displaymath|math)(\*?)\}(.*)\\end\{\1\2\}\s*",
    re.DOTALL,
)
_LABEL: Final = re.compile(r"\\label\s*\{([^{}]*)\}")
_TAG: Final = re.compile(r"\\tag\*?\s*\{([^{}]*)\}")
_SILENT: Final = re.compile(r"\\(?:nonumber|notag)(?![A-Za-z])")
_TOKEN: Final = re.compile(r"\\begin\{|\\end\{|\\\\(?:\s*\[[^\]]*\])?|\\.|[{}]", re.DOTALL)
_NESTING: Final = {"\\begin{": 1, "\\end{": -1, "{": 0, "}": 0}
_REFERENCE: Final = re.compile(r"\\(autoref|[cC]ref|eqref|ref|vref|fref)\*?\s*\{([^{}]*)\}")
_CITE: Final = re.compile(
    r"\\(cite[a-zA-Z]*|nocite|parencite|textcite|autocite)\*?((?:\s*\[[^\]]*\]){0,2})\s*\{([^{}]*)\}"
)
_LAYOUT: Final = re.compile(
    r"\\(?:newpage|clearpage|cleardoublepage|pagebreak|linebreak|noindent|indent|bigskip|medskip|smallskip|centering|par"
    r"|raggedright|maketitle|tableofcontents|listoffigures|listoftables|sloppy|FloatBarrier|onehalfspacing|doublespacing"
    r"|singlespacing|frontmatter|mainmatter|backmatter|hfill|vfill|newline|small|large|normalsize|footnotesize"
    r"|printbibliography|appendix)(?![A-Za-z])(?:\[[^\]]*\])?(?:\{\})?"
    r"|\\(?:vspace|hspace|setlength|addtolength|pagestyle|thispagestyle|pagenumbering|usepackage|bibliographystyle"
    r"|setcounter|addcontentsline|phantomsection|hypersetup|label)\*?(?:\[[^\]]*\])?(?:\{[^{}]*\})*"
)
_DEFINITION: Final = re.compile(
    r"\\(?:(?:re|provide)?newcommand|providecommand|renewcommand|DeclareMathOperator|newenvironment|def|let|newtheorem)(?![A-Za-z])"
)
_SAME_AS: Final = {"qedhere": "", "cfrac": r"\dfrac", "dbinom": r"\binom", "tbinom": r"\binom"}
_SAME: Final = re.compile(rf"\\({'|'.join(_SAME_AS)})(?![A-Za-z])(?:\[[lr]\])?")
_BOLD: Final = re.compile(r"\\mathbf\s*\{([A-Za-z0-9]+)\}")
_COMMENT: Final = re.compile(r"(?<!\\)%.*")

ROWS: Final = frozenset({"align", "gather", "eqnarray", "flalign", "alignat"})
"""Environments whose rows have numbers of their own."""
_INSIDE: Final = {
    "align": ("\\begin{aligned}", "\\end{aligned}"),
    "flalign": ("\\begin{aligned}", "\\end{aligned}"),
    "alignat": ("\\begin{aligned}", "\\end{aligned}"),
    "gather": ("\\begin{gathered}", "\\end{gathered}"),
    "multline": ("\\begin{gathered}", "\\end{gathered}"),
    "eqnarray": ("\\begin{array}{rcl}", "\\end{array}"),
}


class EquationRow(NamedTuple):
    labels: tuple[str, ...]
    tag: str
    numbered: bool


class Equation(NamedTuple):
    tex: str
    """What is shown: without labels, tags and numbering."""
    rows: tuple[EquationRow, ...]


def equation(tex: str, *, always_numbered: bool = False) -> Equation:
    """A display formula, or a whole environment. Outside an environment only a label or a tag gives a number."""
    match = _ENVIRONMENT.fullmatch(tex)
    if not match:
        return Equation(_shown(tex), (_row(tex, numbered=always_numbered),))
    name, star, inner = match.groups()
    inner = re.sub(r"^\s*\{[^{}]*\}", "", inner) if name == "alignat" else inner
    numbered = not star and name not in {"displaymath", "math"}
    parts = _rows(inner) if name in ROWS else [inner]
    begin, end = _INSIDE.get(name, ("", ""))
    shown = f"{begin}{_shown(inner)}{end}" if len(_rows(inner)) > 1 or "&" in inner else _shown(inner)
    return Equation(shown, tuple(_row(part, numbered=numbered) for part in parts))


def _row(tex: str, *, numbered: bool) -> EquationRow:
    labels = tuple(_LABEL.findall(tex))
    tag = _TAG.search(tex)
    silent = _SILENT.search(tex) is not None
    return EquationRow(labels, tag[1] if tag else "", not silent and (numbered or bool(labels) or tag is not None))


def _shown(tex: str) -> str:
    return known(_SILENT.sub("", _TAG.sub("", _LABEL.sub("", tex))))


def known(tex: str) -> str:
    """Commands that Pandoc does not know, or gets wrong, by what says the same."""
    return _BOLD.sub(_bold, _SAME.sub(lambda found: _SAME_AS[found[1]], tex))


def _bold(found: re.Match[str]) -> str:
    """Pandoc sets `\\mathbf` in italics; the letters that are bold and upright by themselves stay so."""
    return "{" + "".join(_upright(sign) for sign in found[1]) + "}"


def _upright(sign: str) -> str:
    for first, bold in (("A", 0x1D400), ("a", 0x1D41A), ("0", 0x1D7CE)):
        offset = ord(sign) - ord(first)
        if 0 <= offset < (10 if first == "0" else 26):
            return chr(bold + offset)
    return sign


def _rows(tex: str) -> list[str]:
    """Split at `\\\\` outside of braces and inner environments."""
    found, start, braces, inner = [], 0, 0, 0
    for match in _TOKEN.finditer(tex):
        text = match[0]
        if text.startswith("\\\\"):
            if not braces and not inner:
                found.append(tex[start : match.start()])
                start = match.end()
        elif text in _NESTING:
            inner += _NESTING[text]
            braces += {"{": 1, "}": -1}.get(text[-1], 0)
    found.append(tex[start:])
    return [label for label in found if label.strip()]


def is_environment(tex: str) -> bool:
    return _ENVIRONMENT.fullmatch(tex) is not None


class RawTex(NamedTuple):
    """What raw TeX in the text means."""

    inlines: ast.Nodes
    unknown: str = ""
    """The first command that means nothing here."""


def read_raw_tex(raw: str) -> RawTex:
    """Raw TeX as inlines: references become spans `.xref`, citations become citations, layout becomes nothing."""
    found: ast.Nodes = []
    rest = _COMMENT.sub("", raw).strip()
    while rest:
        match = _REFERENCE.match(rest)
        if match:
            found += cross_references(match[1], match[2])
        elif match := _CITE.match(rest):
            found.append(_cite(match[1], match[2], match[3]))
        elif _DEFINITION.match(rest):
            return RawTex(found)  # a macro: Pandoc has applied it already
        elif match := _LABEL.match(rest):
            found.append(ast.span([], ["label"], {"to": match[1]}))
        else:
            match = _LAYOUT.match(rest)
        if not match:
            return RawTex(found, rest.split("\n")[0][:60])
        rest = rest[match.end() :].lstrip()
    return RawTex(found)


def is_appendix(raw: str) -> bool:
    return re.search(r"\\appendix(?![A-Za-z])", raw) is not None


def cross_references(command: str, names: str) -> ast.Nodes:
    found: ast.Nodes = []
    for name in names.split(","):
        if found:
            found += [{"t": "Str", "c": ","}, ast.SPACE]
        found.append(ast.span([], ["xref"], {"to": name.strip(), "form": command.lower()}))
    return found


def _cite(command: str, options: str, keys: str) -> ast.Node:
    notes = re.findall(r"\[([^\]]*)\]", options)
    before, after = (notes[0], notes[1]) if len(notes) == 2 else ("", notes[0] if notes else "")
    mode = "AuthorInText" if command in {"citet", "textcite", "citeauthor"} else "NormalCitation"
    mode = "SuppressAuthor" if command in {"citeyear", "citeyearpar"} else mode
    citations = [
        {
            "citationId": key.strip(),
            "citationPrefix": ast.words(before) if at == 0 else [],
            "citationSuffix": ast.words(f", {after}") if after and at == keys.count(",") else [],
            "citationMode": {"t": mode},
            "citationNoteNum": 0,
            "citationHash": 0,
        }
        for at, key in enumerate(keys.split(","))
    ]
    return {"t": "Cite", "c": [citations, ast.words(f"[{keys}]")]}
