"""A10, P16: the arguments of a tool, nested fields and an example that its schema takes."""

from __future__ import annotations

import shlex

import jsonschema_rs
import pytest

from tests.cli.support import Commands
from toolgate.cli.calls.arguments import arguments, example
from toolgate.errors import ExitCode
from toolgate.model.tool import Tool
from toolgate.packs.loader import built_in, load_packs

TOOLS = [tool for pack in load_packs(built_in()) for tool in pack.tools]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a10_the_example_of_every_tool_is_taken_by_its_schema(tool: Tool) -> None:
    sample = example(tool.input_schema)
    assert jsonschema_rs.is_valid(dict(tool.input_schema), sample), sample
    assert sample or not tool.input_schema.get("properties"), "an example shows something"
    assert all(each.kind != "any value" for each in arguments(tool.input_schema))


def test_a10_tools_show_has_arguments_nested_fields_and_an_example_that_can_be_pasted(
    toolgate: Commands, home: object
) -> None:
    shown = toolgate("tools", "show", "consensus_vote", "--home", "home")
    assert (shown.code, shown.err) == (0, "")
    assert "vote.vote_type" in shown.out
    assert "one of ACCEPT, REJECT, ABSTAIN" in shown.out
    words = shlex.split(shown.out.splitlines()[-1])
    told = toolgate("tools", "show", "mcp.tool:consensus.vote", "--home", "home", "--json").json
    assert words[:3] == ["toolgate", "call", "consensus_vote"]
    key = toolgate("keys", "create", "--role", "admin", "--home", "home", "--json").json["key"]
    done = toolgate(*words[1:], "--home", "home", "--key", key)
    assert "ROUND_NOT_FOUND".lower() in done.err.lower(), "the arguments were taken"
    assert {"vote.vote_type", "vote"} <= {row["path"] for row in told["arguments"]}
    assert told["example"]["vote"]["vote_type"] == "ACCEPT"


def test_a10_an_unknown_tool_is_told_the_nearest(toolgate: Commands, home: object) -> None:
    done = toolgate("tools", "show", "consensus_vot", "--home", "home")
    assert done.code == ExitCode.UNKNOWN_TOOL
    assert "Did you mean consensus_vote?" in done.err
