"""`toolgate upstream`: adopt MCP servers that somebody else wrote, and look after them."""

from __future__ import annotations

from typing import ClassVar, Final

import typer

from toolgate.cli.groups import LazyGroup
from toolgate.later import Command

_HERE: Final = "toolgate.cli.upstream"


class _Commands(LazyGroup):
    listed: ClassVar = (
        Command(
            "add",
            "Write an upstream into toolgate.toml. Nothing of it is served before it is adopted.",
            f"{_HERE}.tables:app",
        ),
        Command(
            "import",
            "Take over the servers of an MCP client's own configuration."
            " Secrets in it are moved to the secrets directory.",
            f"{_HERE}.tables:app",
        ),
        Command(
            "remove",
            "Take an upstream out: its table, its pin and its rows. Secrets stay where they are.",
            f"{_HERE}.tables:app",
        ),
        Command(
            "try",
            "Connect, list, scan. Nothing is written. Exit 1 when a finding is critical.",
            f"{_HERE}.status:app",
        ),
        Command(
            "diff",
            "What differs from what was approved. Exit 3 when something does.",
            f"{_HERE}.status:app",
        ),
        Command(
            "list",
            "Every upstream, from the settings and the pins; none is asked anything.",
            f"{_HERE}.tables:app",
        ),
        Command(
            "status",
            "Ask every upstream now: is it there, and is it as approved? Exit 1 when one is not.",
            f"{_HERE}.status:app",
        ),
        Command(
            "login",
            "Log in to an upstream that wants OAuth: with a browser, or with a code on another device.",
            f"{_HERE}.login:app",
        ),
        Command(
            "logout",
            "End the login to an upstream: its tokens are revoked where that is offered, and deleted.",
            f"{_HERE}.login:app",
        ),
        Command(
            "adopt",
            "Pin an upstream as it is now, and give its tools, prompts and resources to roles."
            " In a terminal each is asked about.",
            f"{_HERE}.approval:app",
        ),
        Command(
            "approve",
            "Approve what changed since an upstream was adopted, after showing it."
            " New tools need --roles to be served.",
            f"{_HERE}.approval:app",
        ),
    )


app = typer.Typer(cls=_Commands, no_args_is_help=True)
