"""Which checks a branch requires, out of the code host's own answers: classic branch protection, and rulesets.

    gh api repos/OWNER/NAME/branches/main/protection > .github/branch-protection.json
    gh api repos/OWNER/NAME/rules/branches/main      > .github/branch-rules.json

An answer of any other shape is a fault: that nothing is required must be written there, not guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.kit.yamldoc import Mapping, Scalar, Sequence, YamlFault, is_null

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.yamldoc import Node

CLASSIC: Final = ".github/branch-protection.json"
RULES: Final = ".github/branch-rules.json"
PROTECTION_FILES: Final = (CLASSIC, RULES)
MAX_CHECKS: Final = 500
"""Required checks: each is looked for among all jobs' names."""
ACTIONS_APP: Final = frozenset({None, -1, 15368})
"""Who reports a required check: any app, or GitHub Actions. Another app's check is not a job's to report."""
_CLASSIC_KEYS: Final = frozenset(
    {"required_status_checks", "enforce_admins", "required_pull_request_reviews", "restrictions", "allow_force_pushes"}
)
"""An answer that has one of these is classic protection; without `required_status_checks` it requires none."""


class RequiredCheck(Struct, frozen=True):
    context: str
    line: int


class Protection(Struct, frozen=True, tag=True):
    checks: tuple[RequiredCheck, ...]
    merge_queue: bool | None = None
    """Whether changes go through a merge queue; None where the answer has no field for it, as on classic protection."""


def read_protection(value: Any, root: Node | None) -> Protection:
    """`value` is the document as JSON, `root` the same with lines. Raises: YamlFault."""
    if isinstance(value, dict) and isinstance(root, Mapping):
        if "message" in value and not _CLASSIC_KEYS & value.keys() and "rules" not in value:
            said = str(value["message"])[:80]
            raise YamlFault(1, f"this is an error answer of the code host ({said!r}), not branch protection")
        if "rules" in value:
            return _rulesets([root])
        if _CLASSIC_KEYS & value.keys():
            return _classic(root)
    if isinstance(value, list) and isinstance(root, Sequence):
        nested = [item for item in root.items if isinstance(item, Mapping) and "rules" in item.entries]
        if nested and len(nested) == len(root.items):
            return _rulesets(nested)
        return _active(root.items)
    raise YamlFault(
        1, "neither branch protection (`required_status_checks`) nor rules (a list of rules, or a ruleset with `rules`)"
    )


def _classic(root: Mapping) -> Protection:
    required = root.get("required_status_checks")
    if is_null(required):
        return Protection(())
    if not isinstance(required, Mapping):
        raise YamlFault(1, "`required_status_checks` must be an object or null")
    lines: dict[str, int] = {}
    contexts, checks = required.get("contexts"), required.get("checks")
    for node, name in ((contexts, "contexts"), (checks, "checks")):
        if not is_null(node) and not isinstance(node, Sequence):
            raise YamlFault(required.line, f"`{name}` must be a list")
    if is_null(contexts) and is_null(checks):
        raise YamlFault(required.line, "`required_status_checks` has neither `contexts` nor `checks`")
    others = set()
    for context, line, app in _checks(checks, "app_id"):
        if app in ACTIONS_APP:
            lines.setdefault(context, line)
        else:
            others.add(context)
    for item in contexts.items if isinstance(contexts, Sequence) else []:
        if not isinstance(item, Scalar):
            raise YamlFault(item.line, "`contexts` must be a list of texts")
        if item.text not in others:
            lines.setdefault(item.text, item.line)
    return _bounded(lines, required.line)


def _rulesets(rulesets: list[Mapping]) -> Protection:
    """Those in force on branches: one that is disabled or only evaluated requires nothing yet."""
    rules: list[Node] = []
    for ruleset in rulesets:
        enforcement, inner = ruleset.get("enforcement"), ruleset.get("rules")
        if not isinstance(inner, Sequence):
            raise YamlFault(ruleset.line, "`rules` must be a list")
        if not isinstance(enforcement, Scalar) or enforcement.text not in ("active", "evaluate", "disabled"):
            raise YamlFault(ruleset.line, "a ruleset must say its `enforcement`: active, evaluate or disabled")
        target = ruleset.get("target")
        if enforcement.text == "active" and (is_null(target) or _is(target, "branch")):
            rules += inner.items
    return _active(rules)


def _is(node: Node | None, text: str) -> bool:
    return isinstance(node, Scalar) and node.text == text


def _active(rules: list[Node]) -> Protection:
    lines: dict[str, int] = {}
    queue = False
    for rule in rules:
        kind = rule.get("type") if isinstance(rule, Mapping) else None
        if not isinstance(rule, Mapping) or not isinstance(kind, Scalar):
            raise YamlFault(rule.line, "a rule must be an object with `type`")
        queue = queue or kind.text == "merge_queue"
        if kind.text != "required_status_checks":
            continue
        parameters = rule.get("parameters")
        checks = parameters.get("required_status_checks") if isinstance(parameters, Mapping) else None
        if not isinstance(checks, Sequence):
            raise YamlFault(kind.line, "the rule `required_status_checks` must list them in its `parameters`")
        for context, line, app in _checks(checks, "integration_id"):
            if app in ACTIONS_APP:
                lines.setdefault(context, line)
    return _bounded(lines, 1, queue=queue)


def _checks(node: Node | None, app_key: str) -> Iterator[tuple[str, int, int | None]]:
    for item in node.items if isinstance(node, Sequence) else []:
        context = item.get("context") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(context, Scalar):
            raise YamlFault(item.line, "a required check must be an object with `context`")
        yield context.text, context.line, _app(item.get(app_key))


def _app(node: Node | None) -> int | None:
    text = node.text if isinstance(node, Scalar) else "null"
    return None if text == "null" else int(text) if text.lstrip("-").isdecimal() else 0


def _bounded(lines: dict[str, int], line: int, *, queue: bool | None = None) -> Protection:
    if len(lines) > MAX_CHECKS:
        raise YamlFault(line, f"more than {MAX_CHECKS} required checks")
    return Protection(tuple(RequiredCheck(context, at) for context, at in sorted(lines.items())), queue)
