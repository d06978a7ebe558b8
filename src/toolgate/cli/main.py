"""The way in: `toolgate COMMAND`. The table of commands is here; a command's module is imported when it is run.

What goes wrong ends here too: one line for the fault, one for the fix, an exit code of `errors.ExitCode`, no traceback.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from msgspec import Struct
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from toolgate import __version__
from toolgate.cli import output
from toolgate.errors import (
    VERDICTS,
    ExitCode,
    LedgerUnavailable,
    Refusal,
    StoreUnavailable,
    ToolgateError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Entry(Struct, frozen=True):
    """Where a command lives: a function, or a Typer application with commands of its own."""

    summary: str
    module: str
    name: str = "app"


# fmt: off
_ALL: Final[Mapping[str, Entry]] = {
    "serve":      Entry("Serve over HTTP.", "toolgate.cli.serve", "serve"),
    "stdio":      Entry("Serve one client over standard input and output.", "toolgate.cli.serve", "stdio"),
    "call":       Entry("Call a tool and print its answer.", "toolgate.cli.call", "call"),
    "tools":      Entry("The tools a key may call.", "toolgate.cli.tools"),
    "init":       Entry("Make a home: settings, policy, workspace and a first key.", "toolgate.cli.init", "init"),
    "keys":       Entry("Make, list and revoke callers' keys.", "toolgate.cli.keys"),
    "config":     Entry("Show the settings and where each comes from.", "toolgate.cli.config"),
    "doctor":     Entry("Check that everything is in place, and say how to mend what is not.", "toolgate.cli.doctor", "doctor"),
    "mcp-config": Entry("Print the configuration for an MCP client.", "toolgate.cli.mcp_config", "mcp_config"),
    "contract":   Entry("Build, check and compare the contract of all tools.", "toolgate.cli.contract"),
    "policy":     Entry("Check the policy manifest.", "toolgate.cli.policy"),
    "audit":      Entry("Read, verify and prove the audit log.", "toolgate.cli.audit"),
    "explain":    Entry("Say which rule decided about a request.", "toolgate.cli.audit", "explain"),
    "analyze":    Entry("Find governance dissonance in your files.", "toolgate.packs.governance.cli", "analyze"),
    "baseline":   Entry("Record the baseline that drift is measured from.", "toolgate.packs.governance.cli", "baseline"),
    "l0":         Entry("Check L0 invariants on your files.", "toolgate.packs.governance.cli", "l0"),
    "adr":        Entry("Check files against accepted decision records.", "toolgate.packs.governance.cli", "adr"),
    "fp":         Entry("False positives: mark, list, export and import reviews.", "toolgate.packs.governance.cli_stores", "fp"),
    "consent":    Entry("Consent of organisations: grant, revoke, list.", "toolgate.packs.governance.cli_stores", "consent"),
    "lra":        Entry("Living papers: write, judge, build, sign, verify.", "toolgate.packs.lra.cli"),
    "consensus":  Entry("Rounds, votes and sealing.", "toolgate.packs.consensus.cli"),
    "pack":       Entry("Start a pack of your own tools.", "toolgate.cli.pack"),
    "version":    Entry("Print the version.", "toolgate.cli.main", "version"),
}
# fmt: on


def _is_there(module: str) -> bool:
    """By file, because asking the import system would import the pack around it."""
    path = Path(__file__).parents[2].joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


COMMANDS: Final[Mapping[str, Entry]] = {name: entry for name, entry in _ALL.items() if _is_there(entry.module)}
"""Every command of `toolgate`, in the order of its help: ours, and those of the packs that are here."""


class Commands(TyperGroup):
    """A group that knows its commands' names and summaries, and imports one only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the name typer calls it by)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 (as above)
        """For help and for completing names: a name and a summary are enough."""
        entry = COMMANDS.get(cmd_name)
        return TyperCommand(cmd_name, help=entry.summary) if entry else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        self.commands = {
            name: self.get_command(ctx, name) for name in COMMANDS
        }  # what a misspelt name is compared with
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and command else None, rest


def load(name: str) -> Any:
    """The real command, from its own module."""
    entry = COMMANDS[name]
    target = getattr(import_module(entry.module), entry.name)
    app = typer.Typer(add_completion=False)
    if isinstance(target, typer.Typer):
        app.add_typer(target, name=name, help=entry.summary)
    else:
        app.command(name)(target)
    return get_group(app).commands[name]


def version() -> None:
    """Print the version."""
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
    app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode="markdown")
    app.callback()(_root)
    return get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer. The border where every exception becomes a line of text."""
    try:
        command().main(args=arguments, prog_name="toolgate")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.FAILED if end.code else ExitCode.OK
    except ToolgateError as fault:
        output.fault(str(fault))
        return _exit_code(fault)
    except OSError as fault:
        place = f": {fault.filename}" if fault.filename else ""
        output.fault(
            f"{fault.strerror or type(fault).__name__}{place}.\nCheck that it is there, its permissions, and free space."
        )
        return ExitCode.FAILED
    except Exception as fault:
        if os.environ.get("TOOLGATE_TRACEBACK"):
            raise
        output.fault(
            f"Toolgate itself failed ({type(fault).__name__}).\nSet TOOLGATE_TRACEBACK=1 to see where, and report it."
        )
        return ExitCode.FAILED
    return ExitCode.OK


def _exit_code(fault: ToolgateError) -> int:
    if isinstance(fault, Refusal):
        return VERDICTS[fault.happening].exit_code
    if isinstance(fault, LedgerUnavailable | StoreUnavailable):
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILED


def run() -> None:
    """The console script."""
    sys.exit(main())
