"""Pandoc as a program: found, checked for its version, run in its own sandbox within bounds of time, memory and output.

For the commands `lra build`, `lra export` and `lra serve` alone: a tool starts no program (ADR-0020).
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

from toolgate.errors import ToolError
from toolgate.later import later
from toolgate.packs.lra.build.convert import Converted

OLDEST: Final = (3, 1)
"""The first with figures as blocks of their own; 3.1 mends what 3.0 broke in them."""
TIME_LIMIT_S: Final = 120.0
"""Seconds for one run: a thesis of two megabytes takes ten. Pandoc's readers have inputs that never end."""
MEMORY_LIMIT: Final = "2g"
"""Of Pandoc's heap (its own manual's advice against such inputs)."""
READING: Final = ("-A16m", "-H1m")
WRITING: Final = ("-A32m",)
"""What Pandoc may fill with new data before it collects garbage, which costs time, as memory does that is touched for the first
time: to read a paper needs little, so its own wish for a heap of 64 MB is taken back there; to write one needs more."""
OUTPUT_LIMIT: Final = 128 * 1024 * 1024
"""Bytes of one run's output, and of the pictures inside a source."""
INSTALL: Final = "pip install 'toolgate[papers]'"
_READ_JSON: Final = later("json:loads")
_CHUNK: Final = 1 << 20
_ERROR_SHOWN: Final = 4000


def find() -> Pandoc:
    """The program on the PATH if it is new enough, else the one that the extra `papers` brings.

    Raises: ToolError UNAVAILABLE: there is none, or it is too old.
    """
    old = ""
    for program in _candidates():
        version = _version(program)
        if version >= OLDEST:
            return Pandoc(program)
        old = old or f"{program} is {'.'.join(map(str, version)) or 'no Pandoc'}; "
    oldest = ".".join(map(str, OLDEST))
    raise ToolError("UNAVAILABLE", f"{old}this needs Pandoc {oldest} or newer: {INSTALL} brings one")


def _candidates() -> list[str]:
    on_path = shutil.which("pandoc")
    spec = find_spec("pypandoc")  # found, not imported: only its program is wanted
    brought = (
        [str(Path(place) / "files" / "pandoc") for place in (spec.submodule_search_locations or [])] if spec else []
    )
    return [program for program in (on_path, *brought) if program and Path(program).is_file()]


def _version(program: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(  # noqa: S603 (the program found above, no argument of a stranger)
            [program, "--version"], capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.match(rb"pandoc(?:\.exe)? ([0-9]+(?:\.[0-9]+)*)", done.stdout)
    return tuple(int(part) for part in match[1].split(b".")) if match else ()


class Pandoc:
    """Implements `build.convert.Converter`."""

    def __init__(self, program: str) -> None:
        self.program = program

    def start(
        self, arguments: Sequence[str], data: bytes, files: Mapping[str, bytes] | None = None, *, media: bool = False
    ) -> Run:
        return Run(self.program, arguments, data, files or {}, media=media)


class Run:
    """One conversion under way, in a private directory that goes with it."""

    def __init__(
        self, program: str, arguments: Sequence[str], data: bytes, files: Mapping[str, bytes], *, media: bool
    ) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="lra-pandoc-")
        here = Path(self._place.name)
        for name, content in files.items():
            (here / name).write_bytes(content)
        (here / "input").write_bytes(data)
        nursery = READING if "--to=json" in arguments else WRITING
        bounds = ["+RTS", f"-M{MEMORY_LIMIT}", *nursery, "-RTS"]
        command = [program, *bounds, "--sandbox", "--quiet", "--log=log.json", *arguments]
        command += ["--extract-media=media"] if media else []
        with (here / "input").open("rb") as source, (here / "errors").open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 (the checked program; arguments are ours, the text is on stdin)
                command, stdin=source, stdout=subprocess.PIPE, stderr=errors, cwd=here, env=_environment(here)
            )
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._timer = threading.Timer(TIME_LIMIT_S, self._process.kill)
        self._timer.daemon = True
        self._timer.start()

    def _read(self, stream: IO[bytes]) -> None:
        room = OUTPUT_LIMIT
        while chunk := stream.read(_CHUNK):
            room -= len(chunk)
            if room < 0:
                self._process.kill()
                return
            self._chunks.append(chunk)

    def result(self) -> Converted:
        """Raises: ToolError UNAVAILABLE."""
        with self._place:
            self._reader.join()
            code = self._process.wait()
            self._timer.cancel()
            if self._process.stdout is not None:
                self._process.stdout.close()
            return self._converted(code, Path(self._place.name))

    def _converted(self, code: int, here: Path) -> Converted:
        if code < 0:
            limits = f"{TIME_LIMIT_S:.0f} s of time and {OUTPUT_LIMIT >> 20} MiB of output"
            raise ToolError("UNAVAILABLE", f"Pandoc was stopped: it needs more than {limits}")
        if code in {2, 251}:  # the Haskell runtime's own: stack or heap exhausted
            raise ToolError("UNAVAILABLE", f"Pandoc was stopped: it needs more than {MEMORY_LIMIT} of memory")
        if code:
            said = (here / "errors").read_bytes()[:_ERROR_SHOWN].decode("utf-8", "replace")
            return Converted(b"", [], error=said.strip() or f"Pandoc failed with code {code}")
        return Converted(b"".join(self._chunks), _messages(here / "log.json"), _media(here / "media"))


def _environment(here: Path) -> dict[str, str]:
    """Nothing of the person's: their data directory could change what the same source becomes."""
    return {"HOME": str(here), "XDG_DATA_HOME": str(here), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TMPDIR": str(here)}


def _messages(path: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        found: list[dict[str, Any]] = _READ_JSON(path.read_bytes())
        return found
    return []


def _media(directory: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    room = OUTPUT_LIMIT
    for path in sorted(directory.rglob("*")) if directory.is_dir() else []:
        if path.is_file() and not path.is_symlink():
            room -= path.stat().st_size
            if room < 0:
                raise ToolError("UNAVAILABLE", f"the pictures inside the source are over {OUTPUT_LIMIT >> 20} MiB")
            found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found
