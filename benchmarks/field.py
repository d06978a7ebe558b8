"""Who takes part in a comparison. Ours must be right; a peer that fails leaves, and the tables say why."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from benchmarks.servers import Running, Target, WrongAnswers

OURS = "Toolgate"
FAULTS = (WrongAnswers, RuntimeError, ValueError, OSError, subprocess.SubprocessError)
"""How a peer may fail: wrong answers, no start, answers that are none, no answer in time, a load that gave up."""


class Field:
    """Names are those of the tables; "SDK, handshake" is the SDK in another mode, and leaves when the SDK does."""

    def __init__(self, left: Mapping[str, str] | None = None) -> None:
        self.left = dict(left or {})
        """Who left, and why."""

    def stays(self, name: str) -> bool:
        return name not in self.left and name.partition(",")[0] not in self.left

    @contextmanager
    def excusing(self, name: str) -> Iterator[None]:
        """A fault of a peer ends its part in the comparison; a fault of ours ends the comparison. Raises: what ours did."""
        try:
            yield
        except FAULTS as fault:
            if name.startswith(OURS):
                raise
            self.left[name] = str(fault)

    def start(self, stack: ExitStack, targets: Iterable[Target], mode: str = "") -> list[Running]:
        """Those that start, in order. `mode` follows the name in what is said of a peer that leaves."""
        found = []
        for target in targets:
            if self.stays(target.name + mode):
                with self.excusing(target.name + mode):
                    found.append(stack.enter_context(Running(target)))
        return found
