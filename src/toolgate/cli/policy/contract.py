"""`toolgate contract`: build the lock, check that code and policy still match it, say what a change means to callers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolgate.atomic_file import replace_file
from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.options import settings_at
from toolgate.cli.policy import checks as kept_checks
from toolgate.cli.policy.state import breach_lines, read_policy_state
from toolgate.config import is_home
from toolgate.errors import ExitCode, StartRefused
from toolgate.model import strictjson
from toolgate.policy import contract, diff
from toolgate.policy import health as judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from toolgate.cli.policy.state import PolicyState
    from toolgate.policy.contract import Contract
    from toolgate.policy.diff import ContractChange
    from toolgate.policy.health import ContractRun, GreenWindow
    from toolgate.policy.rules import Breach


def build(*, home: Path | None, json: bool) -> None:
    state = read_policy_state(home)
    fatal = [breach for breach in state.judge(None) if breach.severity == "fatal"]
    if fatal:
        if json:
            output.answer_json({"written": False, "breaches": [breach.as_json() for breach in fatal]})
        else:
            output.say(breach_lines(fatal) + "refused: nothing is written.")
        raise typer.Exit(ExitCode.FAILED)
    live, before = state.live(), _previous(state)
    with _recorded_at(home, {"digest": live["digest"], "before": before["digest"] if before else None}):
        _write_if_changed(state.lock_path, contract.render(live))
    changes = diff.compare(before, live) if before else []
    if json:
        written = {"written": True, "file": str(state.lock_path), "tools": len(live["tools"]), "digest": live["digest"]}
        output.answer_json(written | {"changes": [change.as_json() for change in changes]})
        return
    output.say(_lines(changes) + f"{state.lock_path.name}: {len(live['tools'])} tools, sha256 {live['digest']}")


@contextmanager
def _recorded_at(home: Path | None, about: Mapping[str, Any]) -> Iterator[None]:
    """Where there is a home there is a log. A repository of policy alone has its own history."""
    settings = settings_at(home)
    if not is_home(settings):
        yield
        return
    with recorded(settings, "contract.build", about):
        yield


def _previous(state: PolicyState) -> Contract | None:
    """The lock that is about to be replaced. One that cannot be read is no reason not to build a good one."""
    try:
        return state.lock()
    except StartRefused:
        return None


def check(*, home: Path | None, json: bool, record: Path | None, commit: str) -> None:
    state = read_policy_state(home)
    wrong = [breach for breach in state.judge(state.lock()) if breach.severity != "warning"]
    live = state.live()
    changes = diff.compare(state.locked_part(), live)
    exit_code = _exit_code(wrong, state, live)
    _record(record, home, exit_code, live["digest"], commit)
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
        output.say(breach_lines(wrong) + _lines(changes) + _verdict(exit_code, live))
    raise typer.Exit(exit_code)


def _record(path: Path | None, home: Path | None, exit_code: int, digest: str, commit: str) -> None:
    """In the file that was named, and in the store that is configured."""
    from datetime import UTC, datetime

    now, settings = datetime.now(UTC), settings_at(home)
    if kept_checks.is_configured(settings):
        kept_checks.keep(settings, now, is_green=exit_code == ExitCode.OK, digest=digest, commit=commit)
    if path is None:
        return
    moment = now.isoformat(timespec="seconds")
    line = {"ts": moment, "ok": exit_code == ExitCode.OK, "exit": exit_code, "digest": digest, "commit": commit}
    with path.open("ab") as file:
        file.write(strictjson.dumps(line) + b"\n")


_STYLES = {"+": "bold green", "x": "bold red", ".": "dim"}


def health(*, files: list[Path] | None, home: Path | None, window: str, badge: Path | None, json: bool) -> None:
    from datetime import UTC, datetime, timedelta

    days = int(window[:-1]) if re.fullmatch(r"[1-9][0-9]{0,2}d", window) else 0
    if not days:
        raise typer.BadParameter("give days, such as 30d", param_hint="--window")
    now = datetime.now(UTC)
    checks = [check for file in files or () for check in judged.read_checks(_bytes(file), str(file))]
    if not files:
        checks = _stored(home, now - timedelta(days=days))
    found = judged.health_of(checks, now, days)
    if badge is not None:
        _write_if_changed(badge, judged.badge(found).encode())
    if json:
        output.answer_json(found.as_json())
    else:
        _tell(found)
    raise typer.Exit(ExitCode.OK if found.is_green else ExitCode.FAILED)


def _stored(home: Path | None, since: datetime) -> list[ContractRun]:
    settings = settings_at(home)
    if not kept_checks.is_configured(settings):
        raise StartRefused(
            "There is nothing to read checks from.\nName a file that `toolgate contract check --record FILE` wrote, or set "
            f"stores.{kept_checks.STORE} where checks run and here."
        )
    return kept_checks.kept(settings, since)


def _bytes(file: Path) -> bytes:
    if not file.is_file():
        raise StartRefused(f"There is no file {file}.\nRecord checks in it: toolgate contract check --record {file}")
    return file.read_bytes()


def _tell(found: GreenWindow) -> None:
    output.line(*((mark, _STYLES[mark]) for mark in found.strip))
    first, last = found.days[0][0], found.days[-1][0]
    output.say(f"{first} to {last}: {found.checks} checks, {found.now if found.checks else 'no checks'} now")
    if found.first_red is not None:
        hours = found.longest_red.total_seconds() / 3600
        where = f" at commit {found.first_red.commit}" if found.first_red.commit else ""
        output.say(f"longest red time {hours:.1f} h; first red {found.first_red.moment:%Y-%m-%d %H:%M} UTC{where}")


def _exit_code(wrong: Sequence[Breach], state: PolicyState, live: Contract) -> int:
    if any(breach.severity == "fatal" for breach in wrong):
        return ExitCode.FAILED
    # Byte for byte where all packs are here: an edited digest or layout is a lock that nobody built.
    whole = {tool["pack"] for tool in state.lock()["tools"]} == {tool["pack"] for tool in live["tools"]}
    edited = whole and contract.render(live) != state.lock_path.read_bytes()
    return ExitCode.DRIFT if wrong or edited else ExitCode.OK


def _verdict(exit_code: int, live: Contract) -> str:
    if exit_code == ExitCode.OK:
        return f"ok: {len(live['tools'])} tools match mcp-contract.json, sha256 {live['digest']}"
    if exit_code == ExitCode.DRIFT:
        return "drift: mcp-contract.json is not what the code and the policy say. Run `toolgate contract build`."
    return "refused: a server with this policy would not start."


def diff_command(*, old: Path | None, new: Path | None, home: Path | None, json: bool) -> None:
    from datetime import UTC, datetime

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
    for given in (old, new):
        if given is not None and not given.is_file():
            raise StartRefused(
                f"There is no file {given}.\nGive a contract that `toolgate contract build` wrote, such as mcp-contract.json "
                "of another commit; without one, the committed lock is compared with the code."
            )
    if old is not None and new is not None:
        return contract.read_lock(old), contract.read_lock(new)

    state = read_policy_state(home)
    return contract.read_lock(old) if old else state.locked_part(), state.live()


def _lines(changes: Iterable[ContractChange], early: Sequence[ContractChange] = ()) -> str:
    return "".join(
        f"{change.kind:<10}{change.tool}: {change.text}{' (not announced two weeks ahead)' if change in early else ''}\n"
        for change in changes
    )


def _summary(changes: Sequence[ContractChange]) -> str:
    kinds = ("breaking", "widening", "text-only")
    return ", ".join(f"{sum(change.kind == kind for change in changes)} {kind}" for kind in kinds)


def _write_if_changed(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        replace_file(path, data, 0o666)  # a file of the repository: the umask says who may read it
