"""`make governance-bench`: precision and recall of each rule on the corpus, beside zizmor's on the same files; and speed.

zizmor is asked as people ask it first (offline, regular persona). Its audits are compared where they mean the same as a
rule of ours; what only one of the two looks at has no number for the other.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.packs.governance.corpus_reader import Construct, Expected, constructs, found_in
from toolgate.packs.governance.analysis.zizmor import read_sarif

SAME = {
    "MD-002/action": "zizmor/unpinned-uses",
    "MD-002/image": "zizmor/unpinned-images",
    "MD-002/script": "zizmor/adhoc-packages",
    "L0-002": "zizmor/excessive-permissions",
}
"""Which of zizmor's audits looks for what a rule of ours looks for."""
LEAST_PRECISION = 0.95
IGNORES = "ignores"
"""The construct that zizmor is not asked about."""
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


def zizmor_findings(root: Path) -> list[tuple[str, int, str]]:
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
    return [(one.file or "", one.line or 0, one.rule) for one in read_sarif(done.stdout)]


def main() -> int:
    every = list(constructs())
    ours: dict[str, set[Expected]] = {}
    wanted: dict[str, set[Expected]] = {}
    theirs: dict[str, set[Expected]] = {}
    others: Counter[str] = Counter()
    for one in every:
        _gather(one, ours, wanted, theirs, others)
    files = sum(len(one.files) for one in every)
    print(f"{files} files in {len(every)} constructs, {sum(map(len, wanted.values()))} expected findings\n")
    print("| rule | expected | precision | recall | zizmor's audit | precision | recall |")
    print("|---|---|---|---|---|---|---|")
    worst = 1.0
    for rule in sorted(wanted.keys() | ours.keys()):
        own = score(wanted.get(rule, set()), ours.get(rule, set()))
        worst = min(worst, own.precision if own.precision is not None else 1.0)
        audit = SAME.get(rule)
        asked = {one for one in wanted.get(rule, set()) if not one.file.startswith(f"{IGNORES}/")}
        foreign = score(asked, theirs.get(audit, set()), by_severity=False) if audit else None
        cells = [rule, str(len(wanted.get(rule, ()))), _shown(own.precision), _shown(own.recall), audit or "-"]
        cells += [_shown(foreign.precision), _shown(foreign.recall)] if foreign else ["-", "-"]
        print(f"| {' | '.join(cells)} |")
    print(
        "\nzizmor alone, taken in by `toolgate analyze`:",
        ", ".join(f"{n} {rule}" for rule, n in sorted(others.items())),
    )
    _speed()
    if worst < LEAST_PRECISION:
        print(f"\na rule has a precision of {worst:.2f}, under {LEAST_PRECISION}", file=sys.stderr)
    return 1 if worst < LEAST_PRECISION else 0


def _gather(
    one: Construct,
    ours: dict[str, set[Expected]],
    wanted: dict[str, set[Expected]],
    theirs: dict[str, set[Expected]],
    others: Counter[str],
) -> None:
    def named(some: frozenset[Expected], into: dict[str, set[Expected]]) -> None:
        for each in some:
            into.setdefault(each.rule, set()).add(each._replace(file=f"{one.name}/{each.file}"))

    named(one.expected, wanted)
    named(found_in(one), ours)
    if one.name == IGNORES:
        return  # comments that are for us alone
    for file, line, rule in zizmor_findings(one.root):
        if rule in SAME.values():
            theirs.setdefault(rule, set()).add(Expected(f"{one.name}/{file}", line, rule, ""))
        else:
            others[rule] += 1


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
