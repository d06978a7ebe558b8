"""What the commands of `toolgate audit`, and `toolgate explain`, do with a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.admin_records import recorded_in_ledger
from toolgate.cli.options import settings_at
from toolgate.config import require_home
from toolgate.errors import ExitCode, ToolgateError
from toolgate.kit.note import NoteError, NoteSigner, Verifier
from toolgate.kit.reports.printable import printable
from toolgate.ledger import LOG_PATH, record
from toolgate.ledger.files import KEY_FILE, PUBLIC_KEY, run_of_segment
from toolgate.ledger.handover import kept_notes, keys_of, rotate
from toolgate.ledger.reading import export as exports
from toolgate.ledger.reading import parity, proofs, query
from toolgate.ledger.reading import verify as check
from toolgate.ledger.reading.explain import explain as explained
from toolgate.ledger.reading.query import Filter, parse_since
from toolgate.ledger.tips import Tips
from toolgate.model import strictjson
from toolgate.model.clock import SystemClock
from toolgate.model.suggest import did_you_mean
from toolgate.policy.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolgate.kit.note import Checkpoint, Verifier
    from toolgate.ledger.files import RunName
    from toolgate.ledger.reading.query import Filter, Located
    from toolgate.ledger.reading.verify import LogVerification

PROGRESS_BYTES: Final = 64 * 1024 * 1024
"""Logs smaller than this are verified before a progress bar could be read."""


class AuditError(ToolgateError):
    """What was asked for cannot be done; the text names the fault and the fix."""


def verify(*, path: Path | None, anchor: Path | None, key: str | None, home: Path | None, json: bool) -> None:
    directory, only = _target(path, home)
    if key is None and _own_key_file(directory, home) is None and not (directory / PUBLIC_KEY).exists():
        raise _nothing_verified(directory)
    given = [_key(key, directory, home)]
    with _reading():
        notes = _handovers(directory, home)
        trusted = keys_of(directory, given, notes)
        anchors = _kept_beside_the_key(directory, home, trusted)
        try:
            anchors += check.read_anchors(anchor.read_text(encoding="utf-8"), trusted) if anchor else []
        except (NoteError, UnicodeDecodeError) as fault:
            raise AuditError(
                f"{anchor} holds a checkpoint that is not good: {fault}.\nCheck the file and --key."
            ) from None
        with _progress(directory) as progress:
            report = check.verify(directory, given, only=only, anchors=anchors, handovers=notes, progress=progress)
    if not report.runs and report.good:
        raise _nothing_verified(directory)
    if json:
        output.answer_json(_report_json(report))
    else:
        _say_report(report)
    raise typer.Exit(ExitCode.OK if report.good else ExitCode.FAILED)


def rotate_key(*, home: Path | None, json: bool) -> None:
    settings = require_home(settings_at(home))
    directory, key_file = settings.paths.runs / LOG_PATH, settings.paths.secrets / KEY_FILE
    with recorded_in_ledger(settings, "audit.rotate_key", {}) as (ledger, found):
        handover = rotate(ledger, directory, key_file)
        found |= {"from": handover.former.key_id.hex(), "to": handover.successor.key_id.hex()}
    if json:
        output.answer_json({"from": str(handover.former), "to": str(handover.successor), "run": handover.run})
    else:
        output.say(f"The log goes on under {handover.successor}")
        output.say("Restart the servers of this home: until then they sign with the old key, and their runs stay good.")
        output.say("Back up secrets/: audit.key has changed, audit.handovers leads from the old key to it.")


def prove(*, request_id: str, event: str, log: Path | None, home: Path | None, json: bool) -> None:  # noqa: ARG001 (its answer is JSON)
    with _reading():
        try:
            proof = proofs.prove(_directory(log, home), request_id, event)
        except proofs.ProofError as fault:
            raise AuditError(f"There is no proof: {fault}.\nFind request ids with: toolgate audit tail.") from None
    output.answer_json(proof)


def check_proof(*, file: Path, key: str, json: bool) -> None:  # noqa: ARG001 (as above)
    with _reading():
        data = (
            sys.stdin.buffer.read(strictjson.MAX_BYTES + 1)
            if str(file) == "-"
            else _start_of(file, strictjson.MAX_BYTES + 1)
        )
        try:
            found = proofs.check(strictjson.loads(data), [_verifier(key)])
        except (proofs.ProofError, strictjson.JsonFault) as fault:
            raise AuditError(f"The proof does not hold: {fault}.") from None
    output.note(f"proved: record {found.get('seq')} of run {found.get('run')} is in the log")
    output.answer_json(found)


def tail(
    *,
    follow: bool,
    lines: int,
    caller: str | None,
    tool: str | None,
    status: str | None,
    since: str | None,
    upstream: str | None,
    log: Path | None,
    home: Path | None,
    json: bool,
) -> None:
    from collections import deque

    directory, wanted = _directory(log, home), _filter(caller, tool, status, since, upstream)
    show: Callable[[dict[str, Any]], None] = output.answer_json if json else _say_record
    if follow:
        output.show_lines_at_once()
    with _reading():
        follower = query.Follower(directory) if follow else None
        last = deque(query.records(directory, wanted), maxlen=lines)
        for found in last:
            show(found)
        if not last and lines:
            _say_none(tool)
        if follower is not None:
            for found in follower.records(wanted):
                show(found)


def _say_none(tool: str | None) -> None:
    """No output looks like no log, or like a name that was misspelt."""
    known = load_manifest(None).rows
    near = did_you_mean(tool, known) if tool and tool not in known and ":" not in tool else ""
    output.note(f"no record matches. {near}".rstrip())


def show(*, request_id: str, log: Path | None, home: Path | None, json: bool) -> None:
    records = [found for _, found in _located(_directory(log, home), request_id)]
    if json:
        output.answer_json(records)
        return
    for found in records:
        output.write(strictjson.dumps_pretty(found).decode())


def export(
    *,
    form: str,
    caller: str | None,
    tool: str | None,
    status: str | None,
    since: str | None,
    log: Path | None,
    home: Path | None,
    json: bool,
) -> None:
    form = "jsonl" if json else form
    if form not in exports.FORMS:
        raise AuditError(f"There is no format {form}.\nGive one of: {', '.join(exports.FORMS)}.")
    with _reading():
        found = query.records(_directory(log, home), _filter(caller, tool, status, since))
        for line in exports.FORMS[form](found):
            output.write(line)


def diff(*, first: Path, second: Path, json: bool) -> None:
    with _reading():
        try:
            found = parity.differences(parity.calls_in(first), parity.calls_in(second))
        except ValueError as fault:
            raise AuditError(f"{fault}.\nGive files of the audit log.") from None
    if json:
        output.answer_json({"equal": not found, "differences": found})
    else:
        output.say("\n".join(found) if found else "equal")
    raise typer.Exit(ExitCode.FAILED if found else ExitCode.OK)


def explain(*, request_id: str, log: Path | None, home: Path | None, json: bool) -> None:
    directory = _directory(log, home)
    located = _located(directory, request_id)
    found = [line for _, line in located]
    with _reading():
        serves = query.serving_at(directory, located[0][0])
    text = explained(found, serves)
    if json:
        answer = {"requestId": request_id, "explanation": text.splitlines(), "serves": serves, "records": found}
        output.answer_json(answer)
    else:
        output.say(text.rstrip())


def _located(directory: Path, request_id: str) -> list[tuple[Located, dict[str, Any]]]:
    """The records of a request, each with its place."""
    with _reading():
        found = [(place, record.read(place.line)) for place in query.find_request(directory, request_id)]
    known = [(place, line) for place, line in found if line is not None]
    if not known:
        raise AuditError(
            f"The log has no request {request_id}.\nFind request ids with: toolgate audit tail. "
            "Of many refusals of one caller some are counted instead of written; their answers carry no audit."
        )
    return known


def _nothing_verified(directory: Path) -> AuditError:
    return AuditError(f"There is no run in {directory}: nothing was verified.\nGive the directory of a log.")


def _start_of(file: Path, limit: int) -> bytes:
    with file.open("rb") as stream:
        return stream.read(limit)


def _directory(log: Path | None, home: Path | None) -> Path:
    directory = log or settings_at(home).paths.runs / LOG_PATH
    if not directory.is_dir():
        raise AuditError(
            f"There is no audit log at {directory}.\nGive its directory, or --home, or start a server first."
        )
    return directory


def _target(path: Path | None, home: Path | None) -> tuple[Path, RunName | None]:
    """A directory, and the one run that a segment's path chooses."""
    if path is None or path.is_dir():
        return _directory(path, home), None
    real = path.resolve()
    run = run_of_segment(real.name)
    if run is None or not real.is_file():
        raise AuditError(f"{path} is neither a log's directory nor one of its segments.\nGive one of them.")
    return real.parent, run


def _own_key_file(directory: Path, home: Path | None) -> Path | None:
    """The key of this home, if the directory is its log and the key is ours to read."""
    settings = settings_at(home)
    own = settings.paths.secrets / KEY_FILE
    is_own = directory.resolve() == (settings.paths.runs / LOG_PATH).resolve()
    return own if is_own and own.is_file() and os.access(own, os.R_OK) else None


def _kept_beside_the_key(directory: Path, home: Path | None, trusted: Sequence[Verifier]) -> list[Checkpoint]:
    """The newest checkpoint of each run that no later run remembers. Raises: OSError."""
    own = _own_key_file(directory, home)
    return list(Tips(own, directory).read(trusted).values()) if own else []


def _handovers(directory: Path, home: Path | None) -> list[str]:
    """Beside the key: they lead on from it before the first run of a new one is there. Raises: OSError."""
    own = _own_key_file(directory, home)
    return kept_notes(own) if own else []


def _key(text: str | None, directory: Path, home: Path | None) -> Verifier:
    """The key given; else this home's own; else the one beside the log, which proves less, and that is said."""
    if text is not None:
        return _verifier(text)
    own = _own_key_file(directory, home)
    if own is not None:
        try:
            return NoteSigner.parse(own.read_text(encoding="utf-8")).verifier
        except NoteError as fault:
            raise AuditError(f"{own.name} is not the log's key: {fault}.\nGive the public key with --key.") from None
    output.note("the key beside the log is used: pin a key that you got elsewhere with --key")
    return _verifier(str(directory / PUBLIC_KEY))


def _verifier(text: str) -> Verifier:
    if "+" not in text and not Path(text).is_file():  # a key's text has two of them
        raise AuditError(
            f"There is no key file {text}.\nGive the text or the path of {PUBLIC_KEY}, which is in the log's directory "
            f"(in a home: runs/{LOG_PATH}/{PUBLIC_KEY})."
        )
    try:
        return Verifier.parse(Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text)
    except (NoteError, OSError, UnicodeDecodeError):
        raise AuditError("The key is not a log's public key.\nGive the text of audit-log.pub, or its path.") from None


def _filter(
    caller: str | None, tool: str | None, status: str | None, since: str | None, upstream: str | None = None
) -> Filter:
    if status not in (None, "ok", "error"):
        raise AuditError(f"There is no status {status}.\nGive ok or error.")
    moment = None
    if since is not None:
        moment = parse_since(since, SystemClock.wall())
        if moment is None:
            raise AuditError(
                f"{since} is not a time.\nGive 2026-11-15T21:00:00Z, or a span back from now: 90s, 90m, 2d."
            )
    return Filter(caller=caller, tool=tool, status=status, since=moment, upstream=upstream)


@contextmanager
def _reading() -> Iterator[None]:
    """What the disk refuses becomes a sentence."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.OK) from None
    except OSError as fault:
        name = Path(str(fault.filename)).name if fault.filename else "the log"
        raise AuditError(
            f"{name} cannot be read: {fault.strerror}.\nCheck that it is there and yours to read."
        ) from None


@contextmanager
def _progress(directory: Path) -> Iterator[Callable[[int], None]]:
    """A bar on standard error for people, when there is enough to wait for."""
    total = sum(file.stat().st_size for file in directory.glob("*.jsonl*") if not file.is_symlink())
    if total < PROGRESS_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=total)
        yield lambda count: bar.advance(task, count)


def _say_report(report: LogVerification) -> None:
    for run in report.runs:
        if run.fault:
            output.say(f"bad   run {run.name.id}: read up to record {run.records}")
            continue
        text = f"run {run.name.id}: {run.records} records, {run.covered} under the last checkpoint"
        text += f", a torn last line of {run.torn_bytes} bytes" if run.torn_bytes else ""
        text += _END_OF_RUN[run.state]
        if run.final and not run.whole:
            text += "; older form: time and mark of the end in its last line are not signed"
        output.say(f"{'good' if run.state != 'unknown' else 'open'}  {text}")
    for fault in report.faults:
        output.say(f"first bad line  {fault}" if fault.line else f"fault  {fault}", style="red")
    records = sum(run.records for run in report.runs)
    verdict = "verified" if report.good else "NOT verified"
    output.say(f"{verdict}: {len(report.runs)} runs, {records} records, {len(report.faults)} faults")


_END_OF_RUN: Final = {
    "closed": "",
    "running": ", still running",
    "recovered": "; ended without a last word, as a later run found it",
    "unknown": "; its end is not known",
}


def _report_json(report: LogVerification) -> dict[str, Any]:
    return {
        "ok": report.good,
        "runs": [
            {
                "run": run.name.id,
                "records": run.records,
                "covered": run.covered,
                "tornBytes": run.torn_bytes,
                "final": run.final,
                "state": run.state,
            }
            for run in report.runs
        ],
        "faults": [
            {"run": fault.run, "text": fault.text, "seq": fault.seq, "file": fault.file, "line": fault.line}
            for fault in report.faults
        ],
    }


def _say_record(found: dict[str, Any]) -> None:
    """One line for people; JSON has everything."""
    error = found.get("error") or {}
    error = error if isinstance(error, dict) else {"reason": error}
    why = error.get("code") or error.get("reason") or error.get("happening") or ""
    if found.get("suppressed"):
        why = f"{why}  {found['suppressed']} more counted".lstrip()
    place = found.get("from")  # of an act; a handover has the old key there
    cells = (
        found.get("ts"),
        found.get("event"),
        found.get("status") or found.get("stage") or "-",
        (found.get("metadata") or {}).get("toolId") or found.get("askedTool") or found.get("act") or "-",
        (found.get("caller") or found.get("refusedKey") or {}).get("id") or (found.get("by") or {}).get("user") or "-",
        found.get("clientAddress") or (place.get("host") if isinstance(place, dict) else None) or "-",
        found.get("requestId", "-"),
        why,
    )
    output.say(printable("  ".join(str(cell) for cell in cells).rstrip()))
