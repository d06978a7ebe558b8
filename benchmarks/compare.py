"""Toolgate beside other MCP servers, on this machine, in one run. `make bench`; `make bench-quick` is the short form.

    python -m benchmarks.compare [--quick] [--out FILE]
    python -m benchmarks.compare --against COMMIT [--quick] [--out FILE]

Builds one virtual environment a peer (in .cache/bench), measures in interleaved rounds, checks every answer and the audit
log, prints the tables. The full form also writes benchmarks/results/comparison.json and docs/benchmarks.md; the short form
keeps its tables beside its numbers, as Markdown.
With --against the only peer is an older commit of ours: a tag, a branch, a hash or HEAD~5. It is exported and built in the
cache; five minutes in the full form, two in the short one.
Exit 1: our server answered wrongly, or its audit log does not hold every answer. A peer that does not install or answers
wrongly is left out, and the tables say so. Exit 2: there is no such commit, or it cannot be built. Speed never fails a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import against, machine, peers, report, trials
from benchmarks.checkouts import CannotBuild
from benchmarks.field import Field
from benchmarks.ours import AuditFault
from benchmarks.servers import WrongAnswers

BESIDE_PEERS = (trials.limit, trials.over_http, trials.over_stdio, trials.start_up)
ALONE = (trials.refusals, trials.guarantee, trials.kills)


def measure(size: trials.Size, field: Field) -> dict[str, Any]:
    """Raises: WrongAnswers, AuditFault."""
    results: dict[str, Any] = {**report.about_this_run(), "rounds": size.rounds, "seconds": size.seconds}
    audit: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        results |= trials.in_process(size)
        for beside in (*BESIDE_PEERS, trials.gateway) if size.faces else BESIDE_PEERS:
            results |= _without_audit(beside(Path(name), size, field), audit)
        for alone in ALONE:
            results |= _without_audit(alone(Path(name), size), audit)
    return results | {"audit": audit, "left_out": field.left}


def _without_audit(found: dict[str, Any], audit: dict[str, int]) -> dict[str, Any]:
    audit |= found.pop("audit", {})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a minute; writes no documentation")
    parser.add_argument("--out", type=Path, help="where the results go as JSON")
    parser.add_argument("--against", metavar="COMMIT", help="only this tree and an older commit of it")
    options = parser.parse_args()
    machine.require_linux()
    try:
        if options.against is not None:
            return _against(options.against, options.out, quick=options.quick)
        return _beside_peers(options.out, quick=options.quick)
    except (WrongAnswers, AuditFault) as fault:
        print(f"stopped: {fault}", file=sys.stderr)
        return 1


def _beside_peers(chosen: Path | None, *, quick: bool) -> int:
    results = measure(trials.QUICK if quick else trials.FULL, Field(peers.install_all()))
    out = chosen or (peers.CACHE / "quick.json" if quick else report.COMPARISON)
    found = f"{report.conditions(results)}\n\n{report.tables(results)}"
    _write(results, out, found if quick else None)
    if out == report.COMPARISON:
        report.write()
    print(found)
    return 0


def _against(commit: str, chosen: Path | None, *, quick: bool) -> int:
    try:
        results = against.measure(against.QUICK if quick else against.FULL, commit)
    except CannotBuild as fault:
        print(f"stopped: {fault}", file=sys.stderr)
        return 2
    found = against.tables(results)
    _write(results, chosen or peers.CACHE / f"against-{results['against']}.json", found)
    print(found)
    return 0


def _write(results: dict[str, Any], out: Path, tables: str | None) -> None:
    """The numbers as JSON and, beside them, the tables as Markdown."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    if tables is not None:
        out.with_suffix(".md").write_text(tables + "\n")


if __name__ == "__main__":
    sys.exit(main())
