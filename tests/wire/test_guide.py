"""docs/guides/clients.md shows what `toolgate mcp-config` prints."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib

import pytest

from tests.homes import PATIENCE_S, ROOT, Home, environment
from toolgate.cli.calls.mcp_config import McpClient

GUIDE = (ROOT / "docs" / "guides" / "clients.md").read_text()


@pytest.mark.parametrize("client", list(McpClient))
def test_the_guide_shows_what_the_command_prints_and_no_key_is_in_it(home: Home, client: str) -> None:
    section = GUIDE.partition(f"$ toolgate mcp-config {client}\n")[2]
    shown = re.search(r"```(?:json|toml)\n(.*?)```", section, re.DOTALL)
    assert shown is not None
    done = subprocess.run(
        home.command("mcp-config", client),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    printed = done.stdout
    assert not any(key in printed for key in home.keys.values())
    generic = re.sub(r'"command": "[^"]*"', '"command": "/path/to/bin/toolgate"', printed)
    generic = generic.replace(str(home.path), "/path/to/home")
    read = tomllib.loads if client is McpClient.codex else json.loads
    assert read(shown[1]) == read(generic)
