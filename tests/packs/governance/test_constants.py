"""The suite itself is tested: against tools of constants it must fail, five tests a tool at least."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packs.governance.constants import CONSTANT_RUNS, MUTANT

ROOT = Path(__file__).parents[3]
SUITES = {
    "validate_l0_invariants": "test_validate_l0_invariants.py",
    "analyze_dissonance": "test_analyze_dissonance.py",
    "check_adr_compliance": "test_check_adr_compliance.py",
    "check_consent_requirements": "test_consent_and_fp.py",
    "query_fp_store": "test_consent_and_fp.py",
}
ENOUGH = 5


@pytest.mark.guard
@pytest.mark.parametrize("tool", sorted(CONSTANT_RUNS))
def test_w16_a_tool_of_constants_fails_the_suite(tool: str) -> None:
    suite = f"tests/packs/governance/tools/{SUITES[tool]}"
    command = [sys.executable, "-m", "pytest", suite, "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", "not postgresql", f"--maxfail={ENOUGH}"],
        cwd=ROOT,
        env=os.environ | {MUTANT: tool},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    failed = re.search(r"(\d+) failed", done.stdout)
    assert failed, done.stdout[-2000:]
    assert int(failed[1]) >= ENOUGH
    assert " error" not in done.stdout.splitlines()[-1]
