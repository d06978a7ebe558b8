"""The tool `analyze_dissonance`: collect, parse and judge in workers, then weigh against what the store remembers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.model.clock import rfc3339
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance import counters, events, shapes
from toolgate.packs.governance.analysis import (
    BREAKER_CODE,
    MODES,
    Analysis,
    Breaker,
    Drift,
    Mode,
    Origin,
    analyse,
    drift_between,
    judge,
    origin_of,
    report,
)
from toolgate.packs.governance.repository import File, Repository, collect, parse
from toolgate.packs.governance.tables import FALSE_POSITIVES

if TYPE_CHECKING:
    from toolgate.packs.governance.events import Suppression
    from toolgate.packs.governance.rules import Verdict

CHUNK: Final = 50
"""Files per trip to a worker: enough to outweigh the trip, few enough that progress moves."""
COUNTING_ROLES: Final = frozenset({"committer", "admin"})
"""Whose blocked reports open the breaker: a builder must not be able to soften the gate for everybody (decision 35)."""


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    analysis = await analyze(ctx, args)
    data = report(analysis)
    counts = ", ".join(f"{count} {severity}" for severity, count in analysis.counts.items() if count) or "no findings"
    if analysis.breaker.is_open and analysis.threshold_decision == "block":
        message = f"{BREAKER_CODE}: {counts}; too many reports were blocked this hour, so this one only warns"
        return Result(data=data, decision="warn", code=BREAKER_CODE, message=message, degraded=True)
    return Result(
        data=data, decision=analysis.decision, message=counts, exit_code=1 if analysis.decision == "block" else 0
    )


async def analyze(ctx: Context, args: dict[str, Any]) -> Analysis:
    """The whole analysis; the command for people calls it too."""
    mode, origin = cast("Mode", args.get("mode", "issue")), origin_of(args.get("context"))
    repository = await _repository(ctx, args["files"])
    verdicts: list[Verdict] = await ctx.compute(judge, repository)
    suppressions, known = await _suppressions(ctx, origin)
    analysis = analyse(
        mode=mode,
        strict=bool(args.get("strict", False)),
        origin=origin,
        repository=repository,
        verdicts=verdicts,
        suppressions=suppressions,
        drift=await _drift(ctx, origin, repository) if mode == "drift" else None,
        suppression_known=known,
    )
    if mode == "calibration":
        await _write_baseline(ctx, origin, repository)
    return replace(analysis, breaker=await _breaker(ctx, analysis))


async def _repository(ctx: Context, paths: list[str]) -> Repository:
    try:
        contents, skipped = await asyncio.to_thread(collect, ctx.files, paths)
    except ToolError as fault:
        raise (shapes.bad_path(fault) if fault.code == "INVALID_PATH" else fault) from None
    files: list[File] = []
    for start in range(0, len(contents), CHUNK):
        files += await ctx.compute(parse, contents[start : start + CHUNK])
        ctx.progress(len(files), len(contents), f"{len(files)} of {len(contents)} files read")
    live = dict(ctx.contract) if ctx.contract is not None else None
    return Repository({file.path: file for file in files}, tuple(skipped), live)


async def _suppressions(ctx: Context, origin: Origin) -> tuple[dict[str, Suppression], bool]:
    """Without the store nothing is suppressed: the report is louder than it need be, never quieter."""
    now = _now(ctx)
    try:
        store = ctx.stores.get(FALSE_POSITIVES)
        return await store.run(lambda connection: events.suppressions(connection, origin.repository, now)), True
    except StoreUnavailable:
        return {}, False


async def _drift(ctx: Context, origin: Origin, repository: Repository) -> Drift:
    store = ctx.stores.get(FALSE_POSITIVES)
    try:
        found = await store.run(lambda connection: counters.read_baseline(connection, origin.repository))
    except StoreUnavailable:
        found = None
    if found is None:
        return Drift(created=None)
    created, baseline = found
    return drift_between(baseline, _digests(repository), rfc3339(created / 1000))


async def _write_baseline(ctx: Context, origin: Origin, repository: Repository) -> None:
    """Raises: StoreUnavailable: a calibration that was not kept is a failure, not a warning."""
    files, now = _digests(repository), _now(ctx)
    await ctx.stores.get(FALSE_POSITIVES).run(
        lambda connection: counters.write_baseline(connection, origin.repository, files, now)
    )


def _digests(repository: Repository) -> dict[str, str]:
    return {path: file.sha256 for path, file in repository.files.items()}


async def _breaker(ctx: Context, analysis: Analysis) -> Breaker:
    """Read, then count this block; a counter that does not answer softens nothing and stops nothing."""
    limit, now = int(ctx.settings.get("blocks_per_hour", 0)), _now(ctx)
    if not limit or analysis.threshold_decision != "block":
        return Breaker(limit)
    repository, digest, counts = analysis.origin.repository, analysis.report_digest, ctx.caller.role in COUNTING_ROLES

    def work(connection: Any) -> int:
        before = counters.blocked_this_hour(connection, repository, now)
        if counts and before < limit:
            counters.count_block(connection, repository, digest, now)
        return before

    try:
        return Breaker(limit, await ctx.stores.get(FALSE_POSITIVES).run(work))
    except StoreUnavailable:
        return Breaker(limit, state_known=False)


def _now(ctx: Context) -> int:
    return int(ctx.clock.wall() * 1000)


def as_text(data: Any) -> str:
    """Findings with file and line, worst reason last: what a person reads in a log."""
    analysis = data["analysis"]
    lines = []
    for finding in analysis["findings"]:
        place = ", ".join(f"{one['path']}:{one['line']}" for one in finding["evidence"]) or "-"
        lines.append(f"{place}: {finding['severity']} {finding['ruleId']}: {finding['title']}")
        lines.append(f"    fix: {finding['remediation']}")
    lines += [f"{one['path']}: skipped: {one['reason']}" for one in analysis["skipped"]]
    lines += [f"{rule['id']}: {rule['status']}: {rule['reason']}" for rule in analysis["rules"] if rule["reason"]]
    decision = analysis["decision"]
    lines.append(f"{decision['outcome']}: {'; '.join(decision['reasons'])}")
    return "\n".join(lines) + "\n"


_FINDING: Final[dict[str, Any]] = {
    "id": shapes.said(64),
    "ruleId": shapes.said(32),
    "severity": shapes.SEVERITY,
    "title": shapes.said(),
    "evidence": shapes.many(
        shapes.closed({"path": shapes.said(), "line": shapes.COUNT, "snippet": shapes.said(256)}), 16
    ),
    "fingerprint": shapes.said(64),
    "remediation": shapes.said(),
    "adrReferences": shapes.many(shapes.said(16), 16),
}
_SUPPRESSION: Final = shapes.closed({"reason": shapes.said(), "reviewer": shapes.said(), "ticket": shapes.said()})
_DECISION: Final[dict[str, Any]] = {"enum": ["block", "warn", "pass"]}
_COUNTS: Final = shapes.closed(dict.fromkeys(("critical", "high", "medium", "low", "info"), shapes.COUNT))

ANALYZE: Final = Tool(
    name="analyze_dissonance",
    id="governance.analyze_dissonance",
    summary=(
        "Judge a repository's workflows, branch protection and tool contract by rules MD-001 to MD-005, with file and "
        "line: required checks nobody reports, unpinned actions, contract drift, unattended write tokens, checks that "
        "skip the merge queue."
    ),
    input_schema=shapes.closed(
        {
            "files": shapes.paths(
                "Files to analyse. The repository's workflows, branch protection, policy and contract are always looked at too."
            ),
            "context": {
                "type": "string",
                "maxLength": 300,
                "description": "owner/name or owner/name@commit: whose baseline and suppressions count. Other text is ignored.",
            },
            "mode": {
                "enum": list(MODES),
                "default": "issue",
                "description": "merge_group is strict; drift compares with the baseline; calibration writes one.",
            },
            "strict": {
                "type": "boolean",
                "default": False,
                "description": "Stricter thresholds: no high, at most 5 medium.",
            },
        },
        required=["files"],
    ),
    output_schema=shapes.closed(
        {
            "analysis": shapes.closed(
                {
                    "mode": {"enum": list(MODES)},
                    "strict": shapes.FLAG,
                    "repository": shapes.said(),
                    "commit": shapes.maybe(shapes.said(64)),
                    "filesAnalyzed": shapes.COUNT,
                    "files": shapes.many(
                        shapes.closed({"path": shapes.said(), "type": shapes.said(16), "hash": shapes.said(64)})
                    ),
                    "skipped": shapes.many(shapes.closed({"path": shapes.said(), "reason": shapes.said()})),
                    "rules": shapes.many(
                        shapes.closed(
                            {
                                "id": shapes.said(16),
                                "version": shapes.COUNT,
                                "title": shapes.said(),
                                "status": {"enum": ["evaluated", "not_evaluated", "failed"]},
                                "findings": shapes.COUNT,
                                "reason": shapes.maybe(shapes.said()),
                            }
                        ),
                        32,
                    ),
                    "rulesHash": shapes.said(64),
                    "findings": shapes.many(shapes.closed(_FINDING), 100_000),
                    "suppressed": shapes.many(shapes.closed(_FINDING | {"suppression": _SUPPRESSION}), 100_000),
                    "counts": _COUNTS,
                    "decision": shapes.closed(
                        {
                            "outcome": _DECISION,
                            "byThresholds": _DECISION,
                            "limits": shapes.closed(dict.fromkeys(("critical", "high", "medium"), shapes.COUNT)),
                            "reasons": shapes.many(shapes.said(), 16),
                        }
                    ),
                    "breaker": shapes.closed({"open": shapes.FLAG, "limit": shapes.COUNT, "blocked": shapes.COUNT}),
                    "drift": shapes.maybe(
                        shapes.closed(
                            {
                                "status": {"enum": ["evaluated", "not_evaluated"]},
                                "baselineCreatedAt": shapes.maybe(shapes.said(32)),
                                "added": shapes.many(shapes.said()),
                                "modified": shapes.many(shapes.said()),
                                "removed": shapes.many(shapes.said()),
                                "magnitude": shapes.RATE,
                                "limit": shapes.RATE,
                            }
                        )
                    ),
                    "adrReferences": shapes.many(shapes.said(16), 16),
                    "omitted": shapes.closed(
                        dict.fromkeys(("files", "skipped", "findings", "suppressed"), shapes.COUNT)
                    ),
                    "confidence": {"enum": ["full", "unavailable"]},
                }
            )
        }
    ),
    effect="write",
    deadline_s=30,
    run=run,
    error_codes=(BREAKER_CODE,),
    decisions=("block", "warn", "pass"),
    text=as_text,
    argument_roles={"mode=calibration": frozenset({"committer", "admin"})},
)
