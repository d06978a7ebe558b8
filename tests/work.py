"""How much work something is, in lines of Python that run: the same on every machine, unlike seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def lines_run(module: ModuleType, call: Callable[[Any], object], argument: Any) -> int:
    """Lines of `module` that run in `call(argument)`. What it does in C (a pattern, a sort) counts as one line."""
    count = 0

    def each(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        call(argument)
    finally:
        sys.settrace(before)
    return count
