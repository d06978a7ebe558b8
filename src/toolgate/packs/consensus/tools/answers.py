"""What the tools share: what may be wrong with a key, and what every answer says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.model.tool import Result

if TYPE_CHECKING:
    from toolgate.model.tool import Context

KEY_FAULTS: Final = ("KEY_NOT_FOUND", "INVALID_KEY_FORMAT", "INVALID_KEY", "WRONG_KEY_USE", "IO_ERROR")


def answered(ctx: Context, data: dict[str, Any]) -> Result:
    return Result(data=data | ({"ephemeral": True} if ctx.settings["ephemeral"] else {}))
