"""`lra build` and `lra export`: a source becomes a paper, or a document of another form, by Pandoc and, for PDF, a browser."""

from __future__ import annotations

import sys
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.errors import ExitCode, ToolError
from toolgate.packs.lra.build import manifest
from toolgate.packs.lra.build.assemble import build as assemble
from toolgate.packs.lra.build.export import export as write
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.build.reading import SourceRequest
from toolgate.packs.lra.cli import browser
from toolgate.packs.lra.cli.pandoc import find
from toolgate.packs.lra.cli.shared import JsonLine, note, say, say_json_line
from toolgate.powers.files import open_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolgate.packs.lra.build.convert import Converter

app = typer.Typer(add_completion=False)

Source = Annotated[Path, typer.Argument(help="The source: Markdown, LaTeX, a notebook or a Word document.")]
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="FORM", help="markdown, latex, ipynb or docx, with Pandoc's extensions; else by the ending."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that no build wrote; they are named first.")]
SUFFIXES: Final = {"pdf": ".pdf", "docx": ".docx", "jats": ".xml", "latex": ".tex", "epub": ".epub"}


@app.command()
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
    target = output or source.with_suffix("")
    if watch:
        _watch(source, target, form, force=force)
    else:
        _answer(source, target, form, force=force, json=json)


def _answer(source: Path, target: Path, form: str, *, force: bool, json: bool) -> None:
    try:
        made = build_paper(source, target, form, force=force)
    except BuildFault as fault:
        if json:
            say_json_line(fault.data)
        tell(fault)
        raise typer.Exit(ExitCode.FAILED) from None
    if json:
        say_json_line({"source": str(source), "output": str(target), "files": list(made)})
    else:
        say(f"Built: {source} -> {target}/ ({sum(map(len, made.values()))} bytes in {len(made)} files)\n")


def tell(fault: ToolError) -> None:
    """Every fault on a line of its own, and how many there are."""
    lines = fault.text.split("\n")
    for line in lines:
        note(f"error: {line}")
    if len(lines) > 1:
        note(f"{len(lines)} faults; nothing was written")


def build_paper(source: Path, target: Path, form: str = "", *, force: bool = False) -> dict[str, bytes]:
    """Build and write. Side effects: files of the paper's directory are written; those of an earlier build that it no longer
    has are removed.

    Raises: BuildFault, ToolError UNAVAILABLE, FILE_EXISTS.
    """
    if target.resolve() == source.parent.resolve():
        raise typer.BadParameter("the paper goes into a directory of its own, not beside its source")
    files = assemble(SourceRequest(source.name, beside(source.parent), _pandoc(), form)).files
    there = beside(target)
    old = manifest.parse(there(manifest.NAME, manifest.MAX_BYTES))
    change = manifest.compare(old, files, lambda name: there(name, sys.maxsize))
    if change.replaced:
        _refuse_or_say(target, change.replaced, force=force)
    _write(target, files, change.stale, manifest.of(_relative(source, target), files))
    return files


def _pandoc() -> Converter:
    return find()


def beside(directory: Path) -> Callable[[str, int], bytes | None]:
    """Reads files of a person's own directory, links followed; None when there is none.

    Raises (when called): ToolError PAYLOAD_TOO_LARGE.
    """

    def read(path: str, limit: int) -> bytes | None:
        place = directory / path
        try:
            if not place.is_file():
                return None
        except OSError:  # a name that no file can have
            return None
        size = place.stat().st_size
        if size > limit:
            raise ToolError("PAYLOAD_TOO_LARGE", f"{path} has {size} bytes, over the limit of {limit}")
        return place.read_bytes()

    return read


def _refuse_or_say(target: Path, names: list[str], *, force: bool) -> None:
    listed = ", ".join(sorted(names)[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    if not force:
        raise ToolError(
            "FILE_EXISTS",
            f"{target} holds files that no build wrote, or that were edited since: {listed}. Nothing was written. "
            "Name another directory with -o, or replace them with --force",
        )
    note(f"Replacing in {target}: {listed}")


def _write(target: Path, files: dict[str, bytes], stale: list[str], manifest_data: bytes) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with open_directory(target) as place:
        for name, data in files.items():
            if (target / name).is_file() and (target / name).read_bytes() == data:
                continue
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(name, data)
        for name in stale:
            (target / name).unlink(missing_ok=True)
        place.write_bytes(manifest.NAME, manifest_data)


def _relative(source: Path, target: Path) -> str:
    return Path(relpath(source.resolve(), target.resolve())).as_posix()


def _watch(source: Path, target: Path, form: str, *, force: bool) -> None:
    if not source.is_file():
        raise ToolError("FILE_NOT_FOUND", f"{source}: there is no such file", missing=True)
    for _ in changes(source, target):
        rebuild(source, target, form, force=force)
        sys.stdout.flush()


def rebuild(source: Path, target: Path, form: str = "", *, force: bool = False) -> None:
    """One build while watching: a fault now may be mended by the next change."""
    try:
        made = build_paper(source, target, form, force=force)
    except ToolError as fault:
        tell(fault)
    else:
        say(f"Built: {source} -> {target}/ ({len(made)} files)\n")


def changes(source: Path, target: Path) -> Iterator[None]:
    """Once at the start, then whenever something beside the source has changed that is not the paper itself."""
    from watchfiles import watch

    first = True
    # The first build waits for the watcher, or a change between the two would be lost.
    for batch in watch(
        source.parent, watch_filter=concerns(target), raise_interrupt=False, yield_on_timeout=True, rust_timeout=200
    ):
        if batch or first:
            first = False
            yield


def concerns(target: Path) -> Callable[[Any, str], bool]:
    inside = str(target.resolve())

    def filter_change(_: Any, path: str) -> bool:
        real = str(Path(path).resolve())
        return not real.startswith(f"{inside}/") and "/." not in path and not path.endswith("~")

    return filter_change


def served(path: Path) -> tuple[Path, Path | None]:
    """What `lra serve` shows: a directory, and the source it is built from, when it has one.

    Raises: ToolError FILE_NOT_FOUND; as `build_paper`, when the path is a source.
    """
    if path.is_file() and path.suffix.lower() not in {".html", ".htm"}:
        _answer(path, path.with_suffix(""), "", force=False, json=False)
        return path.with_suffix(""), path
    if not path.is_dir():
        raise ToolError("FILE_NOT_FOUND", f"{path} is not a directory", missing=True)
    named = manifest.parse(beside(path)(manifest.NAME, manifest.MAX_BYTES)).source
    source = path / named if named else None
    return path, source.resolve() if source is not None and source.is_file() else None


@app.command()
def export(
    source: Source = Path("paper.md"),
    to: Annotated[str, typer.Option("--to", help=" | ".join(SUFFIXES))] = "pdf",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; else named as the source.")
    ] = None,
    form: From = "",
    force: Force = False,
    json: JsonLine = False,
) -> None:
    """Write the paper as PDF, Word, JATS, LaTeX or EPUB, with the same numbers and references as the page."""
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
        raise typer.Exit(ExitCode.FAILED) from None
    target.write_bytes(data)
    if json:
        say_json_line({"source": str(source), "output": str(target), "bytes": len(data)})
    else:
        say(f"Exported: {source} -> {target} ({len(data)} bytes)\n")


def _exported(source: Path, to: str, form: str) -> bytes:
    request = SourceRequest(source.name, beside(source.parent), _pandoc(), form)
    if to == "pdf":
        program = browser.find()
        return browser.print_pdf(program, assemble(request).files)
    return write(request, to)
