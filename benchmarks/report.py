"""docs/benchmarks.md and its pictures, made from benchmarks/results/*.json. Pure, but for `write` and `about_this_run`.

python -m benchmarks.report        make them again from the committed results
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine, peers, plots
from benchmarks.goals import Goal, Results, goals
from benchmarks.stats import Spread, ratios, spread
from toolgate import __version__

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COMPARISON = RESULTS / "comparison.json"
GROWTH = RESULTS / "growth.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "benchmarks"


def about_this_run() -> dict[str, Any]:
    packages = [package for peer in (*peers.PEERS, peers.CONTEXTFORGE) for package in peer.packages]
    pinned = dict(package.split("==") for package in packages)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.describe(),
        "versions": {"toolgate": __version__, **pinned},
    }


def write() -> None:
    """Side effects: replaces the page and its pictures."""
    comparison, growth = read(COMPARISON), read(GROWTH)
    PICTURES.mkdir(exist_ok=True)
    for name, picture in pictures(comparison, growth).items():
        (PICTURES / name).write_text(picture)
    PAGE.write_text(page(comparison, growth))


def read(path: Path) -> Results:
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def pictures(comparison: Results, growth: Results) -> dict[str, str]:
    found = {}
    bare = {name: rows for name, rows in comparison.get("http", {}).items() if "," not in name}
    if bare:
        rates = {name: spread(rows["64"]["rate"]) for name, rows in bare.items()}
        cpu = {name: spread(rows["64"]["cpu_us"]) for name, rows in bare.items()}
        found["rate.svg"] = plots.bars("Calls a second, 64 connections, one core", "more is better", rates)
        found["cpu.svg"] = plots.bars("Server CPU a call, 64 connections", "µs, less is better", cpu)
    if "start" in comparison:
        start = {name: spread(rows["seconds"]) for name, rows in comparison["start"].items()}
        rest = {name: spread(rows["mib"]) for name, rows in comparison["start"].items()}
        found["start.svg"] = plots.bars("Start to first right answer", "s, less is better", start)
        found["memory.svg"] = plots.bars("Memory at rest", "MiB, less is better", rest)
    for name, each in growth.get("curves", {}).items():
        points = [(float(x), spread(rounds)) for x, rounds in each["points"].items()]
        found[f"{name}.svg"] = plots.curve(each["title"], each["axis"], each["unit"], points, linear=each["linear"])
    return found


def page(comparison: Results, growth: Results) -> str:
    """The whole document."""
    if not comparison:
        return "# Benchmarks\n\nNo results yet: `make bench`.\n"
    parts = [INTRODUCTION, conditions(comparison), tables(comparison, growth), LIMIT, *_growth(growth), REPEAT]
    return "\n\n".join(part.strip() for part in parts) + "\n"


INTRODUCTION = """
# Benchmarks

<!-- Made by `python -m benchmarks.report` from benchmarks/results; edit that, not this. -->

What a governed call costs, beside other servers' bare call. Toolgate does all of its work in every measured call:
authentication, role, limits, JSON Schema on the way in and out, the floor, and an audit record that is written before the
answer leaves. The peers do none of that; they run one `async def` echo tool with uvloop and httptools, JSON answers and no
access log, which is their best.

![Calls a second](benchmarks/rate.svg)
![CPU a call](benchmarks/cpu.svg)
![Start to first right answer](benchmarks/start.svg)
![Memory at rest](benchmarks/memory.svg)
"""

LIMIT = """
## The goal that is missed

In process, one call from the bytes of an HTTP request to the bytes of its answer costs about twice the goal. Timed alone,
in a loop each, the steps sum to less than 30 µs; one after the other they cost twice that. Counted with cachegrind, a call
runs some 260 000 instructions and misses a first-level instruction cache of 32 KB 7 400 times: the interpreter and the five
libraries under it are larger than that cache, so each step finds it cold. Only less work helps, and each step that is left
keeps a promise.

Tried without gain: Cython over the same sources (slower: compiled code is larger than bytecode), huge pages, other
allocators, no garbage collection, OpenSSL's digests by copy. With gain: a lane for whole requests and fewer calls on the
road (249 to 139 µs of CPU a call over the wire), answers of one turn that share a write (a quarter less at 10 connections, a
third at 64), values made in C (4 % fewer instructions). A Python built with profile-guided optimisation takes about a
seventh less than the one measured here.
"""

REPEAT = """
## How to repeat it

    make bench          # everything above, some forty minutes; writes benchmarks/results and this page
    make bench-quick    # a minute or two; prints the tables and keeps them in build/bench
    python -m benchmarks.growth --quick      # a minute: do the curves work? `make bench` draws them
    python -m benchmarks.road --flame road.svg

It needs Linux, two cores and nothing else running. The server runs on the first core, the load on the last; a round
measures every server once, and each round begins with another one. The load (`benchmarks/load.py`) decodes every answer
and checks status, id and echoed fields; one wrong answer of ours ends the run, and one of a peer ends its part in it. After
each trial the lines of our audit log must equal the answers that clients got, and `toolgate audit verify` must pass.
Absolute numbers differ from machine to machine: compare ratios, and mind their spread.

What this does not show: TLS, several machines, tools that wait or compute (they dwarf all of this), and gateways at their best.
"""


GATEWAY = """
ContextForge, as installed: SQLite, one worker, JWT authentication. It forwards each call to the SDK's server, which runs on
the other core, so the two do not do the same work; this is for scale. It was not tuned.
""".strip()


def conditions(results: Results) -> str:
    about = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (
        f"Measured {results['date']} on {about['processor']}, {about['cores']} cores, {about['system']}, "
        f"Python {about['python']}. {results['rounds']} interleaved rounds of {results['seconds']:g} s; other processes "
        f"used {results.get('others_used', 0):.0%} of the machine. {_load(results)} Cells are medians, with the lowest and "
        f"highest round in brackets; ratios are taken round by round.\n\nVersions: {versions}."
    )


def _load(results: Results) -> str:
    """Near 100 % busy, or near its own limit, the load would have been measured and not the server."""
    ours = results["http"]["Toolgate"].values()
    busiest = max(spread(found["load_busy"]).median for found in ours)
    said = f"Beside Toolgate the load was busy at most {busiest:.0%} of its time"
    alone = [
        f"{plots.short(spread(found['rate']).median)} calls/s at {connections}"
        for connections, found in results.get("limit", {}).items()
    ]
    return (
        f"{said}; beside a server that does nothing it reaches {', '.join(alone)} connections." if alone else f"{said}."
    )


def tables(results: Results, growth: Results | None = None) -> str:
    """What a person wants to see after a run, in Markdown; also printed in the terminal."""
    parts = ["## Goals", _goals(goals(results, growth))]
    if results.get("left_out"):
        parts += ["## Left out", _table(["peer", "why"], list(results["left_out"].items()))]
    if "http" in results:
        parts += ["## Over HTTP", _rates(results["http"], "connections")]
        parts += ["Calls a second, ours divided by theirs:", _ratios(results, "rate")]
        parts += ["CPU a call, ours divided by theirs:", _ratios(results, "cpu_us")]
    if "stdio" in results:
        parts += ["## Over stdio", _rates(results["stdio"], "in flight")]
    if "gateway" in results:
        parts += ["## Beside a gateway", GATEWAY, _rates(results["gateway"], "connections")]
    if "start" in results:
        parts += ["## Start and memory", _start(results)]
    if "refusals" in results:
        parts += ["## Refusals", _refusals(results["refusals"])]
    if "kills" in results:
        parts += ["## The audit log under load", _audit(results)]
    if "road" in results:
        parts += ["## In process, step by step", _road(results["road"])]
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(each: Spread) -> str:
    if each.rounds == 1 or each.low == each.high:
        return plots.short(each.median)
    return f"{plots.short(each.median)} [{plots.short(each.low)}–{plots.short(each.high)}]"


def _goals(found: Sequence[Goal]) -> str:
    def row(goal: Goal) -> Sequence[str]:
        sign = "≥" if goal.better == "more" else "≤"
        unit = goal.unit if goal.unit == "x" else f" {goal.unit}"
        reached = "" if goal.reached is None else shown(goal.reached) + unit
        return [goal.what, f"{sign} {goal.must:g}{unit}", f"{sign} {goal.aim:g}{unit}", reached, goal.verdict()]

    return _table(["goal", "must", "aim", "reached", "verdict"], [row(goal) for goal in found])


def _rates(table: Mapping[str, Any], over: str) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for name, columns in table.items():
            for count, found in columns.items():
                p50, p99 = (plots.short(spread(found[key]).median) for key in ("p50_ms", "p99_ms"))
                yield [name, count, shown(spread(found["rate"])), shown(spread(found["cpu_us"])), p50, p99]

    return _table(["server", over, "calls/s", "CPU µs a call", "p50 ms", "p99 ms"], rows())


def _ratios(results: Results, measure: str) -> str:
    ours = results["http"]["Toolgate"]

    def rows() -> Iterator[Sequence[str]]:
        for name, columns in results["http"].items():
            if name != "Toolgate":
                yield [name, *(shown(ratios(ours[count][measure], columns[count][measure])) + "x" for count in columns)]

    return _table(["connections", *(f"at {count}" for count in ours)], rows())


def _start(results: Results) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for name, found in results["start"].items():
            yield [name, *(shown(spread(found[key])) for key in ("seconds", "mib", "mib_loaded"))]

    return _table(["server", "s to first right answer", "MiB at rest", "MiB under load"], rows())


def _refusals(table: Mapping[str, Any]) -> str:
    good = table["good"]["cpu_us"]

    def rows() -> Iterator[Sequence[str]]:
        for case, found in table.items():
            yield [case, shown(spread(found["cpu_us"])), shown(ratios(found["cpu_us"], good)) + "x"]

    return _table(["case", "CPU µs", "against a success"], rows())


def _audit(results: Results) -> str:
    found = results["kills"]
    answers = plots.short(sum(results["audit"].values()))
    return (
        f"SIGKILL at full load with 64 connections, {found['kills']} times: {plots.short(found['answers'])} answers had "
        f"reached a client, {found['without_line']} of them without a line in the log; {found['torn']} lines were torn. "
        f"In all other trials together, {answers} answers and as many records, verified after each trial."
        + _guarantee(results.get("guarantee", {}))
    )


def _guarantee(table: Mapping[str, Any]) -> str:
    if not table:
        return ""
    rates = {name: shown(spread(table[name]["rate"])) for name in ("written", "unwritten")}
    ratio = shown(ratios(table["written"]["rate"], table["unwritten"]["rate"]))
    return (
        f"\n\nWhat that costs: {rates['written']} calls/s at 64 connections, against {rates['unwritten']} of the same server "
        f"with its log on /dev/null, which makes each record but keeps none: {ratio}x."
    )


def _road(table: Mapping[str, Any]) -> str:
    rows = [[name, f"{found['best']:.2f}", f"{found['median']:.2f}"] for name, found in table.items()]
    return _table(["step", "best µs", "median µs"], rows)


def _growth(growth: Results) -> Iterator[str]:
    if not growth:
        return
    yield f"## How cost grows\n\nMeasured {growth['date']}, {growth['rounds']} interleaved rounds of {growth['seconds']:g} s."
    for name, each in growth["curves"].items():
        yield f"![{each['title']}](benchmarks/{name}.svg)"
    yield growth_table(growth)


def growth_table(growth: Results) -> str:
    """Every point of every curve as text: the pictures are for the shape."""

    def rows() -> Iterator[Sequence[str]]:
        for each in growth["curves"].values():
            points = {int(x): spread(rounds) for x, rounds in each["points"].items()}
            cells = [f"{plots.count(x)}: {shown(found)}" for x, found in points.items()]
            yield [each["title"], each["unit"], "<br>".join(cells)]

    return _table(["what", "unit", "by number"], rows())


if __name__ == "__main__":
    write()
