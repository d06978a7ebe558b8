"""`toolgate approvals`: see what waits for a person, and answer it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolgate.app import open_approvals
from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.options import Home, Json, home_at
from toolgate.errors import Ending, ExitCode, Refusal, ToolgateError
from toolgate.gate.keys import KeyRing
from toolgate.model.clock import rfc3339
from toolgate.ownership import process_origin
from toolgate.powers.approvals.tables import ApprovalTables, VoteRefused

if TYPE_CHECKING:
    from toolgate.settings import Settings

app = typer.Typer(no_args_is_help=True)

T = TypeVar("T")
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="As the caller and `toolgate approvals list` show it.")]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the answer.")]
MAX_REASON = 200


class ApprovalError(ToolgateError):
    """What was asked for cannot be done; the text names the fault and the fix."""


@app.command("list")
def list_approvals(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were answered, spent or expired.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """What waits for an answer."""
    found = _asked(home_at(home), lambda store: store.all("" if everything else "pending"))
    rows = [_told(row) for row in found if everything or row["expires"] > time.time() * 1000]
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
    """Say yes. As the person of TOOLGATE_API_KEY (role admin), else as the user who runs this command. Never to one's own."""
    _answer(home_at(home), approval, "approve", reason, json=json)


@app.command()
def refuse(approval: ApprovalId, reason: Reason = "", home: Home = None, json: Json = False) -> None:
    """Say no: the caller hears it until the request expires."""
    _answer(home_at(home), approval, "refuse", reason, json=json)


def _answer(settings: Settings, approval: str, verdict: str, reason: str, *, json: bool) -> None:
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise typer.BadParameter(f"a reason is at most {MAX_REASON} printable characters", param_hint="--reason")
    approver = _approver(settings)
    request = _found(settings, approval)
    about = {"approval": approval, "approver": approver[0], "label": approver[1], "reason": reason}
    about |= {name: request[name] for name in ("binding", "caller", "tool", "pin", "policy", "rule")}
    with recorded(settings, f"approvals.{verdict}", about) as found:
        try:
            state = _asked(settings, lambda store: store.vote(approval, approver, verdict, reason, time.time()))
        except VoteRefused as refused:
            raise ApprovalError(f"{refused}\n`toolgate approvals show {approval}` says what became of it.") from None
        found["state"] = state
    if json:
        output.answer_json({"id": approval, "state": state})
    else:
        output.say(f"{approval} is {state}" + (" and waits for others" if state == "pending" else ""))


def _approver(settings: Settings) -> tuple[str, str]:
    """Id and label of who answers. Raises: Refusal."""
    key = os.environ.get("TOOLGATE_API_KEY")
    if key:
        caller = KeyRing(settings.paths.keys).authenticate(key.encode())
        if caller.role != "admin":
            raise Refusal(Ending.INSUFFICIENT_ROLE, f"{caller.role} may not answer requests; use a key of role admin.")
        return caller.key_id, caller.label
    by = process_origin("command line")["by"]
    return f"user {by['uid']}", by["user"] or ""


def _found(settings: Settings, approval: str) -> dict[str, Any]:
    found = _asked(settings, lambda store: store.get(approval))
    if found is None:
        output.fault("There is no request with this id.\n`toolgate approvals list --all` shows the ids.")
        raise typer.Exit(ExitCode.FAILED)
    votes = [vote | {"voted": rfc3339(vote["voted"] / 1000)} for vote in found["votes"]]
    return _told(found) | {"votes": votes}


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: rfc3339(row[name] / 1000) for name in ("created", "expires")}


def _asked(settings: Settings, ask: Callable[[ApprovalTables], Awaitable[T]]) -> T:
    async def asking() -> T:
        store = open_approvals(settings)
        try:
            return await ask(store)
        finally:
            store.close()

    return asyncio.run(asking())
