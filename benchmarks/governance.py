"""`make governance-bench`: precision and recall of each rule on the corpus, beside zizmor's on the same files; and speed.

zizmor is asked as people ask it first (offline, regular persona). Its findings are compared where they answer the question
that a rule of ours asks; what only one of the two asks has no number for the other.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.packs.governance.corpus_reader import Construct, Expected, constructs, found_in
from toolgate.kit.findings import Finding
from toolgate.packs.governance.analysis.zizmor import read_sarif

UNKNOWN = "L0-002/unknown"
SAME = {
    "MD-002/action": ("zizmor/unpinned-uses", ""),
    "MD-002/image": ("zizmor/unpinned-images", ""),
    "MD-002/installer": ("zizmor/adhoc-packages", ""),
    "L0-002/write-all": ("zizmor/excessive-permissions", "write-all"),
    UNKNOWN: ("zizmor/excessive-permissions", "default permissions"),
}
"""Rule -> zizmor's audit with the same question, and the words in its message where an audit asks several."""
LEAST_PRECISION = 0.95
UNASKED = frozenset({"ignores", "allowed-writers", "default-is-read", "default-is-write"})
"""Constructs whose answer stands in what only we read: our comments, our settings. zizmor is not scored there."""
COLD_WORKFLOWS = 50
COLD_RUNS = 5


class Score(NamedTuple):
    hits: int
    alarms: int
    missed: int

    @property
    def precision(self) -> float | None:
        told = self.hits + self.alarms
        return self.hits / told if told else None

    @property
    def recall(self) -> float | None:
        real = self.hits + self.missed
        return self.hits / real if real else None


def score(expected: set[Expected], found: set[Expected], *, by_severity: bool = True) -> Score:
    def keys(some: set[Expected]) -> set[tuple[object, ...]]:
        return {tuple(one) if by_severity else (one.file, one.line) for one in some}

    wanted, told = keys(expected), keys(found)
    return Score(len(wanted & told), len(told - wanted), len(wanted - told))


def zizmor_findings(root: Path) -> tuple[Finding, ...]:
    """Every finding of zizmor's. What it cannot read it leaves out, as it does for everybody who does not ask it otherwise."""
    program = shutil.which("zizmor", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        sys.exit("zizmor is not installed: make governance-bench needs it (pip install zizmor)")
    with tempfile.TemporaryDirectory() as made:  # outside our own checkout: zizmor names files from its top
        shutil.copytree(root, made, dirs_exist_ok=True)
        command = [program, "--offline", "--no-progress", "--quiet", "--format=sarif", "--collect=all", "."]
        done = subprocess.run(command, cwd=made, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        sys.exit(f"zizmor failed on {root.name}: {done.stderr.decode()[:500]}")
    return read_sarif(done.stdout)


class Tally:
    """What was expected and what was told, by rule; of zizmor by the rule whose question it answers, or by its audit."""

    def __init__(self) -> None:
        self.wanted: dict[str, set[Expected]] = defaultdict(set)
        self.ours: dict[str, set[Expected]] = defaultdict(set)
        self.theirs: dict[str, set[Expected]] = defaultdict(set)
        self.asked: dict[str, set[Expected]] = defaultdict(set)
        """Of zizmor: the expectations it is held to."""
        self.others: Counter[str] = Counter()
        """Findings of zizmor's that nothing here has an expectation for."""

    def take(self, one: Construct) -> None:
        for each in one.expected:
            self._put(self.wanted, one, each)
        for each in found_in(one):
            self._put(self.ours, one, each)
        if one.name in UNASKED:
            return
        for each in one.expected:
            self._put(self.asked, one, _as_asked(each))
        for file, marks in (one.foreign or {}).items():
            for line, audit in (mark.split() for mark in marks):
                self._put(self.asked, one, Expected(file, int(line), f"zizmor/{audit}", ""))
        for finding in zizmor_findings(one.root):
            rule = _question(finding)
            if rule in SAME or one.foreign is not None:
                self._put(self.theirs, one, _as_asked(Expected(finding.file or "", finding.line or 0, rule, "")))
            else:
                self.others[rule] += 1

    @staticmethod
    def _put(into: dict[str, set[Expected]], one: Construct, each: Expected) -> None:
        into[each.rule].add(each._replace(file=f"{one.name}/{each.file}"))


def _as_asked(each: Expected) -> Expected:
    """Of a token that nobody states zizmor tells the job, the workflow or both: what is scored is the file, whichever rule of
    ours tells it there."""
    return each._replace(rule=UNKNOWN, line=0) if each.rule.endswith("/unknown") else each


def _question(finding: Finding) -> str:
    asks = (rule for rule, (audit, words) in SAME.items() if finding.rule == audit and words in finding.message)
    return next(asks, finding.rule)


def main() -> int:
    every, tally = list(constructs()), Tally()
    for one in every:
        tally.take(one)
    files = sum(len(one.files) for one in every)
    print(f"{files} files in {len(every)} constructs, {sum(map(len, tally.wanted.values()))} expected findings\n")
    print("| rule | expected | told | precision | recall | zizmor's audit | precision | recall |")
    print("|---|---|---|---|---|---|---|---|")
    low = [rule for rule in sorted(tally.wanted.keys() | tally.ours.keys()) if _row(rule, tally) < LEAST_PRECISION]
    for audit in sorted(rule for rule in tally.asked.keys() | tally.theirs.keys() if rule.startswith("zizmor/")):
        taken_in = score(tally.asked[audit], tally.theirs[audit], by_severity=False)
        expected = str(len(tally.asked[audit]))
        print(
            f"| (taken in) | {expected} | - | - | - | {audit} | {_shown(taken_in.precision)} | {_shown(taken_in.recall)} |"
        )
    told = ", ".join(f"{count} {rule}" for rule, count in sorted(tally.others.items()))
    print(f"\nzizmor alone, on files that say nothing about it: {told}")
    _speed()
    for rule in low:
        print(f"\n{rule} has a precision under {LEAST_PRECISION}", file=sys.stderr)
    return 1 if low else 0


def _row(rule: str, tally: Tally) -> float:
    """Prints the rule's line; its precision, which is 1 where it told nothing."""
    own = score(tally.wanted[rule], tally.ours[rule])
    cells = [rule, str(len(tally.wanted[rule])), str(own.hits + own.alarms), _shown(own.precision), _shown(own.recall)]
    if rule in SAME:
        foreign = score(tally.asked[rule], tally.theirs[rule], by_severity=False)
        cells += [" ".join(filter(None, SAME[rule])), _shown(foreign.precision), _shown(foreign.recall)]
    else:
        cells += ["-", "-", "-"]
    print(f"| {' | '.join(cells)} |")
    return 1.0 if own.precision is None else own.precision


def _shown(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def _speed() -> None:
    """A whole `toolgate analyze` in a new process, on workflows of the corpus, beside zizmor; the goal is half a second."""
    every = sorted(path for one in constructs() for path in one.root.glob(".github/workflows/*.yml"))[:COLD_WORKFLOWS]
    programs = Path(sys.executable).parent
    analyze = [str(programs / "toolgate"), "analyze"]
    with tempfile.TemporaryDirectory() as made:
        place = Path(made) / ".github" / "workflows"
        place.mkdir(parents=True)
        for number, path in enumerate(every):
            (place / f"w{number:02d}.yml").write_bytes(path.read_bytes())
        uncompiled = {"PYTHONPYCACHEPREFIX": f"{made}/none", "PYTHONDONTWRITEBYTECODE": "1"}
        zizmor = _median([str(programs / "zizmor"), "--offline", "--no-progress", "."], made)
        print(f"\n{len(every)} workflows, new processes, median of {COLD_RUNS}:\n")
        print("| program | seconds | of zizmor's | CPU seconds |\n|---|---|---|---|")
        for name, took in (
            ("zizmor alone", zizmor),
            ("toolgate analyze --zizmor off", _median([*analyze, ".", "--zizmor=off"], made)),
            ("the same, without compiled bytecode", _median([*analyze, ".", "--zizmor=off"], made, uncompiled)),
            ("toolgate analyze, with zizmor", _median([*analyze, "."], made)),
        ):
            print(f"| {name} | {took.wall:.2f} | {took.wall / zizmor.wall:.1f} x | {took.cpu:.2f} |")


class Took(NamedTuple):
    wall: float
    cpu: float
    """Of the process and those it started: what a machine with other work to do does not change."""


def _median(command: list[str], root: str, more: Mapping[str, str] | None = None) -> Took:
    """In an environment of its own, after one run that nobody counts: it reads files and compiles."""
    path = f"{Path(command[0]).parent}:{os.defpath}"
    environment = {"PATH": path, "HOME": root, "LANG": "C.UTF-8", **(more or {})}
    took = []
    for _ in range(1 + COLD_RUNS):
        before, used = time.perf_counter(), _used()
        subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=60, check=False)
        took.append(Took(time.perf_counter() - before, _used() - used))
    walls, cpus = zip(*took[1:], strict=True)
    return Took(sorted(walls)[COLD_RUNS // 2], sorted(cpus)[COLD_RUNS // 2])


def _used() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    sys.exit(main())
