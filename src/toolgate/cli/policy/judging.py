"""`toolgate policy test`, `explain` and `replay`: how the policy decides about examples, one call, and calls on record."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec.structs import replace

from toolgate.cli import output
from toolgate.cli.options import settings_at
from toolgate.cli.policy.judged import Judge, Judged, Replayed
from toolgate.cli.policy.state import read_policy_state
from toolgate.errors import OK, VERDICTS, ExitCode, StartRefused
from toolgate.gate.keys import KeyRing
from toolgate.ledger import LOG_PATH
from toolgate.ledger.reading import query
from toolgate.ledger.reading.query import Filter, parse_since
from toolgate.model import strictjson
from toolgate.model.call import ROLES, Caller
from toolgate.model.clock import from_rfc3339
from toolgate.policy import bundle

if TYPE_CHECKING:
    from toolgate.policy.manifest import Example, ManifestRow

KINDS = ("would_refuse", "would_let_through", "cannot_tell")


def try_examples(*, home: Path | None, json: bool) -> None:
    state = read_policy_state(home)
    judge = Judge(state.packs, state.manifest)
    results = [
        _tried(judge, row, number, example)
        for row in state.manifest.rows.values()
        for number, example in enumerate(row.examples, 1)
    ]
    failed = [result for result in results if not result["ok"]]
    if json:
        output.answer_json({"ok": not failed, "examples": results})
    else:
        for result in failed:
            found = f"{result['verdict']}" + (f" by {result['rule']}" if result["rule"] else "")
            output.say(f"{result['tool']}, example {result['example']}: expected {result['expected']}, found {found}")
        output.say(f"{len(results) - len(failed)} of {len(results)} examples are decided as expected")
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def _tried(judge: Judge, row: ManifestRow, number: int, example: Example) -> dict[str, Any]:
    given = example.given
    who = {"id": "example", "role": min(row.roles), "label": "", **given.get("caller", {})}
    caller = Caller(who["id"], who["role"], who["label"])
    now = from_rfc3339(given["now"]) if "now" in given else time.time()
    found = judge.call(row.name, caller, given.get("args", {}), given.get("environment", "local"), now)
    is_ok = found.ending == example.expect and example.rule in (None, found.rule)
    return {"tool": row.name, "example": number, "ok": is_ok, "expected": example.expect, **found.as_json()}


def explain(
    *,
    tool: str,
    role: str | None,
    key: str | None,
    args: str | None,
    label: str,
    environment: str,
    home: Path | None,
    json: bool,
) -> None:
    if (role is None) == (key is None):
        raise typer.BadParameter("give one of them", param_hint="--role or --key")
    state = read_policy_state(home)
    judge = Judge(state.packs, state.manifest)
    caller = Caller("example", role, label) if role is not None else _caller(key, home)
    if caller.role not in (*ROLES, *state.manifest.roles):
        output.note(f"The policy has no role {caller.role}.")
    found = judge.call(tool, caller, _arguments(args), environment, time.time())
    if json:
        output.answer_json(found.as_json())
    else:
        _say(found)
    raise typer.Exit(ExitCode.OK if found.ending is OK else VERDICTS[found.ending].exit_code)


def _caller(key_id: str | None, home: Path | None) -> Caller:
    """Raises: typer.BadParameter, KeyFileFault."""
    keys = {key.id: key for key in KeyRing(settings_at(home).paths.keys).all()}
    if key_id not in keys:
        raise typer.BadParameter("there is no such key: `toolgate keys list` shows their ids", param_hint="--key")
    return keys[key_id].caller()


def _say(found: Judged) -> None:
    by = f", by rule {found.rule}" if found.rule else ""
    output.say(f"{found.ending}{by}" + (f": {found.reason}" if found.reason else ""))


def _arguments(place: str | None) -> Any:
    if place is None:
        return {}
    try:
        return strictjson.loads(sys.stdin.buffer.read() if place == "-" else Path(place).read_bytes())
    except strictjson.JsonFault as fault:
        raise StartRefused(f"{place} is not JSON: {fault}.\nMend the file.") from None


def replay(*, policy: Path, since: str, home: Path | None, json: bool) -> None:
    settings = settings_at(home)
    begins = parse_since(since, time.time())
    if begins is None:
        raise typer.BadParameter("give a span or a day: 7d, 2026-11-15", param_hint="--since")
    state = read_policy_state(home)
    manifest, _ = bundle.load_decisions(policy)
    judge = Judge(state.packs, manifest)
    wanted = Filter(since=begins, event="outcome")
    found = Counter(_replayed(judge, query.records(settings.paths.runs / LOG_PATH, wanted)))
    counts = {kind: sum(n for call, n in found.items() if call.kind == kind) for kind in ("same", *KINDS)}
    if json:
        told = {
            kind: [call.as_json() | {"calls": n} for call, n in found.most_common() if call.kind == kind]
            for kind in KINDS
        }
        output.answer_json({"since": begins, "calls": sum(counts.values()), "counts": counts, **told})
        return
    rows = [
        [call.kind.replace("_", " "), call.caller, call.role, call.tool, str(n), call.why]
        for call, n in found.most_common()
        if call.kind != "same"
    ]
    output.table(["what", "caller", "role", "tool", "calls", "why"], rows)
    output.say(", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in counts.items()))


def _replayed(judge: Judge, records: Iterator[dict[str, Any]]) -> Iterator[Replayed]:
    for record in records:
        found = judge.replay(record)
        if found is not None:
            yield replace(found, why="") if found.kind == "same" else found
