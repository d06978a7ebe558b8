"""`toolgate contract`: build the lock, check that code and policy still match it, say what a change means to callers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, Json
from toolgate.errors import ExitCode, StartRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolgate.cli.governed import Scene
    from toolgate.policy.contract import Contract
    from toolgate.policy.diff import Change
    from toolgate.policy.rules import Breach

app = typer.Typer(no_args_is_help=True)


@app.command()
def build(home: Home = None) -> None:
    """Write mcp-contract.json from the packs, the manifest and the ADRs, and say what changed for callers.

    Exit 0: written, or already up to date. 1: a manifest rule forbids it, and nothing is written.
    """
    from toolgate.cli.governed import look, told
    from toolgate.policy import contract, diff

    scene = look(home)
    fatal = [breach for breach in scene.judge(None) if breach.severity == "fatal"]
    if fatal:
        output.say(told(fatal) + "refused: nothing is written.")
        raise typer.Exit(ExitCode.FAILED)
    live, before = scene.live(), _previous(scene)
    _replace(scene.lock_path, contract.render(live))
    changes = diff.compare(before, live) if before else []
    output.say(_lines(changes) + f"{scene.lock_path.name}: {len(live['tools'])} tools, sha256 {live['digest']}")


def _previous(scene: Scene) -> Contract | None:
    """The lock that is about to be replaced. One that cannot be read is no reason not to build a good one."""
    try:
        return scene.lock()
    except StartRefused:
        return None


@app.command()
def check(home: Home = None, json: Json = False) -> None:
    """Is the committed mcp-contract.json what the code and the policy say now?

    Exit 0: yes. 1: a tool without a row, an authoritative tool without an accepted ADR, an experimental tool that
    claims L0. 3: drift.
    """
    from toolgate.cli.governed import look, told
    from toolgate.policy import diff

    scene = look(home)
    wrong = [breach for breach in scene.judge(scene.lock()) if breach.severity != "warning"]
    live = scene.live()
    changes = diff.compare(scene.locked_part(), live)
    exit_code = _exit_code(wrong, scene, live)
    if json:
        output.answer_json(
            {
                "ok": exit_code == ExitCode.OK,
                "digest": live["digest"],
                "breaches": [breach.as_json() for breach in wrong],
                "changes": [change.as_json() for change in changes],
            }
        )
    else:
        output.say(told(wrong) + _lines(changes) + _verdict(exit_code, live))
    raise typer.Exit(exit_code)


def _exit_code(wrong: Sequence[Breach], scene: Scene, live: Contract) -> int:
    from toolgate.policy import contract

    if any(breach.severity == "fatal" for breach in wrong):
        return ExitCode.FAILED
    # Byte for byte where all packs are here: an edited digest or layout is a lock that nobody built.
    whole = {tool["pack"] for tool in scene.lock()["tools"]} == {tool["pack"] for tool in live["tools"]}
    edited = whole and contract.render(live) != scene.lock_path.read_bytes()
    return ExitCode.DRIFT if wrong or edited else ExitCode.OK


def _verdict(exit_code: int, live: Contract) -> str:
    if exit_code == ExitCode.OK:
        return f"ok: {len(live['tools'])} tools match mcp-contract.json, sha256 {live['digest']}"
    if exit_code == ExitCode.DRIFT:
        return "drift: mcp-contract.json is not what the code and the policy say. Run `toolgate contract build`."
    return "refused: a server with this policy would not start."


@app.command("diff")
def diff_command(
    old: Annotated[Path | None, typer.Argument(help="A contract file; else the committed lock.")] = None,
    new: Annotated[Path | None, typer.Argument(help="A contract file; else what the code says now.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """What changed between two contracts, as callers feel it: breaking, widening or text-only.

    A breaking change must have been announced, in the older contract, two weeks ago (manifest: `deprecations`).
    Exit 0: nothing breaks unannounced. 1: something does. 3: the code differs from the lock, and nothing breaks.
    """
    from datetime import UTC, datetime

    from toolgate.policy import diff

    before, after = _two_contracts(old, new, home)
    changes = diff.compare(before, after)
    early = diff.unannounced(changes, before, datetime.now(UTC).date())
    if json:
        output.answer_json({"changes": [change.as_json() | {"unannounced": change in early} for change in changes]})
    else:
        output.say(_lines(changes, early) + _summary(changes))
    if early:
        raise typer.Exit(ExitCode.FAILED)
    if changes and new is None:
        raise typer.Exit(ExitCode.DRIFT)


def _two_contracts(old: Path | None, new: Path | None, home: Path | None) -> tuple[Contract, Contract]:
    from toolgate.policy import contract

    if old is not None and new is not None:
        return contract.read_lock(old), contract.read_lock(new)
    from toolgate.cli.governed import look

    scene = look(home)
    return contract.read_lock(old) if old else scene.locked_part(), scene.live()


def _lines(changes: Iterable[Change], early: Sequence[Change] = ()) -> str:
    return "".join(
        f"{change.kind:<10}{change.tool}: {change.text}{' (not announced two weeks ahead)' if change in early else ''}\n"
        for change in changes
    )


def _summary(changes: Sequence[Change]) -> str:
    kinds = ("breaking", "widening", "text-only")
    return ", ".join(f"{sum(change.kind == kind for change in changes)} {kind}" for kind in kinds)


def _replace(path: Path, data: bytes) -> None:
    """All or nothing, and nothing when it is already so. Side effects: writes beside `path`, then renames."""
    if path.exists() and path.read_bytes() == data:
        return
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
