"""What `benchmarks.upstreams` measured, as goals and tables. Pure."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.goals import Goal, Results
from benchmarks.stats import Spread, ratios, spread
from benchmarks.tables import goal_table, markdown, rates, shown

OWN: Final = "Toolgate, own inline tool"
READ_HTTP, READ_PIPE = "Toolgate, relayed read, HTTP", "Toolgate, relayed read, stdio"
EFFECT_HTTP, EFFECT_PIPE = "Toolgate, relayed effect, HTTP", "Toolgate, relayed effect, stdio"
RELAYED: Final = (READ_HTTP, READ_PIPE, EFFECT_HTTP, EFFECT_PIPE)
STUB_HTTP: Final = "the stub itself"
SDK: Final = "SDK"
FASTMCP_HTTP, FASTMCP_PIPE = "FastMCP, proxy, HTTP", "FastMCP, proxy, stdio"
MCP_PROXY: Final = "mcp-proxy"
CONTEXTFORGE: Final = "ContextForge"

JUDGED_AT: Final = "10"
"""Connections at which CPU is judged: the machine has work at all times, and every peer answers."""
ABOUT = """
Everybody relays to one stub, which echoes three fields and does as little as that needs; gateways in front of HTTP ask it over
HTTP, those in front of a program start it as their child. Toolgate authenticates, permits, limits, validates both ways, floors
and records every call; `read` is what a person wrote into the tool's row of the policy. An *effect* is on disk before it is
sent and its outcome before it is answered: two syncs. The SDK's own server has no upstream; it answers the same call itself.
The stub, and whatever a gateway starts, share a core with the load. CPU is that of the gateway's own process.
"""


def goals(results: Results) -> list[Goal]:
    return [*_cpu_goals(results), *_latency_goals(results), *_peer_goals(results), *_size_goals(results)]


def _cpu_goals(results: Results) -> list[Goal]:
    found = []
    for name in (READ_HTTP, READ_PIPE):
        how = name.rpartition(", ")[2]
        own, sdk = (_cpu(results, name, other) for other in (OWN, SDK))
        found += [
            Goal(f"CPU of a relayed read against our own inline tool, {how}", 2, 1.5, "less", "x", own),
            Goal(f"CPU of a relayed read against the SDK's own server, {how}", 0.5, 0.4, "less", "x", sdk),
        ]
    return found


def _latency_goals(results: Results) -> list[Goal]:
    read = _added(results, READ_HTTP)
    effect = spread(results["added_ms"]) if results.get("added_ms") else None
    return [
        Goal("added p50 of a read, 1 connection", 0.3, 0.2, "less", "ms", read),
        Goal("added p50 of an effect beyond two syncs, 1 connection", 0.3, 0.2, "less", "ms", effect),
    ]


def _peer_goals(results: Results) -> list[Goal]:
    rows = (
        (FASTMCP_HTTP, READ_HTTP, 100.0),
        (CONTEXTFORGE, READ_HTTP, 100.0),
        (MCP_PROXY, READ_PIPE, 5.0),
    )
    return [
        Goal(f"CPU a call of {peer} against a relayed read", must, must, "more", "x", _cpu(results, peer, ours))
        for peer, ours, must in rows
    ]


def _size_goals(results: Results) -> list[Goal]:
    many: dict[str, Any] = results.get("many", {})
    cpu = ratios(many["cpu_us"]["many"], many["cpu_us"]["few"]) if many else None
    each = many.get("mib_each")
    size = None if each is None else Spread(each, each, each, 1)
    return [
        Goal("CPU a call with 1 000 pinned tools of 20 upstreams against one", 1.1, 1.02, "less", "x", cpu),
        Goal("memory of an idle HTTP upstream with 50 tools", 2, 1, "less", "MiB", size),
    ]


def _cpu(results: Results, name: str, other: str) -> Spread | None:
    one, two = (_rounds(results, each, JUDGED_AT, "cpu_us") for each in (name, other))
    return ratios(one, two) if one and len(one) == len(two) else None


def _added(results: Results, name: str) -> Spread | None:
    """Milliseconds that a call takes longer than the stub's own answer, round by round."""
    ours, stub = (_rounds(results, each, "1", "p50_ms") for each in (name, STUB_HTTP))
    if not ours or len(ours) != len(stub):
        return None
    return spread([one - two for one, two in zip(ours, stub, strict=True)])


def _rounds(results: Results, name: str, connections: str, measure: str) -> list[float]:
    return list(results.get("relay", {}).get(name, {}).get(connections, {}).get(measure, ()))


def tables(results: Results) -> str:
    parts = [goal_table(goals(results)), rates(results["relay"], "connections")]
    if results.get("sync_ms"):
        parts.append(f"One sync of a record on this disk: {shown(spread(results['sync_ms']))} ms.")
    if "many" in results:
        memory = {name: f"{mib:.1f}" for name, mib in results["many"]["mib"].items()}
        said = "Memory with one upstream of one tool, and with 20 of 50 tools each, all connected"
        parts.append(f"{said}: {memory['few']} and {memory['many']} MiB.")
    if results.get("left_out"):
        parts.append(markdown(["left out", "why"], list(results["left_out"].items())))
    return "\n\n".join(parts)


def section(results: Results) -> str:
    """For docs/benchmarks.md."""
    about = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    run = (
        f"Measured {results['date']} on {about['processor']}, {about['cores']} cores; {results['rounds']} interleaved rounds "
        f"of {results['seconds']:g} s. Versions: {versions}."
    )
    return "\n\n".join(["## Relayed calls", ABOUT.strip(), run, tables(results)])
