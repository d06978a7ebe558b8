"""What is loaded to serve the packs' tools, before anybody calls one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.cli.support import clean_environment
from tests.homes import PATIENCE_S

PROGRAM = """
import sys
from toolgate.packs.{pack}.door import PACK
print(*[tool.name for tool in PACK.tools])
print(*sys.modules)
"""
ANALYSIS = (
    "analysis.pipeline",
    "decisions.compliance",
    "invariants.permission_bits",
    "rules.catalogue",
    "workflows.workflow",
)


@pytest.mark.parametrize(
    ("pack", "tool", "work"),
    [("governance", "analyze_dissonance", ANALYSIS), ("lra", "lra_init", ("build.scaffold", "build.shell"))],
    ids=["governance", "lra"],
)
def test_what_a_tool_works_with_waits_for_its_first_call(pack: str, tool: str, work: Sequence[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(pack=pack)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    tools, modules = done.stdout.splitlines()
    assert tool in tools.split()
    assert not {f"toolgate.packs.{pack}.{name}" for name in work} & set(modules.split())
