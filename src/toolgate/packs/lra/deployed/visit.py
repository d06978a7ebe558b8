"""Looking at a deployed paper: fetch the page and all its parts, examine them, run its evidence, write the receipt's body.

Everything the stranger's server says passes the egress power; everything its bytes mean is judged in a worker process.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from toolgate import __version__
from toolgate.errors import ToolError
from toolgate.packs.lra.deployed import evidence, verify
from toolgate.packs.lra.receipts.receipt import is_digest

if TYPE_CHECKING:
    from toolgate.model.powers import Compute, Egress, Fetched, Visit
    from toolgate.packs.lra.deployed.registry import Known, Registry
    from toolgate.packs.lra.paper.expectations import Declared

MAX_ROUNDS: Final = 4
"""Page, what it loads, what that loads, and once more; papers are flat."""
RUN_TIMEOUT_S: Final = 5.0
"""One claim's evidence: fuel stops it earlier, this stops a module that takes long to compile."""
VERIFIER: Final = f"toolgate {__version__}"

Progress = Callable[[int, int | None, str], None]


class Verified(Struct, frozen=True):
    url: str
    """As looked up or given; the receipt has the redirects."""
    steps: tuple[verify.VerifyStep, ...]
    examined: verify.Examined
    receipt: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        return all(step.status != "FAIL" for step in self.steps)


def address_of(target: str, registry: Registry) -> str:
    """A URL stands for itself; a hash for the address that the registry holds. Raises ToolError TARGET_NOT_FOUND."""
    hashed = target if target.startswith("sha256:") else f"sha256:{target}"
    if not is_digest(hashed):
        return target
    entry = registry.find(hashed)
    if entry is None:
        raise ToolError("TARGET_NOT_FOUND", "the registry holds no paper with this hash", missing=True)
    return str(entry["url"])


async def verify_deployed(
    net: Egress,
    compute: Compute,
    target: str,
    registry: Registry,
    timestamp: str,
    *,
    run: bool = False,
    progress: Progress,
    ca_file: str = "",
) -> Verified:
    """Side effects: network. Raises ToolError: what `Egress` raises, TARGET_NOT_FOUND, BAD_RESPONSE, UNAVAILABLE."""
    url = address_of(target, registry)
    progress(0, 4, "fetching the page")
    async with net.visit(ca_file=ca_file) as visit:
        page = await visit.page(url)
        _refuse_status(page)
        deployed = await _fetch_parts(visit, compute, verify.Deployed(page.body), progress)
    progress(2, 4, "examining")
    examined = await compute(verify.examine, deployed)
    claims = [dict(claim) for claim in examined.claims]
    if run:
        progress(3, 4, "running evidence")
        asked = examined.declared
        claims = [await _run_claim(compute, claim, asked.get(claim["number"]), deployed) for claim in claims]
    known = registry.known(url)
    steps = tuple(verify.steps(url, examined, known, claims))
    progress(4, 4, "done")
    return Verified(url, steps, examined, _receipt(url, page, examined, known, claims, steps, timestamp))


def _refuse_status(page: Fetched) -> None:
    if page.status in (404, 410):
        raise ToolError("TARGET_NOT_FOUND", f"HTTP {page.status}: target not found", missing=True)
    if page.status != 200:
        raise ToolError("BAD_RESPONSE", f"HTTP {page.status} from the target; only 200 is a deployed paper")


async def _fetch_parts(
    visit: Visit, compute: Compute, deployed: verify.Deployed, progress: Progress
) -> verify.Deployed:
    """Round by round, because a script or a style names further parts."""
    for _ in range(MAX_ROUNDS):
        names = await compute(verify.wanted, deployed)
        if not names:
            break
        progress(1, 4, f"fetching {len(names)} files")
        bodies = dict(zip(names, await asyncio.gather(*(_fetch_part(visit, name) for name in names)), strict=True))
        deployed = replace(
            deployed,
            files={**deployed.files, **{name: body for name, body in bodies.items() if body is not None}},
            absent=deployed.absent | {name for name, body in bodies.items() if body is None},
        )
    return deployed


async def _fetch_part(visit: Visit, name: str) -> bytes | None:
    """None when it is not there, or is not to be had from this origin; a spent budget or deadline ends the whole look."""
    try:
        fetched = await visit.part(quote(name, safe="/"))
    except ToolError as fault:
        if fault.code in ("TIMEOUT", "RESPONSE_TOO_LARGE"):
            raise
        return None
    return fetched.body if fetched.status == 200 else None


async def _run_claim(
    compute: Compute, claim: Mapping[str, Any], asked: Declared | None, deployed: verify.Deployed
) -> dict[str, Any]:
    if asked is None:
        return dict(claim)
    if not asked.is_wasm:
        return {**claim, "detail": f"only the page can run {claim['runs']}"}
    module = deployed.files.get(posixpath.normpath(asked.module))
    if module is None:
        outcome = evidence.TrialOutcome(ran=False, matched=False, detail="its module is not there")
    else:
        outcome = await _outcome(compute, evidence.Trial(asked, module))
    return {**claim, "ran": outcome.ran, "matched": outcome.matched, "detail": outcome.detail[: verify.MAX_TEXT]}


async def _outcome(compute: Compute, trial: evidence.Trial) -> evidence.TrialOutcome:
    try:
        return await compute(evidence.run, trial, timeout_s=RUN_TIMEOUT_S)
    except TimeoutError:
        detail = f"stopped: it did not end within {RUN_TIMEOUT_S:g} s, or the time of its call"
        return evidence.TrialOutcome(ran=False, matched=False, detail=detail)


def _receipt(
    url: str,
    page: Fetched,
    examined: verify.Examined,
    known: Known | None,
    claims: list[dict[str, Any]],
    steps: tuple[verify.VerifyStep, ...],
    timestamp: str,
) -> dict[str, Any]:
    """LRA-1.0's receipt fields first, then what it lacks: every file, every claim, who was spoken to."""
    return {
        "target_url": url,
        "target_hash": examined.target_hash,
        "registry_hash": known.page if known else None,
        "integrity": verify.integrity(examined, known),
        "claims_found": len(claims),
        "structural_checks": dict(examined.structure),
        "timestamp": timestamp,
        "verifier_version": VERIFIER,
        "compliance_tier": examined.tier,
        "checks_passed": examined.passed,
        "checks_total": examined.total,
        "verified": all(step.status != "FAIL" for step in steps),
        "failed": [step.as_json()["text"] for step in steps if step.status == "FAIL"],
        "artifact_root": examined.root,
        "registry_root": known.root if known else None,
        "files": [dict(file) for file in examined.files],
        "claims": claims,
        "fetched": {
            "final_url": page.url,
            "chain": [
                {"url": hop.url, "status": hop.status, "address": hop.address, "certificate": hop.certificate_sha256}
                for hop in page.chain
            ],
            "explicitly_allowed": page.explicitly_allowed,
        },
    }
