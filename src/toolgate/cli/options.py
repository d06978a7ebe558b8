"""Flags that several commands share: the home directory, and one flag for every setting."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from toolgate.config import free_value, ignored_variables, load_settings, require_home
from toolgate.errors import SettingsError, StartRefused
from toolgate.settings import SPECS, Settings
from toolgate.settings.spec import Spec

Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
AlwaysJson = Annotated[bool, typer.Option("--json", help="Changes nothing: the answer is JSON.")]
"""For commands whose answer is JSON anyway, so that a program need not know which ones are."""
_SET: Final = "set_"
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Flags(NamedTuple):
    """The settings flags of one command line, not yet joined with the other sources."""

    home: Path | None
    values: Mapping[str, object]

    def load(self, home: Path | None = None) -> Settings:
        """`home`: a command's own default. Raises: SettingsError."""
        chosen = self.home is not None if home else None
        return load_settings(home or self.home, self.values, os.environ, chosen=chosen)


def settings_at(home: Path | None) -> Settings:
    """For commands without settings flags that also work where there is no home. Raises: SettingsError."""
    return load_settings(home, {}, os.environ)


def home_at(home: Path | None) -> Settings:
    """For commands that read or change what is in a home. Raises: SettingsError: there is none."""
    return require_home(settings_at(home))


def seconds_of(span: str, option: str) -> int:
    """`90m`, `12h`, `30d`, `8w`. Raises: typer.BadParameter."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", span)
    if not found:
        raise typer.BadParameter("give a number and a unit: 90m, 12h, 30d or 8w", param_hint=option)
    return int(found[1]) * _SECONDS[found[2]]


def note_ignored_variables(note: Callable[[str], None]) -> None:
    """An operator's own variables do not stop a server; one that was meant for it should not go unnoticed either."""
    for name in ignored_variables(os.environ):
        note(f"{name} is not a setting, and is ignored (docs/reference/settings.md has them all)")


def require_workspace(settings: Settings) -> None:
    """A home that was never made, or lost its workspace, is told so before anything else is. Raises: StartRefused."""
    require_home(settings)
    if not settings.paths.workspace.is_dir():
        raise StartRefused(
            f"There is no workspace at {settings.paths.workspace}.\nMake the directory, or name another: --paths-workspace PATH"
        )


def with_settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--home`, `--set` and a flag for every setting; it takes them as its first argument, `flags`."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = _shared_flags()

    @wraps(command)
    def wrapped(**given: Any) -> None:
        values: dict[str, object] = {spec.key: given.pop(_name(spec)) for spec in SPECS}
        home, pairs = given.pop("home"), given.pop(_SET)
        command(Flags(home, values | _pairs(pairs or ())), **given)

    wrapped.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]  # typer reads it
    wrapped.__annotations__ = {each.name: each.annotation for each in [*own, *shared]}
    return wrapped


@cache
def _shared_flags() -> list[inspect.Parameter]:
    return [
        _parameter("home", Home, None),
        *(_parameter(_name(spec), _annotation(spec), None) for spec in SPECS),
        _parameter(
            _SET,
            Annotated[
                list[str] | None,
                typer.Option(
                    "--set", metavar="KEY=VALUE", help="Any setting by its key; for packs' own: packs.NAME.KEY."
                ),
            ],
            None,
        ),
    ]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _name(spec: Spec) -> str:
    return spec.key.replace(".", "__")


def _annotation(spec: Spec) -> Any:
    """A flag that keeps the text as typed: `config` reads it, so that every source has one reader and one message."""
    names = [spec.flag, *([spec.short] if spec.short else [])]
    panel = f"Settings: {spec.key.partition('.')[0]}" if "." in spec.key else "Settings"
    about = f"{spec.about[0].upper()}{spec.about[1:]} ({'; '.join([*_parts(spec.measure), _default(spec)])})."
    if spec.kind == "switch":
        return Annotated[
            bool | None, typer.Option(f"{spec.flag}/--no-{spec.flag[2:]}", help=about, rich_help_panel=panel)
        ]
    if spec.secret:
        # Taken only to say, in place of `no such option`, where the value belongs.
        return Annotated[str | None, typer.Option(spec.flag, hidden=True, rich_help_panel=panel)]
    metavar = {"whole": "N", "number": "N", "place": "PATH", "words": "A,B", "text": "TEXT"}[spec.kind]
    return Annotated[
        str | None, typer.Option(*names, metavar=metavar, help=about, rich_help_panel=panel, show_default=False)
    ]


def _parts(text: str) -> list[str]:
    return [text] if text else []


def _default(spec: Spec) -> str:
    value = ",".join(spec.default) if isinstance(spec.default, tuple) else str(spec.default)
    return f"default {value.lower() if spec.kind == 'switch' else value or 'none'}"


def _pairs(pairs: list[str] | tuple[()]) -> dict[str, object]:
    values: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"flag --set: {key} has no value.\nWrite --set KEY=VALUE.")
        values[key] = free_value(text) if key.startswith("packs.") and key.count(".") >= 2 else text
    return values
