"""Papers for tests: a small good one, and ways to spoil it."""

from __future__ import annotations

from toolgate.packs.lra.checks.validate import PaperReport, validate
from toolgate.packs.lra.paper import licences
from toolgate.packs.lra.paper.artifact import Artifact

WASM = bytes.fromhex("0061736d0100000001070160027f7f017f030201000707010361646400000a09010700200020016a0b")
"""`add`, 41 bytes: (module (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add))."""

HEAD = """<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="description" content="A small paper">
<meta name="lra:version" content="1.0">
<title>Small</title>
<link rel="stylesheet" href="paper.css">
<script src="paper.js" defer></script>"""
BODY = """<h1>Small</h1>
<section id="abstract"><p>Short.</p></section>
<section id="claims"><ol>
<li id="claim-1" data-lra-claim="1">One and one is 2. <a href="#demo-1" data-lra-evidence="demo-1">evidence</a></li>
</ol></section>
<section id="demo-1" class="demo"><button>Run</button><p aria-live="polite"></p></section>
<noscript>The demo adds one and one.</noscript>
<section id="references"></section>
<section id="citation"></section>"""
CFF = """cff-version: 1.2.0
message: Please cite this paper.
title: Small
authors:
  - family-names: Doe
    given-names: Jane
license: GPL-3.0-or-later
"""
FILES: dict[str, bytes] = {
    "LICENSE": licences.text_of("GPL-3.0-or-later", year="2026", holder="Jane Doe").encode(),
    "CITATION.cff": CFF.encode(),
    "paper.css": b"body { color: black }",
    "paper.js": b"export const one = 1; // wasm/add.wasm",
    "wasm/add.wasm": WASM,
}


def html(head: str = HEAD, body: str = BODY, tag: str = '<html lang="en">') -> str:
    return f"<!doctype html>\n{tag}\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n"


def artifact(page: str | None = None, **changes: bytes | None) -> Artifact:
    """The good paper with another page, or with files changed (`paper_css=`), added or, with None, removed."""
    names = {
        "paper_css": "paper.css",
        "paper_js": "paper.js",
        "sw_js": "sw.js",
        "CITATION": "CITATION.cff",
        "wasm": "wasm/add.wasm",
    }
    files = dict(FILES)
    for key, data in changes.items():
        name = names.get(key, key)
        if data is None:
            files.pop(name)
        else:
            files[name] = data
    content = (page if page is not None else html()).encode()
    sizes = {name: len(data) for name, data in files.items()} | {"index.html": len(content)}
    return Artifact("index.html", content, files, sizes, "small/index.html")


def judge(page: str | None = None, **changes: bytes | None) -> PaperReport:
    return validate(artifact(page, **changes))


def failed(report: PaperReport) -> set[str]:
    return {one.rule for one in report.findings if one.status == "fail" and one.severity != "low"}
