"""docs/benchmarks.md and its pictures, made from benchmarks/results/*.json. Pure, but for `write` and `about_this_run`.

python -m benchmarks.report        make them again from the committed results
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import authority_tables, machine, peers, plots, scale_tables, tool_tables, upstream_tables
from benchmarks.goals import Results, goals
from benchmarks.stats import ratios, spread
from benchmarks.tables import goal_table, markdown, rates, shown
from toolgate import __version__

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COMPARISON = RESULTS / "comparison.json"
GROWTH = RESULTS / "growth.json"
UPSTREAMS = RESULTS / "upstreams.json"
PAPERS = RESULTS / "papers.json"
TOOLS = RESULTS / "tools.json"
AUTHORITY = RESULTS / "authority.json"
SCALE = RESULTS / "scale.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "benchmarks"


def about_this_run(beside: Sequence[peers.Peer] = (*peers.PEERS, peers.CONTEXTFORGE)) -> dict[str, Any]:
    packages = [package for peer in beside for package in peer.packages]
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
    scale = read(SCALE)
    for name, picture in pictures(comparison, growth, scale).items():
        (PICTURES / name).write_text(picture)
    PAGE.write_text(page(comparison, growth, read(UPSTREAMS), read(PAPERS), read(TOOLS), scale, read(AUTHORITY)))


def read(path: Path) -> Results:
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def pictures(comparison: Results, growth: Results, scale: Results) -> dict[str, str]:
    found = scale_tables.pictures(scale)
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


def page(
    comparison: Results,
    growth: Results,
    upstreams: Results,
    papers: Results,
    tools: Results,
    scale: Results,
    authority: Results,
) -> str:
    """The whole document."""
    if not comparison:
        return "# Benchmarks\n\nNo results yet: `make bench`.\n"
    relayed = [upstream_tables.section(upstreams)] if upstreams else []
    parts = [
        INTRODUCTION,
        *([tool_tables.section(tools)] if tools else []),
        conditions(comparison),
        tables(comparison, growth),
        LIMIT,
        SINCE,
        *relayed,
        *_growth(growth),
        *([scale_tables.section(scale)] if scale else []),
        *([authority_tables.section(authority)] if authority else []),
        *_papers(papers),
        REPEAT,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


INTRODUCTION = """
# Benchmarks

<!-- Made by `python -m benchmarks.report` from benchmarks/results; edit that, not this. -->

What a governed call costs, compared with a plain call on other servers. Toolgate does all of its work in every measured call:
authentication, role, limits, JSON Schema on the way in and out, the floor, and an audit record that is written before the
answer leaves. The peers do none of that; they run one `async def` echo tool with uvloop and httptools, JSON answers and no
access log, their fastest configuration.

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
libraries under it are larger than that cache, so each step finds it cold. Only less work would help, and every remaining step is
required.

Tried without gain: Cython over the same sources (slower: compiled code is larger than bytecode), huge pages, other
allocators, no garbage collection, OpenSSL's digests by copy. With gain: a lane for whole requests and fewer calls on the
road (249 to 139 µs of CPU a call over the wire), answers of one turn that share a write (a quarter less at 10 connections, a
third at 64), values made in C (4 % fewer instructions). A Python built with profile-guided optimisation takes about a
seventh less than the one measured here.
"""

SINCE = """
## Since these tables were made

The tables above are older than the bounds of the front door and the one entrance for every face. A call of the echo costs a
little more now; the tools that people call cost less. Beside the commit of the tables, in one run on 2026-11-18 (five short
interleaved rounds), calls/s and CPU a call changed so:

| tool | calls/s, 10 connections | 64 | CPU a call, 10 connections | 64 |
| --- | --- | --- | --- | --- |
| the inline echo | 0.96x | 0.95x | 1.05x | 1.05x |
| a file (`library_fetch`) | 1.87x | 2.37x | 0.55x | 0.43x |
| a store (`check_consent_requirements`) | 2.66x | 3.21x | 0.37x | 0.31x |
| checks in memory (`validate_l0_invariants`), an effect then | 3.23x | 2.71x | 0.34x | 0.38x |
| an unchanged paper (`lra_validate`), judged anew then | 44.6x | 44.1x | 0.09x | 0.09x |

Rounds of one row differ by up to a half. At one connection the echo makes 0.85x of the calls. Start to first answer took
1.10x in a run of nine rounds on a quiet machine, and 1.13 to 1.45x in this one; memory at rest 1.01x. Counted one by one, an
echo runs some 2 630 bytecode instructions, where it ran 2 250; in process it takes 1.07x of the time.

The additional work: whose turn it is and how long a client may take, at every read and answer; the client's address, and an
id in a header of every answer; the text form of an answer; `null` for optional arguments; a check of every field that a
tool returns; rules, stops and repeated calls. That work keeps one caller from slowing another, see
[limits](reference/limits.md).

Memory under good and hostile callers at once (`benchmarks.mixed`, two minutes, same day): 57 MiB at rest, 113 to 120 under load,
128 at most, 109 when all had left; it had risen to 304 MB. After 100 000 answers of that kind 187.1 MiB and 48 descriptors,
after 200 000 188.5 MiB and 48 (`benchmarks.soak`).
"""

L0 = """
Document 001 asks for less than 100 ns a check. An answer of `validate_l0_invariants` holds two measurements of its own. The
first run (`latencyNs`, `performanceNs`), which decides, comes right after work with files, stores and the network; the
processor has to fetch code and values from memory, which takes several hundred nanoseconds to a few microseconds. The
steady state (`steadyNs`) is the same check 32 times in a row, the median of five such batches: the cost of a check that is
repeated. The target is judged on the steady state, here and in `withinPerformanceTarget`. Below, a first run comes after a
megabyte of other work.
"""

REPEAT = """
## How to repeat it

    make bench          # everything above, some fifty minutes; writes benchmarks/results and this page
    make bench-quick    # a minute or two; prints the tables and keeps them in build/bench
    python -m benchmarks.growth --quick      # a minute: do the curves work? `make bench` draws them
    python -m benchmarks.tools               # each shipped tool beside the echo: three minutes
    python -m benchmarks.upstreams --alone   # relayed calls without the other gateways: five minutes
    python -m benchmarks.road --instructions # bytecode of one call, by function: the same number on a busy machine
    python -m benchmarks.road --flame road.svg
    TOOLGATE_PAPERS=DIR python -m benchmarks.papers --write      # builds beside Pandoc; DIR holds papers of others
    TOOLGATE_PAPERS=DIR python -m scripts.page_bench.run --papers --write      # Lighthouse and axe on them
    python -m benchmarks.compare --against COMMIT [--quick]      # before and after a change
    python -m benchmarks.mixed [--commit COMMIT]                 # memory under good and hostile callers at once
    python -m benchmarks.soak [--calls N]                        # what is left behind after 2N answers beside N
    python -m benchmarks.scale [--quick] [--write]               # several processes: three minutes

`--against` takes a tag, a branch, a hash or `HEAD~5` and no other peer: it exports that commit into .cache/bench, builds it
and this tree alike, each with what its own lock names, and measures both in turns: calls/s, CPU a call, p99/p50, start and
memory as ratios, for the echo and for a tool of each way to run (a file, a store, a synced effect, a worker process). Tables
and numbers stay in .cache/bench, or where `--out` says. Compare a commit with itself to measure the noise of the
machine; smaller differences mean nothing.

It needs Linux, two cores and nothing else running. The server runs on the first core, the load on the last; a round
measures every server once, and each round begins with another one. The load (`benchmarks/load.py`) decodes every answer
and checks status, id and echoed fields; one wrong answer of ours ends the run, and one of a peer ends its part in it. After
each trial the lines of our audit log must equal the answers that clients got, and `toolgate audit verify` must pass.
Absolute numbers differ from machine to machine: compare ratios, and mind their spread.

What this does not show: TLS, several machines, tools that wait or compute (they dwarf all of this), and gateways at their best.
"""


PAPERS_TEXT = """
CPU time, user and system, of the process and all that it starts; medians of interleaved rounds. Pandoc alone reads the same
source with the same reader, resolves the citations and writes HTML with MathML. `build` is ours in a process that is there
already, as `lra serve` and `--watch` use it; `lra build` is the whole command, which starts Python first. "Waited" is the time
that a person waits, in which Pandoc reads while Python imports. Four papers are of others, two of our own; the last row is one
of them ten times over.
"""

PAGES_TEXT = """
Lighthouse 12 (mobile, throttled; the worst of several runs) and axe 4.14 (violations in light, dark, print, at 320 px and with
forced colours) on these pages. Goals: performance 99, the rest 100, no violation.
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
    said = f"While driving Toolgate, the load generator was busy at most {busiest:.0%} of its time"
    alone = [
        f"{plots.short(spread(found['rate']).median)} calls/s at {connections}"
        for connections, found in results.get("limit", {}).items()
    ]
    return (
        f"{said}; against a server that does nothing it reaches {', '.join(alone)} connections."
        if alone
        else f"{said}."
    )


def tables(results: Results, growth: Results | None = None) -> str:
    """What a person wants to see after a run, in Markdown; also printed in the terminal."""
    parts = ["## Goals", goal_table(goals(results, growth))]
    if results.get("left_out"):
        parts += ["## Left out", markdown(["peer", "why"], list(results["left_out"].items()))]
    if "http" in results:
        parts += ["## Over HTTP", rates(results["http"], "connections")]
        parts += ["Calls a second, ours divided by theirs:", _ratios(results, "rate")]
        parts += ["CPU a call, ours divided by theirs:", _ratios(results, "cpu_us")]
    if "stdio" in results:
        parts += ["## Over stdio", rates(results["stdio"], "in flight")]
    if "gateway" in results:
        parts += ["## Beside a gateway", GATEWAY, rates(results["gateway"], "connections")]
    if "start" in results:
        parts += ["## Start and memory", _start(results)]
    if "refusals" in results:
        parts += ["## Refusals", _refusals(results["refusals"])]
    if "kills" in results:
        parts += ["## The audit log under load", _audit(results)]
    if "road" in results:
        parts += ["## In process, step by step", _road(results["road"])]
    if "l0_ns" in results:
        parts += ["## L0 checks", L0.strip(), _l0(results["l0_ns"])]
    return "\n\n".join(parts)


def _ratios(results: Results, measure: str) -> str:
    ours = results["http"]["Toolgate"]

    def rows() -> Iterator[Sequence[str]]:
        for name, columns in results["http"].items():
            if name != "Toolgate":
                yield [name, *(shown(ratios(ours[count][measure], columns[count][measure])) + "x" for count in columns)]

    return markdown(["connections", *(f"at {count}" for count in ours)], rows())


def _start(results: Results) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for name, found in results["start"].items():
            yield [name, *(shown(spread(found[key])) for key in ("seconds", "mib", "mib_loaded"))]

    return markdown(["server", "s to first right answer", "MiB at rest", "MiB under load"], rows())


def _refusals(table: Mapping[str, Any]) -> str:
    good = table["good"]["cpu_us"]

    def rows() -> Iterator[Sequence[str]]:
        for case, found in table.items():
            yield [case, shown(spread(found["cpu_us"])), shown(ratios(found["cpu_us"], good)) + "x"]

    return markdown(["case", "CPU µs", "against a success"], rows())


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


def _l0(measured: Mapping[str, Sequence[float]]) -> str:
    names = {"steady": "steady state, the slowest of the five checks", "first": "first run, the block / five checks"}
    rows = [(title, f"{min(measured[key]):.0f}", f"{max(measured[key]):.0f}") for key, title in names.items()]
    return markdown(("ns a check", "best round", "worst round"), rows)


def _road(table: Mapping[str, Any]) -> str:
    rows = [[name, f"{found['best']:.2f}", f"{found['median']:.2f}"] for name, found in table.items()]
    return markdown(["step", "best µs", "median µs"], rows)


def _papers(papers: Results) -> Iterator[str]:
    if "build" in papers:
        about = papers["machine"]
        yield "## Papers"
        yield (
            f"Measured {papers['date']} on {about['processor']}, {about['cores']} cores, Python {about['python']}, "
            f"Pandoc {papers['pandoc']}. {PAPERS_TEXT.strip()}"
        )
        head = ["source", "KB", "Pandoc ms", "build ms", "ratio", "lra build ms", "ratio"]
        head += ["Pandoc waited ms", "lra build waited ms", "ratio"] if "build_load" in papers else []
        yield markdown(head, [_built(one) for one in papers["build"]])
        yield (
            f"Goal: at most 1.3 times the time of Pandoc. `build` takes up to {_worst(papers, 'inside', 'ms'):.2f} times its CPU "
            f"time; the whole command, with the start of Python, up to {_worst(papers, 'command', 'ms'):.2f} times."
            f"{_waited(papers)} `validate` of a page of 5 MB takes {papers['validate_s']:.2f} s of CPU (goal: 1)."
        )
    if "pages" in papers:
        yield f"{PAGES_TEXT.strip()} Load average of the machine meanwhile: {papers['pages_load']:g}; performance falls with it."
        head = ["page", "performance", "accessibility", "best practices", "SEO", "axe"]
        yield markdown(head, [[name, *(str(one) for one in row)] for name, row in papers["pages"].items()])


def _built(one: Mapping[str, Any]) -> list[str]:
    alone, inside, command = one["alone_ms"], one["inside_ms"], one["command_ms"]
    row = [f"{one['kb']:.0f}", f"{alone:.0f}", f"{inside:.0f}", f"{inside / alone:.2f}", f"{command:.0f}"]
    row.append(f"{command / alone:.2f}")
    if "command_waited_ms" in one:
        alone, command = one["alone_waited_ms"], one["command_waited_ms"]
        row += [f"{alone:.0f}", f"{command:.0f}", f"{command / alone:.2f}"]
    return [one["source"], *row]


def _waited(papers: Results) -> str:
    """Nothing for results from before it was measured."""
    if "build_load" not in papers:
        return ""
    inside, command = (_worst(papers, what, "waited_ms") for what in ("inside", "command"))
    return (
        f" A person waits up to {inside:.2f} and {command:.2f} times as long. Load average of the machine meanwhile: "
        f"{papers['build_load']:.1f}; waiting grows with it."
    )


def _worst(papers: Results, what: str, kind: str) -> float:
    return max(float(one[f"{what}_{kind}"] / one[f"alone_{kind}"]) for one in papers["build"])


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

    return markdown(["what", "unit", "by number"], rows())


if __name__ == "__main__":
    write()
