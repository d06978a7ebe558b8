"""`toolgate audit` and `toolgate explain`: read the log, verify it, prove one record, compare two logs.

Here are their flags and their help; `log.py` does what they say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.cli.options import AlwaysJson, Home, Json
from toolgate.later import done_by

app = typer.Typer(no_args_is_help=True)

Log = Annotated[
    Path | None, typer.Option("--log", metavar="DIR", help="The log's directory; else the one of the home directory.")
]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="The log's public key, or a file that holds it; else this home's own."),
]
Caller = Annotated[str | None, typer.Option("--caller", metavar="KEY_ID", help="Only this caller's records.")]
Tool = Annotated[
    str | None, typer.Option("--tool", help="Only this tool's records: its name, or its id in the log, mcp.tool:ID.")
]
Status = Annotated[str | None, typer.Option("--status", help="Only records with this status: ok or error.")]
Upstream = Annotated[
    str | None,
    typer.Option("--upstream", metavar="NAME", help="Only calls of this upstream's tools, and what happened to it."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only records from then on: 2026-11-15T21:00:00Z, 90m, 2d."),
]


@app.callback()
def _audit() -> None:
    """Read, verify and prove the audit log."""


@app.command()
@done_by("toolgate.cli.audit.log:verify")
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

    Names the first bad line of each run. Exit 0: the log is what was written. 1: it is not, or nobody knows, or there is
    no run to verify.
    Run it where the server runs: whether a run still goes on is told by a lock that other machines may not see.
    """


@app.command("rotate-key")
@done_by("toolgate.cli.audit.log:rotate_key")
def rotate_key(home: Home = None, json: Json = False) -> None:
    """Change the key that signs the log. Both keys sign a record of it, so that everyone who has the old one can follow.

    Servers that are running go on with the old key until they are restarted. The old secret key is deleted.
    """


@app.command()
@done_by("toolgate.cli.audit.log:prove")
def prove(
    request_id: Annotated[str, typer.Argument(help="The request id of an answer or a record.")],
    event: Annotated[
        str, typer.Option("--event", help="Which record of the call or act: outcome or intent.")
    ] = "outcome",
    log: Log = None,
    home: Home = None,
    json: AlwaysJson = False,
) -> None:
    """Print a proof that a record is in the log; `audit check-proof` verifies it with the public key alone."""


@app.command("check-proof")
@done_by("toolgate.cli.audit.log:check_proof")
def check_proof(
    file: Annotated[Path, typer.Argument(help="What `audit prove` printed; - for standard input.")],
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The log's public key, or a file that holds it.")],
    json: AlwaysJson = False,
) -> None:
    """Check a proof. Needs the public key and nothing else. Prints the record. Exit 0: it is in the log. 1: not."""


@app.command()
@done_by("toolgate.cli.audit.log:tail")
def tail(  # noqa: PLR0917 (typer reads options from the signature)
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="How many of the last.")] = 20,
    caller: Caller = None,
    tool: Tool = None,
    status: Status = None,
    since: Since = None,
    upstream: Upstream = None,
    log: Log = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the last records."""


@app.command()
@done_by("toolgate.cli.audit.log:show")
def show(
    request_id: Annotated[str, typer.Argument(help="The request id of an answer or a record.")],
    log: Log = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print the records of one call: for people one after another, with --json as one list on one line."""


@app.command()
@done_by("toolgate.cli.audit.log:export")
def export(
    form: Annotated[str, typer.Option("--format", help="jsonl or csv.")] = "jsonl",
    caller: Caller = None,
    tool: Tool = None,
    status: Status = None,
    since: Since = None,
    log: Log = None,
    home: Home = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    """Print every record that matches, oldest first."""


@app.command()
@done_by("toolgate.cli.audit.log:diff")
def diff(
    first: Annotated[Path, typer.Argument(help="A segment, or a golden file.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    json: Json = False,
) -> None:
    """Compare the calls of two logs, in order, without what two servers cannot have in common (times, ids, transport).

    Exit 0: equal. 1: they differ.
    """


@done_by("toolgate.cli.audit.log:explain")
def explain(
    request_id: Annotated[str, typer.Argument(help="The request id of an answer or a record.")],
    log: Log = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say which rule decided about a request, and what to change."""
