"""docs/guides/clients.md shows what `toolgate mcp-config` prints."""

from __future__ import annotations

import json
import re

import pytest

from tests.wire.world import ROOT, Deployment

GUIDE = (ROOT / "docs" / "guides" / "clients.md").read_text()


@pytest.mark.parametrize("client", ["claude-code", "claude-desktop", "cursor", "vscode"])
def test_the_guide_shows_what_the_command_prints_and_no_key_is_in_it(deployment: Deployment, client: str) -> None:
    section = GUIDE.partition(f"$ toolgate mcp-config {client}\n")[2]
    shown = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert shown is not None
    printed = deployment.run("mcp-config", client)
    assert not any(key in printed for key in deployment.keys.values())
    generic = re.sub(r'"command": "[^"]*"', '"command": "/path/to/bin/toolgate"', printed)
    generic = generic.replace(str(deployment.home), "/path/to/home")
    assert json.loads(shown[1]) == json.loads(generic)
