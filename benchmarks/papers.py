"""What a build costs beside Pandoc itself on the same source: `python -m benchmarks.papers [--write]`.

Goal: at most 1.3 times. Pandoc alone reads the source, resolves citations and writes a whole HTML page with MathML, in its
sandbox, from the command line, with the same reader (for notebooks one that knows citations and footnotes). Ours is measured
twice: `build` in a process that is there already (what `--watch` and `lra serve` do), and the whole command `lra build`, as its
console script runs it, which starts Python first. Rounds take turns. Two times are compared: CPU time, user and system, of the
process and all that it started, and the time that a person waits, in which Pandoc reads while Python imports. The latter means
something only on a machine that does nothing else: its load is told. `validate` of a page of 5 MB is measured beside them
(goal: 1 s).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.report import about_this_run
from toolgate.packs.lra.build.assemble import build
from toolgate.packs.lra.build.convert import SourceRequest
from toolgate.packs.lra.build.scaffold import ScaffoldOptions, scaffold
from toolgate.packs.lra.checks.validate import validate
from toolgate.packs.lra.cli.making.building import beside
from toolgate.packs.lra.cli.making.pandoc import Pandoc, find
from toolgate.packs.lra.paper.artifact import Artifact

GOAL = 1.3
VALIDATE_S = 1.0
PAGE_BYTES = 5_000_000
ROUNDS = 9
LRA = "import sys; sys.argv[0] = 'lra'; from toolgate.cli.main import run_script; run_script()"
"""What the console script does."""
OWN = Path(__file__).parents[1] / "tests" / "packs" / "lra" / "build" / "papers"
FRONT = (
    "---\ntitle: A long text\nauthor: Jane Doe\ndate: 2026-11-15\nabstract: Long.\nclaims: [It is long.]\n"
    "bibliography: paper.bib\n---\n"
)


class Took(NamedTuple):
    cpu: float
    waited: float


class Trial(NamedTuple):
    """Seconds: medians of the rounds."""

    alone: Took
    inside: Took
    command: Took

    def ratio(self, what: str, kind: str) -> float:
        return float(getattr(getattr(self, what), kind) / getattr(self.alone, kind))

    def row(self) -> dict[str, float]:
        """In milliseconds: CPU as `alone_ms`, waiting as `alone_waited_ms`."""
        cpu = {f"{name}_ms": 1000 * took.cpu for name, took in self._asdict().items()}
        return cpu | {f"{name}_waited_ms": 1000 * took.waited for name, took in self._asdict().items()}


def main() -> None:
    pandoc = find()
    print(
        f"{'':<22}{'KB':>7}{'Pandoc ms':>11}{'build':>7}{'lra build':>11}{'Pandoc waits':>14}{'build':>7}{'lra build':>11}"
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for name, source, bibliography in sources(Path(place)):
            took = _measure(pandoc, source, bibliography, Path(place) / "out")
            row: dict[str, Any] = {"source": name, "kb": source.stat().st_size / 1000}
            rows.append(row | took.row())
            print(
                f"{name:<22}{row['kb']:>7.0f}{1000 * took.alone.cpu:>11.0f}{took.ratio('inside', 'cpu'):>7.2f}"
                f"{took.ratio('command', 'cpu'):>11.2f}{1000 * took.alone.waited:>14.0f}{took.ratio('inside', 'waited'):>7.2f}"
                f"{took.ratio('command', 'waited'):>11.2f}",
                flush=True,
            )
    validating = _validating()
    for name, key in (("CPU", "ms"), ("waiting", "waited_ms")):
        worst = [max(row[f"{what}_{key}"] / row[f"alone_{key}"] for row in rows) for what in ("inside", "command")]
        print(f"\n{name}: build at most {worst[0]:.2f} times Pandoc alone, lra build {worst[1]:.2f} (goal {GOAL})")
    load = os.getloadavg()[1]
    print(f"load average meanwhile: {load:.1f}")
    print(f"validate of a page of 5 MB: {validating:.2f} s of CPU (goal {VALIDATE_S:.0f})")
    if "--write" in sys.argv:
        version = subprocess.run(
            [pandoc.program, "--version"], capture_output=True, text=True, check=True
        ).stdout.split()[1]
        keep({**about_this_run(), "pandoc": version, "build": rows, "build_load": load, "validate_s": validating})


def keep(found: dict[str, object]) -> None:
    """Side effects: replaces these parts of the results on papers, and the page made of them."""
    report.PAPERS.write_text(json.dumps({**report.read(report.PAPERS), **found}, indent=1) + "\n")
    report.write()


def sources(place: Path) -> list[tuple[str, Path, str]]:
    """Name, file, bibliography. Papers of others are read where TOOLGATE_PAPERS says, with a claim added to a copy."""
    found = [("thesis (LaTeX)", _joined(OWN / "thesis", place / "thesis"), "thesis.bib")]
    found.append(("notebook", OWN / "notebook" / "summation.ipynb", "summation.bib"))
    others = os.environ.get("TOOLGATE_PAPERS", "")
    folders = [one for one in sorted(Path(others).iterdir()) if (one / "paper.md").is_file()] if others else []
    found += [(one.name, _copied(one, place / one.name), "paper.bib") for one in folders]
    if folders:
        found.append(("ten times that", _repeated(found[-1][1], 10), "paper.bib"))
    return found


def _joined(folder: Path, target: Path) -> Path:
    """The thesis in one file: in its sandbox Pandoc alone would leave the chapters out, and be fast."""
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    source = target / "thesis.tex"
    text = source.read_text()
    for part in (target / "chapters").iterdir():
        text = text.replace(f"\\input{{chapters/{part.stem}}}", part.read_text())
    source.write_text(text)
    return source


def _copied(folder: Path, target: Path) -> Path:
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    source = target / "paper.md"
    text = source.read_text().replace("date: ---", "date: 2024-12-01")
    source.write_text(text.replace("bibliography:", "claims: [It works.]\nbibliography:", 1))
    return source


def _repeated(source: Path, times: int) -> Path:
    """The same body again and again, its labels made different."""
    _, _, body = source.read_text().partition("\nbibliography:")[2].partition("\n---\n")
    longer = source.with_name("longer.md")
    parts = [body.replace("fig:", f"fig:{number}-").replace("eq:", f"eq:{number}-") for number in range(times)]
    longer.write_text(FRONT + "\n".join(parts))
    return longer


def _measure(pandoc: Pandoc, source: Path, bibliography: str, out: Path) -> Trial:
    request = SourceRequest(source.name, beside(source.parent), pandoc)
    alone_command = [pandoc.program, "--sandbox", "--standalone", f"--from={request.reader}", "--to=html5", "--mathml"]
    alone_command += ["--citeproc", f"--bibliography={bibliography}", source.name]
    ours = [sys.executable, "-c", LRA, "build", str(source), "-o", str(out / source.parent.name)]

    def alone() -> None:
        subprocess.run(alone_command, cwd=source.parent, check=True, capture_output=True)

    def inside() -> None:
        build(request)

    def command() -> None:
        subprocess.run(ours, check=True, capture_output=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""})

    runs = (alone, inside, command)
    times = [[_took(run) for run in runs] for _ in range(ROUNDS)]
    return Trial(*(Took(*map(median, zip(*column, strict=True))) for column in zip(*times, strict=True)))


def _took(run: Callable[[], object]) -> Took:
    began = time.perf_counter()
    cpu = _cpu_of(run)
    return Took(cpu, time.perf_counter() - began)


def _cpu_of(run: Callable[[], object]) -> float:
    """Of this process and of all that it started and waited for."""
    before = _cpu()
    run()
    return _cpu() - before


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _validating() -> float:
    """A fresh paper whose method fills 5 MB."""
    files = dict(scaffold(ScaffoldOptions("large", "2026-11-15", tier="gold")).files)
    text = "<p>Words about <em>the method</em>, a formula, <math><mi>x</mi></math>, and a <a href='#claims'>link</a>.</p>\n"
    page = files["index.html"].decode()
    files["index.html"] = page.replace("</section>", text * (PAGE_BYTES // len(text)) + "</section>", 1).encode()
    sizes = {name: len(data) for name, data in files.items()}
    artifact = Artifact("index.html", files["index.html"], files, sizes, "large/index.html")
    return median(_cpu_of(lambda: validate(artifact)) for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
