"""What `lra export` does: a source becomes a document of another form, by Pandoc and, for PDF, a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import typer

from toolgate.errors import ExitCode, ToolError
from toolgate.packs.lra.build.assemble import build as assemble
from toolgate.packs.lra.build.convert import SourceRequest
from toolgate.packs.lra.build.export import export as write
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.cli.border import note, say
from toolgate.packs.lra.cli.making import browser
from toolgate.packs.lra.cli.making.building import beside, tell
from toolgate.packs.lra.cli.making.pandoc import find
from toolgate.packs.lra.cli.shared import say_json_line

SUFFIXES: Final = {"pdf": ".pdf", "docx": ".docx", "jats": ".xml", "latex": ".tex", "epub": ".epub"}


def export(source: Path, to: str, output: Path | None, form: str, force: bool, json: bool) -> None:
    if to not in SUFFIXES:
        raise typer.BadParameter(f"--to is one of {', '.join(SUFFIXES)}")
    target = output or source.with_suffix(SUFFIXES[to])
    if target.resolve() == source.resolve():
        raise typer.BadParameter("the export would replace its source; name another file with -o")
    if target.exists():
        if not force:
            raise ToolError(
                "FILE_EXISTS", f"{target} is there already; replace it with --force, or name another with -o"
            )
        note(f"Replacing {target}")
    try:
        data = _exported(source, to, form)
    except BuildFault as fault:
        tell(fault)
        raise SystemExit(ExitCode.FAILED) from None
    target.write_bytes(data)
    if json:
        say_json_line({"source": str(source), "output": str(target), "bytes": len(data)})
    else:
        say(f"Exported: {source} -> {target} ({len(data)} bytes)\n")


def _exported(source: Path, to: str, form: str) -> bytes:
    request = SourceRequest(source.name, beside(source.parent), find(), form)
    if to == "pdf":
        program = browser.find()
        return browser.print_pdf(program, assemble(request).files)
    return write(request, to)
