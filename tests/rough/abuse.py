"""One malicious key against every tool it may call: `python -m tests.rough.abuse PORT KEY TOOL COUNT [SITE_PORT]`.

Arguments are valid and hostile; so are the files in the workspace, which a stranger's repository may bring. TOOL may be
`all`. Like `tests.rough.hostile`, it goes on until a line comes on standard input, and then waits for the end of it.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from tests.rough.cores import place_attacker
from tests.servers.smuggling import Client, length

WORDS = [first + second for first in "abcdefghij" for second in "klmnopqrst"]
SPELLINGS = ["./" * times + "big.txt" for times in range(400)] + [".//" * times + "big.txt" for times in range(300)]
ADR = """---
status: accepted
applies-to: ["**"]
rules:
  - id: a
    must-not: '(é+)+$'
    severity: low
    message: m
    remediation: r
---
# Hostile
"""
PAGE = "<!doctype html><html lang=en><title>t</title><body>"


def litter(workspace: Path) -> None:
    """Files that cost as much as they can: long, deep, repeated, nearly right."""
    chance = random.Random(1)
    files = {
        "evil.md": "# T\n" + " ".join(chance.choices(WORDS, k=170_000))[:500_000],
        "big.txt": ("é" * 50 + "\n") * 10_300,
        "docs/adr/ADR-0001-hostile.md": ADR,
        "assets/index.html": PAGE + "<script src=sw.js></script>",
        "assets/sw.js": "ASSETS=[" * 120_000,
        "imports/index.html": PAGE + "<script src=sw.js></script>",
        "imports/sw.js": "importScripts(" * 70_000,
        "nested/index.html": PAGE + "<div>" * 100_000,
        "attributes/index.html": PAGE + "<a" + "".join(f" a{number}=1" for number in range(100_000)) + ">",
        "math/index.html": PAGE + "<p>" + "$x^{" * 50_000,
        ".github/workflows/bomb.yml": "a: &a [x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 8)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        ".github/workflows/deep.yml": "a: " + "[" * 50_000,
        ".github/workflows/long.yml": "on: push\njobs:\n" + "".join(f"  j{n}: {{}}\n" for n in range(40_000)),
        "deep.json": "[" * 200_000,
        "wide.json": "{" + ",".join(f'"k{number}":{{}}' for number in range(80_000)) + "}",
    }
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)


def rows(site: int) -> dict[str, list[dict[str, Any]]]:
    """Valid arguments of every tool that the lowest role may call. `site`: the port of a hostile web server."""
    papers = [{"path": name} for name in ("assets", "imports", "nested", "attributes", "math")]
    flows = [f".github/workflows/{name}.yml" for name in ("bomb", "deep", "long")]
    rule_ids = [f"MD-{number:03}" for number in range(50)]
    metric = {"name": "m" * 200, "value": 1e15}
    return {
        "analyze_dissonance": [
            {"files": SPELLINGS},
            {"files": [*flows, "deep.json", "wide.json", "evil.md"], "mode": "drift", "strict": True},
        ],
        "check_adr_compliance": [{"files": SPELLINGS}, {"files": ["big.txt", "evil.md"], "includeProposed": True}],
        "check_consent_requirements": [
            {"orgId": "o" * 255, "checkType": "validate", "resources": [f"r{number}" for number in range(50)]},
            {"orgId": "o", "checkType": "summary", "includePolicy": True},
        ],
        "consensus_finality": [{"round_id": "9" * 18}],
        "dummy_experimental": [{}],
        "library_fetch": [{"path": "evil.md"}, {"path": "../" * 300 + "etc/passwd"}],
        "library_search": [{"query": " ".join(WORDS)[:256]}, {"query": "é" * 256}, {"query": '"' * 256, "topK": 10}],
        "lra_check": papers,
        "lra_serve": [{"list": True}, {"stop": "x" * 64}, {"port": site}],
        "lra_validate": papers,
        "lra_verify": [
            {"target": f"http://127.0.0.1:{site}/chunks"},
            {"target": f"http://127.0.0.1:{site}/continue"},
            {"target": f"http://127.0.0.1:{site}/headers", "run": True},
        ],
        "query_fp_store": [
            {"queryType": "cross_rule_comparison", "orgId": "o", "ruleIds": rule_ids, "daysBack": 365},
            {"queryType": "recent_patterns", "orgId": "o", "ruleId": "MD-001", "limit": 1000},
        ],
        "validate_l0_invariants": [
            {"workflowFiles": flows * 600},
            {"schemaFile": "wide.json", "expectedSchemaHash": "0" * 64},
            {"driftCheck": {"currentMetric": metric, "baselineMetric": metric, "threshold": 10}},
        ],
        "vrf_verify": [
            {"seed_hex": "00" * 4096, "input_hex": "ff" * 4096, "proof_hex": "ab" * 80, "public_key_hex": "cd" * 32}
        ],
    }


REFUSED: list[tuple[str, Any]] = [
    ("no_such_tool", {}),
    ("lra_sign", {"receipt": "x"}),
    ("lra_check", {"path": ["{}"] * 1000}),
    ("dummy_experimental", {"x": [{}] * 100_000}),
]
"""What this key is refused, as often as it likes."""


def requests(client: Client, tool: str, site: int) -> list[bytes]:
    every = rows(site)
    chosen = every if tool == "all" else {tool: every.get(tool, [])}
    calls = [(name, arguments) for name, all_of_them in chosen.items() for arguments in all_of_them]
    if tool in ("all", "refusals"):
        calls += REFUSED
    bodies = [json.dumps({"tool": name, "args": arguments}).encode() for name, arguments in calls]
    return [client.head(length(body)) + body for body in bodies]


class Abuse:
    def __init__(self, port: int, messages: list[bytes]) -> None:
        self.port, self.messages = port, messages
        self.quiet = False
        self.opened = 0
        self.answers: Counter[str] = Counter()

    async def keep_calling(self, order: Iterator[bytes]) -> None:
        while not self.quiet:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                self.opened += 1
                while not self.quiet:
                    writer.write(next(order))
                    head = await reader.readuntil(b"\r\n\r\n")
                    found = re.search(rb"content-length: ([0-9]+)", head)
                    await reader.readexactly(int(found[1]) if found else 0)
                    self.answers[head[9:12].decode()] += 1
            except (OSError, EOFError):
                await asyncio.sleep(0.01)


def in_turn(messages: list[bytes], seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    while True:
        yield from chance.sample(messages, len(messages))


async def hostile_site(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers without an end, in the smallest pieces."""
    try:
        asked = await reader.readuntil(b"\r\n\r\n")
        start, piece = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1\r\na\r\n" * 10_000,
        )
        if b"/continue" in asked:
            start, piece = b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4000
        elif b"/headers" in asked:
            start, piece = b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000
        writer.write(start)
        while True:
            writer.write(piece)
            await writer.drain()
    except (OSError, EOFError):
        writer.close()


async def main() -> None:
    port, key, tool, count, site = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    place_attacker()
    await asyncio.start_server(hostile_site, "127.0.0.1", site)
    abuse = Abuse(port, requests(Client(b"127.0.0.1:%d" % port, key.encode()), tool, site))
    loop = asyncio.get_running_loop()
    callers = [loop.create_task(abuse.keep_calling(in_turn(abuse.messages, number))) for number in range(count)]
    await loop.run_in_executor(None, sys.stdin.readline)
    abuse.quiet = True
    await loop.run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"opened": abuse.opened, "answers": dict(abuse.answers)}), flush=True)
    for caller in callers:
        caller.cancel()


if __name__ == "__main__":
    uvloop.run(main())
