"""zizmor beside our own rules: started first, read last. If it is missing, crashes or writes nonsense, the report says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

from toolgate.kit.reports.printable import printable
from toolgate.packs.governance.analysis.zizmor import MAX_SARIF_BYTES, SarifFault, missing, read_sarif
from toolgate.packs.governance.cli.local import repository_root
from toolgate.packs.governance.rules.base import RuleVerdict
from toolgate.packs.governance.rules.catalogue import ZIZMOR

TIMEOUT_S: Final = 60.0
"""Seconds after which zizmor is given up: it needs a third of one for forty workflows."""
ARGUMENTS: Final = (
    "--offline",
    "--no-progress",
    # A zizmor.yml could switch audits off, and nobody would be told.
    "--no-config",
    "--color=never",
    "--quiet",
    # Without it a file that zizmor cannot read would be left out in silence.
    "--strict-collection",
    "--format=sarif",
    ".",
)
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""Of the environment: no token, and no setting that would make it judge otherwise elsewhere."""


class Zizmor:
    """One run. Side effects: a process, ended by `verdict` or `close`; temporary files that nobody else sees."""

    def __init__(self, root: Path) -> None:
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None
        # zizmor names files from the top of the checkout, wherever it is started.
        below = root.resolve().relative_to(repository_root(root.resolve())).as_posix()
        self._prefix = "" if below == "." else f"{below}/"
        program = _program()
        if program is None:
            self._fault = "zizmor is not installed (pip install 'toolgate[zizmor]', or --zizmor off)"
            return
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 (a program from the PATH, by its full name)
                [program, *ARGUMENTS], cwd=root, env=kept, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err
            )
        except OSError as fault:
            self._fault = f"zizmor cannot be started: {fault.strerror}"

    def verdict(self) -> RuleVerdict:
        if self._process is None:
            return missing(self._fault)
        try:
            code = self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return missing(f"zizmor did not end within {TIMEOUT_S:.0f} s")
        if code != 0:
            return missing(f"zizmor failed (exit {code}): {self._complaint()}")
        self._out.seek(0)
        try:
            return RuleVerdict(ZIZMOR, "evaluated", read_sarif(self._out.read(MAX_SARIF_BYTES + 1), self._prefix))
        except SarifFault as fault:
            return missing(f"zizmor: {fault}")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._err.close()

    def _complaint(self) -> str:
        self._err.seek(0)
        lines = self._err.read(4096).decode(errors="replace").splitlines()
        told = next(
            (line for line in lines if line.startswith(("fatal", "error", "failed"))), lines[0] if lines else ""
        )
        return printable(told[:200]) or "it said nothing"


def _program() -> str | None:
    """Beside our own interpreter first: that is the one our extra installed."""
    beside = Path(sys.executable).parent
    return shutil.which("zizmor", path=str(beside)) or shutil.which("zizmor")
