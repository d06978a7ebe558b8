"""`toolgate pack new`: a working pack to start from."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from toolgate.cli import output
from toolgate.cli.options import Json
from toolgate.errors import StartRefused
from toolgate.settings import DEFAULT_PACKS

app = typer.Typer(no_args_is_help=True)

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_NAME: Final = 40
"""Characters: the tools' names begin with it, and clients put their own prefix before those."""
_RESERVED: Final = frozenset({*DEFAULT_PACKS, "toolgate"})


@app.callback()
def _pack() -> None:
    """Start a pack of your own tools."""


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower-case letters and digits, with dashes: word-count.")
    ],
    directory: Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="Where; else ./NAME.")] = None,
    json: Json = False,
) -> None:
    """Write a pack with one tool, its schemas, a test and the manifest row that lets it live."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME or name in _RESERVED:
        raise typer.BadParameter(
            f"a pack's name is lower-case letters and digits with single dashes, at most {_MAX_NAME} characters, "
            "and not that of a pack of Toolgate",
            param_hint="NAME",
        )
    target = (directory or Path(name)).absolute()
    written = write_pack(name, target)
    if json:
        output.answer_json({"pack": name, "directory": str(target), "files": written})
        return
    output.say(f"Made the pack {name} in {target}", style="bold green")
    output.say("".join(f"  {file}\n" for file in written))
    output.say("README.md there has the five steps to its first call.")


def write_pack(name: str, target: Path) -> list[str]:
    """All files, or nothing. Side effects: makes `target`. Raises: StartRefused."""
    prefix = name.replace("-", "_")
    module = f"toolgate_pack_{prefix}"
    words = {
        "name": name,
        "prefix": prefix,
        "module": module,
        "distribution": f"toolgate-pack-{name}",
        "directory": target.name,
    }
    places = {
        "README.md": "README.md",
        "policy-row.json": "policy-row.json",
        "pyproject.toml": "pyproject.toml",
        f"src/{module}/__init__.py": "pack.py",
        f"tests/test_{prefix}.py": "test_pack.py",
    }
    try:
        target.mkdir(parents=True)
    except FileExistsError:
        raise StartRefused(f"{target} is already there.\nName another place with --dir.") from None
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, target)
        for place, template in places.items():
            text = (files("toolgate.cli") / "template" / f"{template}.txt").read_text("utf-8")
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            (target / place).write_text(Template(text).substitute(words), "utf-8")
        undo.pop_all()
    return list(places)
