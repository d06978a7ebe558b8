"""What the console's pages cost on a long log: build one, make the index, ask for pages. Then the same of a real server,
over HTTP: its first page, how long it takes to make the index beside its work, and pages from then on. Prints a table; nothing
is kept.

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
from tests.console.visiting import CONSOLE, Visitor, visitor
from tests.homes import make_home
from toolgate.console.index.building import CatchUp, behind, catch_up
from toolgate.console.index.tables import index_at
from toolgate.console.pages.calls import calls
from toolgate.console.pages.overview import overview
from toolgate.console.pages.shared import ConsolePage, Desk
from toolgate.console.ports import Ports
from toolgate.console.rendering import prepare, render
from toolgate.console.session import ConsoleSession
from toolgate.console.site import SOON_BYTES
from toolgate.console.web import ConsoleVisit
from toolgate.gate.keys import KeyRing
from toolgate.model.call import Caller

ROUNDS = 7
BETWEEN_S = 0.05
"""Of two calls: a million of them in half a day."""
PATIENCE_S = 600.0
"""For the index of the longest log, on a machine with other work."""


def main(records: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        log = Log(Path(place))
        log.clock.now = time.time() - 60 - records * BETWEEN_S
        began = time.monotonic()
        for number in range(records):
            fault = refusal("bad_arguments") if number % 10 == 0 else {}
            log.call(number, tool=f"notes.t{number % 40}", caller=f"{number % 25:012x}", **fault)
            log.clock.now -= 1 - BETWEEN_S
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
        served(log, Path(place) / "home")


def served(log: Log, path: Path) -> None:
    """Side effects: takes the log's files away."""
    home = make_home(path, settings=CONSOLE)
    folder = path / "runs" / "mcp_server" / "envelope_validation"
    with home.serving() as server:
        for file in [each for each in log.path.glob("*.jsonl") if not each.is_symlink()]:
            file.rename(folder / file.name)
        person = visitor(server, home.keys["admin"])
        began = time.monotonic()
        ask("served, first page without an index", person, "", 1)
        while behind(folder, index_at(path / "state")).waiting > SOON_BYTES:
            if time.monotonic() > began + PATIENCE_S:
                raise SystemExit("the server does not make its index")
            time.sleep(0.1)
        print(f"served, index made in {time.monotonic() - began:.1f} s")
        for name, address in (("overview", ""), ("calls", "calls"), ("tools", "tools")):
            ask(f"served, {name}", person, address, ROUNDS)
    with home.serving() as server:
        ask("served, first page of a new server", visitor(server, home.keys["admin"]), "", 1)


def ask(name: str, person: Visitor, address: str, rounds: int) -> None:
    took, size = [], 0
    for _ in range(rounds):
        began = time.monotonic()
        size = len(person.get(address).raw)
        took.append(1000 * (time.monotonic() - began))
    print(f"{name:36} {size / 1000:6.1f} KB  first {took[0]:6.1f} ms  median {median(took):6.1f} ms")


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
