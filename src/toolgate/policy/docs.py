"""The parts of the documents that are made, not written: the tool policy table and the index of decision records.

A made part stands between two marker lines in a Markdown file; `toolgate policy docs` renews it, a test keeps it fresh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolgate.policy.adr import Adr
    from toolgate.policy.contract import Contract

_PART: Final = re.compile(r"(<!-- made: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_POLICY_HEAD: Final = (
    "| tool | tier | ADR | roles | must lag core | may ship MCP-first | allowed decisions | allowed codes |\n"
    "|---|---|---|---|---|---|---|---|"
)
_INDEX_HEAD: Final = "| record | title | status |\n|---|---|---|"


def parts(contract: Contract, adrs: Iterable[Adr]) -> dict[str, str]:
    """Every made part, by the name in its marker."""
    return {"tool-policy": tool_policy_table(contract["tools"]), "adr-index": adr_index(adrs)}


def tool_policy_table(tools: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join([_POLICY_HEAD, *(_policy_row(tool) for tool in tools)])


def _policy_row(tool: Mapping[str, Any]) -> str:
    binds = tool["x-tier"] == "authoritative"
    cells = (
        f"`{tool['name']}`",
        tool["x-tier"],
        tool["x-adr"] or "none",
        ", ".join(tool["roles"]),
        "yes" if binds else "no",
        "no" if binds else "yes",
        "block, warn, pass" if binds else "warn, pass",
        "all, L0 codes included" if binds else "all but L0 codes",
    )
    return f"| {' | '.join(cells)} |"


def adr_index(adrs: Iterable[Adr]) -> str:
    rows = [f"| [{adr.id}]({adr.file}) | {adr.title} | {adr.status} |" for adr in sorted(adrs, key=lambda adr: adr.id)]
    return "\n".join([_INDEX_HEAD, *rows])


def renewed(text: str, made: Mapping[str, str]) -> str:
    """The text with each known part made anew; parts of other makers stay as they are."""
    return _PART.sub(
        lambda match: f"{match[1]}{made[match['name']]}\n{match[3]}" if match["name"] in made else match[0], text
    )


def stale(folder: Path, made: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Markdown files whose made parts are not what they would be now, with their new text."""
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        fresh = renewed(text, made)
        if fresh != text:
            yield path, fresh
