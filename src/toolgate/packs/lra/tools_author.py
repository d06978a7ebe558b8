"""The author's tools at the door: `lra_init`, `lra_validate`, and `lra_check`, which is the same under another name."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.lra import report, rules, scaffold
from toolgate.packs.lra.artifact import Artifact, gather

_CHARACTER: Final = r"[^/\\\u0000-\u001f\u007f-\u009f]"
_NO_DOT: Final = r"[^/\\.\u0000-\u001f\u007f-\u009f]"
_SEGMENT: Final = rf"(?:{_NO_DOT}{_CHARACTER}*|\.(?:{_NO_DOT}{_CHARACTER}*)?|\.\.{_CHARACTER}+)"
PATH_PATTERN: Final = rf"^{_SEGMENT}(?:/+{_SEGMENT})*/*$"
"""Decision 56 as a pattern: relative, forward slashes, no control character, no segment `..`; `a..b` is a name."""

_DEADLINE_S: Final = 10.0


def run_init(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.writer is not None  # effect `write`
    today = datetime.fromtimestamp(ctx.clock.wall(), UTC).strftime("%Y-%m-%d")
    made = scaffold.scaffold(scaffold.Wishes(args["project_name"], today))
    ctx.writer.create_tree(made.name, made.files)
    return Result({"project": made.name, "tier": made.tier.upper(), "files": list(made.files)})


def _init_text(data: dict[str, Any]) -> str:
    return scaffold.created_text(data["project"], data["files"])


async def run_validate(ctx: Context, args: dict[str, Any]) -> Result:
    artifact = await asyncio.to_thread(gather, ctx.files, args["path"])
    return Result(await ctx.compute(judge, artifact))


def judge(artifact: Artifact) -> dict[str, Any]:
    """For the worker process: strangers' bytes in, plain values out."""
    from toolgate.packs.lra import validate  # noqa: PLC0415 (the HTML parser, 40 ms, in the worker only)

    found = validate.validate(artifact)
    return {"path": found.page, **found.as_json()}


def _validate_text(data: dict[str, Any]) -> str:
    return report.text_of(data["path"], data["tier"], data["passed"], data["findings"], details=False)


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
            "description": "An HTML file, or a project directory that holds index.html, relative to the workspace.",
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
            "maxLength": scaffold.MAX_NAME,
            "pattern": "^[A-Za-z0-9_][A-Za-z0-9_-]*$",
            "description": "Name of the new directory: letters, digits, _ and -, no leading dash.",
        }
    },
}
_INIT_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["project", "tier", "files"],
    "properties": {
        "project": {"type": "string", "maxLength": scaffold.MAX_NAME},
        "tier": {"enum": ["BRONZE", "SILVER", "GOLD"], "description": "What the fresh project validates as."},
        "files": {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 100}},
    },
}
_VALIDATE_CODES: Final = ("FILE_NOT_FOUND", "FILE_TOO_LARGE", "INVALID_PATH", "IO_ERROR")


def _validate_tool(name: str, summary: str) -> Tool:
    return Tool(
        name=name,
        id=name.replace("_", ".", 1),
        summary=summary,
        input_schema=_PATH_INPUT,
        output_schema=_REPORT,
        effect="read",
        deadline_s=_DEADLINE_S,
        run=run_validate,
        error_codes=_VALIDATE_CODES,
        text=_validate_text,
    )


TOOLS: Final = (
    Tool(
        name="lra_init",
        id="lra.init",
        summary=(
            "Create a new living paper in the workspace: a directory with index.html, paper.css, paper.js, sw.js, "
            "CITATION.cff and LICENSE that already passes Silver of LRA-1.0. Refuses an existing directory."
        ),
        input_schema=_INIT_INPUT,
        output_schema=_INIT_OUTPUT,
        effect="write",
        deadline_s=_DEADLINE_S,
        run=run_init,
        error_codes=("DIRECTORY_EXISTS", "INVALID_PROJECT_NAME", "IO_ERROR"),
        text=_init_text,
    ),
    _validate_tool(
        "lra_validate",
        "Judge a paper by the 23 checks of LRA-1.0 and answer its tier (NONE, BRONZE, SILVER or GOLD) with, for every "
        "check, whether it passed and, where not, file, line, reason and fix. Reads only.",
    ),
    _validate_tool("lra_check", "The same as lra_validate: which tier a paper reaches, and what is missing."),
)
