"""`toolgate call`: its flags and its help. `calling.py` makes the call."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.cli.options import Flags, Json, with_settings_flags
from toolgate.later import done_by

IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="TEXT",
        help="Names this call: the same call under the same key does not run again, and gets the same answer.",
    ),
]


@with_settings_flags
@done_by("toolgate.cli.calls.calling:call")
def call(  # noqa: PLR0917 (typer reads the options from the signature)
    flags: Flags,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="As `toolgate tools list` shows it.")],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=TEXT | NAME:=JSON]...", help="The arguments, one by one.")
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(
            "--args", metavar="JSON", help="The arguments as one JSON object; - reads it from standard input."
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Call a running server; else TOOLGATE_URL; else in this process.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Better: TOOLGATE_API_KEY or TOOLGATE_API_KEY_FILE, which no process list shows."),
    ] = None,
    idempotency_key: IdempotencyKey = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for a person who must approve the call: exit 11 at once.")
    ] = False,
    json: Json = False,
) -> None:
    """Call a tool and print its answer. If a person must approve the call, wait for that.

    Exit codes: 0 ok, 1 the tool said no or failed, 5 key, role or rule, 6 no such tool, 7 too many calls, 8 arguments,
    9 log, store or server not available, 10 it may have run, 11 a person must approve it; otherwise the tool's own.
    """
