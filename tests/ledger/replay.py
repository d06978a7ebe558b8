"""One corpus, two real servers: every tool and every row of the verdict table, over HTTP and over a pipe.

`python -m tests.ledger.replay` writes the golden log, if both servers agree (make golden).
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faces import speak
from tests.homes import ROOT, SITE, Home, make_home
from toolgate.ledger import LOG_PATH
from toolgate.ledger.files import runs_in
from toolgate.ledger.reading import parity
from toolgate.packs.loader import load_packs

GOLDEN = ROOT / "tests" / "fixtures" / "mcp" / "envelope_validation_golden.jsonl"
PACKS = ("lra", "governance", "consensus", "library")
WITH_UNRULY = (*PACKS, "unruly")
FACES = ("mcp modern", "mcp handshake", "rpc")
"""Both protocol eras, and document 002's own. Dispatch exists over HTTP only."""
SEED = "5f" * 32
TUPLE = {"merkle_root_hex": "aa" * 32, "rule_version_hash_hex": "bb" * 32}
ZEROS = "00" * 32

NO_METHOD = ""
"""In place of a tool: a message that does not say what it wants. Only `/rpc` and a pipe write that down."""

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """Calls that one server, started for them, gets from one key."""

    role: str
    calls: tuple[tuple[str, Arguments], ...]
    flags: tuple[str, ...] = ()
    revoked: bool = False
    """The key is revoked while the server runs, before the first call."""
    faces: tuple[str, ...] = FACES


EVERY_TOOL: tuple[tuple[str, Arguments], ...] = (
    ("lra_init", {"project_name": "first-paper"}),
    ("lra_validate", {"path": "first-paper"}),
    ("lra_check", {"path": "first-paper/index.html"}),
    ("lra_serve", {"list": True}),
    ("lra_sign", {"receipt": "first-paper/verification-receipt.json"}),
    ("lra_verify", {"target": "http://127.0.0.1:9/first-paper/"}),
    # What this tool answers holds a measured time, of as many digits as it takes: no two runs are equal in length.
    ("validate_l0_invariants", {"checks": ["drift-magnitude"]}),
    ("analyze_dissonance", {"files": ["missing.yml"]}),
    ("check_adr_compliance", {"files": ["missing.py"]}),
    ("check_consent_requirements", {"orgId": "acme", "checkType": "summary"}),
    ("query_fp_store", {"queryType": "fp_rate", "orgId": "acme", "ruleId": "MD-001"}),
    ("dummy_experimental", {}),
    ("consensus_propose", {"event": TUPLE}),
    ("consensus_vote", {"round_id": "1", "vote": {**TUPLE, "vote_type": "ACCEPT"}}),
    ("consensus_vote", {"round_id": "1", "vote": {**TUPLE, "vote_type": "ACCEPT"}, "privKey": SEED}),
    ("consensus_finality", {"round_id": "1"}),
    ("consensus_gossip", {"peer_id": "someone", "events": []}),
    ("vrf_eval", {"seed_hex": "", "input_hex": "61", "priv_key_hex": SEED}),
    ("vrf_verify", {"seed_hex": "", "input_hex": "61", "proof_hex": "00" * 80, "public_key_hex": ZEROS}),
    ("library_search", {"query": "golden", "filters": {"kind": "markdown"}}),
    ("library_fetch", {"path": "notes.md"}),
)

VERDICTS: tuple[tuple[str, Arguments], ...] = (
    ("unruly_echo", {"text": "fine"}),
    ("unruly_nothing", {}),  # unknown tool
    ("unruly_write", {}),  # bad arguments
    ("unruly_write", {"name": "written"}),
    ("unruly_raise", {"kind": "missing"}),  # the tool says: not there
    ("unruly_raise", {"kind": "no"}),  # the tool says: no
    ("unruly_raise", {"kind": "error"}),  # crashed
    ("unruly_sleep", {}),  # ran past its deadline
    ("unruly_answer", {"kind": "nan"}),  # nonsense
    ("unruly_claim", {"decision": "block", "code": "INVARIANT_VIOLATION"}),  # clamped
    ("unruly_secret", {"password": "canary"}),
    ("unruly_guarded", {"receipt": "x"}),  # role does not hold the argument
)

PARTS = (
    Part("admin", EVERY_TOOL),
    Part("committer", VERDICTS),
    Part("builder", (("lra_init", {"project_name": "other"}), ("lra_validate", {"path": "missing"}))),
    Part(
        "committer", (("unruly_echo", {}), ("unruly_echo", {})), flags=("--limits-rate-per-minute", "1"), faces=("rpc",)
    ),
    Part("builder", (("unruly_echo", {}),), revoked=True),
    Part("committer", ((NO_METHOD, {}),), faces=("rpc",)),
)
"""Two rows of the table cannot be here: without a key a pipe is not served at all, and what cannot be logged leaves no record."""


def covers_every_tool() -> bool:
    asked = {tool for part in PARTS for tool, _ in part.calls}
    return {tool.name for pack in load_packs(PACKS) for tool in pack.tools} <= asked


def fixed_home(path: Path) -> Home:
    """A home whose keys are the same in every run: their ids are in the log."""
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))
    count = itertools.count(1)
    with mock.patch("toolgate.gate.keys.secrets.token_hex", lambda size: f"{next(count):0{2 * size}x}"):
        home = make_home(path, packs=WITH_UNRULY)
    secrets = path / "secrets"
    secrets.mkdir(mode=0o700)
    for number, name in enumerate(("arbiter.key", "vrf.key", "lra.key")):
        (secrets / name).touch(mode=0o600)
        (secrets / name).write_text(f"{number + 1:064x}\n")
    (home.workspace / "notes.md").write_text("# Notes\n\nA golden log is compared, never edited.\n")
    return home


def replay(home: Home, server: Callable[[Home, Part], None]) -> list[dict[str, Any]]:
    """Every part on a server of its own; the records of all of them, in order."""
    records: list[dict[str, Any]] = []
    for part in PARTS:
        known = set(runs_in(home.path / "runs" / LOG_PATH)) if (home.path / "runs" / LOG_PATH).exists() else set()
        server(home, part)
        for name, segments in runs_in(home.path / "runs" / LOG_PATH).items():
            if name not in known:
                records += [record for one in segments for record in parity.calls_in(one.path)]
    return records


def over_http(home: Home, part: Part) -> None:
    with home.serving("--deterministic-ids", *part.flags) as server:
        key = _key(home, part)
        for face, tool, arguments in _calls(part):
            if face == "rpc":
                speak.send(server.port, "/rpc", rpc_message(tool, arguments), speak.key_header(key))
            else:
                speak.HTTP_FACES[face](server.port, tool, dict(arguments), key)


def over_stdio(home: Home, part: Part) -> None:
    with speak.stdio(home, part.role, "--deterministic-ids", *part.flags) as peer:
        if part.revoked:
            peer.ask({"jsonrpc": "2.0", "id": 0, "method": "ping"})  # up: it started with a live key
        _key(home, part)
        for face, tool, arguments in _calls(part):
            if face == "rpc":
                peer.ask(rpc_message(tool, arguments))
            else:
                peer.ask(speak.mcp_message(tool, dict(arguments), modern=face == "mcp modern"))


def rpc_message(tool: str, arguments: Arguments) -> dict[str, Any]:
    message = speak.rpc_message(tool, dict(arguments))
    if tool == NO_METHOD:
        del message["method"]
    message["params"]["tool"] = _canonical_ids().get(tool, "mcp.tool:unruly.nothing")
    return message


@cache
def _canonical_ids() -> Mapping[str, str]:
    return {tool.name: tool.canonical_id for pack in load_packs(WITH_UNRULY) for tool in pack.tools}


def both(directory: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The records of the same corpus over HTTP and over stdio, from equal homes."""
    first = fixed_home(directory / "http")
    shutil.copytree(first.path, directory / "stdio")
    second = Home(directory / "stdio", first.keys)
    return replay(first, over_http), replay(second, over_stdio)


def golden(records: list[dict[str, Any]]) -> bytes:
    return b"".join(parity.golden_lines(iter(records)))


def _calls(part: Part) -> Iterator[tuple[str, str, Arguments]]:
    return ((face, tool, arguments) for face in part.faces for tool, arguments in part.calls)


def _key(home: Home, part: Part) -> str:
    key = home.keys[part.role]
    if part.revoked:
        home.ring().revoke(key.split("_")[1])
    return key


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        http, stdio = both(Path(place))
    found = parity.differences(iter(http), iter(stdio))
    if found:
        print("\n".join(["HTTP and stdio do not agree; nothing is written:", *found]), file=sys.stderr)
        return 1
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    GOLDEN.write_bytes(golden(http))
    print(f"{GOLDEN.relative_to(ROOT)}: {len(http)} records")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
