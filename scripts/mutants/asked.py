"""Shows one mutant after another to the tests, each in a fork of a process that has collected them.

    python -m scripts.mutants.asked SOCKET SOURCES TEST ...

Before the first, every test runs once, and what it reaches is kept line by line (`survey.py`): a mutant is shown to the tests
that reach its line and to no other, the quickest first. In the fork the changed functions get their new code (`swap.py`). What a
mutant changes at import, every module would have to be imported again to see: for those, pytest starts anew.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

from scripts.mutants.survey import Reached, surveyed
from scripts.mutants.swap import Swaps

QUIET: Final = ("-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not guard", "--no-header", "--tb=no")
PATIENCE_S, PATIENCE = 5.0, 5
"""A test that takes longer than the first and the second times what it took waits for ever, or the machine is busy."""
FILES_AT_IMPORT: Final = 4
"""Files of tests that a change at import is shown to: those with the most tests that reach the module."""
LONGEST_NAME: Final = 500


class Asked:
    """A plugin of pytest: where it would run what it has collected, it waits for mutants."""

    def __init__(self, where: Path, sources: Path, reached: Reached) -> None:
        self.where, self.reached = where, reached
        self.originals = {path: path.read_text() for path in sources.rglob("*.py")}
        self.items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.swaps = Swaps(self.originals)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.where))
            listening.listen()
            while True:
                connection, _ = listening.accept()
                with connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        """Is the mutant that stands in the tree now noticed? In a word, and which test noticed it."""
        self.running = mmap.mmap(-1, LONGEST_NAME)
        child = os.fork()
        if child == 0:
            os.setsid()
            code = 1  # a mutant that even pytest does not survive
            try:
                code = int(self._is_noticed())
            finally:
                os._exit(code)
        word = _waited(child, connection)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        name = "" if word == "survived" else f" {self.running.read().rstrip(bytes(1)).decode(errors='replace')}"
        with contextlib.suppress(OSError):
            connection.sendall(f"{word}{name}".encode())

    def _is_noticed(self) -> bool:
        """In the fork."""
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        changed = next((path for path, source in self.originals.items() if path.read_text() != source), None)
        if changed is None:
            return False
        mutated = changed.read_text()
        tests = self.reached.tests(changed, self.originals[changed], mutated)
        if not self.swaps.take(changed, mutated):
            self._say("at import")
            return bool(tests) and _is_noticed_at_import(tests)
        return any(self._fails(self.items[name]) for name in tests if name in self.items)

    def _fails(self, item: pytest.Item) -> bool:
        self._say(item.nodeid)
        signal.alarm(int(PATIENCE_S + PATIENCE * self.reached.took(item.nodeid)))  # ends the fork
        return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))

    def _say(self, name: str) -> None:
        """What runs now, to the process that waits for this one."""
        self.running[:] = name.encode()[:LONGEST_NAME].ljust(LONGEST_NAME, bytes(1))


def _is_noticed_at_import(tests: Sequence[str]) -> bool:
    count: dict[str, int] = {}
    for name in tests:
        file = name.partition("::")[0]
        count[file] = count.get(file, 0) + 1
    files = sorted(count, key=lambda file: -count[file])[:FILES_AT_IMPORT]
    command = [sys.executable, "-B", "-m", "pytest", *QUIET, "-x", *files]
    # No bytecode: a mutant can be as long as the original and as young.
    return subprocess.run(command, check=False).returncode != 0


def _waited(child: int, connection: socket.socket) -> str:
    """Until the child ends, or until whoever asks has waited too long and has gone."""
    ended = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([ended, connection], [], [])
        if ended not in ready:
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ended)
    return {0: "survived", -signal.SIGALRM: "waited"}.get(code, "failed")


def main() -> int:
    where, sources, tests = Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:]
    found = surveyed(sources, tests, where.with_suffix(".json"), QUIET)
    if found is None:
        return 1
    return int(pytest.main([*QUIET, *tests], plugins=[Asked(where, sources, Reached(found))]))


if __name__ == "__main__":
    sys.exit(main())
