"""Judging a deployed paper from its fetched files: pure, and run in a worker, because every byte is a stranger's."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal
from urllib.parse import unquote

from msgspec import Struct, field

from toolgate.kit.render import printable
from toolgate.packs.lra import evidence, page, paper, scan_css, scan_js, validate, worker
from toolgate.packs.lra.artifact import Artifact
from toolgate.packs.lra.loads import Load
from toolgate.packs.lra.page import squeeze
from toolgate.packs.lra.receipt import artifact_root, digest
from toolgate.packs.lra.urls import clean, is_external

PAGE: Final = "index.html"
"""What the page is called in a receipt, whatever its address ends with."""
STANDARD: Final = ("paper.css", "paper.js", "sw.js", "LICENSE", "CITATION.cff")
"""Files of LRA-1.0 that are asked for even when the page does not name them."""
LINKED_ENDINGS: Final = (".wasm", ".wat", ".csv", ".json", ".txt", ".bib", ".cff", ".svg", ".png")
"""Files that belong to the artifact when the page merely links to them."""
MAX_CLAIMS: Final = 100
MAX_TEXT: Final = 300
"""Characters of a claim's text in a report; the page itself is hashed whole."""
MAX_STEP: Final = 2000
"""Characters of one line of the report."""

Status = Literal["PASS", "FAIL", "INFO"]


class Deployed(Struct, frozen=True):
    """What was fetched: the page, its parts by path beside it, and what it refers to but is not there."""

    html: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    def artifact(self) -> Artifact:
        sizes = {PAGE: len(self.html), **{name: len(data) for name, data in self.files.items()}}
        return Artifact(page=PAGE, html=self.html, files=dict(self.files), sizes=sizes)


class Examined(Struct, frozen=True):
    """Everything the files say about themselves. Plain values: it crosses a process border."""

    target_hash: str
    root: str
    files: tuple[Mapping[str, Any], ...]
    tier: str
    passed: int
    total: int
    structure: Mapping[str, bool]
    claims: tuple[Mapping[str, Any], ...]
    trials: Mapping[str, evidence.Trial]
    """What can be run, by claim number."""
    missing: tuple[str, ...]
    """Parts that the page loads and that are not there."""
    undecided: int
    """Loads whose address is computed at run time: not followed, and said so."""
    facts: Mapping[str, Any]


def wanted(deployed: Deployed) -> list[str]:
    """Paths, relative to the page, that belong to the artifact and were not asked for yet."""
    asked = {PAGE, *deployed.files, *deployed.absent}
    found = dict.fromkeys([*STANDARD, *_referenced(paper.read(deployed.artifact()))])
    return [name for name in found if name not in asked]


_NOT_LOADED: Final = frozenset({"form action", "base href", "button formaction", "input formaction"})


def _referenced(subject: paper.Paper) -> list[str]:
    """Everything of this origin that the page, its scripts and its styles load, and what the worker keeps for later."""
    found = [_path(load.url, load.file) for load in subject.loads if _is_part(load)]
    for name in subject.artifact.files:
        # The scan follows files below the page; what lies beside or above it is looked into here.
        if name.startswith(("/", "../")):
            found += [_path(url, name) for url in _loads_of(name, subject.artifact.text(name) or "")]
    found += _linked(subject.page)
    found += [_path(name, "sw.js") for name in worker.assets(subject.artifact.text("sw.js") or "") or ()]
    found += [asked.module for asked in _declarations(subject).values()]
    return [name for name in dict.fromkeys(found) if name and name != PAGE]


def _linked(view: page.Page) -> list[str]:
    """Files that the paper hands to its readers by a link: a module, its source, data. Other pages are not part of it."""
    links = [_path(link.attr("href") or "", PAGE) for link in view.by_tag["a"]]
    return [name for name in links if not name.startswith(("/", "../")) and name.endswith(LINKED_ENDINGS)]


def _is_part(load: Load) -> bool:
    return load.level == "local" and load.what not in _NOT_LOADED


def _loads_of(name: str, code: str) -> list[str]:
    if name.endswith(".css"):
        return [load.url for load in scan_css.loads(code)]
    return [load.url for load in scan_js.loads(code) if load.kind == "literal"]


def _path(url: str, file: str) -> str:
    """The name of a part of this origin: beside the page (`a.js`), above it (`../a.js`) or from the root (`/a.js`)."""
    text = re.split(r"[?#]", clean(url), maxsplit=1)[0]
    if not text or is_external(text) or ":" in text.partition("/")[0]:
        return ""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(file), unquote(text)))
    return "" if joined in (".", "..", "/") or text.endswith("/") else joined


def examine(deployed: Deployed) -> Examined:
    """Raises: ToolError IO_ERROR: the page is not UTF-8 text."""
    artifact = deployed.artifact()
    subject = paper.read(artifact)
    report = validate.validate(artifact)
    whole = {PAGE: deployed.html, **deployed.files}
    claims = _claims(subject)
    return Examined(
        target_hash=digest(deployed.html),
        root=artifact_root(whole),
        files=tuple(_file(name, whole[name]) for name in sorted(whole)),
        tier=report.tier,
        passed=report.passed,
        total=report.total,
        structure=_structure(subject, claims),
        claims=tuple(claims),
        trials=_trials(subject, deployed),
        missing=tuple(name for name in _referenced(subject) if name in deployed.absent),
        undecided=sum(load.level == "undecidable" for load in subject.loads),
        facts=_facts(subject),
    )


def _file(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "sha256": sha256(data).hexdigest(), "bytes": len(data)}


def _structure(subject: paper.Paper, claims: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """The four marks of LRA-1.0's receipt. The worker may be registered by the page or by any script it loads."""
    return {
        "lra_version": bool(subject.page.meta_content("lra:version")),
        "sw_reference": any(load.what == "register" for load in subject.loads),
        "claims_markup": bool(claims),
        "capability_tag": bool(subject.page.meta_content("lra:capability")),
    }


def _claims(subject: paper.Paper) -> list[dict[str, Any]]:
    return [
        {
            "number": claim.number[:MAX_TEXT],
            "id": claim.id[:MAX_TEXT],
            "text": claim.text[:MAX_TEXT],
            "evidence": claim.evidence[0][:MAX_TEXT] if claim.evidence else None,
            "resolves": bool(claim.evidence)
            and all(subject.page.target(ident) is not None for ident in claim.evidence),
            "ran": None,
            "matched": None,
        }
        for claim in subject.page.claims()[:MAX_CLAIMS]
    ]


def _declarations(subject: paper.Paper) -> dict[str, evidence.Declared]:
    found: dict[str, evidence.Declared] = {}
    for claim in subject.page.claims()[:MAX_CLAIMS]:
        for ident in claim.evidence:
            element = subject.page.target(ident)
            asked = evidence.declared(element) if element is not None else None
            if asked is not None:
                found.setdefault(claim.number[:MAX_TEXT], asked)
    return found


def _trials(subject: paper.Paper, deployed: Deployed) -> dict[str, evidence.Trial]:
    return {
        number: evidence.Trial(asked, deployed.files[asked.module])
        for number, asked in _declarations(subject).items()
        if asked.module in deployed.files
    }


def _facts(subject: paper.Paper) -> dict[str, Any]:
    """What a registry entry says about a paper, from the page's own metadata."""
    view: page.Page = subject.page
    keywords = [squeeze(word) for word in view.meta_content("lra:keywords").split(",")]
    authors = [(one.attr("content") or "").strip() for one in view.by_tag["meta"] if one.attr("name") == "author"]
    depends = [(one.attr("content") or "").strip() for one in view.by_tag["meta"] if one.attr("name") == "lra:depends"]
    return {
        "title": view.title()[:MAX_TEXT],
        "authors": [name[:MAX_TEXT] for name in authors if name][:MAX_CLAIMS],
        "capability": view.meta_content("lra:capability")[:MAX_TEXT],
        "keywords": [word[:MAX_TEXT] for word in keywords if word][:MAX_CLAIMS],
        "license": view.meta_content("lra:license")[:MAX_TEXT],
        "depends": [one[:MAX_TEXT] for one in depends if one][:MAX_CLAIMS],
    }


# -- the report ------------------------------------------------------------------------------------------------


class Step(Struct, frozen=True):
    status: Status
    text: str

    def as_json(self) -> dict[str, str]:
        """Names and numbers in the text are a stranger's: nothing of them moves a reader's cursor or hides a word."""
        return {"status": self.status, "text": printable(self.text)[:MAX_STEP]}


def integrity(target_hash: str, registry_hash: str | None) -> str:
    if registry_hash is None:
        return "not_in_registry"
    return "match" if registry_hash == target_hash else "mismatch"


def steps(url: str, examined: Examined, registry_hash: str | None, claims: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Document 000's report, one line a step. INFO lines are not counted."""
    compared = integrity(examined.target_hash, registry_hash)
    structure = examined.structure
    found = [Step("PASS", f"Target URL: {url}"), _content_step(examined.target_hash, compared)]
    found.append(Step("PASS", f"{len(examined.files)} files of the artifact hashed"))
    found += [Step("FAIL", f"{name} is referred to but not there") for name in examined.missing]
    if examined.undecided:
        found.append(Step("INFO", f"{examined.undecided} loads are computed at run time and were not followed"))
    found += [
        _step(structure["lra_version"], "LRA version tag detected", "LRA version tag is missing"),
        _step(structure["sw_reference"], "Service Worker reference found", "Service Worker reference is missing"),
        _step(bool(claims), _counted(len(claims)), "No claims extracted"),
    ]
    found += [step for claim in claims for step in _claim_steps(claim)]
    failing = [name for name, there in structure.items() if not there]
    found.append(_step(not failing, "All structural checks passed", f"Structural checks failed: {', '.join(failing)}"))
    found.append(Step("FAIL" if examined.tier == "NONE" else "PASS", f"Compliance tier: {examined.tier}"))
    return found


def _step(holds: bool, good: str, bad: str) -> Step:  # noqa: FBT001 (the one value this is about)
    return Step("PASS", good) if holds else Step("FAIL", bad)


def _counted(number: int) -> str:
    return f"{number} claim{'' if number == 1 else 's'} extracted"


def _content_step(target_hash: str, compared: str) -> Step:
    if compared == "match":
        return Step("PASS", "Content hash matches registry")
    if compared == "mismatch":
        return Step("FAIL", "Content hash differs from registry")
    return Step("PASS", f"Content hash: {target_hash.removeprefix('sha256:')}")


def _claim_steps(claim: Mapping[str, Any]) -> list[Step]:
    name = f"Claim {claim['number']}"
    if claim["evidence"] is not None and not claim["resolves"]:
        return [Step("FAIL", f"{name}: its evidence is not on the page")]
    if claim["ran"] is None:
        return []
    if not claim["ran"]:
        return [Step("FAIL", f"{name}: its evidence did not run: {claim['detail']}")]
    return [
        _step(claim["matched"], f"{name}: evidence ran and matched", f"{name}: evidence ran and gave {claim['detail']}")
    ]


def text(target: str, made: Sequence[Mapping[str, str]]) -> str:
    """Standard output, in document 000's form."""
    lines = [f"LRA Verify — {target}", "", *(f"  [{step['status']}] {step['text']}" for step in made), ""]
    failed = sum(step["status"] == "FAIL" for step in made)
    counted = sum(step["status"] != "INFO" for step in made)
    ending = "all checks passed" if not failed else f"{failed} of {counted} checks failed"
    return "\n".join([*lines, f"Verification complete ({ending}).", ""])
