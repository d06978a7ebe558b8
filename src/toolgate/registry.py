"""The registry of tools, for the server and for programs that embed it: compiled schemas by the name of a tool.

    SchemaRegistry().load_tool_io("mcp.tool:notes.add").input.validate({"text": "drift"})

How to use it: docs/guides/embedding.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING

from toolgate.gate.validate import bundle_of, compile_schema
from toolgate.model import strictjson
from toolgate.model.offers import offered
from toolgate.model.tool import ID_PREFIX
from toolgate.packs.loader import built_in, load_packs

if TYPE_CHECKING:
    from toolgate.gate.validate import ToolIO, Validator
    from toolgate.model.tool import Tool


class SchemaRegistry:
    """The tools of the packs that ship with Toolgate, or exactly those given. Packs are imported when a tool is asked for."""

    def __init__(self, tools: Iterable[Tool] | None = None) -> None:
        """Raises: ValueError: a schema of a given tool is unusable."""
        self._tools = None if tools is None else _bundles(tools)

    def load_envelope(self) -> Validator:
        """The schema of a request to `/rpc`."""
        return _packaged("envelope.schema.json")

    def load_tool_io(self, tool_id: str) -> ToolIO:
        """By short name, dotted id or canonical id. Raises: KeyError: no such tool."""
        if self._tools is None:
            self._tools = _bundles(tool for pack in load_packs(built_in()) for tool in offered(pack))
        return self._tools[tool_id.removeprefix(ID_PREFIX)]


def _bundles(tools: Iterable[Tool]) -> dict[str, ToolIO]:
    """By name and by id. Raises: ValueError."""
    descriptor = _packaged("tool_io.schema.json")
    bundles: dict[str, ToolIO] = {}
    for tool in tools:
        if tool.kind != "tool":  # judged by the door; only a tool has a second name
            bundles[tool.name] = bundle_of(tool)
            continue
        if tool.foreign is not None:  # its schemas are not ours to judge by our own rules
            bundles[tool.name] = bundles[tool.id] = bundle_of(tool)
            continue
        faults = descriptor.faults(
            {"tool": tool.canonical_id, "input": tool.input_schema, "output": tool.output_schema}
        )
        if faults:
            raise ValueError(f"{tool.name}: schema descriptor is wrong at {faults[0].pointer} ({faults[0].keyword})")
        bundles[tool.name] = bundles[tool.id] = bundle_of(tool)
    return bundles


def _packaged(name: str) -> Validator:
    return compile_schema(strictjson.loads(resources.files("toolgate.specs").joinpath("schemas", name).read_bytes()))
