"""Try Toolgate with the agent libraries and programs that people use: `make clients`, or `make clients ARGS="langchain mastra"`.

Each connects to a real server, lists, and makes one call of every kind; what it shows is judged by one rule: the message of a
failure is readable, and the next call works. The table goes into docs/reference/clients.md, with versions and the date.
Not a part of any gate: it installs some gigabytes, and others' releases are others'.

Every client leaves a result in .cache/clients/results. A run that was interrupted is taken up where it stopped: good results
of the same tree are kept, all others are tried again. Clients named on the command line are always tried again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.clients import candidates, install
from scripts.clients.candidates import NOT_TRIED, Client, Place
from scripts.clients.drivers.steps import SLOTS
from scripts.clients.judge import CHECKS_ITSELF, short
from tests.homes import Home, Server, make_home, speaking
from toolgate.packs.loader import built_in

TABLE = install.ROOT / "docs" / "reference" / "clients.md"
RESULTS = install.CACHE / "results"
TRANSPORTS = ("http", "stdio")
_GOOD = ("ok", "reads its file", NOT_TRIED)


@dataclass(frozen=True)
class Result:
    """What one client made of one tree."""

    client: str
    version: str
    http: str
    stdio: str
    day: str
    tree: str

    def is_good(self) -> bool:
        return all(cell.startswith(_GOOD) for cell in (self.http, self.stdio))

    def row(self) -> str:
        return f"| {self.client} | {self.version} | {self.http} | {self.stdio} |"


def tree(root: Path = install.ROOT) -> str:
    """A digest of what is tried: the server, the tools it serves, and the drivers."""
    digest = hashlib.sha256()
    for folder in ("src/toolgate", "tests/site_packages", "scripts/clients"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def kept(name: str, wanted: str, results: Path = RESULTS) -> Result | None:
    """A good result of this tree."""
    with suppress(OSError, ValueError, TypeError):
        found = Result(**json.loads((results / f"{name}.json").read_text()))
        return found if found.tree == wanted and found.is_good() else None
    return None


def keep(name: str, result: Result, results: Path = RESULTS) -> None:
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(asdict(result), indent=2) + "\n")


def tried(client: Client, place: Place, wanted: str) -> Result:
    """Never raises for a client that cannot be had: the others are to be tried, too."""
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    try:
        shown, version = client.install()
    except install.CannotInstall as fault:
        cell = f"not installed: {short(str(fault))}"
        print(str(fault), file=sys.stderr, flush=True)
        return Result(client.name, NOT_TRIED, cell, cell, day, wanted)
    cells = {}
    for transport in TRANSPORTS:
        begun = time.monotonic()
        before = _wrong_arguments(place.home)
        cells[transport] = confirmed(client.tried(place, transport), _wrong_arguments(place.home) - before)
        print(f"  {transport}: {cells[transport]} ({time.monotonic() - begun:.0f} s)", flush=True)
    return Result(shown, version, cells["http"], cells["stdio"], day, wanted)


def _wrong_arguments(home: Home) -> int:
    """Calls that reached a server and were refused for their arguments, by the audit log."""
    return sum((call.get("error") or {}).get("happening") == "bad_arguments" for call in home.calls())


def confirmed(cell: str, wrong_arguments: int) -> str:
    """Whether a client sent wrong arguments is the log's to say, not that of the words it shows."""
    if cell == CHECKS_ITSELF and wrong_arguments:
        return "unreadable: bad_arguments (they reached the server, and its answer was not shown)"
    return cell


def try_all(clients: Sequence[Client], again: Iterable[str]) -> list[Result]:
    again, wanted, found = frozenset(again), tree(), []
    with tempfile.TemporaryDirectory() as scratch:
        settings = f"[limits]\nconcurrency_per_caller = {SLOTS}\n"
        home = make_home(Path(scratch) / "home", packs=(*built_in(), "wiretest"), settings=settings)
        with speaking(home, "builder") as ask:
            tools = len(ask("tools/list", {})["tools"])
        # A key each: what one client leaves running takes no slot of the next.
        keys = {client.name: home.ring().create("builder")[1] for client in clients}
        with home.serving() as server:
            for number, client in enumerate(clients, 1):
                print(f"[{number}/{len(clients)}] {client.name}", flush=True)
                result = None if client.name in again else kept(client.name, wanted)
                if result is not None:
                    print("  kept from the run before", flush=True)
                else:
                    place = Place(home, server, keys[client.name], _folder(Path(scratch), client.name), tools)
                    result = tried(client, place, wanted)
                    keep(client.name, result)
                _must_be_up(server)
                found.append(result)
    return found


def _folder(scratch: Path, name: str) -> Path:
    place = scratch / name
    place.mkdir()
    return place


def _must_be_up(server: Server) -> None:
    if (code := server.process.poll()) is not None:
        raise SystemExit(f"the server ended with {code}: what comes after it would say nothing")


def main() -> int:
    everyone = candidates.everyone()
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("again", nargs="*", metavar="NAME", help=f"try these again: {', '.join(everyone)}")
    again = options.parse_args().again
    if unknown := sorted(set(again) - everyone.keys()):
        options.error(f"there is no client {', '.join(unknown)}; there are {', '.join(everyone)}")
    results = try_all([everyone[name] for name in again or everyone], again)
    bad = [result for result in results if not result.is_good()]
    for result in bad:
        print(f"FAILED {result.client}: HTTP: {result.http}; stdio: {result.stdio}", file=sys.stderr)
    if again:
        print(f"{TABLE.name} is written by a run of all clients: make clients")
    else:
        TABLE.write_text(page(results))
    return 1 if bad else 0


def page(results: Sequence[Result]) -> str:
    days = sorted({result.day for result in results})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    lines = [
        "<!-- Written by `make clients`; edit scripts/clients/run.py. -->",
        "# Clients that were tried",
        "",
        f"On {when}, with a real server of every pack that admits a key {SLOTS} calls at once. `ok`: the client lists every",
        "tool and calls; what a tool refuses, what crashes, wrong arguments, a role that is not enough, and one call too",
        "many each reach its reader in words, and the next call works. Programs read what `toolgate mcp-config` prints",
        "and are driven by a scripted model in the place of their own; `reads its file`: it was only asked what it made of it.",
        "`checks arguments itself`: wrong ones never reach the server. The official SDKs of both languages and majors, FastMCP",
        "and the Inspector are held to more than that, progress and cancelling too, by `make guard` (`tests/clients/`).",
        "",
        "| client | version | HTTP | stdio |",
        "|---|---|---|---|",
        *(result.row() for result in results),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
