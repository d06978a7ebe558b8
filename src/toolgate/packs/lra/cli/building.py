"""`lra build` and `lra export`: their flags and their help. `making/` makes the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.later import done_by
from toolgate.packs.lra.cli.shared import JsonLine

app = typer.Typer(add_completion=False)

Source = Annotated[Path, typer.Argument(help="The source: Markdown, LaTeX, a notebook or a Word document.")]
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="FORM", help="markdown, latex, ipynb or docx, with Pandoc's extensions; else by the ending."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that no build wrote; they are named first.")]


@app.command()
@done_by("toolgate.packs.lra.cli.making.building:build")
def build(
    source: Source = Path("paper.md"),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The paper's directory; else named as the file.")
    ] = None,
    form: From = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Build again whenever the source or a file beside it changes.")
    ] = False,
    force: Force = False,
    json: JsonLine = False,
) -> None:
    """Make a paper directory from its source. Files of an earlier build are replaced, others never without --force."""


@app.command()
@done_by("toolgate.packs.lra.cli.making.exporting:export")
def export(
    source: Source = Path("paper.md"),
    to: Annotated[str, typer.Option("--to", help="pdf | docx | jats | latex | epub")] = "pdf",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; else named as the source.")
    ] = None,
    form: From = "",
    force: Force = False,
    json: JsonLine = False,
) -> None:
    """Write the paper as PDF, Word, JATS, LaTeX or EPUB, with the same numbers and references as the page."""
