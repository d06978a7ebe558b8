"""The check `permission-bits`: reads the repository and lets workers judge the workflows that the caller names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolgate.model.threads import in_thread
from toolgate.packs.governance.analysis.pipeline import read_repository
from toolgate.packs.governance.invariants import permissions
from toolgate.packs.governance.invariants.block import Check
from toolgate.packs.governance.invariants.prepare import Ready
from toolgate.packs.governance.repository.model import MAX_FILE_BYTES, File
from toolgate.packs.governance.repository.reading import Queue

if TYPE_CHECKING:
    from toolgate.model.tool import Context


async def permission_bits(ctx: Context, args: dict[str, Any]) -> Ready:
    repository = await read_repository(ctx, [], args.get("defaultPermissions"))
    queue = Queue(ctx.files, args["workflowFiles"], max_bytes=MAX_FILE_BYTES)
    named: list[File] = []
    while portion := await in_thread(queue.portion):
        named += await ctx.compute(permissions.read, portion)
    whole = replace(repository, files=repository.files | {file.path: file for file in named})
    judged = await ctx.compute(permissions.judge, (whole, [file.path for file in named]))
    violations, unknown = judged.violations, judged.unknown
    for file in queue.skipped:
        violations.add(permissions.violation(file.path, 1, f"cannot be read: {file.reason}"))
    for path, fault in repository.gate_faults:
        violations.add(
            permissions.violation(path, fault.line, f"decides what is allowed, and cannot be read: {fault.text}")
        )
    evidence = {
        "filesChecked": queue.size,
        "violations": violations.shown,
        "unknown": unknown.shown,
        "violationsTotal": violations.total,
        "unknownTotal": unknown.total,
    }
    first = violations.shown[0] if violations.shown else None
    why = f"{first['file']}:{first['line']}: {first['reason']} ({violations.total} in all)." if first else ""
    check = Check("permission-bits", evidence, why, unknown=_unknown(unknown))
    return Ready(check, {"permission_violations": violations.total})


def _unknown(places: permissions.Places) -> str:
    if not places.total:
        return ""
    first = places.shown[0]
    return (
        f"What the tokens of {places.total} jobs may write is not known: they state no permissions, and the repository's "
        f"default is not given (first {first['file']}:{first['line']}, job {first['job']})."
    )
