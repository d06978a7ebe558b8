"""`toolgate policy`: judge the manifest, show what it says, renew what is made from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolgate.cli import output
from toolgate.cli.options import settings_at
from toolgate.cli.policy.state import breach_lines, read_policy_state
from toolgate.errors import ExitCode, StartRefused
from toolgate.model.offers import offered
from toolgate.policy import adr, bundle, contract
from toolgate.policy import docs as documents
from toolgate.policy.conditions import compile_rules

if TYPE_CHECKING:
    from toolgate.cli.policy.state import PolicyState
    from toolgate.policy.manifest import ManifestRow


def lint(*, home: Path | None, json: bool) -> None:
    state = read_policy_state(home)
    breaches = state.judge(state.lock())
    compile_rules(state.packs, state.manifest)
    counts = {kind: sum(breach.severity == kind for breach in breaches) for kind in ("fatal", "drift", "warning")}
    if json:
        ok = not counts["fatal"] and not counts["drift"]
        output.answer_json({"ok": ok, "breaches": [breach.as_json() for breach in breaches]})
    else:
        output.say(breach_lines(breaches) + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if counts["fatal"]:
        raise typer.Exit(ExitCode.FAILED)
    if counts["drift"]:
        raise typer.Exit(ExitCode.DRIFT)


def show(*, tool: str | None, home: Path | None, json: bool) -> None:
    state = read_policy_state(home)
    rows = [_told(row, state) for name, row in sorted(state.manifest.rows.items()) if tool in (None, name)]
    withdrawn = sorted(name for name in state.manifest.withdrawn if tool in (None, name))
    if not rows and not withdrawn:
        output.fault(f"{tool} has no row in the policy manifest.\n`toolgate policy show` lists every row.")
        raise typer.Exit(ExitCode.UNKNOWN_TOOL)
    if json:
        output.answer_json(
            {
                "version": state.manifest.version,
                "serves": _digests(state),
                "roles": dict(state.manifest.roles),
                "answerers": sorted(state.manifest.answerers),
                "tools": rows,
                "withdrawn": withdrawn,
            }
        )
        return
    lines = [[row["name"], row["tier"], row["adr"] or "-", ",".join(row["roles"]), row["state"]] for row in rows]
    lines += [[name, "-", "-", "-", "withdrawn"] for name in withdrawn]
    output.table(["tool", "tier", "adr", "roles", "state"], lines)
    if tool is None and state.manifest.roles:
        output.table(["role", "made of"], [list(each) for each in sorted(state.manifest.roles.items())])
    if tool is None:
        for name, digest in _digests(state).items():
            output.say(f"digest of the {name}: {digest or 'none; run toolgate contract build'}")


def _digests(state: PolicyState) -> dict[str, str | None]:
    """As a server puts them on record. A policy whose lock was not built yet is shown, too."""
    try:
        return {**bundle.digests(state.manifest, state.lock())}
    except StartRefused:
        return {"policy": bundle.policy_digest(state.manifest), "contract": None}


def _told(row: ManifestRow, state: PolicyState) -> dict[str, Any]:
    live = any(tool.name == row.name for pack in state.packs for tool in offered(pack))
    return {
        "name": row.name,
        "pack": row.pack,
        "tier": row.tier,
        "adr": row.adr,
        "hint": row.hint,
        "roles": sorted(row.roles),
        "state": "live" if live else "pre-declared",
    }


def docs(*, folder: Path, home: Path | None, check: bool, json: bool) -> None:
    lock = contract.read_lock(bundle.lock_path(settings_at(home).paths.policy))
    stale = list(documents.stale(folder, documents.parts(lock, adr.load_directory(folder).values())))
    for path, fresh in stale:
        if not json:
            output.say(f"{path}: {'stale' if check else 'renewed'}")
        if not check:
            path.write_text(fresh, encoding="utf-8")
    if json:
        output.answer_json({"stale" if check else "renewed": [str(path) for path, _ in stale]})
    if check and stale:
        raise typer.Exit(ExitCode.DRIFT)
