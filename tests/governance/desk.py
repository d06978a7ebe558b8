"""A workspace with real powers, at which one tool is called the way the road calls it, without the road."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from tests.governance.constants import CONSTANT_RUNS, MUTANT
from toolgate.model.call import Caller
from toolgate.model.tool import Context, Result
from toolgate.packs.governance import PACK
from toolgate.powers.compute import CallCompute
from toolgate.powers.files import Workspace
from toolgate.powers.sql import SqlStores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sqlalchemy.engine import Connection

    from toolgate.model.tool import Tool
    from toolgate.powers.compute import ComputePool

TOOLS: dict[str, Tool] = {tool.name: tool for tool in PACK.tools}
NOW = 1_763_244_000.0
"""2025-11-15T22:00:00Z."""


class Clock:
    """Stands still unless told; the monotonic one steps by a nanosecond count of the test's choice."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now
        self.step = 1e-7
        self._monotonic = 100.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self._monotonic += self.step
        return self._monotonic


class Desk:
    def __init__(self, root: Path, pool: ComputePool, urls: Mapping[str, str] | None = None) -> None:
        self.root = root / "workspace"
        self.root.mkdir()
        self.clock = Clock()
        self.stores = SqlStores(urls or {}, root / "state", PACK.migrations)
        self.settings: dict[str, Any] = {}
        self.contract: dict[str, Any] | None = None
        self.progress: list[tuple[int, int | None, str]] = []
        self._workspace = Workspace(self.root)
        self._pool = pool

    def write(self, path: str, content: str | bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def context(self, tool: Tool, role: Any = "admin") -> Context:
        import time

        return Context(
            caller=Caller("k1", role),
            clock=self.clock,
            deadline=time.monotonic() + tool.deadline_s,
            settings=self.settings,
            compute=CallCompute(lambda: self._pool, time.monotonic() + tool.deadline_s),
            progress=lambda done, total, message: self.progress.append((done, total, message)),
            files=self._workspace,
            stores=self.stores.reading if tool.effect == "read" else self.stores,
            contract=self.contract,
        )

    async def acall(self, name: str, args: dict[str, Any], role: Any = "admin") -> Result:
        tool = TOOLS[name]
        jsonschema_rs.validate(dict(tool.input_schema), args)
        run = CONSTANT_RUNS[name] if name == os.environ.get(MUTANT) else tool.run
        result: Any = run(self.context(tool, role), args)
        if not isinstance(result, Result):
            result = await result
        if result.success:
            jsonschema_rs.validate(dict(tool.output_schema), result.data)
        assert result.decision is None or result.decision in tool.decisions
        assert result.code is None or result.code in tool.error_codes
        return result

    def call(self, name: str, args: dict[str, Any], role: Any = "admin") -> Result:
        return asyncio.run(self.acall(name, args, role))

    def store(self, name: str, work: Callable[[Connection], Any]) -> Any:
        return asyncio.run(self.stores.get(name).run(work))

    def close(self) -> None:
        self.stores.close()
        self._workspace.close()
