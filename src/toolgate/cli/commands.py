"""Which commands there are: ours, and those that packs bring. A command's module is imported when it is run.

At the end they are joined to one object, the whole command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from toolgate import __version__
from toolgate.cli import output
from toolgate.errors import StartRefused, ToolgateError
from toolgate.later import Command, named

# fmt: off
OWN: Final[Mapping[str, Command]] = {command.name: command for command in (
    Command("serve",      "Serve over HTTP.", "toolgate.cli.serve:serve"),
    Command("stdio",      "Serve one client over standard input and output.", "toolgate.cli.serve:stdio"),
    Command("status",     "Say what the running servers of a home are doing.", "toolgate.cli.running.commands:status"),
    Command("reload",     "Let running servers take over what was changed.", "toolgate.cli.running.commands:reload"),
    Command("call",       "Call a tool and print its answer.", "toolgate.cli.calls.call:call"),
    Command("tools",      "The tools a key may call.", "toolgate.cli.calls.tools:app"),
    Command("init",       "Make a home: settings, policy, workspace and a first key.", "toolgate.cli.init:init"),
    Command("keys",       "Make, list and revoke callers' keys.", "toolgate.cli.keys:app"),
    Command("stop-calls", "Stop calls at once, on every server of this home.", "toolgate.cli.authority.stops:stop_calls"),
    Command("resume",     "Let stopped calls through again.", "toolgate.cli.authority.stops:resume"),
    Command("approvals",  "Answer calls that a person must approve.", "toolgate.cli.authority.approvals:app"),
    Command("config",     "Show the settings and where each comes from.", "toolgate.cli.config:app"),
    Command("doctor",     "Check that everything is in place, and say how to mend what is not.", "toolgate.cli.doctor:doctor"),
    Command("mcp-config", "Print the configuration for an MCP client.", "toolgate.cli.calls.mcp_config:mcp_config"),
    Command("contract",   "Build, check and compare the contract of all tools.", "toolgate.cli.policy.commands:contract"),
    Command("policy",     "Check the policy manifest.", "toolgate.cli.policy.commands:policy"),
    Command("upstream",   "Adopt MCP servers that others wrote, and look after them.", "toolgate.cli.upstream:app"),
    Command("audit",      "Read, verify and prove the audit log.", "toolgate.cli.audit:app"),
    Command("explain",    "Say which rule decided about a request.", "toolgate.cli.audit:explain"),
    Command("pack",       "Start a pack of your own tools.", "toolgate.cli.pack:app"),
    Command("version",    "Print the version.", "toolgate.cli.commands:version"),
)}
# fmt: on
"""The commands of Toolgate itself, in the order of its help. Those of packs come after them."""


def find_command(name: str, arguments: Sequence[str]) -> Command | None:
    """Of this name, by the shortest way: ours, those of the packs that ship with us, those of packs that the home enables."""
    return OWN.get(name) or shipped().get(name) or _added(arguments).get(name)


def every_command(arguments: Sequence[str] = ()) -> dict[str, Command]:
    """All of them, for help. `arguments`: the command line, which may name a home."""
    return {**OWN, **shipped(), **_added(arguments)}  # no name is in two of them


@cache
def shipped() -> Mapping[str, Command]:
    """Those of the packs that need nothing configured. They are there in every home, and where there is none."""
    return {command.name: command for name in shipped_packs() for command in _named_by(name)}


def shipped_packs() -> list[str]:
    """The folders that have a door."""
    return sorted(path.parent.name for path in Path(__file__).parents[1].glob("packs/*/door.py"))


def _named_by(pack: str) -> Sequence[Command]:
    """What the pack names before its door is made: to list commands, no door need be open."""
    found: Sequence[Command] = getattr(import_module(f"toolgate.packs.{pack}"), "COMMANDS", ())
    return found


def _added(arguments: Sequence[str]) -> Mapping[str, Command]:
    """Those of other packs, where the settings enable them."""
    home = _home(arguments)
    place = Path(home or os.environ.get("TOOLGATE_HOME") or ".")
    if "TOOLGATE_PACKS_ENABLED" not in os.environ and not os.path.lexists(place / "toolgate.toml"):
        return {}
    from toolgate.config import load_settings

    try:
        # Only the packs' names are read, so it does not matter yet whether somebody chose this home.
        settings = load_settings(Path(home) if home else None, {}, os.environ, chosen=True)
    except ToolgateError:
        return {}  # the command that needs the settings says what is wrong with them
    return _brought_by((name for name in settings.packs.enabled if name not in shipped_packs()), {**OWN, **shipped()})


def _home(arguments: Sequence[str]) -> str | None:
    """What `--home` says, which is a flag of the command that is still to be found."""
    for at, flag in enumerate(arguments):
        if flag == "--home":
            return arguments[at + 1] if at + 1 < len(arguments) else None
        if flag.startswith("--home="):
            return flag.partition("=")[2]
    return None


def _brought_by(packs: Iterable[str], taken: Mapping[str, Command]) -> Mapping[str, Command]:
    from toolgate.packs.discovery import door_of  # what a pack may bring, which our own commands do without

    found: dict[str, Command] = {}
    for name in packs:
        try:
            commands = tuple(door_of(name).commands)
        except StartRefused as fault:
            output.note(f"note: {str(fault).partition(chr(10))[0]}; its commands are left out")
            continue
        for command in commands:
            if command.name in taken or command.name in found:
                output.note(f"note: pack {name} brings the command {command.name}, which is there already; left out")
            else:
                found[command.name] = command
    return found


def load(command: Command) -> Any:
    """The real command, from its own module. Raises: StartRefused: a pack's module cannot be imported."""
    try:
        target = named(command.target)
    except (ImportError, AttributeError) as fault:
        raise StartRefused(
            f"the command {command.name} cannot be loaded from {command.target} ({fault}).\nMend or update its package."
        ) from fault
    app = typer.Typer(add_completion=False)
    if isinstance(target, typer.Typer):
        app.add_typer(target, name=command.name, help=command.summary)
    else:
        app.command(command.name)(target)
    return get_group(app).commands[command.name]


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


def script(name: str) -> Any:
    """The command of a pack that a console script is called like. Raises: StartRefused."""
    found = find_command(name, sys.argv[1:])
    if found is None:
        raise StartRefused(f"no pack brings a command called {name}.\nInstall or enable the pack.")
    return load(found)
