"""Groups of commands whose modules are imported when a command is run, not to list it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from toolgate.later import Command, named


class LazyGroup(TyperGroup):
    """Each command's target names the typer application, `module:name`, that has a command of its name."""

    listed: ClassVar[Sequence[Command]] = ()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the name click calls it by)
        return [command.name for command in self.listed]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 (as above)
        """For help and for completing names: a name and a summary are enough."""
        command = self._find(cmd_name)
        return TyperCommand(command.name, help=command.summary) if command else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        command = self._find(args[0])
        if command is not None:
            return command.name, get_group(named(command.target)).commands[command.name], args[1:]
        self.commands = {command.name: self.get_command(ctx, command.name) for command in self.listed}
        return super().resolve_command(ctx, args)  # says which of them may have been meant

    def _find(self, name: str) -> Command | None:
        return next((command for command in self.listed if command.name == name), None)
