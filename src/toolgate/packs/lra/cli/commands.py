"""Which commands `lra` has. A command's module is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer
from typer.main import get_command

from toolgate import __version__
from toolgate.cli.groups import LazyGroup
from toolgate.cli.output import HELP
from toolgate.errors import ExitCode
from toolgate.later import Command
from toolgate.packs.lra.cli.border import say, told

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE: Final = "toolgate.packs.lra.cli"


class _Commands(LazyGroup):
    listed: ClassVar = (
        Command(
            "init",
            "Make a new paper that already passes its tier.",
            f"{_HERE}.init:app",
        ),
        Command(
            "validate",
            "Judge a paper by the 23 checks of LRA-1.0. Exit 0 whatever the tier, unless --min-tier asks for more.",
            f"{_HERE}.judging:app",
        ),
        Command(
            "check",
            "The same as validate.",
            f"{_HERE}.judging:app",
        ),
        Command(
            "badge",
            "Draw a badge for the tier the paper reaches, as an SVG file to keep beside it: nothing is"
            " loaded from elsewhere.",
            f"{_HERE}.judging:app",
        ),
        Command(
            "hash",
            "Print the SHA-256 of the page's bytes, as registries list it.",
            f"{_HERE}.judging:app",
        ),
        Command(
            "build",
            "Make a paper directory from its source."
            " Files of an earlier build are replaced, others never without --force.",
            f"{_HERE}.building:app",
        ),
        Command(
            "export",
            "Write the paper as PDF, Word, JATS, LaTeX or EPUB, with the same numbers and references as the page.",
            f"{_HERE}.building:app",
        ),
        Command(
            "serve",
            "Serve a paper while you edit it: live reload, findings on the page."
            " A paper made by `lra build` is built again whenever its source changes. Ctrl+C stops it.",
            f"{_HERE}.serving:app",
        ),
        Command(
            "keygen",
            "Make an Ed25519 signing key (PKCS#8 PEM, mode 0600). Never overwrites one.",
            f"{_HERE}.signing:app",
        ),
        Command(
            "sign",
            "Sign a receipt: DSSE envelope, flat form, log entry. Prints the signed receipt.",
            f"{_HERE}.signing:app",
        ),
        Command(
            "verify",
            "Fetch a deployed paper, hash every file of it, check its claims and its tier. Exit 1 if a check fails.",
            f"{_HERE}.verifying:app",
        ),
        Command(
            "verify-receipt",
            "Say whether the verification succeeded, then VALID, TRUSTED (exit 0), VALID, UNKNOWN"
            " SIGNER (exit 4) or INVALID (exit 1).",
            f"{_HERE}.receipts:app",
        ),
        Command(
            "registry",
            "The registry of papers: add, lint, search.",
            f"{_HERE}.registry:app",
        ),
        Command(
            "receipt",
            "Look at receipts: show, explode, diff.",
            f"{_HERE}.receipts:app",
        ),
    )

    def invoke(self, ctx: Any) -> Any:
        return told(lambda: super(_Commands, self).invoke(ctx))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    help="Living papers: write, judge, build, sign, verify.",
)


def _version(asked: bool) -> None:
    if asked:
        say(f"lra {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Living papers: write, judge, build, sign, verify."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer."""
    try:
        get_command(app).main(args=list(arguments) if arguments is not None else None, prog_name="lra")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.FAILED if end.code else ExitCode.OK
    return ExitCode.OK
