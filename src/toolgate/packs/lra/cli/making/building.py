"""What `lra build` does: a source becomes a paper, by Pandoc.

Pandoc reads the source while the modules that work on what it has read are imported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ExitCode, ToolError
from toolgate.later import later, load
from toolgate.packs.lra.build.convert import SourceRequest, open_source
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.cli.border import note, say
from toolgate.packs.lra.cli.making.pandoc import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ASSEMBLE: Final = later("toolgate.packs.lra.build.assemble:build")
_WRITE: Final = later("toolgate.packs.lra.cli.making.writing:write_paper")
_SOURCE_OF: Final = later("toolgate.packs.lra.cli.making.writing:source_of")
_SAY_JSON_LINE: Final = later("toolgate.packs.lra.cli.shared:say_json_line")
_USAGE_FAULT: Final = later("typer:BadParameter")


def build(source: Path, output: Path | None, form: str, watch: bool, force: bool, json: bool) -> None:
    target = output or source.with_suffix("")
    if watch:
        _watch(source, target, form, force=force)
    else:
        answer(source, target, form, force=force, json=json)


def answer(source: Path, target: Path, form: str, *, force: bool, json: bool) -> None:
    """Build, and tell how it went. Raises: SystemExit; as `build_paper`."""
    try:
        made = build_paper(source, target, form, force=force)
    except BuildFault as fault:
        if json:
            _SAY_JSON_LINE(fault.data)
        tell(fault)
        raise SystemExit(ExitCode.FAILED) from None
    if json:
        _SAY_JSON_LINE({"source": str(source), "output": str(target), "files": list(made)})
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
    if is_beside(source, target):
        raise _USAGE_FAULT("the paper goes into a directory of its own, not beside its source")
    request = SourceRequest(source.name, beside(source.parent), find(), form)
    files: dict[str, bytes] = _ASSEMBLE(request, open_source(request), lambda: load(_WRITE)).files
    _WRITE(source, target, files, force=force)
    return files


def is_beside(source: Path, target: Path) -> bool:
    """Would the paper's files stand among its source's?"""
    return target.resolve() == source.parent.resolve()


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
        answer(path, path.with_suffix(""), "", force=False, json=False)
        return path.with_suffix(""), path
    if not path.is_dir():
        raise ToolError("FILE_NOT_FOUND", f"{path} is not a directory", missing=True)
    named = _SOURCE_OF(path)
    source = path / named if named else None
    return path, source.resolve() if source is not None and source.is_file() else None
