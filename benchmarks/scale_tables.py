"""What `benchmarks.scale` measured, as goals, tables and pictures. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks import plots
from benchmarks.goals import Goal, Results
from benchmarks.stats import Spread, ratios, spread
from benchmarks.tables import goal_table, markdown, shown

ONE, TWO, APART = "one worker", "two workers", "two servers apart"
ONE_FREE, TWO_FREE = "one worker, on both cores", "two workers, on both cores"
A_CALL, IN_PROCESS, IN_TABLE = "a call", "a slot in one process", "a slot in memory that workers share"
IN_MEMORY, IN_REDIS = "counted in memory", "counted in Redis"
FEWEST, MOST = "100", "100000"
ABOUT: Final = """
CPU is that of all processes of a server, 64 connections, a rate limit that is never reached. Workers are there to use
several cores: "on both cores" they and the load share the two that there are. Otherwise all workers run on one core, where
they find its caches full of each other's; two servers of one worker that share nothing, on that core and under the same load
together, show what two processes cost by themselves there. Redis's own CPU is not counted. Callers are measured in process,
from request bytes to answer bytes, each with a key of its own and all in turn; beside it a slot alone, taken and given back:
100 000 callers do not fit into the processor's caches. Overload: a tool of 20 ms of which a key may run ten at once, asked
by ten connections and then by a hundred; a client that is refused waits 20 ms. A busy machine blurs all of this: what a
ratio's spread covers, a run does not decide.
"""


def goals(scale: Results) -> list[Goal]:
    workers, callers = scale.get("workers"), scale.get("callers")
    overload, shared = scale.get("overload"), scale.get("shared")
    free = ratios(workers[TWO_FREE], workers[ONE_FREE]) if workers else None
    two = ratios(workers[TWO], workers[ONE]) if workers else None
    beside = ratios(workers[TWO], workers[APART]) if workers else None
    found = [
        Goal("CPU a call, two workers against one, on both cores", 1.1, 1.05, "less", "x", free),
        Goal("CPU a call, two workers against one, on one core", 1.1, 1.05, "less", "x", two),
        Goal("CPU a call, two workers against two servers apart", 1.1, 1.05, "less", "x", beside),
    ]
    flat = ratios(callers[A_CALL][MOST], callers[A_CALL][FEWEST]) if callers else None
    found.append(Goal("CPU a call, 100 000 callers against 100", 1.1, 1.05, "less", "x", flat))
    in_redis = ratios(shared[IN_REDIS], shared[IN_MEMORY]) if shared else None
    kept = ratios(overload["crowd"], overload["peak"]) if overload else None
    return [
        *found,
        Goal("CPU a call, limits in Redis against in memory", 1.25, 1.15, "less", "x", in_redis),
        Goal("Redis stopped: the longest refusal", 250, 230, "less", "ms", _of(shared, "refused_ms")),
        Goal("Redis back: the longest way to the next call", 1000, 500, "less", "ms", _of(shared, "back_ms")),
        Goal("calls done at ten times capacity, of the peak", 0.8, 0.9, "more", "x", kept),
        Goal("p99 of refusals at ten times capacity", 50, 25, "less", "ms", _of(overload, "refusal_p99_ms")),
        Goal("memory of both workers at ten times capacity", 512, 256, "less", "MiB", _of(overload, "mib")),
    ]


def _of(part: Results | None, name: str) -> Spread | None:
    return spread(part[name]) if part else None


def pictures(scale: Results) -> dict[str, str]:
    found = {}
    if "workers" in scale:
        rows = {name: spread(rounds) for name, rounds in scale["workers"].items()}
        found["workers.svg"] = plots.bars("CPU a call of several processes", "µs, less is better", rows, ours=TWO)
    for kind, name in ((A_CALL, "callers.svg"), (IN_TABLE, "callers-slots.svg")):
        if "callers" in scale:
            points = [(float(count), spread(rounds)) for count, rounds in scale["callers"][kind].items()]
            found[name] = plots.curve(f"Cost of {kind}, by callers", "callers", "µs", points)
    if "shared" in scale:
        rows = {name: spread(scale["shared"][name]) for name in (IN_MEMORY, IN_REDIS)}
        found["shared.svg"] = plots.bars(
            "CPU a call, by where limits are counted", "µs, less is better", rows, IN_REDIS
        )
    return found


def section(scale: Results) -> str:
    loads = scale["loads"].values()
    busy = f"while the machine's load was {min(loads):.1f} to {max(loads):.1f}"
    where = f"Measured {scale['date']}, {scale['rounds']} rounds, {busy} (two cores)."
    images = "\n".join(f"![{name.removesuffix('.svg')}](benchmarks/{name})" for name in pictures(scale))
    return "\n\n".join(
        ["## Several processes", where, ABOUT.strip(), goal_table(goals(scale)), images, _numbers(scale)]
    )


def _numbers(scale: Results) -> str:
    """The pictures as text."""

    def rows() -> Iterator[list[str]]:
        for part in ("workers", "shared", "overload"):
            for name, rounds in scale.get(part, {}).items():
                yield [part, name.replace("_", " "), shown(spread(rounds))]
        for kind, points in scale.get("callers", {}).items():
            cells = [f"{plots.count(float(count))}: {shown(spread(rounds))}" for count, rounds in points.items()]
            yield ["callers", f"{kind}, µs", "<br>".join(cells)]

    return markdown(["part", "what", "found"], rows())
