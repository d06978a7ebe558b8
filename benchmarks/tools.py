"""What a call of each shipped tool costs, beside the inline echo, in one run.

    python -m benchmarks.tools [--quick] [--only TOOL ...] [--out FILE]

One server with all packs and 1 000 documents, a paper as `lra init` makes it, a round with a vote and some reviewed findings.
Every tool is called over ten connections in turns with the echo, so what disturbs the machine disturbs both; ratios are taken
round by round. `first` is the first call after the start of a server: imports, workers and caches are part of it.
Every answer is checked, and the audit log must hold each of them. Printed beside: how long this disk takes to sync a record,
which a call with an effect waits for twice.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks import checkouts, machine, ours, report, tool_tables
from benchmarks.load import Load
from benchmarks.servers import Running, WrongAnswers
from benchmarks.trials import Disturbance, Rounds, in_turn, keep, tell
from benchmarks.wire import TOOL, Exchange

CONNECTIONS: Final = 10
DOCUMENTS: Final = 1_000
WORDS: Final = "A note about phase fields, their simulation and what was measured. " * 12
SYNCS: Final = 50
PACKS: Final = ("bench", "governance", "library", "consensus", "lra")
ZEROS: Final = "0" * 64
CONSENTED: Final = ("fp_metrics",)


@dataclass(frozen=True)
class Case:
    tool: str
    arguments: Mapping[str, Any] | None
    must: float | None = None
    """Calls a second, as a part of the echo's."""
    aim: float | None = None


CASES: Final[Mapping[str, Case]] = {
    "echo, inline": Case(TOOL, None),
    "echo, in a thread": Case("bench_thread", None),
    "validate_l0_invariants, in memory": Case(
        "validate_l0_invariants",
        {"driftCheck": {"baselineMetric": {"name": "m", "value": 1.0}, "currentMetric": {"name": "m", "value": 1.0}}},
        0.5,
        0.8,
    ),
    "library_search, 1 000 documents": Case("library_search", {"query": "phase simulation"}, 0.4, 0.6),
    "library_fetch": Case("library_fetch", {"path": "notes/1.md"}),
    "check_consent_requirements": Case(
        "check_consent_requirements", {"orgId": "org", "checkType": "summary"}, 0.25, 0.4
    ),
    "query_fp_store": Case("query_fp_store", {"queryType": "fp_rate", "orgId": "org", "ruleId": "MD-001"}, 0.25, 0.4),
    "consensus_finality": Case("consensus_finality", {"round_id": "1"}, 0.3, 0.5),
    "consensus_gossip": Case("consensus_gossip", {"peer_id": "peer"}, 0.3, 0.5),
    "consensus_vote, a key of one's own": Case(
        "consensus_vote",
        {
            "round_id": "1",
            "privKey": "11" * 32,  # an arbiter votes once
            "vote": {"merkle_root_hex": ZEROS, "rule_version_hash_hex": ZEROS, "vote_type": "ACCEPT"},
        },
        0.1,
        0.2,
    ),
    "vrf_eval": Case("vrf_eval", {"seed_hex": "00", "input_hex": "01"}),
    "lra_validate, fresh paper": Case("lra_validate", {"path": "paper"}),
    "analyze_dissonance, one workflow": Case("analyze_dissonance", {"files": [".github/workflows/ci.yml"]}),
    "check_adr_compliance": Case("check_adr_compliance", {"files": ["notes/1.md"]}),
}
WORKFLOW: Final = "name: ci\non: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: make\n"


@dataclass(frozen=True)
class Size:
    rounds: int
    seconds: float


FULL: Final = Size(5, 1.0)
QUICK: Final = Size(1, 0.3)


def deploy(path: Path) -> ours.Deployment:
    """A home with all packs, its keys those of administrators: every tool is theirs. Raises: CannotBuild."""
    made = checkouts.present().deploy(path, PACKS)
    create = ("keys", "create", "--role", "admin", "--json", "--home", str(path))
    keys = tuple(json.loads(made.run(*create).stdout)["key"] for _ in range(CONNECTIONS))
    made.run("consent", "grant", "org", *CONSENTED, "--by", "bench", "--home", str(path)).check_returncode()
    notes = {f"notes/{number}.md": f"# Note {number}\n\n{WORDS}" for number in range(DOCUMENTS)}
    decision = next((ours.ROOT / "docs" / "adr").glob("ADR-0001-*.md"))
    others = {".github/workflows/ci.yml": WORKFLOW, f"docs/adr/{decision.name}": decision.read_text()}
    for name, text in (notes | others).items():
        file = path / "workspace" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return replace(made, keys=keys)


def measure(size: Size, cases: Mapping[str, Case]) -> dict[str, Any]:
    """Raises: WrongAnswers, AuditFault, RuntimeError: a server did not start."""
    machine.require_linux()
    with tempfile.TemporaryDirectory(prefix="tools-") as name:
        made = deploy(Path(name) / "home")
        target = made.over_http()
        table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
        with ExitStack() as stack:
            server = stack.enter_context(Running(target))
            answers = _propose(server)
            first = {}
            for text, case in cases.items():
                first[text] = _first_call(server, _exchange(server, case))
                answers += 1
            disturbance = Disturbance([server])
            for number in range(size.rounds):
                for text in in_turn(list(cases), number):
                    exchange = _exchange(server, cases[text])
                    found = _measured(server, size.seconds, exchange)
                    keep(table[text], found)
                    answers += found["answers"]
                tell(f"tools: round {number + 1} of {size.rounds}")
            others = disturbance.share()
        made.check_at_least(answers)
        about = report.about_this_run()
    return {
        **{key: about[key] for key in ("date", "machine")},
        "rounds": size.rounds,
        "seconds": size.seconds,
        "others_used": others,
        "sync_ms": sync_ms(),
        "first_ms": first,
        "connections": CONNECTIONS,
        "goals": {text: [case.must, case.aim] for text, case in cases.items()},
        "tools": table,
    }


def _exchange(server: Running, case: Case) -> Exchange:
    return replace(server.target.exchange, tool=case.tool, arguments=case.arguments)


def _propose(server: Running) -> int:
    """The round that others ask about."""
    event = {"merkle_root_hex": ZEROS, "rule_version_hash_hex": ZEROS}
    exchange = replace(server.target.exchange, tool="consensus_propose", arguments={"event": event})
    _first_call(server, exchange)
    return 1


def _first_call(server: Running, exchange: Exchange) -> float:
    """Milliseconds. Raises: WrongAnswers."""
    begun = perf_counter()
    tally = Load(server.plan(1, 0.0, warm_seconds=0.0, server_pid=None, exchange=exchange)).run()
    if tally.wrong or not tally.answers:
        raise WrongAnswers(f"{exchange.tool}: {'; '.join(tally.examples)}")
    return (perf_counter() - begun) * 1e3


def _measured(server: Running, seconds: float, exchange: Exchange) -> dict[str, Any]:
    try:
        return server.measure(CONNECTIONS, seconds, exchange=exchange)
    except WrongAnswers as fault:
        raise WrongAnswers(f"{exchange.tool}: {fault}") from None


def sync_ms() -> float:
    """The median of writing 500 bytes and syncing them on the disk of the temporary folder."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(SYNCS):
            begun = perf_counter()
            os.write(file.fileno(), b"x" * 500)
            os.fdatasync(file.fileno())
            took.append((perf_counter() - begun) * 1e3)
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it works, not how fast")
    parser.add_argument(
        "--only", nargs="+", metavar="TOOL", help="cases whose name holds one of these; the echo is always there"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the numbers go as JSON, instead of the page")
    options = parser.parse_args()
    wanted = options.only or [""]
    cases = {text: case for text, case in CASES.items() if case.tool == TOOL or any(word in text for word in wanted)}
    results = measure(QUICK if options.quick else FULL, cases)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    elif not options.quick and options.only is None:
        report.TOOLS.write_text(json.dumps(results, indent=1) + "\n")
        report.write()
    print(tool_tables.table(results))


if __name__ == "__main__":
    main()
