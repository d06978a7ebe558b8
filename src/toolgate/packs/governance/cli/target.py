"""What a person named on the command line: a repository, or files of one. All of it is judged, or the command fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec import Struct

from toolgate.packs.governance.cli.common import below, directory, existing
from toolgate.packs.governance.cli.local import repository_root
from toolgate.packs.governance.repository.model import JUDGED_TYPES, file_type

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandTarget(Struct, frozen=True):
    root: Path
    files: tuple[str, ...] = ()
    """As the repository calls them; none means all of it."""


def target_of(paths: Sequence[Path], root: Path | None) -> CommandTarget:
    """Raises: typer.BadParameter: something that cannot be judged was named."""
    if len(paths) == 1 and paths[0].is_dir():
        if root is not None:
            raise typer.BadParameter(f"{paths[0]} is a directory: name it, or --root, not both")
        return CommandTarget(_a_repository(paths[0].resolve()))
    place = directory(root) or repository_root(Path.cwd())
    named = tuple(below(place, path) for path in existing(paths))
    if named and not any(file_type(name) in JUDGED_TYPES for name in named):
        raise typer.BadParameter(
            f"no rule is about {paths[0]}: name workflows, actions, branch protection, policy or contract, or nothing"
        )
    return CommandTarget(place, named)


def _a_repository(place: Path) -> Path:
    if not any((place / name).exists() for name in (".git", ".github", ".toolgate.toml")):
        raise typer.BadParameter(f"{place} is not a repository: it has neither .git nor .github")
    return place
