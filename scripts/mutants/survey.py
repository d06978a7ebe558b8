"""Which tests reach which lines, and how long each takes: every test runs once, traced."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import coverage
import pytest

ENOUGH_S: Final = 6.0
"""Of the tests that reach a line, the quickest ones that took so long together when they were traced."""


class Survey:
    """A plugin of pytest: says to coverage which test runs, and keeps how long it took. One that fails because it is traced can
    tell nothing about a mutant."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.took: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            self.took[item.nodeid] = time.perf_counter() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


class Reached:
    """What a survey found."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._took: dict[str, float] = found["took"]
        self._useless = {"", *found["failed"]}
        self._lines: dict[str, dict[int, set[str]]] = {
            file: {int(line): set(names) for line, names in lines.items()} for file, lines in found["lines"].items()
        }

    def tests(self, path: Path, source: str, mutated: str) -> list[str]:
        """Those to be asked about a change, the quickest first."""
        names = self._reaching(str(path), source, _first_difference(source, mutated)) - self._useless
        took = 0.0
        chosen: list[str] = []
        for name in sorted(names, key=lambda name: self._took[name]):
            took += self._took[name]
            if took > ENOUGH_S and chosen:
                break
            chosen.append(name)
        return chosen

    def took(self, name: str) -> float:
        """Seconds, traced."""
        return self._took[name]

    def _reaching(self, file: str, source: str, line: int) -> set[str]:
        """What ran at import ran for no test, and is under the empty name: every test that uses the module is meant."""
        lines = self._lines.get(file, {})
        start, end = _statement(ast.parse(source), line)
        names: set[str] = set().union(*(lines.get(number, set()) for number in range(start, end + 1)))
        return names if "" not in names else names.union(*lines.values())


def surveyed(sources: Path, tests: Sequence[str], where: Path, flags: Sequence[str]) -> dict[str, Any] | None:
    """What stands from the last time, and anew what test files changed since; all of it anew if a source changed. None if pytest
    could not run them. Side effects: keeps it at `where`."""
    digests = {str(path): _digest(path) for test in tests for path in _test_files(Path(test))}
    of_sources = _digest(*sorted(sources.rglob("*.py")))
    found = json.loads(where.read_text()) if where.exists() else {}
    if found.get("sources") != of_sources:
        found = {"digests": {}, "lines": {}, "took": {}, "failed": []}
    changed = {file for file, digest in digests.items() if found["digests"].get(file) != digest}
    if changed:
        child = os.fork()
        if child == 0:
            os._exit(_survey(sources, sorted(changed), where.with_suffix(".new"), flags))
        if os.waitpid(child, 0)[1]:
            return None
        _merge(found, json.loads(where.with_suffix(".new").read_text()), changed)
    found |= {"sources": of_sources, "digests": digests}
    where.write_text(json.dumps(found))
    return found


def _survey(sources: Path, tests: Sequence[str], into: Path, flags: Sequence[str]) -> int:
    """In a process of its own, which imports everything. Side effects: writes what it found."""
    measured = coverage.Coverage(data_file=None, source=[str(sources)], messages=False)
    plugin = Survey(measured)
    measured.start()
    code = pytest.main([*flags, *tests], plugins=[plugin])
    measured.stop()
    data = measured.get_data()
    lines = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
    into.write_text(json.dumps({"lines": lines, "took": plugin.took, "failed": sorted(plugin.failed)}))
    sys.stdout.flush()
    return int(code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED))


def _merge(found: dict[str, Any], new: dict[str, Any], changed: set[str]) -> None:
    """Side effects: `found` holds both; of the changed files, what is new."""

    def kept(names: Iterable[str]) -> set[str]:
        return {name for name in names if name.partition("::")[0] not in changed}

    for file in {*found["lines"], *new["lines"]}:
        old, more = found["lines"].get(file, {}), new["lines"].get(file, {})
        lines = {line: sorted(kept(old.get(line, ())) | {*more.get(line, ())}) for line in {*old, *more}}
        found["lines"][file] = lines
    found["took"] |= new["took"]
    found["failed"] = sorted(kept(found["failed"]) | {*new["failed"]})


def _test_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def _digest(*paths: Path) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _first_difference(before: str, after: str) -> int:
    pairs = enumerate(zip(before.splitlines(), after.splitlines(), strict=False), 1)
    return next((number for number, (one, other) in pairs if one != other), len(before.splitlines()))


def _statement(tree: ast.AST, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement; of one that holds others, its head alone."""
    best, size = (line, line), sys.maxsize
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body and body[0].lineno > node.lineno else (node.end_lineno or node.lineno)
            if line <= end and end - node.lineno < size:
                best, size = (node.lineno, end), end - node.lineno
    return best
