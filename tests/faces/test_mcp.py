"""Every failure of every tool that we ship fits the output schema that its client was shown: clients check failures, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gate.conftest import Gate
from tests.homes import make_home
from toolgate.errors import OK, VERDICTS, ToolError
from toolgate.faces.mcp import McpFace, McpRequest
from toolgate.gate.admit import Permits
from toolgate.gate.validate import compile_schema
from toolgate.model import advertised
from toolgate.model.call import Call, Wire
from toolgate.model.envelope import Answer
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.loader import built_in, load_packs

TOOLS = {tool.name: tool for pack in load_packs(built_in()) for tool in pack.tools}
WIRE = Wire(face="mcp", transport="http", route="/mcp")
ENDS_ONE_CALL = [ending for ending, verdict in VERDICTS.items() if ending is not OK and verdict.mcp_code is None]
DEADLINE_S = 0.05
ODD = ["none"]
"""Data that no output schema of ours takes, not even as it is advertised."""


def _declared(tool: Tool) -> str:
    return next(iter(tool.error_codes), "INVALID_INPUT")


def _says_no(tool: Tool) -> Any:
    raise ToolError(_declared(tool), "No.", data=ODD)


def _finds_nothing(tool: Tool) -> Any:
    raise ToolError(_declared(tool), "Not there.", missing=True, data=ODD)


def _crashes(_tool: Tool) -> Any:
    raise RuntimeError("boom")


def _fails_with_odd_data(tool: Tool) -> Any:
    return Result(success=False, is_error=True, code=_declared(tool), message="No.", data=ODD)


def _answers_nonsense(_tool: Tool) -> Any:
    return Result(data=ODD)


def _answers_no_result(_tool: Tool) -> Any:
    return "hello"


async def _never_ends(_tool: Tool) -> Any:
    await asyncio.Event().wait()


TROUBLES = (
    _says_no,
    _finds_nothing,
    _crashes,
    _fails_with_odd_data,
    _answers_nonsense,
    _answers_no_result,
    _never_ends,
)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    home = make_home(tmp_path_factory.mktemp("failures") / "home", packs=built_in())
    gate = Gate(home, home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


def structured(call: Call, answer: Answer) -> Any:
    reply = McpFace(10_000).render(McpRequest(id=1, call=call, method="tools/call"), answer)
    result = json.loads(reply.body)["result"]
    assert result["isError"]
    return result["structuredContent"]


def fits(tool: Tool, content: Any) -> bool:
    return compile_schema(advertised.output_schema(tool.output_schema)).is_valid(content)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__.strip("_"))
@pytest.mark.parametrize("name", list(TOOLS))
def test_whatever_a_tool_ends_with_fits_what_was_advertised(
    gate: Gate, name: str, trouble: Callable[[Tool], Any]
) -> None:
    road, tool = gate.app.road, TOOLS[name]
    grant = road.admission.permits.known(name)
    assert grant is not None
    is_async = asyncio.iscoroutinefunction(trouble)

    async def later(_ctx: Context, _args: dict[str, Any]) -> Any:
        return await trouble(tool)

    def at_once(_ctx: Context, _args: dict[str, Any]) -> Any:
        return trouble(tool)

    bad = replace(tool, run=later if is_async else at_once, inline=False)
    bad = replace(bad, deadline_s=DEADLINE_S) if is_async else bad
    anything = replace(grant.io, input=compile_schema({"type": "object"}))
    admission = replace(road.admission, permits=Permits([replace(grant, tool=bad, io=anything)]))
    call = Call(WIRE, name, {}, wants_text=True)
    ticket = admission.enter(road.authenticate(gate.home.keys["admin"].encode()), call)
    content = structured(call, gate.run(road.travel(ticket)))
    assert content["success"] is False
    assert fits(tool, content), content


@pytest.mark.parametrize("ending", ENDS_ONE_CALL, ids=lambda ending: ending.value)
def test_whatever_the_gate_refuses_fits_what_was_advertised_of_every_tool(ending: Any) -> None:
    for name, tool in TOOLS.items():
        answer = Answer(
            ending, name, "0" * 32, "2026-11-18T00:00:00.000Z", details={"reason": "some_reason"}, text="No."
        )
        content = structured(Call(WIRE, name, {}, wants_text=True), answer)
        assert fits(tool, content), content


def test_the_odd_data_of_these_tests_fits_no_tool() -> None:
    assert not [name for name, tool in TOOLS.items() if fits(tool, {"success": False, "data": ODD})]
