"""What the console's pages cost on a long log: build one, make the index, ask for pages. Prints a table; nothing is kept.

python -m scripts.console_budget [RECORDS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.console.index.test_index import SIGNER, Log, refusal
from toolgate.console.index.building import CatchUp, behind, catch_up
from toolgate.console.pages.calls import calls
from toolgate.console.pages.overview import overview
from toolgate.console.pages.shared import ConsolePage, Desk
from toolgate.console.ports import Ports
from toolgate.console.rendering import prepare, render
from toolgate.console.session import ConsoleSession
from toolgate.console.web import ConsoleVisit
from toolgate.gate.keys import KeyRing
from toolgate.model.call import Caller

ROUNDS = 7


def main(records: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        log = Log(Path(place))
        began = time.monotonic()
        for number in range(records):
            fault = refusal("bad_arguments") if number % 10 == 0 else {}
            log.call(number, tool=f"notes.t{number % 40}", caller=f"{number % 25:012x}", **fault)
            log.clock.now -= 0.95  # a million calls in half a day
        log.ledger.checkpoint()
        size = sum(path.stat().st_size for path in log.path.glob("*.jsonl"))
        print(f"log: {records} records, {size / 1e6:.0f} MB, written in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        catch_up(CatchUp(str(log.path), str(log.index), 10**12))
        print(f"index: {log.index.stat().st_size / 1e6:.0f} MB, made in {time.monotonic() - began:.1f} s")
        prepare()  # as a server does when it starts
        ring = KeyRing(Path(place) / "keys" / "callers.json")
        key, _ = ring.create("admin")
        session = ConsoleSession(Caller(key.id, "admin"), "token", 0.0, 0.0)
        pages: dict[str, tuple[Callable[[Desk], ConsolePage], dict[str, str]]] = {
            "overview, 24h": (lambda desk: overview(desk, {"log": True}), {}),
            "overview, 7d": (lambda desk: overview(desk, {"log": True}), {"span": "7d"}),
            "calls": (calls, {}),
            "calls of a tool": (calls, {"tool": "mcp.tool:notes.t7"}),
            "calls that were refused": (calls, {"verdict": "refused"}),
            "calls of a caller, a rare verdict": (calls, {"caller": f"{7:012x}", "verdict": "in_doubt"}),
        }
        for name, (make, query) in pages.items():
            measure(name, make, desk_of(log, ring, session, query))


def desk_of(log: Log, ring: KeyRing, session: ConsoleSession, query: dict[str, str]) -> Desk:
    ports = Ports(
        home=log.path,
        log=log.path,
        index=log.index,
        seal_key=lambda: b"",
        log_key=str(SIGNER.verifier),
        clock=log.clock,
        keys=ring,
        ledger=None,  # type: ignore[arg-type]
        compute=None,  # type: ignore[arg-type]
        grants=tuple,
        roles=tuple,
        answerers=lambda: frozenset({"admin"}),
        environment=lambda: ("local", ()),
        ready=None,  # type: ignore[arg-type]
        stores=tuple,
        upstreams=tuple,
        running=dict,
        limits_fault=lambda: None,
        stops=tuple,
        approvals=None,  # type: ignore[arg-type]
    )
    return Desk(ports, session, ConsoleVisit("GET", (), query, {}), behind(log.path, log.index), log.clock.now)


def shown_page(desk: Desk, page: ConsolePage) -> str:
    common = {"up": "./", "title": page.title, "session": desk.session, "section": "", "environment": "local"}
    return render(page.template, {**page.values, **common, "panels": (), "behind": desk.behind})


def measure(name: str, make: Callable[[Desk], ConsolePage], desk: Desk) -> None:
    took, size = [], 0
    for _ in range(ROUNDS):
        began = time.monotonic()
        behind(desk.ports.log, desk.ports.index)
        size = len(shown_page(desk, make(desk)).encode())
        took.append(1000 * (time.monotonic() - began))
    print(f"{name:36} {size / 1000:6.1f} KB  first {took[0]:6.1f} ms  median {median(took):6.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
