"""What is loaded to serve these tools, before anybody calls one."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.support import clean_environment
from tests.homes import PATIENCE_S

PROGRAM = """
import sys
from toolgate.packs.governance.door import PACK
print(*[tool.name for tool in PACK.tools])
print(*sys.modules)
"""
WORK = (
    "analysis.pipeline",
    "decisions.compliance",
    "invariants.permission_bits",
    "rules.catalogue",
    "workflows.workflow",
)


def test_what_analyzes_waits_for_the_first_call() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    tools, modules = done.stdout.splitlines()
    assert {"analyze_dissonance", "check_adr_compliance", "validate_l0_invariants"} <= set(tools.split())
    assert not {f"toolgate.packs.governance.{name}" for name in WORK} & set(modules.split())
