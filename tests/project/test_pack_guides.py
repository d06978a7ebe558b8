"""The guides say what is so: their examples are run, their tables compared."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.policy.support import ROOT, pack
from toolgate.config import load_settings
from toolgate.errors import ExitCode
from toolgate.local import Local
from toolgate.model.tool import Context, Pack, Result, Tool
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
    row, roles, ruled, deprecation = re.findall(r"```json\n(.*?)```", POLICY_GUIDE, re.DOTALL)
    example = json.loads(row)
    found = parse_manifest({"version": "1.0.0", "tools": [example], **json.loads("{" + deprecation + "}")}, "guide")
    assert found.rows == {example["name"]: load_manifest(None).rows[example["name"]]}
    assert found.deprecations[0].what == "argument:path"
    assert parse_manifest({"version": "1.0.0", "tools": [], **json.loads("{" + roles + "}")}, "guide").roles
    assert parse_manifest({"version": "1.0.0", "tools": [json.loads(ruled)]}, "guide").rows["git_push"].rules


def test_the_tool_of_the_guide_passes_the_door() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", TOOL_GUIDE, re.DOTALL)
    place: dict[str, Any] = {"Tool": Tool, "greet": lambda _ctx, args: Result(data={"greeting": args["name"]})}
    exec(re.sub(r"^   ", "", source, flags=re.MULTILINE), place)
    greet = pack(place["GREET"]).tools[0]
    assert not [*faults_of(greet.input_schema), *faults_of(greet.output_schema), *unbounded(greet.input_schema)]


def table(heading: str) -> set[str]:
    """Names in the first column of the table below a heading."""
    text = TOOL_GUIDE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z_.]+)", cell)}


def test_the_guide_lists_everything_that_a_context_holds() -> None:
    assert table("What `ctx` holds") == {f"ctx.{name}" for name in Context.__struct_fields__}


def test_the_guide_lists_everything_that_a_pack_can_bring() -> None:
    assert table("What a pack brings") == set(Pack.__struct_fields__)


def test_the_guide_lists_everything_that_a_command_can_reach() -> None:
    local = Local(Pack(name="x", tools=()), {}, load_settings(ROOT, {}, {}, chosen=True), ROOT)
    reached = {name for name in dir(local) if not name.startswith("_")} - {"close"}
    assert table("Commands for people") == {f"local.{name}" for name in reached}
