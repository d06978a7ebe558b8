"""Step 4, after the schema: the rules of a tool's row, judged on exactly the arguments that would run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolgate.errors import Ending, Refusal
from toolgate.kit.conditions.rules import Subject, Unjudged

if TYPE_CHECKING:
    from toolgate.gate.admit import Ticket
    from toolgate.kit.conditions.rules import CallRule, CallRules
    from toolgate.model.call import Environment
    from toolgate.model.clock import Clock

_UNJUDGED: Final = "could not be judged for these arguments, so it refuses them"


def judge(
    rules: CallRules,
    ticket: Ticket,
    environment: Callable[[], tuple[Environment, tuple[str, ...]]] | None,
    clock: Clock,
) -> CallRule | None:
    """The rule that wants a person's approval, if one does. Raises: Refusal RULE_DENIED: a rule says so, or cannot be judged."""
    caller, tool = ticket.caller, ticket.grant.tool
    subject = Subject(
        ticket.call.arguments,
        ticket.input_bytes,
        {"id": caller.key_id, "role": caller.role, "label": caller.label},
        tool.name,
        tool.foreign.upstream if tool.foreign is not None else "",
        lambda: environment()[0] if environment is not None else "local",
        clock.wall(),
    )
    try:
        rule = rules.deciding(subject)
    except Unjudged as unjudged:
        raise _refusal(unjudged.rule, f"The rule {unjudged.rule.source.name} {_UNJUDGED}.", unjudged.reason) from None
    if rule is not None and rule.source.kind == "deny":
        text = rule.source.text or f"The rule {rule.source.name} refuses these arguments."
        raise _refusal(rule, text, "rule_denied")
    return rule


def _refusal(rule: CallRule, text: str, reason: str) -> Refusal:
    name = rule.source.name
    return Refusal(Ending.RULE_DENIED, text, recorded={"rule": name}, reason=reason, rule=name)
