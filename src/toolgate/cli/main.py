"""The way in: `toolgate COMMAND`. Which commands there are is `toolgate.cli.commands`.

What goes wrong ends here too: one line for the fault, one for the fix, an exit code of `errors.ExitCode`, no traceback.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from toolgate import __version__
from toolgate.cli import output
from toolgate.cli.commands import every_command, find_command, load
from toolgate.errors import (
    VERDICTS,
    ExitCode,
    LedgerUnavailable,
    Refusal,
    StartRefused,
    StoreUnavailable,
    ToolgateError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolgate.later import Command


class Commands(TyperGroup):
    """A group that knows its commands' names and summaries, and imports one only to run it."""

    _listed: Mapping[str, Command] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the name typer calls it by)
        self._listed = every_command(sys.argv[1:])
        return list(self._listed)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 (as above)
        """For help and for completing names: a name and a summary are enough."""
        return _named(self._listed.get(cmd_name) or find_command(cmd_name, sys.argv[1:]))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        command = find_command(args[0], args)
        if command is not None:
            return command.name, load(command), args[1:]
        self.commands = {name: _named(each) for name, each in every_command(args).items()}
        return super().resolve_command(ctx, args)  # says which of them may have been meant


def _named(command: Command | None) -> Any:
    return TyperCommand(command.name, help=command.summary) if command else None


def version(
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")] = False,
) -> None:
    """Print the version."""
    if json:
        output.answer_json({"version": __version__})
    else:
        sys.stdout.write(f"toolgate {__version__}\n")


def _print_version(*, asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def _root(
    show: bool = typer.Option(
        False, "--version", help="Print the version.", callback=lambda asked: _print_version(asked=asked), is_eager=True
    ),
) -> None:
    """Toolgate: a governed MCP server.

    First steps: `toolgate init`, then `toolgate serve`. Every command explains itself with --help.
    """


def command() -> Any:
    """The whole command line as one object, for the program and for tests."""
    app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode="markdown", context_settings=output.HELP)
    app.callback()(_root)
    return get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer."""
    return _run(command, arguments, "toolgate")


def _run(find: Callable[[], Any], arguments: Sequence[str] | None, program: str) -> int:
    """The border where every exception becomes a line of text."""
    try:
        find().main(args=arguments, prog_name=program)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.FAILED if end.code else ExitCode.OK
    except ToolgateError as fault:
        output.fault(str(fault))
        return exit_code(fault)
    except OSError as fault:
        output.fault(output.system_fault(fault))
        return ExitCode.FAILED
    except Exception as fault:
        if os.environ.get("TOOLGATE_TRACEBACK"):
            raise
        output.fault(
            f"Toolgate itself failed ({type(fault).__name__}).\nSet TOOLGATE_TRACEBACK=1 to see where, and report it."
        )
        return ExitCode.FAILED
    return ExitCode.OK


def exit_code(fault: ToolgateError) -> int:
    if isinstance(fault, Refusal):
        return VERDICTS[fault.ending].exit_code
    if isinstance(fault, LedgerUnavailable | StoreUnavailable):
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILED


def run() -> None:
    """The console script."""
    sys.exit(output.run_program(main))


def run_script() -> None:
    """The console script that is called like a pack's command: that command, by the same way in."""
    name = Path(sys.argv[0]).name
    sys.exit(output.run_program(lambda: _run(lambda: _script(name), None, name)))


def _script(name: str) -> Any:
    found = find_command(name, sys.argv[1:])
    if found is None:
        raise StartRefused(f"no pack brings a command called {name}.\nInstall or enable the pack.")
    return load(found)
