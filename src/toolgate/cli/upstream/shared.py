"""What the commands share: an upstream by its name, its pin, and how a person is asked and told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.cli import output
from toolgate.errors import SettingsError, StartRefused
from toolgate.model.suggest import did_you_mean
from toolgate.powers.mcp.table import read_table
from toolgate.upstreams import read_pins

if TYPE_CHECKING:
    from toolgate.kit.pins import Pin
    from toolgate.powers.mcp.table import UpstreamTable
    from toolgate.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The upstream, as `toolgate upstream list` shows it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def table_of(settings: Settings, name: str) -> UpstreamTable:
    """Raises: SettingsError."""
    if name not in settings.upstreams:
        near = did_you_mean(name, settings.upstreams)
        raise SettingsError(f"There is no upstream of this name.\n{near or 'toolgate upstream list shows them.'}")
    return read_table(name, settings.upstreams[name])


def pin_at(settings: Settings, name: str) -> Pin:
    """Raises: StartRefused."""
    table_of(settings, name)
    pin = read_pins(settings.paths.policy, [name]).get(name)
    if pin is None:
        raise StartRefused(f"{name} is not adopted.\nRun toolgate upstream adopt {name} --roles ...")
    return pin


def confirmed(question: str) -> bool:
    """Raises: StartRefused: nobody is there to answer."""
    if not sys.stdin.isatty():
        raise StartRefused("Nobody is at the terminal to be asked.\nRead what it shows, then add --yes.")
    return typer.confirm(question)


def report(json: bool, answer: Mapping[str, Any], text: str) -> None:
    if json:
        output.answer_json(dict(answer))
    else:
        output.say(text)
