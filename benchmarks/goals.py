"""What was promised, and what a run reached. Pure: results in, rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks import wire
from benchmarks.stats import Spread, ratios, spread

Results = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    must: float
    aim: float
    better: Literal["more", "less"]
    unit: str
    """`x` for a ratio, else the unit of the number."""
    reached: Spread | None
    """None: this run did not measure it."""

    def verdict(self) -> str:
        if self.reached is None:
            return "not measured"
        if self._at_least(self.aim):
            return "aim"
        return "must" if self._at_least(self.must) else "missed"

    def _at_least(self, mark: float) -> bool:
        assert self.reached is not None
        return self.reached.median >= mark if self.better == "more" else self.reached.median <= mark


def goals(results: Results, growth: Results | None = None) -> list[Goal]:
    return [*_over_http(results), *_rest(results), *_of_growth(growth or {})]


def _over_http(results: Results) -> list[Goal]:
    def rate(ours: str, theirs: str, connections: str) -> Spread | None:
        return _ratio(results, ("http", ours, connections, "rate"), ("http", theirs, connections, "rate"))

    found = []
    for connections in ("10", "64"):
        where = f"{connections} connections"
        found += [
            Goal(f"calls/s against FastMCP, {where}", 10, 15, "more", "x", rate("Toolgate", "FastMCP", connections)),
            Goal(f"calls/s against the SDK, {where}", 4, 5, "more", "x", rate("Toolgate", "SDK", connections)),
            Goal(f"CPU a call against an empty ASGI app, {where}", 2.5, 2, "less", "x", _cpu(results, connections)),
            Goal(
                f"handshake revision against the SDK with sessions, {where}",
                4,
                5,
                "more",
                "x",
                rate("Toolgate, handshake", "SDK, handshake", connections),
            ),
        ]
    return [
        *found,
        Goal("calls/s against FastMCP, 1 connection", 5, 6, "more", "x", rate("Toolgate", "FastMCP", "1")),
        Goal("calls/s against the SDK, 1 connection", 2, 2.5, "more", "x", rate("Toolgate", "SDK", "1")),
    ]


def _cpu(results: Results, connections: str) -> Spread | None:
    return _ratio(results, ("http", "Toolgate", connections, "cpu_us"), ("http", "empty ASGI", connections, "cpu_us"))


def _rest(results: Results) -> list[Goal]:
    stdio = {
        number: _ratio(results, ("stdio", "Toolgate", number, "rate"), ("stdio", "SDK", number, "rate"))
        for number in ("1", "10")
    }
    tail = _ratio(results, ("http", "Toolgate", "64", "p99_ms"), ("http", "Toolgate", "64", "p50_ms"))
    start = _ratio(results, ("start", "Toolgate", "seconds"), ("start", "SDK", "seconds"))
    memory = _ratio(results, ("start", "Toolgate", "mib"), ("start", "SDK", "mib"))
    written = _ratio(results, ("guarantee", "written", "rate"), ("guarantee", "unwritten", "rate"))
    found = [
        Goal("request bytes to answer bytes in process, best", 30, 20, "less", "µs", _in_process(results)),
        Goal("stdio against the SDK, 1 in flight", 2.5, 3.5, "more", "x", stdio["1"]),
        Goal("stdio against the SDK, 10 in flight", 5, 10, "more", "x", stdio["10"]),
    ]
    found += [
        Goal(f"CPU of a refusal ({case}) against a success", 1.1, 0.9, "less", "x", _refusal(results, case))
        for case in wire.STATUSES
        if case != "good"
    ]
    return [
        *found,
        Goal("p99 / p50 at 64 connections", 4, 3, "less", "x", tail),
        Goal("p50 at a third of capacity, open loop", 0.6, 0.35, "less", "ms", _rounds(results, ("open", "p50_ms"))),
        Goal("start to first right answer against the SDK", 0.35, 0.25, "less", "x", start),
        Goal("memory at rest against the SDK", 0.75, 0.6, "less", "x", memory),
        Goal("answers without an audit line after SIGKILL at full load", 0, 0, "less", "answers", _lost(results)),
        Goal("calls/s against the same with the log on /dev/null, 64 connections", 0.9, 0.9, "more", "x", written),
        Goal("L0, the slowest check in the steady state, best round", 80, 60, "less", "ns", _l0(results)),
    ]


def _of_growth(growth: Results) -> list[Goal]:
    tools, keys = (_last_against_ten(growth, name) for name in ("tools", "keys"))
    return [
        Goal("CPU a call with a manifest of 1 000 rows against 10 tools", 1.1, 1.02, "less", "x", tools),
        Goal("CPU a call with 10 000 keys against 10", 1.1, 1.02, "less", "x", keys),
    ]


def _last_against_ten(growth: Results, name: str) -> Spread | None:
    points: Mapping[str, list[float]] = growth.get("curves", {}).get(name, {}).get("points", {})
    return ratios(points[max(points, key=int)], points["10"]) if points else None


def _rounds(results: Results, path: tuple[str, ...]) -> Spread | None:
    found = _list(results, path)
    return spread(found) if found else None


def _ratio(results: Results, ours: tuple[str, ...], theirs: tuple[str, ...]) -> Spread | None:
    one, other = (_list(results, path) for path in (ours, theirs))
    return ratios(one, other) if one and other else None


def _list(results: Results, path: tuple[str, ...]) -> list[float]:
    found: Any = results
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return list(found or [])


def _refusal(results: Results, case: str) -> Spread | None:
    return _ratio(results, ("refusals", case, "cpu_us"), ("refusals", "good", "cpu_us"))


def _single(value: float) -> Spread:
    return Spread(value, value, value, 1)


def _in_process(results: Results) -> Spread | None:
    return _single(results["road"]["bytes to bytes"]["best"]) if "road" in results else None


def _lost(results: Results) -> Spread | None:
    return _single(results["kills"]["without_line"] + results["kills"]["torn"]) if "kills" in results else None


def _l0(results: Results) -> Spread | None:
    return _single(min(results["l0_ns"]["steady"])) if "l0_ns" in results else None
