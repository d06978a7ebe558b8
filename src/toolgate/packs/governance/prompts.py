"""Guidance for a model that works behind the gate, made of what its caller really holds when it asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.model.offers import Prompt, says
from toolgate.model.suggest import did_you_mean
from toolgate.model.tool import Result

if TYPE_CHECKING:
    from toolgate.model.tool import Context

MAX_PURPOSE: Final = 500
"""Characters: what is about to be done, in a sentence or two."""

_HOW_TO_READ: Final = """\
Every answer carries an envelope. Before you act on one, read four of its fields:
- tier: authoritative or experimental. It comes from the policy of this server, never from the tool itself.
- environment: local or cloud. Only an authoritative tool in the cloud environment can block.
- decision: block, warn or pass; absent where the tool decides nothing.
- degradedMode: true means that the answer is advice, however firm it sounds. `clamps` names what was taken back.
What they oblige you to:
- block: stop, and tell the person why. Do not look for a way around it.
- warn: tell the person before you go on, and let them decide.
- degradedMode, or a clamp of decision: say that the answer does not bind, and what it would have said.
- in_doubt (a call that was sent and may have run): do not repeat it. Find out what happened, or ask the person."""
_REFUSALS: Final = """\
A call that is refused is not to be sent again unchanged: the message says what was expected. A tool that is not listed here is
not there for you; do not guess names."""
_EFFECTS: Final = {
    "read": "It changes nothing.",
    "write": "It writes: say what will change, and have a person agree unless they have asked for exactly this.",
    "crypto": "It signs with a key of this server: what is signed cannot be taken back. Have a person agree first.",
    "network": "It speaks to a server outside: arguments leave this machine. Send nothing that is secret.",
}


def governance_guide(ctx: Context, args: dict[str, Any]) -> Result:  # noqa: ARG001 (it takes none)
    tools = [held for held in ctx.holdings() if held["kind"] == "tool"]
    parts = [
        "You work behind a governance gate. It lets you call what your key holds, and records every call.",
        _HOW_TO_READ,
        _environment(ctx),
        _table("Authoritative: a block of these, in the cloud environment, ends the matter.", tools, "authoritative"),
        _table(
            "Experimental: advice. Weigh it, say that it is advice, and never call it a verdict.", tools, "experimental"
        ),
        _REFUSALS,
    ]
    return says("\n\n".join(part for part in parts if part))


def before_you_act(ctx: Context, args: dict[str, Any]) -> Result:
    tools = {held["name"]: held for held in ctx.holdings() if held["kind"] == "tool"}
    tool = tools.get(args["tool"])
    if tool is None:
        near = did_you_mean(args["tool"], tools) or "governance_guide lists them."
        raise ToolError("TOOL_NOT_FOUND", f"your key holds no tool of this name; {near}", missing=True)
    binds = tool["tier"] == "authoritative"
    parts = [
        f"You are about to call {tool['name']}: {tool['summary']}",
        f"What you were told it is for: {args['purpose']!r}" if "purpose" in args else "",
        f"{tool['tier']}: {tool['hint']}. {_EFFECTS[tool['effect']]}",
        _environment(ctx),
        "If it answers block in the cloud environment, stop, and tell the person why." if binds else
        "Whatever it answers is advice: it cannot forbid or permit anything.",
        _HOW_TO_READ,
    ]  # fmt: skip
    return says("\n\n".join(part for part in parts if part))


def _environment(ctx: Context) -> str:
    if not ctx.environment():
        return ""  # this is read without a server, at another time
    if ctx.environment() == "cloud":
        return "This server is in the cloud environment now: its authoritative tools bind."
    return (
        "This server is in the local environment now: nothing that it answers blocks, and authoritative tools advise."
    )


def _table(head: str, tools: Iterable[Mapping[str, Any]], tier: str) -> str:
    lines = [f"- {held['name']} ({held['effect']}): {held['hint']}" for held in tools if held["tier"] == tier]
    return "\n".join([head, *lines]) if lines else ""


def held_tools(ctx: Context, others: Mapping[str, str]) -> Sequence[str]:  # noqa: ARG001 (the shape of a completer)
    return [held["name"] for held in ctx.holdings() if held["kind"] == "tool"]


PROMPTS: Final = (
    Prompt(
        name="governance_guide",
        id="governance.guide",
        summary="How far the answers of this server's tools count, tool by tool, as your key holds them now.",
        run=governance_guide,
        guides=True,
    ),
    Prompt(
        name="before_you_act",
        id="governance.before_you_act",
        summary="What to mind before one call: its tier, its effect, and what its answer can and cannot decide.",
        run=before_you_act,
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["tool"],
            "properties": {
                "tool": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The tool to be called."},
                "purpose": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_PURPOSE,
                    "description": "What the call is for, in a sentence.",
                },
            },
        },
        completes={"tool": held_tools},
        error_codes=("TOOL_NOT_FOUND",),
    ),
)
