"""A workspace with real powers, at which one tool is called the way the road calls it, without the road."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from tests.homes import PATIENCE_S
from tests.packs.governance.constants import CONSTANT_RUNS, MUTANT
from toolgate.model.call import Caller
from toolgate.model.tool import Context, Result
from toolgate.packs.governance import PACK
from toolgate.packs.governance.stores import opened
from toolgate.powers.compute import CallCompute
from toolgate.powers.files import Workspace
from toolgate.powers.stores import OpenStores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from toolgate.model.tool import Tool
    from toolgate.packs.governance.stores.consents import Consents
    from toolgate.packs.governance.stores.reviews import FalsePositives
    from toolgate.powers.compute import ComputePool
    from toolgate.powers.stores import Place

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
    def __init__(self, root: Path, pool: ComputePool, places: Mapping[str, Place] | None = None) -> None:
        self.root = root / "workspace"
        self.root.mkdir()
        self.clock = Clock()
        self.stores = OpenStores(
            places or {}, root / "state", PACK.migrations, [store.name for store in PACK.stores if store.binding]
        )
        self.settings: dict[str, Any] = {}
        self.memory = PACK.memory()
        self.deadline_s: float | None = None
        """Of every call, instead of its tool's own."""
        self.contract: dict[str, Any] | None = None
        self.progress: list[tuple[int, int | None, str]] = []
        self._workspace = Workspace(self.root)
        self._pool = pool

    def write(self, path: str, content: str | bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    @property
    def context_files(self) -> Workspace:
        return self._workspace

    def context(self, tool: Tool, role: Any = "admin") -> Context:
        import time

        deadline = time.monotonic() + (self.deadline_s or 4 * PATIENCE_S)  # the machine is shared; no test waits it out
        return Context(
            caller=Caller("k1", role),
            clock=self.clock,
            deadline=deadline,
            settings=self.settings,
            compute=CallCompute(lambda: self._pool, deadline),
            progress=lambda done, total, message: self.progress.append((done, total, message)),
            files=self._workspace,
            stores=self.stores.reading if tool.effect == "read" else self.stores,
            contract=self.contract,
            memory=self.memory,
        )

    async def acall(self, name: str, args: dict[str, Any], role: Any = "admin") -> Result:
        tool = TOOLS[name]
        jsonschema_rs.validate(dict(tool.input_schema), args)
        constant = CONSTANT_RUNS[name] if name == os.environ.get(MUTANT) else None
        result: Any = (
            tool.at_once(self.clock, self.memory, args) if tool.at_once is not None and constant is None else None
        )
        if result is None:
            result = (constant or tool.run)(self.context(tool, role), args)
        if not isinstance(result, Result):
            result = await result
        if result.success:
            jsonschema_rs.validate(dict(tool.output_schema), result.data)
        assert result.decision is None or result.decision in tool.decisions
        assert result.code is None or result.code in tool.error_codes
        return result

    def call(self, name: str, args: dict[str, Any], role: Any = "admin") -> Result:
        return asyncio.run(self.acall(name, args, role))

    def false_positives(self, work: Callable[[FalsePositives], Any]) -> Any:
        return asyncio.run(opened.false_positives(self.stores, work))

    def consents(self, work: Callable[[Consents], Any]) -> Any:
        return asyncio.run(opened.consents(self.stores, work))

    def rows(self, store: str, columns: str, table: str, keys: str) -> list[tuple[Any, ...]]:
        """What really stands in the store: of the SQL table, or of the items whose keys begin like `PK SK`."""
        kept, names = self.stores.get(store), columns.split(", ")
        if kept.in_table:
            pk, sk = keys.split(" ")
            found = asyncio.run(kept.run_on_table(lambda items: list(items.scan(pk, sk))))
            return [tuple(item.get(name) for name in names) for item in found]
        statement = f"SELECT {columns} FROM {table}"
        rows = asyncio.run(kept.run(lambda connection: connection.exec_driver_sql(statement).fetchall()))
        return [tuple(row) for row in rows]

    def close(self) -> None:
        self.stores.close()
        self._workspace.close()
