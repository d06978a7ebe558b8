"""`toolgate contract`: build the lock, check that code and policy still match it, say what a change means to callers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.cli.governed import HomeOption, JsonOption, Scene, look, show, stop_on_refusal
from toolgate.errors import ExitCode, StartRefused

if TYPE_CHECKING:
    from toolgate.policy.contract import Contract
    from toolgate.policy.diff import Change
    from toolgate.policy.rules import Breach

app = typer.Typer(help="The contract lock: build, check, diff.", no_args_is_help=True)


@app.command()
def build(home: HomeOption = None) -> None:
    """Write mcp-contract.json from the packs, the manifest and the ADRs; says what changed for callers.

    Exit 0: written, or already up to date. 1: a manifest rule forbids it, and nothing is written.
    """
    from toolgate.policy import contract, diff

    with stop_on_refusal():
        scene = look(home)
        fatal = [breach for breach in scene.judge(None) if breach.severity == "fatal"]
        show(fatal)
        if fatal:
            raise typer.Exit(ExitCode.FAILED)
        live = scene.live()
        before = _previous(scene)
        _replace(scene.lock_path, contract.render(live))
    for change in diff.compare(before, live) if before else ():
        typer.echo(_line(change))
    typer.echo(f"{scene.lock_path.name}: {len(live['tools'])} tools, sha256 {live['digest']}")


def _previous(scene: Scene) -> Contract | None:
    """The lock that is about to be replaced. One that cannot be read is no reason not to build a good one."""
    try:
        return scene.lock()
    except StartRefused:
        return None


@app.command()
def check(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Does what the code and the policy say now equal the committed mcp-contract.json?

    Exit 0: yes. 1: a tool without a row, an authoritative tool without an accepted ADR, an experimental tool that
    claims L0. 3: drift.
    """
    from toolgate.policy import diff

    with stop_on_refusal():
        scene = look(home)
        wrong = [breach for breach in scene.judge(scene.lock()) if breach.severity != "warning"]
        live = scene.live()
        changes = diff.compare(scene.locked_part(), live)
    exit_code = _exit_code(wrong, scene, live)
    if as_json:
        show(
            {
                "ok": exit_code == ExitCode.OK,
                "digest": live["digest"],
                "breaches": [breach.as_json() for breach in wrong],
                "changes": [change.as_json() for change in changes],
            }
        )
    else:
        show(wrong)
        for change in changes:
            typer.echo(_line(change))
        typer.echo(_verdict(exit_code, live))
    raise typer.Exit(exit_code)


def _exit_code(wrong: list[Breach], scene: Scene, live: Contract) -> int:
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


OldArgument = Annotated[Path | None, typer.Argument(help="A contract file. Without it: the committed lock.")]
NewArgument = Annotated[Path | None, typer.Argument(help="A contract file. Without it: what the code says now.")]


@app.command("diff")
def diff_command(
    old: OldArgument = None, new: NewArgument = None, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """What changed between two contracts, as callers feel it: breaking, widening or text-only.

    A breaking change must have been announced, in the older contract, two weeks ago (manifest: `deprecations`).
    Exit 0: nothing breaks unannounced. 1: something does. 3: the code differs from the committed lock, compatibly.
    """
    from datetime import UTC, datetime

    from toolgate.policy import contract, diff

    with stop_on_refusal():
        scene = None if old and new else look(home)
        before = contract.read_lock(old) if old or scene is None else scene.locked_part()
        after = contract.read_lock(new) if new or scene is None else scene.live()
    changes = diff.compare(before, after)
    early = diff.unannounced(changes, before, datetime.now(UTC).date())
    if as_json:
        show({"changes": [change.as_json() | {"announced": change not in early} for change in changes]})
    else:
        for change in changes:
            typer.echo(_line(change) + (" (not announced two weeks ahead)" if change in early else ""))
        typer.echo(_summary(changes))
    if early:
        raise typer.Exit(ExitCode.FAILED)
    if changes and not (old and new):
        raise typer.Exit(ExitCode.DRIFT)


def _line(change: Change) -> str:
    return f"{change.kind:<9}  {change.tool}: {change.text}"


def _summary(changes: list[Change]) -> str:
    counts = [
        f"{sum(change.kind == kind for change in changes)} {kind}" for kind in ("breaking", "widening", "text-only")
    ]
    return ", ".join(counts)


def _replace(path: Path, data: bytes) -> None:
    """All or nothing, and nothing when it is already so. Side effects: writes beside `path`, then renames.

    Raises: StartRefused: the place cannot be written.
    """
    if path.exists() and path.read_bytes() == data:
        return
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as fault:
        temporary.unlink(missing_ok=True)
        raise StartRefused(f"{path} cannot be written ({fault.strerror}).") from None
