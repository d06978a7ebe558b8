"""What consensus costs, in units of one Ed25519 verification measured in the same run (V).

    python benchmarks/consensus.py [--json]

Each figure in V is the median of interleaved blocks of CPU time. Durable figures are wall time on a SQLite file
in a temporary directory, with the store's own settings (WAL, synchronous FULL).
Exits 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from toolgate.kit.ed25519 import SigningKey
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.arbiter.store import lock_replica, record
from toolgate.packs.consensus.domain import vrf
from toolgate.packs.consensus.domain.arbiters import Network, sender_id
from toolgate.packs.consensus.domain.evidence import Equivocation, certificate_of, verify
from toolgate.packs.consensus.domain.messages import ACCEPT, Statement, Vote, decode
from toolgate.packs.consensus.domain.rounds import Round
from toolgate.packs.consensus.tables import MIGRATIONS, STORE
from toolgate.powers.stores import OpenStores

BLOCKS = 25
STATEMENT = Statement(sha256(b"root").digest(), sha256(b"rule").digest(), ACCEPT)
KEYS = [SigningKey(sha256(b"arbiter %d" % number).digest()) for number in range(100)]
BY_SENDER = {sender_id(key.public_key): key for key in KEYS}


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    goal: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def network_of(n: int) -> Network:
    return Network([key.public_key for key in KEYS[:n]], 2)


def vote_of(network: Network, index: int, round_id: int = 1, said: Statement = STATEMENT) -> Vote:
    sender = network.senders[index]
    made = Vote(network.id, round_id, said, sender, 1)
    return made._replace(signature=BY_SENDER[sender].sign(made.signed_bytes()))


def seconds(work: Callable[[], object], times: int) -> float:
    """CPU seconds of one run: what other processes do meanwhile does not count."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def in_verifications(works: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Each work's time in V, block against block."""
    network = network_of(4)
    one = vote_of(network, 0)
    key, message = network.keys[one.sender], one.signed_bytes()
    ratios: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(BLOCKS):
        unit = seconds(lambda: key.verify(message, one.signature), 60)
        for name, (work, times) in works.items():
            ratios[name].append(seconds(work, times) / unit)
    return {name: median(found) for name, found in ratios.items()}


def round_of(network: Network, votes: Sequence[Vote]) -> Round:
    one = Round(network, 1)
    for vote in votes:
        one.see(vote, 0)
    return one


def domain_figures() -> list[Figure]:
    four, hundred = network_of(4), network_of(100)
    few, many = ([vote_of(network, i) for i in range(network.size)] for network in (four, hundred))
    full = round_of(hundred, many)
    certificate = certificate_of(hundred, 1, STATEMENT, many)
    pair = sorted(
        (vote_of(four, 0), vote_of(four, 0, said=STATEMENT._replace(rule=bytes(32)))), key=lambda v: v.statement
    )
    proof = Equivocation(*pair)
    seed = sha256(b"vrf").digest()
    made = vrf.prove(seed, b"alpha")
    found = in_verifications(
        {
            "few": (lambda: round_of(four, few), 50),
            "many": (lambda: round_of(hundred, many), 3),
            "wire": (lambda: decode(many[0].to_bytes()), 400),
            "duplicate": (lambda: full.see(many[7], 0), 400),
            "certificate": (lambda: verify(hundred, certificate), 1),
            "evidence": (lambda: verify(four, proof), 20),
            "eval": (lambda: vrf.prove(seed, b"alpha"), 6),
            "check": (lambda: vrf.verify(made.public_key, b"alpha", made.proof), 6),
        }
    )
    per_few, per_many = found["few"] / 4, found["many"] / 100
    return [
        Figure("state machine, one vote, n = 4", per_few, "V", 0.05),
        Figure("state machine, one vote, n = 100", per_many, "V", 0.05),
        Figure("cost of a vote at n = 100 over n = 4", per_many / per_few, "x", 1.2),
        Figure("encode and decode a vote", found["wire"], "V", 0.1),
        Figure("a vote that is known already", found["duplicate"], "V", 0.05),
        Figure("certificate check, per signer (q = 67)", found["certificate"] / hundred.quorum, "V", 1.1),
        Figure("equivocation proof check", found["evidence"], "V", 2.3),
        Figure("VRF eval", found["eval"], "V", 7),
        Figure("VRF verify", found["check"], "V", 13),
        Figure("memory of an open round, n = 100", memory_of_a_round(hundred) / 1000, "kB", 100),
    ]


def memory_of_a_round(network: Network) -> int:
    """As it is loaded from a store: every vote decoded from its own bytes, one below the quorum."""
    wire = [
        vote_of(network, i, said=Statement(STATEMENT.root, STATEMENT.rule, 1 + i % 3)).to_bytes() for i in range(100)
    ]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    one = Round(network, 1)
    for data in wire:
        one.see(decode(data), 0)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert one.outcome == "OPEN"
    return used


def store_figures(folder: Path) -> list[Figure]:
    network = network_of(100)
    stores = OpenStores({}, folder, MIGRATIONS)
    numbers = iter(range(1, 10_000_000))

    async def take_in(votes: Sequence[Vote]) -> None:
        store = stores.get(STORE)
        await store.run(lambda c: record(c, lock_replica(c, network), votes, source="benchmark", recorded="now"))

    async def durable() -> tuple[list[float], list[float]]:
        singles, groups = [], []
        await take_in([vote_of(network, 0, next(numbers))])
        for _ in range(5):
            votes = [vote_of(network, i, next(numbers)) for i in range(20)]
            start = time.perf_counter()
            for vote in votes:
                await take_in([vote])
            singles.append((time.perf_counter() - start) / len(votes))
            one = next(numbers)
            group = [vote_of(network, i, one) for i in range(100)]
            start = time.perf_counter()
            await take_in(group)
            groups.append((time.perf_counter() - start) / len(group))
        return singles, groups

    async def fill() -> None:
        for _ in range(20):
            rounds = [next(numbers) for _ in range(500)]
            await take_in(
                [Vote(network.id, each, STATEMENT, network.senders[each % 100], 1, bytes(64)) for each in rounds]
            )

    singles, groups = asyncio.run(durable())
    asyncio.run(fill())
    stores.close()
    start = time.perf_counter()
    again = OpenStores({}, folder, MIGRATIONS)
    found: Any = asyncio.run(
        again.get(STORE).run(lambda c: (engine.status(c, network), engine.read_round(c, network, 9000)))
    )
    restart = time.perf_counter() - start
    again.close()
    assert sum(found[0].levels.values()) >= 10_000
    return [
        Figure(
            "durable votes, in groups of 100 instead of one by one",
            median(singles) / median(groups),
            "x cheaper",
            20,
            at_least=True,
        ),
        Figure("one durable vote alone", median(singles) * 1000, "ms", float("inf")),
        Figure("one durable vote in a group", median(groups) * 1e6, "µs", float("inf")),
        Figure("restart with 10 000 rounds, until status and a round are told", restart, "s", 2),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        figures = [*domain_figures(), *store_figures(Path(folder))]
    if as_json:
        print(json.dumps([{"name": f.name, "value": f.value, "unit": f.unit, "met": f.met} for f in figures]))
    else:
        for figure in figures:
            goal = "" if figure.goal == float("inf") else f"goal {'>=' if figure.at_least else '<='} {figure.goal:g}"
            print(f"{'ok  ' if figure.met else 'MISS'} {figure.name:<62} {figure.value:9.3f} {figure.unit:<10} {goal}")
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
