"""Arbiters with real powers in this process: key files, SQL stores, the tools as the road would call them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toolgate.errors import ToolError
from toolgate.model.call import Caller, no_progress
from toolgate.model.clock import SystemClock
from toolgate.model.powers import ReadFiles
from toolgate.model.tool import Context, Tool
from toolgate.packs.consensus import PACK
from toolgate.packs.consensus.arbiter.node import Node, open_node
from toolgate.packs.consensus.settings import DEFAULTS, key_uses
from toolgate.packs.consensus.tables import MIGRATIONS, STORE
from toolgate.powers.files import ReadOnlyWorkspace, Workspace
from toolgate.powers.keys import KeyDirectory
from toolgate.powers.stores import OpenStores

TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in PACK.tools}
VALIDATORS = {
    name: tuple(jsonschema_rs.Draft202012Validator(dict(schema)) for schema in (tool.input_schema, tool.output_schema))
    for name, tool in TOOLS.items()
}


class InputRefused(Exception):
    """What the road would refuse at step 4, before any handler."""


async def no_compute(function: Any, data: Any, *, timeout_s: float | None = None) -> Any:
    raise AssertionError("no tool of this pack asks for a worker process")


@dataclass
class Office:
    """One server's powers in a directory of its own."""

    home: Path
    settings: dict[str, Any] = field(default_factory=dict)
    url: str | None = None
    make_keys: bool = True
    closed: bool = False

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)
        self.keys = KeyDirectory(self.home / "secrets")
        if self.make_keys:
            for name, use in key_uses(DEFAULTS).items():
                self.keys.generate(name, use=use)
        self.settings = DEFAULTS | self.settings
        (self.home / "workspace").mkdir(exist_ok=True)
        self.workspace = Workspace(self.home / "workspace")
        self.known = PACK.memory()
        self.stores = OpenStores({STORE: self.url} if self.url else {}, self.home / "state", MIGRATIONS)

    @property
    def public_key(self) -> str:
        return self.keys.public_key("arbiter.key").hex()

    def node(self) -> Node:
        return open_node(self.settings, self.keys, self.stores, SystemClock())

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.stores.close()
            self.workspace.close()

    def call(self, tool: str, **args: Any) -> Any:
        """Validate in, run, validate out. Raises: InputRefused, ToolError."""
        return asyncio.run(self.acall(tool, **args))

    async def acall(self, tool: str, **args: Any) -> Any:
        into, out = VALIDATORS[tool]
        if not into.is_valid(args):
            raise InputRefused(next(iter(into.iter_errors(args))).message)
        at_once = TOOLS[tool].at_once
        result: Any = None if at_once is None else at_once(SystemClock(), self.known, args)
        if result is None:
            result = TOOLS[tool].run(self._context(TOOLS[tool]), args)
        if inspect.isawaitable(result):
            result = await result
        out.validate(result.data)
        return result.data

    def refusal(self, tool: str, **args: Any) -> str:
        with pytest.raises(ToolError) as caught:
            self.call(tool, **args)
        assert caught.value.code in {*TOOLS[tool].error_codes, "INVALID_INPUT"}, "every code is declared"
        return caught.value.code

    def _context(self, tool: Tool) -> Context:
        files: ReadFiles = ReadOnlyWorkspace(self.workspace)
        reading = tool.effect == "read"
        return Context(
            caller=Caller("k1", "committer"),
            clock=SystemClock(),
            deadline=float("inf"),
            settings=self.settings,
            compute=no_compute,
            progress=no_progress,
            files=files,
            stores=self.stores.reading if reading else self.stores,
            memory=self.known,
            keys=None if reading else self.keys,
        )


def council(offices: Sequence[Office]) -> None:
    """Make one arbiter set of these."""
    arbiters = [{"public_key": office.public_key} for office in offices]
    for office in offices:
        office.settings["arbiters"] = arbiters


def event(number: int = 1) -> dict[str, str]:
    return {"merkle_root_hex": f"{number:064x}", "rule_version_hash_hex": f"{0xABC:064x}"}


def ballot(number: int = 1, kind: str = "ACCEPT") -> dict[str, str]:
    return {**event(number), "vote_type": kind}
