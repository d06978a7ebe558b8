"""`toolgate approvals`: see what waits for a person, and answer it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolgate.approving import open_approvals
from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.options import Home, Json, home_at
from toolgate.errors import Ending, Refusal, ToolgateError
from toolgate.gate.authority.answers import GivenAnswer, UnknownApproval, answer_request, person_of, requests
from toolgate.gate.keys import KeyRing
from toolgate.kit.conditions.approval import Answer, Person, VoteRefused, reason_fault, told_request
from toolgate.ownership import process_origin
from toolgate.policy.bundle import load_decisions

if TYPE_CHECKING:
    from toolgate.powers.approvals.tables import ApprovalTables
    from toolgate.settings import Settings

app = typer.Typer(no_args_is_help=True)

T = TypeVar("T")
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="As the caller and `toolgate approvals list` show it.")]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the answer.")]


class ApprovalError(ToolgateError):
    """What was asked for cannot be done; the text names the fault and the fix."""


@app.command("list")
def list_approvals(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were answered, spent or expired.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """What waits for an answer."""
    rows = _asked(home_at(home), lambda store: requests(store, time.time(), everything=everything))
    if json:
        output.answer_json(rows)
        return
    names = ["id", "state", "tool", "caller", "label", "rule", "expires"]
    output.table(names, [[str(row[name]) for name in names] for row in rows])
    if not rows:
        output.note("Nothing waits for an answer.")


@app.command()
def show(approval: ApprovalId, home: Home = None, json: Json = False) -> None:
    """One request: who asks for what, with the arguments as they would run, secret ones masked."""
    found = _found(home_at(home), approval)
    if json:
        output.answer_json(found)
        return
    for name in ("id", "state", "tool", "caller", "label", "rule", "needed", "pin", "policy", "created", "expires"):
        output.say(f"{name + ':':<10}{found[name]}")
    output.say(f"arguments: {found['shown']}")
    for vote in found["votes"]:
        output.say(
            f"{vote['verdict']}: {vote['approver']} {vote['label']} at {vote['voted']} {vote['reason']}".rstrip()
        )


@app.command()
def approve(approval: ApprovalId, reason: Reason = "", home: Home = None, json: Json = False) -> None:
    """Say yes, never to one's own. As the person of TOOLGATE_API_KEY (an admin, or a role that answers), else as the user who
    runs this command."""
    _answer(home_at(home), approval, "approve", reason, json=json)


@app.command()
def refuse(approval: ApprovalId, reason: Reason = "", home: Home = None, json: Json = False) -> None:
    """Say no: the caller hears it until the request expires."""
    _answer(home_at(home), approval, "refuse", reason, json=json)


def _answer(settings: Settings, approval: str, verdict: Answer, reason: str, *, json: bool) -> None:
    fault = reason_fault(reason)
    if fault is not None:
        raise typer.BadParameter(fault, param_hint="--reason")
    given = GivenAnswer(approval, _approver(settings), verdict, reason)
    try:
        state = _asked(settings, lambda store: answer_request(store, given, time.time(), partial(recorded, settings)))
    except UnknownApproval:
        raise _unknown() from None
    except VoteRefused as refused:
        raise ApprovalError(f"{refused}\n`toolgate approvals show {approval}` says what became of it.") from None
    if json:
        output.answer_json({"id": approval, "state": state})
    else:
        output.say(f"{approval} is {state}" + (" and waits for others" if state == "pending" else ""))


def _approver(settings: Settings) -> Person:
    """Who answers. Whoever runs the command can make keys, and so counts as an admin. Raises: Refusal, StartRefused."""
    key = os.environ.get("TOOLGATE_API_KEY")
    if key:
        caller = KeyRing(settings.paths.keys).authenticate(key.encode())
        answerers = load_decisions(settings.paths.policy)[0].answerers
        if caller.is_scoped or caller.role not in answerers:
            roles = " or ".join(sorted(answerers))
            raise Refusal(
                Ending.INSUFFICIENT_ROLE, f"{caller.role} may not answer requests; use a key of role {roles}."
            )
        return person_of(caller)
    by = process_origin("command line")["by"]
    return Person(f"user {by['uid']}", by["user"] or "")


def _found(settings: Settings, approval: str) -> dict[str, Any]:
    found = _asked(settings, lambda store: store.get(approval))
    if found is None:
        raise _unknown()
    return told_request(found)


def _unknown() -> ApprovalError:
    return ApprovalError("There is no request with this id.\n`toolgate approvals list --all` shows the ids.")


def _asked(settings: Settings, ask: Callable[[ApprovalTables], Awaitable[T]]) -> T:
    async def asking() -> T:
        store = open_approvals(settings)
        try:
            return await ask(store)
        finally:
            store.close()

    return asyncio.run(asking())
