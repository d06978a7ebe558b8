"""The guides say what is so: their examples are run, their tables compared."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.policy.support import ROOT, pack
from toolgate.errors import ExitCode
from toolgate.model.tool import Result, Tool
from toolgate.packs.schemas import faults_of, unbounded
from toolgate.policy.manifest import load_manifest, parse_manifest
from toolgate.policy.rules import RULES

POLICY_GUIDE = (ROOT / "docs" / "guides" / "policy.md").read_text()
TOOL_GUIDE = (ROOT / "docs" / "guides" / "adding-a-tool.md").read_text()
TIER_RECORD = (ROOT / "docs" / "adr" / "ADR-0002-tool-tier-policy.md").read_text()
EXIT = {"fatal": ExitCode.FAILED, "drift": ExitCode.DRIFT, "warning": ExitCode.OK}


@pytest.mark.parametrize("text", [POLICY_GUIDE, TIER_RECORD])
def test_the_rule_tables_name_every_rule_with_its_exit_code(text: str) -> None:
    told = {rule: int(code) for rule, code in re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([0-9]) \|$", text, re.MULTILINE)}
    assert told == {rule: EXIT[severity] for rule, severity in RULES.items()}


def test_the_rows_of_the_policy_guide_are_real() -> None:
    row, deprecation = re.findall(r"```json\n(.*?)```", POLICY_GUIDE, re.DOTALL)
    example = json.loads(row)
    found = parse_manifest({"version": "1.0.0", "tools": [example], **json.loads("{" + deprecation + "}")}, "guide")
    assert found.rows == {example["name"]: load_manifest(None).rows[example["name"]]}
    assert found.deprecations[0].what == "argument:path"


def test_the_tool_of_the_guide_passes_the_door() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", TOOL_GUIDE, re.DOTALL)
    place: dict[str, Any] = {"Tool": Tool, "greet": lambda _ctx, args: Result(data={"greeting": args["name"]})}
    exec(re.sub(r"^   ", "", source, flags=re.MULTILINE), place)
    greet = pack(place["GREET"]).tools[0]
    assert not [*faults_of(greet.input_schema), *faults_of(greet.output_schema), *unbounded(greet.input_schema)]
