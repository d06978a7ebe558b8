"""How the time of an analysis grows with the number of workflow files: it should be a straight line.

    python benchmarks/analyze.py [--sizes 125,250,500,1000] [--json]

Parsing and rules are timed in this process, as a worker runs them, on generated workflows of a realistic size.
Exits 1 when twice the files take more than three times as long.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise

from toolgate.packs.governance.analysis.report import report
from toolgate.packs.governance.analysis.weigh import AnalysisRequest, weigh
from toolgate.packs.governance.repository.model import Repository, parse
from toolgate.packs.governance.repository.protection import CLASSIC
from toolgate.packs.governance.rules.catalogue import judge

SHA = "8f4b7f84864484a7bf31766abe9204da3cbe65b3"
ROUNDS = 3
REQUIRED_CHECKS = 20


def workflow(number: int) -> bytes:
    """Some 60 lines: a matrix, permissions at both levels, pinned and unpinned actions, scripts."""
    steps = "".join(
        f"""      - uses: example/action-{step}@{SHA if step % 3 else "v1"}
      - name: Step {step}
        run: |
          # set up
          python -m pip install -r requirements.txt
          make part-{step}
"""
        for step in range(6)
    )
    return f"""name: Workflow {number}
on:
  pull_request:
  merge_group:
permissions:
  contents: read
jobs:
  build:
    name: Build {number}
    runs-on: ubuntu-latest
    strategy:
      matrix:
        os: [ubuntu-latest, macos-latest]
        python: ["3.11", "3.12"]
    steps:
{steps}  publish:
    permissions:
      packages: write
    runs-on: ubuntu-latest
    steps:
{steps}""".encode()


def files(number: int) -> list[tuple[str, bytes]]:
    contexts = [f"Build {i} (ubuntu-latest, 3.11)" for i in range(REQUIRED_CHECKS)]
    protection = json.dumps({"required_status_checks": {"contexts": contexts}}).encode()
    return [(CLASSIC, protection), *((f".github/workflows/w{i}.yml", workflow(i)) for i in range(number))]


def measure(number: int) -> dict[str, float]:
    """Best of a few rounds, in milliseconds of CPU: other programs on the machine do not count."""
    given = files(number)
    best = {"parse": float("inf"), "judge": float("inf"), "report": float("inf")}
    for _ in range(ROUNDS):
        start = time.process_time()
        parsed = parse(given)
        after_parse = time.process_time()
        repository = Repository({file.path: file for file in parsed})
        verdicts = judge(repository)
        after_judge = time.process_time()
        report(weigh(AnalysisRequest("pull_request"), repository, verdicts, now=0))
        end = time.process_time()
        took = {"parse": after_parse - start, "judge": after_judge - after_parse, "report": end - after_judge}
        best = {name: min(best[name], seconds * 1000) for name, seconds in took.items()}
    return {"files": number, **best, "total": sum(best.values()), "perFile": sum(best.values()) / number}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="125,250,500,1000")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(int(size)) for size in options.sizes.split(",")]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print("  ".join(f"{name} {value:8.2f}" for name, value in row.items()))
    growth = [
        later["total"] / earlier["total"] / (later["files"] / earlier["files"]) for earlier, later in pairwise(rows)
    ]
    return 1 if any(ratio > 1.5 for ratio in growth) else 0


if __name__ == "__main__":
    sys.exit(main())
