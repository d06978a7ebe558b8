"""What `benchmarks.tools` found, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks import plots
from benchmarks.stats import ratios, spread
from benchmarks.tables import markdown, shown

ECHO: Final = "echo, inline"
SDK: Final = "SDK"
TEXT: Final = """
## The tools people call

The tables further down measure an echo, because every peer can have one. This one measures what is shipped: each tool over
HTTP beside that echo, in the same run. `first` is the first call after a start. `by CPU` is the echo's CPU a call divided by
the tool's: where others use the machine, too, it is the steadier number. Workers of `ctx.compute` are processes of their
own, and their time is not in the CPU columns. A call with an effect waits for two syncs of the audit log.
"""
MEMORY: Final = """
### What is remembered

What was read before is answered from memory while nobody has changed it: consent, rates, finality, gossip that brings
nothing, and the round that a stranger's key signs in, by a mark of the SQLite file that a commit of any process ends (4 µs a
look); documents and papers by what Linux tells of the workspace, for a second at most. Rows with `memory off` are the same
calls on a server that remembers nothing between them. On PostgreSQL nothing is remembered: to ask whether something has
changed is the round trip that reads it. Callers that wait for the same share one read, which begins after all of them asked;
rows with `PostgreSQL`, and those with `memory off`, show ten callers with one question. With ten questions that differ,
`check_consent_requirements` is 0.17x by CPU, `query_fp_store` 0.13x, `consensus_finality` 0.04x (2026-11-18, 5 rounds,
others used 82% of the machine).

Beside the commit before all this, in one run on 2026-11-18 (5 rounds of 0.7 s in turns, ten connections). Others used 86% of
the machine, so calls a second say little, and the CPU of a call is compared:

| tool | by CPU, before | now | CPU a call, now against before |
| --- | --- | --- | --- |
| echo, in a thread | 0.66x | 0.77x | 0.81x |
| validate_l0_invariants, in memory | 0.50x | 0.53x | 0.86x |
| library_search, 1 000 documents | 0.47x | 0.49x | 1.04x |
| library_fetch | 0.39x | 0.35x | 0.95x |
| check_consent_requirements | 0.20x | 0.45x | 0.39x |
| query_fp_store | 0.18x | 0.55x | 0.28x |
| consensus_finality | 0.12x | 0.73x | 0.14x |
| consensus_gossip | 0.14x | 0.67x | 0.17x |
| consensus_vote, a key of one's own | 0.10x | 0.25x | 0.34x |
| vrf_eval | 0.11x | 0.12x | 0.73x |
| lra_validate, fresh paper | 0.12x | 0.43x | 0.26x |
| analyze_dissonance, one workflow | 0.04x | 0.04x | 1.00x |
| check_adr_compliance | 0.11x | 0.12x | 0.89x |

### Where the limit is, and what was tried

- `vrf_eval`: beyond the VRF itself a call costs 250 to 300 µs of CPU; the goal is 150. A VRF is some fifteen calls of libsodium,
  each of which gives up the interpreter's lock, and ten callers' threads take turns at it; the records before and after it are
  synced, one sync for about two calls, at some 100 µs of the kernel's time each. Gained: what a key is for, which the stamp of
  its file tells (60 of 130 µs for keys); one wake-up for all that a sync ends. Tried without gain: one
  VRF at a time; the VRF on the event loop, where it holds up every other caller for 350 µs.
- A `def` handler in a thread costs some 50 µs (the goal is 60): what remains is two hand-overs between threads, and that
  answers of several callers share fewer writes of the log.
- `validate_l0_invariants`: of what is left beyond the echo, half is checking, encoding and writing out an answer three times as
  long as the echo's. Gained: one measurement of the steady state a second; whole bounds of numbers, which jsonschema-rs compares
  at a tenth of the cost of `1e300`; fewer steps to report. It stands at the goal: 0.44 to 0.56 in four runs.
- A vote of an arbiter's own key: once a round and key, and three syncs (two of the log, one of the store, which holds the
  signer guard). Nothing of the guard is remembered, so this path is as it was; the rows show a key that no arbiter has.
- `query_fp_store` asks two stores, consent first. Only rates (`fp_rate`) are remembered: patterns, trends and comparisons
  move with the clock in more than one place.
- A paper of 100 KB takes 14 ms to judge (the goal is 15, the aim 8); a worker process adds 0.1 to 0.35 ms to a small piece
  of work.
- Not done: an answer of PostgreSQL by LISTEN. A notice comes after the commit, and in between a revoked consent would still
  be granted.
"""


def section(results: Mapping[str, Any]) -> str:
    return "\n\n".join([TEXT.strip(), table(results), MEMORY.strip()])


def table(results: Mapping[str, Any]) -> str:
    head = ["tool", "calls/s", "of the echo's", "by CPU", "CPU µs a call", "p99 ms", "first ms", "must", "aim"]
    parts = [_conditions(results), markdown(head, list(_rows(results)))]
    if SDK in results.get("starts", ()):
        parts.append(_started(results["starts"]))
    return "\n\n".join(parts)


def _started(starts: Mapping[str, Any]) -> str:
    mine, theirs = starts["Toolgate"], starts[SDK]
    seconds, mib = (ratios(mine[what], theirs[what]) for what in ("seconds", "mib"))
    return (
        f"The same server, with all packs, needs {spread(mine['seconds']).median:.2f} s from its start to its first right answer"
        f" and {spread(mine['mib']).median:.1f} MiB then: {shown(seconds)}x of what the MCP SDK's own server with one tool needs"
        f" (goal 0.3, aim 0.2), and {shown(mib)}x (0.6, 0.5)."
    )


def _conditions(results: Mapping[str, Any]) -> str:
    about, vrf = results["machine"], results.get("vrf_us")
    alone = f", one VRF by itself {vrf:.0f} µs of CPU" if vrf else ""
    return (
        f"Measured {results['date']} on {about['processor']}, {about['cores']} cores, {about['system']}, Python "
        f"{about['python']}; {results['connections']} connections, {results['rounds']} rounds of {results['seconds']:g} s in"
        f" turns; other processes used {results['others_used']:.0%} of the machine; one sync took {results['sync_ms']:.2f} ms"
        f"{alone}."
    )


def _rows(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    echo, cpu = results["tools"][ECHO]["rate"], results["tools"][ECHO]["cpu_us"]
    for text, found in results["tools"].items():
        yield [
            text,
            plots.short(spread(found["rate"]).median),
            shown(ratios(found["rate"], echo)) + "x",
            shown(ratios(cpu, found["cpu_us"])) + "x",
            plots.short(spread(found["cpu_us"]).median),
            plots.short(spread(found["p99_ms"]).median),
            plots.short(results["first_ms"][text]),
            *(f"≥ {goal:g}x" if goal else "" for goal in results["goals"][text]),
        ]
