"""The author's tools: `lra_init`, `lra_validate`, and `lra_check`, which is the same under another name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from toolgate.later import named
from toolgate.model.threads import in_thread
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.lra.checks import report as reporting
from toolgate.packs.lra.checks import rules
from toolgate.packs.lra.checks.known import Reports, digest_of, look_at
from toolgate.packs.lra.paper.artifact import Artifact, gather
from toolgate.packs.lra.paper.naming import MAX_NAME, NAME_ALLOWED, NAME_PATTERN
from toolgate.packs.lra.settings import PATH_PATTERN

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.model.powers import ReadFiles

_DEADLINE_S: Final = 10.0
_SCAFFOLD: Final = "toolgate.packs.lra.build.scaffold:scaffold"
"""Loaded by the first call: a start does not wait for it."""
_OPTIONS: Final = "toolgate.packs.lra.build.scaffold:ScaffoldOptions"
_CREATED_TEXT: Final = "toolgate.packs.lra.build.scaffold:created_text"


def run_init(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.writer is not None  # effect `write`
    today = datetime.fromtimestamp(ctx.clock.wall(), UTC).strftime("%Y-%m-%d")
    made = named(_SCAFFOLD)(named(_OPTIONS)(args["project_name"], today))
    ctx.writer.create_tree(made.name, made.files)
    return Result({"project": made.name, "tier": made.tier.upper(), "files": list(made.files)})


def _init_text(data: dict[str, Any]) -> str:
    text: str = named(_CREATED_TEXT)(data["project"], data["files"])
    return text


async def run_validate(ctx: Context, args: dict[str, Any]) -> Result:
    reports: Reports = ctx.memory
    path, now = args["path"], ctx.clock.monotonic()
    look = reports.current(now)
    if look is None and reports.wants_look(path, now) and (look := await in_thread(look_at, ctx.files, now)):
        reports.looked(look)
    artifact, digest = await in_thread(_read, ctx.files, path)
    report = reports.get(digest)
    if report is None:
        report = await ctx.compute(judge, artifact)
        reports.put(digest, report)
    reports.judged(path, artifact.shown, report, look)
    return Result(report)


def validate_again(clock: Clock, reports: Reports, args: dict[str, Any]) -> Result | None:
    """The report of a paper that was judged, if nothing has changed since."""
    report = reports.again(args["path"], clock.monotonic())
    return None if report is None else Result(report)


def _read(files: ReadFiles, path: str) -> tuple[Artifact, bytes]:
    artifact = gather(files, path)
    return artifact, digest_of(artifact)


def judge(artifact: Artifact) -> dict[str, Any]:
    """For the worker process: strangers' bytes in, plain values out."""
    from toolgate.packs.lra.checks import validate  # noqa: PLC0415 (the HTML parser, 40 ms, in the worker only)

    found = validate.validate(artifact)
    return {"path": found.page, **found.as_json()}


def _validate_text(data: dict[str, Any]) -> str:
    return reporting.text_of(data["path"], data["tier"], data["passed"], data["findings"], details=False)


def _optional(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


_FINDING: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "rule",
        "status",
        "file",
        "line",
        "column",
        "selector",
        "message",
        "why",
        "fix",
        "fixable",
        "fingerprint",
    ],
    "properties": {
        "rule": {"enum": list(rules.RULES), "description": "B1-B16, S1-S3, G1-G4: the 23 checks; A###: an advisory."},
        "status": {"enum": ["pass", "fail", "warn"]},
        "file": _optional("string", maxLength=4096, description="Relative to the paper's directory."),
        "line": _optional("integer", minimum=1, maximum=2**31),
        "column": _optional("integer", minimum=1, maximum=2**31),
        "selector": _optional("string", maxLength=1024, description="A CSS path to the element."),
        "message": {"type": "string", "maxLength": 1024, "description": "What is wrong here."},
        "why": {"type": "string", "maxLength": 1024, "description": "Why the rule exists."},
        "fix": {"type": "string", "maxLength": 1024, "description": "What to do about it."},
        "fixable": {"type": "boolean", "description": "`lra validate --fix` can do it."},
        "fingerprint": {"type": "string", "maxLength": 64},
    },
}
_REPORT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "tier", "passed", "total", "findings"],
    "properties": {
        "path": {"type": "string", "maxLength": 1100, "description": "The page that was judged."},
        "tier": {"enum": list(rules.TIER_NAMES)},
        "passed": {"type": "integer", "minimum": 0, "maximum": 23},
        "total": {"const": 23},
        "findings": {"type": "array", "maxItems": 2000, "items": _FINDING},
    },
}
_PATH_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": PATH_PATTERN,
            "description": "HTML file or project directory, relative to the workspace.",
        }
    },
}
_INIT_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["project_name"],
    "properties": {
        "project_name": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_NAME,
            "pattern": NAME_PATTERN,
            "description": "Name of the new directory, such as my-paper; no path.",
            "x-allowed": NAME_ALLOWED,
        }
    },
}
_INIT_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["project", "tier", "files"],
    "properties": {
        "project": {"type": "string", "maxLength": MAX_NAME},
        "tier": {"enum": ["BRONZE", "SILVER", "GOLD"], "description": "What the fresh project validates as."},
        "files": {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 100}},
    },
}
_VALIDATE_CODES: Final = ("FILE_NOT_FOUND", "FILE_TOO_LARGE", "INVALID_PATH", "IO_ERROR")


def _validate_tool(name: str, summary: str) -> Tool:
    return Tool(
        name=name,
        title=f"LRA {name.removeprefix('lra_')}",
        id=name.replace("_", ".", 1),
        summary=summary,
        input_schema=_PATH_INPUT,
        output_schema=_REPORT,
        effect="read",
        deadline_s=_DEADLINE_S,
        run=run_validate,
        at_once=validate_again,
        error_codes=_VALIDATE_CODES,
        text=_validate_text,
    )


TOOLS: Final = (
    Tool(
        name="lra_init",
        title="LRA init",
        id="lra.init",
        summary=(
            "Create a new living paper in the workspace: a directory that already passes Silver of LRA-1.0. "
            "Refuses an existing one."
        ),
        input_schema=_INIT_INPUT,
        output_schema=_INIT_OUTPUT,
        effect="write",
        destructive=False,
        deadline_s=_DEADLINE_S,
        run=run_init,
        error_codes=("DIRECTORY_EXISTS", "FILE_NOT_FOUND", "INVALID_PATH", "INVALID_PROJECT_NAME", "IO_ERROR"),
        text=_init_text,
    ),
    _validate_tool(
        "lra_validate",
        "Judge a paper by the 23 checks of LRA-1.0: its tier (NONE, BRONZE, SILVER or GOLD) and, for each "
        "failed check, file, line, reason and fix.",
    ),
    _validate_tool("lra_check", "The same as lra_validate."),
)
