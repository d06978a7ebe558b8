"""The rules of manifest rows, checked against the tools they are about. With a rule that cannot be right no server starts."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolgate.errors import StartRefused
from toolgate.kit.conditions.checks import ConditionFault
from toolgate.kit.conditions.rules import CallRules, RuleChecker
from toolgate.model import strictjson
from toolgate.model.call import ROLES
from toolgate.model.offers import offered

if TYPE_CHECKING:
    from toolgate.model.tool import Pack, Tool
    from toolgate.policy.manifest import Manifest, ManifestRow


def compile_rules(packs: Iterable[Pack], manifest: Manifest) -> dict[str, CallRules]:
    """By tool, of those whose row has rules. Raises: StartRefused: names row, rule, line and column."""
    if not any(row.rules for row in manifest.rows.values()):
        return {}
    tools = {tool.name: tool for pack in packs for tool in offered(pack)}
    return {
        name: _compiled(row, tools[name], manifest)
        for name, row in manifest.rows.items()
        if row.rules and name in tools  # a row without a tool is told by the five rules
    }


def _compiled(row: ManifestRow, tool: Tool, manifest: Manifest) -> CallRules:
    try:
        checker = RuleChecker(tool.input_schema, (*ROLES, *manifest.roles))
    except ImportError:
        raise StartRefused(
            f"row {row.name} has rules, and what judges them is not installed.\nRun: pip install 'toolgate[rules]'"
        ) from None
    for rule in row.rules:
        try:
            checker.compile([rule])
        except ConditionFault as fault:
            line = f", line {rule.line}" if rule.line else ""
            raise StartRefused(
                f"{manifest.source}{line}: row {row.name}, rule {rule.name}, {fault.line}:{fault.column} of its condition: "
                f"{fault.text}.\nMend the rule."
            ) from None
    about = {"rules": [rule.as_json() for rule in row.rules], "roles": sorted(row.roles), "tier": row.tier}
    about |= {"input": tool.input_schema, "effect": tool.effect}
    if manifest.answering and any(rule.kind == "require-approval" for rule in row.rules):
        about["answerers"] = sorted(manifest.answerers)
    if bases := manifest.bases(row):
        about["bases"] = bases
    return replace(checker.compile(row.rules), digest=sha256(strictjson.dumps_sorted(about)).hexdigest())
