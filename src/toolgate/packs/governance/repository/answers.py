"""What the answers of several tools share: lists that end before an answer is too large, and faults in the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolgate.errors import ToolError
from toolgate.model import strictjson


def within(items: Sequence[Any], budget: int) -> list[Any]:
    """As many from the front as fit into so many bytes of JSON: an answer over 1 MiB would be none at all."""
    shown = []
    for item in items:
        budget -= len(strictjson.dumps(item)) + 1
        if budget < 0:
            break
        shown.append(item)
    return shown


def invalid_input(pointer: str, reason: str, message: str) -> ToolError:
    """A fault in the arguments that the schema cannot say: which argument, and what to do."""
    return ToolError(
        "INVALID_INPUT",
        message,
        data={
            "reason": reason,
            "errors": [{"pointer": pointer, "keyword": "tool", "reason": reason, "message": message}],
        },
    )


def bad_path(fault: ToolError) -> ToolError:
    """A path that leaves the workspace, as a fault in the arguments."""
    return invalid_input("", "invalid_path", fault.text)
