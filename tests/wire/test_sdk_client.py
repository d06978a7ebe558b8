"""The official SDK's client uses our server as it would any other: both eras, over HTTP and over a pipe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.site_packages.wiretest import PACK, STEPS
from toolgate import __version__
from toolgate.packs.governance import PACK as GOVERNANCE

TOOLS = sorted(tool.name for pack in (GOVERNANCE, PACK) for tool in pack.tools)
MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}
"""How the client may open, and the version that comes of it."""

Connect = Callable[..., Any]
Talk = Callable[[Client], Awaitable[None]]


@pytest.fixture(params=["http", pytest.param("stdio", marks=pytest.mark.guard)])
def connect(request: pytest.FixtureRequest, home: Home, ours: str) -> Connect:
    """connect(mode, role) -> a connected client."""

    @asynccontextmanager
    async def over_http(mode: str, role: str = "builder") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {home.keys[role]}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http_client:
            transport = streamable_http_client(f"{ours}/mcp", http_client=http_client)
            async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE_S) as client:
                yield client

    @asynccontextmanager
    async def over_stdio(mode: str, role: str = "builder") -> AsyncIterator[Client]:
        command, *arguments = home.command("stdio")
        variables = environment(TOOLGATE_API_KEY=home.keys[role])
        parameters = StdioServerParameters(command=command, args=arguments, env=variables)
        async with Client(parameters, mode=mode, read_timeout_seconds=PATIENCE_S) as client:
            yield client

    return over_http if request.param == "http" else over_stdio


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def talk(connected: Any, conversation: Talk) -> None:
    async def whole() -> None:
        async with connected as client:
            await conversation(client)

    asyncio.run(whole())


def test_a_client_connects_and_learns_whom_it_talks_to(connect: Connect, mode: str) -> None:
    async def conversation(client: Client) -> None:
        assert client.protocol_version == MODES[mode]
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.prompts is not None
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("toolgate", __version__)
        assert client.instructions

    talk(connect(mode), conversation)


def test_a_client_that_knows_the_version_beforehand_need_not_ask(connect: Connect) -> None:
    async def conversation(client: Client) -> None:
        result = await client.call_tool("wire_echo", {"text": "hi"})
        assert result.structured_content["data"] == {"text": "hi"}

    talk(connect("2026-07-28"), conversation)


@pytest.mark.req("001-M1")
def test_a_client_is_shown_the_tools_of_its_role(connect: Connect, mode: str) -> None:
    async def names(client: Client) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    async def as_admin(client: Client) -> None:
        assert await names(client) == TOOLS

    async def as_builder(client: Client) -> None:
        assert await names(client) == [name for name in TOOLS if name != "wire_admin"]

    talk(connect(mode, "admin"), as_admin)
    talk(connect(mode, "builder"), as_builder)


def test_a_good_call_answers_an_envelope_that_fits_the_advertised_schema(connect: Connect, mode: str) -> None:
    async def conversation(client: Client) -> None:
        await client.list_tools()  # from now on the client checks every structured answer against its schema
        result = await client.call_tool("wire_echo", {"text": "häh", "times": 2})
        assert not result.is_error
        assert result.structured_content["data"] == {"text": "hähhäh"}
        assert result.content[0].text == '{"text":"hähhäh"}\n[experimental, local]'

    talk(connect(mode), conversation)


@pytest.mark.req("001-M2", "001-M3", "001-F5")
def test_the_floor_holds_whatever_client_asks(connect: Connect, mode: str) -> None:
    async def conversation(client: Client) -> None:
        await client.list_tools()
        result = await client.call_tool("dummy_experimental", {})
        envelope = result.structured_content
        assert (envelope["success"], envelope["decision"], envelope["data"]) == (True, "warn", {"some": "payload"})
        assert "code" not in envelope
        assert (envelope["tier"], envelope["environment"], envelope["isError"]) == ("experimental", "local", False)
        assert result.content[0].text.startswith('{"some":"payload"}\n[experimental, local, warn, ')
        assert not result.is_error

    talk(connect(mode), conversation)


@pytest.mark.req("001-M3")
def test_what_a_tool_or_its_schema_refuses_is_a_result_that_a_model_can_read(connect: Connect, mode: str) -> None:
    async def conversation(client: Client) -> None:
        refused = await client.call_tool("wire_fail", {"text": "shop"})
        assert refused.is_error
        assert refused.structured_content["code"] == "NOT_TODAY"
        assert {"tier", "environment"} <= refused.structured_content.keys()
        wrong = await client.call_tool("wire_echo", {"txt": "hi"})
        assert wrong.is_error
        assert wrong.structured_content["code"] == "INVALID_INPUT"
        assert wrong.structured_content["details"]["reason"] == "missing_text"
        assert "data" not in wrong.structured_content

    talk(connect(mode), conversation)


def test_what_the_gate_refuses_is_told_to_the_reader(connect: Connect, mode: str) -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("nobody", {})
        assert (unknown.value.code, unknown.value.message) == (-32602, "Unknown tool: nobody")
        forbidden = await client.call_tool("wire_admin", {"text": "hi"})
        assert forbidden.is_error
        assert forbidden.structured_content["code"] == "AUTH_INSUFFICIENT_ROLE"
        assert forbidden.content[0].text == "API key role is not allowed: builder may not call wire_admin."

    talk(connect(mode, "builder"), conversation)


def test_progress_reaches_the_client_that_asked_for_it(connect: Connect, mode: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def conversation(client: Client) -> None:
        result = await client.call_tool("wire_progress", {"text": "done"}, progress_callback=listen)
        assert result.structured_content["data"] == {"text": "done"}

    talk(connect(mode), conversation)
    assert heard == [(step, STEPS, f"step {step}") for step in range(1, STEPS + 1)]


def test_calls_made_at_once_get_each_its_own_answer(connect: Connect, mode: str) -> None:
    texts = [f"call {number}" for number in range(8)]

    async def conversation(client: Client) -> None:
        results = await asyncio.gather(*(client.call_tool("wire_echo", {"text": text}) for text in texts))
        assert [result.structured_content["data"]["text"] for result in results] == texts

    talk(connect(mode), conversation)


@pytest.mark.parametrize("mode", list(MODES))
def test_a_client_with_a_wrong_key_gets_nowhere(mode: str, ours: str) -> None:
    async def attempt() -> None:
        async with httpx2.AsyncClient(headers={"Authorization": "Bearer nonsense"}) as http_client:
            transport = streamable_http_client(f"{ours}/mcp", http_client=http_client)
            async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE_S) as client:
                await client.list_tools()

    with pytest.raises(BaseException) as caught:  # noqa: PT011 (a group of whatever the client's tasks raised)
        asyncio.run(attempt())
    assert _codes(caught.value) == {401}


def _codes(fault: BaseException) -> set[int]:
    if isinstance(fault, BaseExceptionGroup):
        return set().union(*(_codes(each) for each in fault.exceptions))
    assert isinstance(fault, MCPError)
    return {fault.code}


@pytest.mark.req("001-M2", "001-M3", "001-F5")
@pytest.mark.parametrize("mode", list(MODES))
def test_the_text_can_be_the_envelope_as_document_001_has_it(tmp_path: Path, mode: str) -> None:
    home = make_home(tmp_path / "home", packs=("governance", "wiretest"), settings='[mcp]\ntext = "envelope"\n')

    async def conversation(client: Client) -> None:
        for tool, arguments in (
            ("dummy_experimental", {}),
            ("wire_echo", {"text": "hi"}),
            ("wire_echo", {}),
            ("wire_admin", {}),
        ):
            result = await client.call_tool(tool, arguments)
            assert json.loads(result.content[0].text) == result.structured_content

    with home.serving() as server:

        @asynccontextmanager
        async def connected() -> AsyncIterator[Client]:
            headers = {"Authorization": f"Bearer {home.keys['builder']}"}
            async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http_client:
                transport = streamable_http_client(server.ready["mcp"], http_client=http_client)
                async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE_S) as client:
                    yield client

        talk(connected(), conversation)
