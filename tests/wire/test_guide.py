"""docs/guides/clients.md shows what `toolgate mcp-config` prints."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.homes import PATIENCE_S, ROOT, Home, environment

GUIDE = (ROOT / "docs" / "guides" / "clients.md").read_text()


@pytest.mark.parametrize("client", ["claude-code", "claude-desktop", "cursor", "vscode"])
def test_the_guide_shows_what_the_command_prints_and_no_key_is_in_it(home: Home, client: str) -> None:
    section = GUIDE.partition(f"$ toolgate mcp-config {client}\n")[2]
    shown = re.search(r"```json\n(.*?)```", section, re.DOTALL)
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
    assert json.loads(shown[1]) == json.loads(generic)
