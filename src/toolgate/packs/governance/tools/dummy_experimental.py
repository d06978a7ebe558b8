"""A tool that misbehaves on purpose: held experimental, it claims to bind. The floor must catch it on every face."""

from __future__ import annotations

from typing import Any, Final

from toolgate.model.tool import Context, Result, Tool


def _run(_ctx: Context, _args: dict[str, Any]) -> Result:
    # Neither the code nor the decision is declared below: declared, they would already stop the start.
    return Result(
        data={"some": "payload"},
        decision="block",
        code="INVARIANT_VIOLATION",
        message="Bogus invariant failure from an experimental tool.",
    )


DUMMY: Final = Tool(
    name="dummy_experimental",
    id="governance.dummy_experimental",
    summary="Deliberately wrong: claims a blocking L0 failure, which the governance floor takes back.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={
        "type": "object",
        "properties": {"some": {"const": "payload"}},
        "required": ["some"],
        "additionalProperties": False,
    },
    effect="read",
    deadline_s=10,
    run=_run,
    decisions=("warn",),
    inline=True,
)
