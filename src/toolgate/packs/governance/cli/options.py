"""Flags that the commands of this pack share, and the words that they take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Mode(StrEnum):
    """What kind of change is judged."""

    pull_request = "pull_request"
    issue = "issue"
    merge_group = "merge_group"
    drift = "drift"
    calibration = "calibration"


class Switch(StrEnum):
    """Whether zizmor is asked too."""

    auto = "auto"
    on = "on"
    off = "off"


class Format(StrEnum):
    """How the answer is written."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
    junit = "junit"
    markdown = "markdown"


class Threshold(StrEnum):
    """From when the exit code is not 0."""

    block = "block"
    warn = "warn"


class Default(StrEnum):
    """What a workflow token may do where no permissions are stated."""

    read = "read"
    write = "write"


Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")
]
Root = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The repository; else the one around here.")]
Form = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the answer there.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
FailOn = Annotated[Threshold, typer.Option("--fail-on", help="warn: exit 4 on warnings.")]
Binding = Annotated[bool, typer.Option("--require-binding", help="Exit 5 unless real stores make the answer binding.")]
Permissions = Annotated[
    Default | None,
    typer.Option("--default-permissions", help="The repository's default for tokens that state none; else unknown."),
]
About = Annotated[
    str | None, typer.Option("--context", help="owner/name or owner/name@commit: whose baseline and suppressions.")
]
