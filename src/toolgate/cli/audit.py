"""`toolgate audit` and `toolgate explain`: read the log, verify it, prove one record, compare two logs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, Json, settings_at
from toolgate.errors import ExitCode, ToolgateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.kit.note import Verifier
    from toolgate.ledger.files import RunName
    from toolgate.ledger.query import Filter
    from toolgate.ledger.verify import Report

app = typer.Typer(no_args_is_help=True)

PROGRESS_BYTES: Final = 64 * 1024 * 1024
"""Logs smaller than this are verified before a progress bar could be read."""

Log = Annotated[
    Path | None, typer.Option("--log", metavar="DIR", help="The log's directory; else the one of the home directory.")
]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="The log's public key, or a file that holds it; else this home's own."),
]
Caller = Annotated[str | None, typer.Option("--caller", metavar="KEY_ID", help="Only this caller's records.")]
Tool = Annotated[str | None, typer.Option("--tool", help="Only this tool's records: lra_init or mcp.tool:lra.init.")]
Status = Annotated[str | None, typer.Option("--status", help="Only records with this status: ok or error.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only records from then on: 2026-11-15T21:00:00Z, 90m, 2d."),
]


class AuditError(ToolgateError):
    """What was asked for cannot be done; the text names the fault and the fix."""


@app.callback()
def _audit() -> None:
    """Read, verify and prove the audit log."""


@app.command()
def verify(
    path: Annotated[Path | None, typer.Argument(help="The log's directory, or a segment of one run.")] = None,
    anchor: Annotated[
        Path | None, typer.Option("--anchor", metavar="FILE", help="Checkpoints that were kept elsewhere.")
    ] = None,
    key: Key = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check that nothing in the log was changed, cut or added.

    Names the first bad line of each run. Exit 0: the log is what was written. 1: it is not.
    """
    from toolgate.kit.note import NoteError
    from toolgate.ledger import verify as check

    directory, only = _target(path, home)
    trusted = [_key(key, directory, home)]
    with _reading():
        try:
            anchors = check.read_anchors(anchor.read_text(encoding="utf-8"), trusted) if anchor else []
        except (NoteError, UnicodeDecodeError) as fault:
            raise AuditError(
                f"{anchor} holds a checkpoint that is not good: {fault}.\nCheck the file and --key."
            ) from None
        with _progress(directory) as progress:
            report = check.verify(directory, trusted, only=only, anchors=anchors, progress=progress)
    if json:
        output.answer_json(_report_json(report))
    else:
        _say_report(report)
    raise typer.Exit(ExitCode.OK if report.good else ExitCode.FAILED)


@app.command()
def prove(
    request_id: Annotated[str, typer.Argument(help="The request id of an answer or a record.")],
    event: Annotated[str, typer.Option("--event", help="Which record of the call: outcome or intent.")] = "outcome",
    log: Log = None,
    home: Home = None,
) -> None:
    """Print a proof that a record is in the log; `audit check-proof` verifies it with the public key alone."""
    from toolgate.ledger import proofs

    with _reading():
        try:
            proof = proofs.prove(_directory(log, home), request_id, event)
        except proofs.ProofError as fault:
            raise AuditError(f"There is no proof: {fault}.\nFind request ids with: toolgate audit tail.") from None
    output.answer_json(proof)


@app.command("check-proof")
def check_proof(
    file: Annotated[Path, typer.Argument(help="What `audit prove` printed; - for standard input.")],
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The log's public key, or a file that holds it.")],
) -> None:
    """Check a proof. Needs the public key and nothing else. Prints the record. Exit 0: it is in the log. 1: not."""
    from toolgate.ledger import proofs
    from toolgate.model import strictjson

    with _reading():
        data = sys.stdin.buffer.read(strictjson.MAX_BYTES + 1) if str(file) == "-" else file.read_bytes()
        try:
            found = proofs.check(strictjson.loads(data), [_verifier(key)])
        except (proofs.ProofError, strictjson.JsonFault) as fault:
            raise AuditError(f"The proof does not hold: {fault}.") from None
    output.note(f"proved: record {found.get('seq')} of run {found.get('run')} is in the log")
    output.answer_json(found)


@app.command()
def tail(  # noqa: PLR0917 (typer reads options from the signature)
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="How many of the last.")] = 20,
    caller: Caller = None,
    tool: Tool = None,
    status: Status = None,
    since: Since = None,
    log: Log = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the last records."""
    from collections import deque

    from toolgate.ledger import query

    directory, wanted = _directory(log, home), _filter(caller, tool, status, since)
    show: Callable[[dict[str, Any]], None] = output.answer_json if json else _say_record
    with _reading():
        follower = query.Follower(directory) if follow else None
        for found in deque(query.records(directory, wanted), maxlen=lines):
            show(found)
        if follower is not None:
            for found in follower.records(wanted):
                show(found)
                sys.stdout.flush()


@app.command()
def show(
    request_id: Annotated[str, typer.Argument(help="The request id of an answer or a record.")],
    log: Log = None,
    home: Home = None,
) -> None:
    """Print the records of one call, as JSON."""
    from toolgate.model import strictjson

    for found in _records_of(request_id, log, home):
        sys.stdout.write(strictjson.dumps_pretty(found).decode())


@app.command()
def export(
    form: Annotated[str, typer.Option("--format", help="jsonl or csv.")] = "jsonl",
    caller: Caller = None,
    tool: Tool = None,
    status: Status = None,
    since: Since = None,
    log: Log = None,
    home: Home = None,
) -> None:
    """Print every record that matches, oldest first."""
    from toolgate.ledger import export as exports
    from toolgate.ledger import query

    if form not in exports.FORMS:
        raise AuditError(f"There is no format {form}.\nGive one of: {', '.join(exports.FORMS)}.")
    with _reading():
        found = query.records(_directory(log, home), _filter(caller, tool, status, since))
        for line in exports.FORMS[form](found):
            sys.stdout.write(line)


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A segment, or a golden file.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Compare the calls of two logs, in order, without what two servers cannot have in common (times, ids, transport).

    Exit 0: equal. 1: they differ.
    """
    from toolgate.ledger import parity

    with _reading():
        try:
            found = parity.differences(parity.calls_in(first), parity.calls_in(second))
        except ValueError as fault:
            raise AuditError(f"{fault}.\nGive files of the audit log.") from None
    output.say("\n".join(found) if found else "equal")
    raise typer.Exit(ExitCode.FAILED if found else ExitCode.OK)


def explain(
    request_id: Annotated[str, typer.Argument(help="The request id of an answer or a record.")],
    log: Log = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say which rule decided about a request, and what to change."""
    from toolgate.ledger.explain import explain as explained

    found = _records_of(request_id, log, home)
    if json:
        output.answer_json({"requestId": request_id, "explanation": explained(found).splitlines(), "records": found})
    else:
        output.say(explained(found).rstrip())


def _records_of(request_id: str, log: Path | None, home: Path | None) -> list[dict[str, Any]]:
    from toolgate.ledger import query, record

    with _reading():
        found = [record.read(one.line) for one in query.find_request(_directory(log, home), request_id)]
    known = [one for one in found if one is not None]
    if not known:
        raise AuditError(
            f"The log has no request {request_id}.\nFind request ids with: toolgate audit tail. "
            "Refusals without a key may be counted instead of written."
        )
    return known


def _directory(log: Path | None, home: Path | None) -> Path:
    from toolgate.ledger import LOG_PATH

    directory = log or settings_at(home).paths.runs / LOG_PATH
    if not directory.is_dir():
        raise AuditError(
            f"There is no audit log at {directory}.\nGive its directory, or --home, or start a server first."
        )
    return directory


def _target(path: Path | None, home: Path | None) -> tuple[Path, RunName | None]:
    """A directory, and the one run that a segment's path chooses."""
    from toolgate.ledger.files import run_of_segment

    if path is None or path.is_dir():
        return _directory(path, home), None
    real = path.resolve()
    run = run_of_segment(real.name)
    if run is None or not real.is_file():
        raise AuditError(f"{path} is neither a log's directory nor one of its segments.\nGive one of them.")
    return real.parent, run


def _key(text: str | None, directory: Path, home: Path | None) -> Verifier:
    """The key given; else this home's own; else the one beside the log, which proves less, and that is said."""
    from toolgate.kit.note import NoteError, Signer
    from toolgate.ledger import LOG_PATH
    from toolgate.ledger.files import KEY_FILE, PUBLIC_KEY

    if text is not None:
        return _verifier(text)
    settings = settings_at(home)
    own = settings.paths.secrets / KEY_FILE
    if directory.resolve() == (settings.paths.runs / LOG_PATH).resolve() and own.is_file() and os.access(own, os.R_OK):
        try:
            return Signer.parse(own.read_text(encoding="utf-8")).verifier
        except NoteError as fault:
            raise AuditError(f"{own.name} is not the log's key: {fault}.\nGive the public key with --key.") from None
    output.note("the key beside the log is used: pin a key that you got elsewhere with --key")
    return _verifier(str(directory / PUBLIC_KEY))


def _verifier(text: str) -> Verifier:
    from toolgate.kit.note import NoteError, Verifier

    try:
        return Verifier.parse(Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text)
    except (NoteError, OSError, UnicodeDecodeError):
        raise AuditError("The key is not a log's public key.\nGive the text of audit-log.pub, or its path.") from None


def _filter(caller: str | None, tool: str | None, status: str | None, since: str | None) -> Filter:
    from toolgate.ledger.query import Filter, parse_since
    from toolgate.model.clock import SystemClock

    if status not in (None, "ok", "error"):
        raise AuditError(f"There is no status {status}.\nGive ok or error.")
    moment = None
    if since is not None:
        moment = parse_since(since, SystemClock.wall())
        if moment is None:
            raise AuditError(
                f"{since} is not a time.\nGive 2026-11-15T21:00:00Z, or a span back from now: 90s, 90m, 2d."
            )
    return Filter(caller=caller, tool=tool, status=status, since=moment)


@contextmanager
def _reading() -> Iterator[None]:
    """What the disk refuses becomes a sentence; a reader that goes away (`| head`) ends quietly."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.OK) from None
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
    total = sum(one.stat().st_size for one in directory.glob("*.jsonl*") if not one.is_symlink())
    if total < PROGRESS_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=total)
        yield lambda count: bar.advance(task, count)


def _say_report(report: Report) -> None:
    for one in report.runs:
        if one.fault:
            output.say(f"bad   run {one.name.id}: read up to record {one.records}")
            continue
        text = f"run {one.name.id}: {one.records} records, {one.covered} under the last checkpoint"
        text += f", a torn last line of {one.torn_bytes} bytes" if one.torn_bytes else ""
        output.say(f"good  {text}{'' if one.final else ', not closed'}")
    for fault in report.faults:
        output.say(f"first bad line  {fault}" if fault.line else f"fault  {fault}", style="red")
    records = sum(one.records for one in report.runs)
    verdict = "verified" if report.good else "NOT verified"
    output.say(f"{verdict}: {len(report.runs)} runs, {records} records, {len(report.faults)} faults")


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "ok": report.good,
        "runs": [
            {
                "run": one.name.id,
                "records": one.records,
                "covered": one.covered,
                "tornBytes": one.torn_bytes,
                "final": one.final,
            }
            for one in report.runs
        ],
        "faults": [
            {"run": one.run, "text": one.text, "seq": one.seq, "file": one.file, "line": one.line}
            for one in report.faults
        ],
    }


def _say_record(found: dict[str, Any]) -> None:
    """One line for people; JSON has everything."""
    from toolgate.kit.render import printable

    error = found.get("error") or {}
    why = error.get("code") or error.get("reason") or error.get("happening") or ""
    cells = (
        found.get("ts"),
        found.get("event"),
        found.get("status", "-"),
        (found.get("metadata") or {}).get("toolId") or "-",
        (found.get("caller") or {}).get("id", "-"),
        found.get("requestId", "-"),
        why,
    )
    output.say(printable("  ".join(str(cell) for cell in cells).rstrip()))
