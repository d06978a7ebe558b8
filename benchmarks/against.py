"""This tree beside an older commit of ours, in turns: what became faster, slower, larger.

Both are built alike (`benchmarks.checkouts`), run at once on the server's core and are measured one after the other, so what
disturbs the machine disturbs both. Ratios are taken round by round: the present divided by the older.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks import checkouts, machine, plots, report
from benchmarks.field import OURS
from benchmarks.ours import Deployment
from benchmarks.servers import Running, WrongAnswers, first_answer
from benchmarks.stats import ratios, spread
from benchmarks.tables import markdown, shown
from benchmarks.trials import Disturbance, Rounds, Size, in_turn, keep, tell
from benchmarks.wire import Exchange

PAPER: Final = Path("workspace") / "paper"
CONNECTIONS: Final = (1, 10, 64)
FULL: Final = Size(rounds=7, seconds=1.0, connections=CONNECTIONS, in_flight=(), faces=False, kills=0)
QUICK: Final = replace(FULL, rounds=5, seconds=0.3)

TOOLS: Final[Mapping[str, Mapping[str, Any] | None]] = {
    "bench_echo": None,
    "library_fetch": {"path": "note.md"},
    "check_consent_requirements": {"orgId": "org", "checkType": "summary"},
    "validate_l0_invariants": {
        "checks": ["drift-magnitude"],
        "driftCheck": {"baselineMetric": {"name": "m", "value": 1.0}, "currentMetric": {"name": "m", "value": 1.0}},
    },
    "lra_validate": {"path": "paper"},
}
"""One of each way to run: inline, a file, a store, an effect whose intent is synced first, a worker process."""


def measure(size: Size, commit: str) -> dict[str, Any]:
    """Raises: CannotBuild, WrongAnswers, AuditFault, RuntimeError: a server did not start."""
    older, present = checkouts.older(commit), checkouts.present()
    about = report.about_this_run()
    with tempfile.TemporaryDirectory(prefix="against-") as name:
        deployments = {each.name: each.deploy(Path(name) / each.name) for each in (present, older)}
        _give_the_same_paper(deployments)
        targets = {each: made.over_http(each) for each, made in deployments.items()}
        answers = dict.fromkeys(targets, 0)
        found = _calls(targets, size, answers) | {"start": _starts(targets, size, answers)}
        for each, made in deployments.items():
            made.check(answers[each])
    return {
        **{key: about[key] for key in ("date", "machine")},
        "against": older.name,
        "rounds": size.rounds,
        "seconds": size.seconds,
        "audit": answers,
        **found,
    }


def _give_the_same_paper(deployments: Mapping[str, Deployment]) -> None:
    """A fresh paper grows from commit to commit, and judging a larger one takes longer."""
    present = deployments[OURS].home / PAPER
    older = next(made.home / PAPER for name, made in deployments.items() if name != OURS)
    shutil.rmtree(present)
    shutil.copytree(older, present)


def _calls(targets: Mapping[str, Any], size: Size, answers: dict[str, int]) -> dict[str, Any]:
    table: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list))))
    with ExitStack() as stack:
        servers = [stack.enter_context(Running(target)) for target in targets.values()]
        disturbance = Disturbance(servers)
        for number in range(size.rounds):
            for tool, arguments in TOOLS.items():
                for connections in size.connections:
                    for server in in_turn(servers, number):
                        exchange = replace(server.target.exchange, tool=tool, arguments=arguments)
                        found = _measured(server, connections, size.seconds, exchange)
                        rounds = table[tool][server.target.name][str(connections)]
                        keep(rounds, found)
                        rounds["tail"].append(found["p99_ms"] / found["p50_ms"])
                        answers[server.target.name] += found["answers"]
            tell(f"calls: round {number + 1} of {size.rounds}")
        return {"tools": table, "others_used": disturbance.share()}


def _measured(server: Running, connections: int, seconds: float, exchange: Exchange) -> dict[str, Any]:
    try:
        return server.measure(connections, seconds, exchange=exchange)
    except WrongAnswers as fault:
        raise WrongAnswers(f"{exchange.tool} at {connections} connections: {fault}") from None


def _starts(targets: Mapping[str, Any], size: Size, answers: dict[str, int]) -> dict[str, Rounds]:
    """One server at a time: what processes share is divided between them."""
    table: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    machine.pin(0, machine.cores()[1])
    for number in range(size.rounds):
        for target in in_turn(list(targets.values()), number):
            with Running(target) as server:
                table[target.name]["seconds"].append(first_answer(server))
                table[target.name]["mib"].append(machine.memory_mib(server.pid))
                found = server.measure(64, size.seconds / 2)
                table[target.name]["mib_loaded"].append(found["mib"])
                answers[target.name] += 1 + found["answers"]
        tell(f"start: round {number + 1} of {size.rounds}")
    return table


def tables(results: Mapping[str, Any]) -> str:
    """In Markdown, for a person."""
    calls = ["tool", "connections", "calls/s now", "calls/s", "CPU a call", "p99/p50"]
    return "\n\n".join(
        [
            f"## This tree against {results['against']}",
            _conditions(results),
            markdown(calls, list(_call_rows(results))),
            markdown(["", "now", f"against {results['against']}"], list(_start_rows(results))),
        ]
    )


def _conditions(results: Mapping[str, Any]) -> str:
    about = results["machine"]
    apart = "different cores" if about["server_and_load_on_different_cores"] == "true" else "the same core"
    return (
        f"Measured {results['date']} on {about['processor']}, {about['cores']} cores, {about['system']}, Python "
        f"{about['python']}, server and load on {apart}. {results['rounds']} interleaved rounds of {results['seconds']:g} s; "
        f"other processes used {results['others_used']:.0%} of the machine. Ratios are this tree divided by "
        f"{results['against']}, taken round by round: median [lowest–highest]. More calls/s is better, less of everything "
        "else. CPU is that of the server's own process; p99/p50 says how evenly answers come."
    )


def _call_rows(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for tool, found in results["tools"].items():
        now, then = found[OURS], found[results["against"]]
        for connections in now:
            one, other = now[connections], then[connections]
            cells = [shown(ratios(one[key], other[key])) + "x" for key in ("rate", "cpu_us", "tail")]
            yield [tool, connections, plots.short(spread(one["rate"]).median), *cells]


def _start_rows(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    now, then = results["start"][OURS], results["start"][results["against"]]
    for key, text in START.items():
        yield [text, shown(spread(now[key])), shown(ratios(now[key], then[key])) + "x"]


START: Final = {"seconds": "s to first right answer", "mib": "MiB at rest", "mib_loaded": "MiB under load"}
