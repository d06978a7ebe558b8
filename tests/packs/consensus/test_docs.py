"""The guide names every setting, every error code and every command, or this fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolgate.packs.consensus import PACK
from toolgate.packs.consensus.cli import app
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import VOTE_BYTES
from toolgate.packs.consensus.settings import SCHEMA

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "consensus.md").read_text()


@pytest.mark.parametrize("name", sorted(SCHEMA["properties"]))
def test_setting_is_in_the_guide(name: str) -> None:
    assert f"`{name}`" in GUIDE


@pytest.mark.parametrize("code", sorted({code for tool in PACK.tools for code in tool.error_codes}))
def test_error_code_is_in_the_guide(code: str) -> None:
    assert code in GUIDE.partition("## Errors")[2]


def test_rejection_codes_levels_and_commands_are_in_the_guide() -> None:
    gossip = next(tool for tool in PACK.tools if tool.name == "consensus_gossip")
    rejected = gossip.output_schema["properties"]["rejected"]["items"]["properties"]["code"]["enum"]
    for word in [*(code for code in rejected if code != "INVALID_INPUT"), *(level.name for level in Level)]:
        assert word in GUIDE
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"toolgate consensus {command.callback.__name__}" in GUIDE
    assert f"{VOTE_BYTES} bytes" in GUIDE
