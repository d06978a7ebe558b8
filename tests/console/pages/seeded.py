"""A server whose pages have something to show: reviews and consents, rounds with votes, papers with receipts, an adopted
upstream that is not as it was approved. Strangers' words in it are hostile."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.console.filling import ANALYSED, write_workflow
from tests.console.visiting import CONSOLE, call, visitor
from tests.faces import speak
from tests.homes import Home, Server
from tests.packs.consensus.nodes import event
from tests.packs.lra.papers import FILES, html
from tests.packs.lra.receipts.samples import receipt
from tests.upstreams.homes import Swapping, adopting_home
from toolgate.cli.policy import checks
from toolgate.config import load_settings
from toolgate.packs.consensus.settings import DEFAULTS, key_uses
from toolgate.packs.governance import PACK as GOVERNANCE
from toolgate.packs.governance.stores import opened
from toolgate.packs.governance.stores.consents import POLICY_VERSION, Record
from toolgate.packs.governance.stores.reviews import ReviewEvent
from toolgate.powers.keys import KeyDirectory
from toolgate.powers.stores import OpenStores

ELEMENT = "x-hostile"
"""An element that only a stranger's words could make."""
MARKUP = f"<{ELEMENT}>m</{ELEMENT}><script>window.ran=1</script><img src=x onerror=window.ran=1>\"'{{{{7*7}}}}"
BIDI = "safe\u202egnp.exe\u2066\u200f\u200b"
ANSI = "\x1b[31mred\x1b]0;title\x07"
LONG = "a" * 1_000_000
STEERING = "\u202e\u2066\u200f\u200b\x1b\x07"
"""Characters that must never come to a page as they are."""
LABEL = f"<{ELEMENT}>label</{ELEMENT}>"
ORG = f"acme <{ELEMENT}>"
PAPER = f"paper <{ELEMENT}>"

PANELS = ("governance/reviews", "consensus/rounds", "lra/papers", "toolgate/contract-health")


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}, **properties}}
    return {"name": name, "description": description, "inputSchema": schema}


ADOPTED = [
    tool("marked", MARKUP, **{f"<{ELEMENT}>": {"type": "string", "description": MARKUP}}),
    tool("turned", BIDI),
    tool("coloured", ANSI),
    tool("long", LONG),
    tool("plain", "Says what it was told.\nThen it ends."),
]
CHANGED = [
    *ADOPTED[1:4],
    tool("marked", f"{MARKUP}\n{ANSI}\n{BIDI}\nand more"),
    tool("plain", "Says what it was told.\nThen it tells others.", more={"type": "integer"}),
    tool("new_one", f"Came later. {MARKUP}"),
]


@dataclass(frozen=True)
class Seeded:
    home: Home
    server: Server
    tidy: Swapping
    """An upstream that changes in a way that may be approved; nobody may approve what `stub` says."""
    approval: str
    asked: str
    """The call of a tool whose name a caller made up."""
    lists: Sequence[str]
    """Behind a number of each panel, and behind a number of such a list."""

    @property
    def address(self) -> str:
        return str(self.server.ready["console"])

    def pages(self) -> list[str]:
        """Where strangers' words stand."""
        tools = [f"tools/stub_{name}" for name in ("marked", "turned", "coloured", "long")]
        panels = [f"panels/{name}" for name in PANELS]
        calls = ["calls", f"calls/{self.asked}", "calls?verdict=unknown_tool"]
        upstreams = ["upstreams/stub", "upstreams/tidy"]
        return [
            "",
            *calls,
            "tools",
            *tools,
            *upstreams,
            *panels,
            *self.lists,
            "keys",
            "approvals",
            f"approvals/{self.approval}",
        ]


@contextmanager
def seeded(folder: Path) -> Iterator[Seeded]:
    (folder / "tidy").mkdir()
    swapping, tidy = Swapping(folder), Swapping(folder / "tidy")
    for name, tools in (("adopted", ADOPTED), ("changed", CHANGED)):
        (folder / name).write_text(json.dumps(tools))
    swapping.behave(f"tools of {folder / 'adopted'}")
    home = adopting_home(
        folder / "home",
        {"stub": swapping.table(), "tidy": tidy.table()},
        packs=("governance", "consensus", "lra", "unruly"),
        settings=f'{CONSOLE}[stores]\ncontract_checks = "sqlite:///{folder / "checks.db"}"\n',
        rows={"unruly_echo": {"x-rules": [{"name": "ask", "require-approval": "true"}]}},
    )
    write_workflow(home)
    keep_reviews(home, reviews())
    keep_papers(home)
    _health(home)
    keys = KeyDirectory(home.path / "secrets")
    for name, use in key_uses(DEFAULTS).items():
        keys.generate(name, use=use)
    home.ring().create("builder", label=LABEL, expires=time.time() + 86_400)
    with home.serving() as server:
        for number in (1, 2):
            assert call(server.port, home.keys["committer"], "consensus_propose", {"event": event(number)}) == 200
        assert call(server.port, home.keys["committer"], "analyze_dissonance", ANALYSED) == 200
        assert call(server.port, home.keys["builder"], "stub_plain", {"text": "x"}) == 200
        for name in (MARKUP, BIDI, ANSI, LONG[:900_000]):
            call(server.port, home.keys["builder"], name)
        heard = speak.mrt(
            server.port, "unruly_echo", {"text": f"<{ELEMENT}>{BIDI}{ANSI}<script>"}, home.keys["builder"]
        )
        asked = next(each["requestId"] for each in home.calls() if each.get("askedTool"))
        swapping.behave(f"tools of {folder / 'changed'}")
        tidy.behave("described otherwise")
        yield Seeded(home, server, tidy, str(heard.body["details"]["approval_id"]), str(asked), _lists(home, server))


def _lists(home: Home, server: Server) -> list[str]:
    person, found = visitor(server, home.keys["auditor"]), []
    for panel in PANELS:
        links = [""]
        while links := re.findall(r'href="(\?of=[0-9a-f]+)"', person.get(f"panels/{panel}{links[0]}").text)[:3][-1:]:
            found.append(f"panels/{panel}{links[0]}")
    return found


def reviews() -> list[ReviewEvent]:
    now = int(time.time() * 1000)
    verdicts = ["false_positive"] * 3 + ["true_positive"] * 9 + ["pending"]
    return [
        ReviewEvent(ORG, rule, 1, f"{number:064x}", "repo", verdict, now - number, "ann", now, f"T-{number}", MARKUP)  # type: ignore[arg-type]
        for rule in ("MD-001", f"MD-<{ELEMENT}>")
        for number, verdict in enumerate(verdicts)
    ]


def keep_reviews(home: Home, events: Sequence[ReviewEvent]) -> None:
    stores = OpenStores({}, home.path / "state", GOVERNANCE.migrations)
    now = int(time.time() * 1000)
    granted = Record(ORG, "fp_metrics", POLICY_VERSION, LABEL, now, now + 86_400_000, None)
    try:
        asyncio.run(opened.false_positives(stores, lambda kept: kept.record_all(events)))
        asyncio.run(opened.consents(stores, lambda kept: kept.grant([granted], "ann")))
    finally:
        stores.close()


def _health(home: Home) -> None:
    settings, now = load_settings(home.path, {}, {}), datetime.now(UTC)
    for hours, is_green, commit in ((72, False, f"<{ELEMENT}>"), (60, True, "good")):
        checks.keep(settings, now - timedelta(hours=hours), is_green=is_green, digest="d", commit=commit)


def keep_papers(home: Home) -> None:
    folder = home.workspace / PAPER
    for name, data in {**FILES, "index.html": html().replace("Small", MARKUP).encode()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    told = receipt(target_url=f"https://example.org/{MARKUP}{BIDI}", compliance_tier=f"GOLD{ANSI}{MARKUP}")
    for name, content in (("verification-receipt.json", json.dumps(told)), ("verification-receipt-2.json", "{")):
        (folder / name).write_text(content)
