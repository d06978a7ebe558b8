"""Judging a deployed paper from its fetched files: pure, and run in a worker, because every byte is a stranger's."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain, islice
from typing import Any, Final, Literal
from urllib.parse import unquote

from msgspec import Struct, field

from toolgate.errors import ToolError
from toolgate.kit.reports.printable import printable
from toolgate.packs.lra.checks import validate
from toolgate.packs.lra.deployed.registry import Known
from toolgate.packs.lra.paper import expectations, modules, numbers, page, paper, scripts, service_worker, sources
from toolgate.packs.lra.paper.artifact import Artifact
from toolgate.packs.lra.paper.loading import scan_css, scan_js
from toolgate.packs.lra.paper.loading.loads import Load
from toolgate.packs.lra.paper.loading.urls import clean, is_external
from toolgate.packs.lra.paper.page import squeeze
from toolgate.packs.lra.receipts.receipt import artifact_root, digest

PAGE: Final = "index.html"
"""What the page is called in a receipt, whatever its address ends with."""
STANDARD: Final = ("paper.css", "paper.js", "sw.js", "LICENSE", "CITATION.cff")
"""Files of LRA-1.0 that are asked for even when the page does not name them."""
MAX_PARTS: Final = 200
"""Names that one look may ask for at once; a visit fetches fewer, and each that waits costs memory."""
MAX_CLAIMS: Final = 100
MAX_BROKEN: Final = 40
"""Broken signals that are told; one is enough to fail."""
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
    declared: Mapping[str, expectations.Declared]
    """What claims run, by their number. Without the modules: many claims may run the same one."""
    broken: tuple[str, ...]
    """Signals on the page that do not hold: a module's copy, a number that its data does not have, a forged script."""
    own_scripts: tuple[str, ...]
    """Scripts that no release of ours contains: what they paint on the page is the author's word."""
    missing: tuple[str, ...]
    """Parts that the page loads and that are not there."""
    undecided: int
    """Loads whose address is computed at run time: not followed, and said so."""
    facts: Mapping[str, Any]


def wanted(deployed: Deployed) -> list[str]:
    """Paths, relative to the page, that belong to the artifact and were not asked for yet.

    Raises: ToolError: IO_ERROR: the page is not UTF-8 text; RESPONSE_TOO_LARGE: more than anybody will fetch.
    """
    asked = {PAGE, *deployed.files, *deployed.absent}
    found = dict.fromkeys([*STANDARD, *_referenced(paper.read(deployed.artifact()))])
    names = [name for name in found if name not in asked]
    if len(names) > MAX_PARTS:
        raise ToolError("RESPONSE_TOO_LARGE", f"the page refers to more than {MAX_PARTS} files of its own")
    return names


_NOT_LOADED: Final = frozenset({"form action", "base href", "button formaction", "input formaction"})


def _referenced(subject: paper.Paper) -> list[str]:
    """Everything of this origin that the page, its scripts and its styles load, and what the worker keeps for later."""
    found = [_path(load.url, load.file) for load in subject.loads if _is_part(load)]
    for name in subject.artifact.files:
        # The scan follows files below the page; what lies beside or above it is looked into here.
        if name.startswith(("/", "../")):
            found += [_path(url, name) for url in _loads_of(name, subject.artifact.text(name) or "")]
    found += _linked(subject.page)
    found += [_path(name, "sw.js") for name in service_worker.assets(subject.artifact.text("sw.js") or "") or ()]
    found += _named(subject.page)
    return [name for name in dict.fromkeys(found) if name and name != PAGE]


def _linked(view: page.Page) -> list[str]:
    """Files below the page, of any ending, that it hands to its readers by a link. What such a file links to is not followed."""
    places = [element.attr("href") for tag in ("a", "area", "link") for element in view.by_tag[tag]]
    links = [_path(href, PAGE) for href in places if href]
    return [name for name in links if not name.startswith(("/", "../"))]


_NAMING: Final = frozenset(
    {"data-lra-run", "data-lra-demo", "data-lra-plot", "data-lra-raster", "data-lra-module", numbers.SOURCE}
)


def _named(view: page.Page) -> list[str]:
    """Files that claims, demos and numbers name as what they run or come from: `FILE` or `FILE#PART`."""
    return [
        _path(value, PAGE)
        for element in view.attributed
        for name, value in element.attrs.items()
        if name in _NAMING and isinstance(value, str)
    ]


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
    subject = paper.read(deployed.artifact())
    report = validate.judge(subject)
    whole = {PAGE: deployed.html, **deployed.files}
    expected = _expectations(subject)
    claims = _claims(subject, expected)
    run = scripts.classify_scripts(subject)
    return Examined(
        target_hash=digest(deployed.html),
        root=artifact_root(whole),
        files=tuple(_file(name, whole[name]) for name in sorted(whole)),
        tier=report.tier,
        passed=report.passed,
        total=report.total,
        structure=_structure(subject, claims),
        claims=tuple(claims),
        declared={
            number: expectation.declared for number, expectation in expected.items() if expectation.declared is not None
        },
        broken=tuple(text[:MAX_TEXT] for text in _broken(subject, run)),
        own_scripts=run.own,
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


def _expectations(subject: paper.Paper) -> dict[str, expectations.Expectation]:
    """By claim number; of two claims with one number the first."""
    found: dict[str, expectations.Expectation] = {}
    for claim in subject.page.claims()[:MAX_CLAIMS]:
        found.setdefault(claim.number[:MAX_TEXT], expectations.of_claim(subject.page, claim))
    return found


def _claims(subject: paper.Paper, expected: Mapping[str, expectations.Expectation]) -> list[dict[str, Any]]:
    return [_claim(subject, claim, expected[claim.number[:MAX_TEXT]]) for claim in subject.page.claims()[:MAX_CLAIMS]]


def _claim(subject: paper.Paper, claim: page.Claim, expected: expectations.Expectation) -> dict[str, Any]:
    asked = expected.declared
    return {
        "number": claim.number[:MAX_TEXT],
        "id": claim.id[:MAX_TEXT],
        "text": claim.text[:MAX_TEXT],
        "evidence": claim.evidence[0][:MAX_TEXT] if claim.evidence else None,
        "resolves": bool(claim.evidence) and all(subject.page.target(ident) is not None for ident in claim.evidence),
        "runs": f"{asked.module}#{asked.function}"[:MAX_TEXT] if asked else None,
        "expected": list(asked.expected) if asked else None,
        "fault": expected.fault[:MAX_TEXT] or None,
        "ran": None,
        "matched": None,
    }


def _broken(subject: paper.Paper, run: scripts.Scripts) -> list[str]:
    hits = islice(chain(modules.copy_faults(subject), sources.faults(subject)), MAX_BROKEN)
    forged = [
        f"{name} says it is the script of a release and is none: the page's badges prove nothing" for name in run.forged
    ]
    return [*forged[:MAX_BROKEN], *(hit.message for hit in hits)]


def _facts(subject: paper.Paper) -> dict[str, Any]:
    """What a registry entry says about a paper, from the page's own metadata."""
    view: page.Page = subject.page
    keywords = [squeeze(word) for word in view.meta_content("lra:keywords").split(",")]
    authors = _contents_of(view, "citation_author") or _contents_of(view, "author")
    depends = _contents_of(view, "lra:depends")
    return {
        "title": view.title()[:MAX_TEXT],
        "authors": [name[:MAX_TEXT] for name in authors][:MAX_CLAIMS],
        "capability": view.meta_content("lra:capability")[:MAX_TEXT],
        "keywords": [word[:MAX_TEXT] for word in keywords if word][:MAX_CLAIMS],
        "license": view.meta_content("lra:license")[:MAX_TEXT],
        "depends": [dependency[:MAX_TEXT] for dependency in depends][:MAX_CLAIMS],
    }


def _contents_of(view: page.Page, name: str) -> list[str]:
    """Of every `meta` of that name, in order."""
    found = ((meta.attr("content") or "").strip() for meta in view.by_tag["meta"] if meta.attr("name") == name)
    return [text for text in found if text]


# -- the report ------------------------------------------------------------------------------------------------


class VerifyStep(Struct, frozen=True):
    status: Status
    text: str

    def as_json(self) -> dict[str, str]:
        """Names and numbers in the text are a stranger's: nothing of them moves a reader's cursor or hides a word."""
        return {"status": self.status, "text": printable(self.text)[:MAX_STEP]}


def integrity(examined: Examined, known: Known | None) -> str:
    if known is None:
        return "not_in_registry"
    same = known.page == examined.target_hash and known.root in (None, examined.root)
    return "match" if same else "mismatch"


def steps(url: str, examined: Examined, known: Known | None, claims: Sequence[Mapping[str, Any]]) -> list[VerifyStep]:
    """The report of lra_verify (ADR-0012), one line a step. INFO lines are not counted."""
    found = [VerifyStep("PASS", f"Target URL: {url}"), *_content_steps(examined, known)]
    found += [VerifyStep("FAIL", f"{name} is referred to but not there") for name in examined.missing]
    if examined.undecided:
        found.append(VerifyStep("INFO", f"{examined.undecided} loads are computed at run time and were not followed"))
    found += [VerifyStep("FAIL", text) for text in examined.broken]
    found += _script_steps(examined, claims)
    found += _structure_steps(examined, len(claims))
    found += [step for claim in claims for step in _claim_steps(claim)]
    failing = _failing(examined)
    found.append(_step(not failing, "All structural checks passed", f"Structural checks failed: {', '.join(failing)}"))
    found.append(VerifyStep("FAIL" if examined.tier == "NONE" else "PASS", f"Compliance tier: {examined.tier}"))
    return found


def _structure_steps(examined: Examined, claims: int) -> list[VerifyStep]:
    structure = examined.structure
    return [
        _step(structure["lra_version"], "LRA version tag detected", "LRA version tag is missing"),
        _step(structure["sw_reference"], "Service Worker reference found", "Service Worker reference is missing"),
        _step(claims > 0, _counted(claims), "No claims extracted"),
    ]


def _failing(examined: Examined) -> list[str]:
    """A Bronze paper has nothing to run, so it names no capability."""
    excused = {"capability_tag"} if examined.tier == "BRONZE" else set()
    return [name for name, there in examined.structure.items() if not there and name not in excused]


def _script_steps(examined: Examined, claims: Sequence[Mapping[str, Any]]) -> list[VerifyStep]:
    if not examined.own_scripts or not any(claim["runs"] for claim in claims):
        return []
    text = f"The author's own scripts run on the page ({', '.join(examined.own_scripts)}): its badges are the author's word"
    return [VerifyStep("INFO", text)]


def _step(holds: bool, good: str, bad: str) -> VerifyStep:  # noqa: FBT001 (the one value this is about)
    return VerifyStep("PASS", good) if holds else VerifyStep("FAIL", bad)


def _counted(number: int) -> str:
    return f"{number} claim{'' if number == 1 else 's'} extracted"


def _content_steps(examined: Examined, known: Known | None) -> list[VerifyStep]:
    counted = f"{len(examined.files)} files of the artifact"
    if known is None:
        content = f"Content hash: {examined.target_hash.removeprefix('sha256:')}"
        return [VerifyStep("PASS", content), VerifyStep("PASS", f"{counted} hashed")]
    same = known.page == examined.target_hash
    page_step = _step(same, "Content hash matches registry", "Content hash differs from registry")
    if known.root is None:
        text = "The registry lists the page's hash alone: of the other files nothing was compared (lra registry add renews it)"
        return [page_step, VerifyStep("PASS", f"{counted} hashed"), VerifyStep("INFO", text)]
    return [
        page_step,
        _step(known.root == examined.root, f"{counted} match registry", f"{counted}: not those in the registry"),
    ]


def _claim_steps(claim: Mapping[str, Any]) -> list[VerifyStep]:
    name = f"Claim {claim['number']}"
    if claim["evidence"] is not None and not claim["resolves"]:
        return [VerifyStep("FAIL", f"{name}: its evidence is not on the page")]
    if claim["fault"]:
        return [VerifyStep("FAIL", f"{name}: {claim['fault']}")]
    if claim["ran"] is None:
        return [VerifyStep("INFO", f"{name}: {claim['detail']}")] if "detail" in claim else []
    if not claim["ran"]:
        return [VerifyStep("FAIL", f"{name}: its evidence did not run: {claim['detail']}")]
    wanted = " ".join(claim["expected"])
    good = f"{name}: evidence ran and matched: {claim['detail']}"
    return [_step(claim["matched"], good, f"{name}: says {wanted}, but its evidence ran and gave {claim['detail']}")]


def text(target: str, made: Sequence[Mapping[str, str]]) -> str:
    """Standard output of lra_verify: a line for each step, then how many failed."""
    lines = [f"LRA Verify — {target}", "", *(f"  [{step['status']}] {step['text']}" for step in made), ""]
    failed = sum(step["status"] == "FAIL" for step in made)
    counted = sum(step["status"] != "INFO" for step in made)
    ending = "all checks passed" if not failed else f"{failed} of {counted} checks failed"
    return "\n".join([*lines, f"Verification complete ({ending}).", ""])
