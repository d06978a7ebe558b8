"""Whether anything is left behind: memory and descriptors after 2N answers beside those after N.

    python -m benchmarks.soak [--calls N] [--connections C] [--workers W] [--only KIND ...]

The callers are those of `benchmarks.mixed`, good and hostile at once. After N answers everybody leaves and the server rests;
then the same again. The first N fill what is filled once: caches, pools, heaps. What grows after that grows for ever.
Exit 1: after 2N the server and its processes have more descriptors or threads, or more than `ALLOWED` more memory, or wrote to
standard error, or an answer is not on record, or the audit log does not verify. What is no HTTP is answered and not recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks import machine, mixed, ours

CALLS: Final = 100_000
ALLOWED: Final = 0.03
"""Of memory. The allocator gives back whole pages only: twice the same load leaves some per cent more or less."""
LEAST_MIB: Final = 2.0
"""What is allowed in any case: a page of each of the allocator's sizes."""
REST_S: Final = 8.0
"""After the last client has left: longer than connections are kept and than a checkpoint takes."""


@dataclass(frozen=True, slots=True)
class Held:
    """What all processes of the server hold together."""

    mib: float
    files: int
    threads: int

    def __str__(self) -> str:
        return f"{self.mib:.1f} MiB, {self.files} descriptors, {self.threads} threads"


def held_by(pid: int) -> Held:
    found = [held_by(int(child)) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    own = Held(
        machine.memory_mib(pid),
        sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()),
    )
    return Held(*(sum(getattr(each, name) for each in (own, *found)) for name in ("mib", "files", "threads")))


def answers(told: Counter[str]) -> int:
    return sum(count for status, count in told.items() if status.isdigit())


async def call(clients: Sequence[mixed.Client], kinds: Sequence[str], goal: int) -> None:
    """Until so many answers have come to all of them together; then everybody leaves."""
    await asyncio.gather(*(mixed.behave(client, kinds, lambda: answers(clients[0].told) < goal) for client in clients))


def soak(made: ours.Deployment, errors: Path, options: argparse.Namespace) -> tuple[list[Held], Counter[str]]:
    keys, ids = mixed.furnish(made)
    told: Counter[str] = Counter()
    target = made.over_http()
    target = replace(target, command=(*target.command, "--workers", str(options.workers)))
    found = []
    with errors.open("wb") as file, mixed.serving(target, file) as (server, port):
        clients = [
            mixed.Client(port, keys[number % len(keys)], ids, random.Random(number), told)
            for number in range(options.connections)
        ]
        print(f"at rest: {held_by(server.pid)}", flush=True)
        for turn in (1, 2):
            asyncio.run(call(clients, options.only, turn * options.calls))
            time.sleep(REST_S)
            found.append(held_by(server.pid))
            print(f"after {answers(told)} answers: {found[-1]}", flush=True)
    return found, told


def faults(made: ours.Deployment, said: str, found: Sequence[Held], told: Counter[str]) -> list[str]:
    first, second = found
    faults = [said] if said else []
    if second.files > first.files or second.threads > first.threads:
        faults.append("descriptors or threads are left behind")
    if second.mib > first.mib + max(LEAST_MIB, ALLOWED * first.mib):
        faults.append(f"{second.mib - first.mib:.1f} MiB are left behind")
    written, suppressed = made.recorded()
    print(f"{written} answers on record and {suppressed} counted")
    if written + suppressed < answers(told) - told["garbage"]:
        faults.append("an answer is not on record")
    try:
        made.verify()
    except ours.AuditFault as untrue:
        faults.append(str(untrue))
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=CALLS, metavar="N")
    parser.add_argument("--connections", type=int, default=64, metavar="C")
    parser.add_argument("--workers", type=int, default=1, metavar="W")
    parser.add_argument("--only", nargs="+", choices=mixed.KINDS, default=list(mixed.KINDS), metavar="KIND")
    options = parser.parse_args()
    machine.require_linux()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        made, errors = ours.Deployment(Path(name) / "home", ()), Path(name) / "errors"
        found, told = soak(made, errors, options)
        wrong = faults(made, errors.read_text(errors="replace").strip(), found, told)
    print("  ".join(f"{what}: {count}" for what, count in sorted(told.items())))
    for fault in wrong:
        print(f"stopped: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
