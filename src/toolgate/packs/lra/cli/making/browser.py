"""The browser that is there, for one thing: printing a paper to PDF."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from toolgate.errors import ToolError

NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "brave-browser",
)
PLACES: Final = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
TIME_LIMIT_S: Final = 120
"""Seconds for one paper: a thesis with many figures takes ten."""


def find() -> str:
    """Raises: ToolError UNAVAILABLE."""
    found = next(
        (place for place in (*(shutil.which(name) for name in NAMES), *PLACES) if place and Path(place).is_file()), None
    )
    if found is None:
        raise ToolError(
            "UNAVAILABLE",
            "PDF is printed by a browser, and there is none here: install Chromium, Chrome or Edge, or export --to docx or latex",
        )
    return found


def print_pdf(program: str, files: dict[str, bytes]) -> bytes:
    """The page of a paper on paper. Raises: ToolError UNAVAILABLE."""
    with tempfile.TemporaryDirectory(prefix="lra-pdf-") as name:
        here = Path(name)
        for path, data in files.items():
            (here / "paper" / path).parent.mkdir(parents=True, exist_ok=True)
            (here / "paper" / path).write_bytes(data)
        command = [
            program,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--no-pdf-header-footer",
            "--disable-extensions",
        ]
        # The browser's own sandbox does not start as root (containers); the page is the author's own and loads nothing else.
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        command += [f"--user-data-dir={here / 'profile'}", f"--print-to-pdf={here / 'out.pdf'}"]
        command.append((here / "paper" / "index.html").as_uri())
        try:
            subprocess.run(  # noqa: S603 (a browser found above, on files of our own)
                command, check=False, timeout=TIME_LIMIT_S, capture_output=True, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise ToolError("UNAVAILABLE", f"{program} did not print within {TIME_LIMIT_S} s") from None
        if not (here / "out.pdf").is_file():
            raise ToolError(
                "UNAVAILABLE", f"{program} printed nothing; try another browser, or export --to docx or latex"
            )
        return (here / "out.pdf").read_bytes()
