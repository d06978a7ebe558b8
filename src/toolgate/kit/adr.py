"""The head of a decision record: its title, its status and its front matter, in Nygard's form and MADR's.

Four ways to write the status are read: front matter (`status: accepted`), a bold label (`**Status:** Accepted`), a list
item (`* Status: accepted`) and a heading (`## Status`, then the word). Doubt is never acceptance: no status, a word that
is none, two different ones, or front matter that cannot be read is `unknown`.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from toolgate.kit import yamldoc
from toolgate.kit.yamldoc import Mapping, Scalar, YamlFault

STATUSES: Final = ("proposed", "accepted", "rejected", "deprecated", "superseded")
UNKNOWN: Final = "unknown"
MAX_BYTES: Final = 256 * 1024
"""Of one record: a decision that needs more is not one."""

_FRONT_MATTER: Final = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_TITLE: Final = re.compile(r"^#[ \t]+(?:ADR-[0-9]+:?[ \t]+|[0-9]+\.[ \t]+)?(.+)$", re.MULTILINE)
_STATUS: Final = (
    re.compile(r"^\*\*Status:?\*\*:?[ \t]*([A-Za-z]+)", re.MULTILINE),  # bold label
    re.compile(r"^[*-][ \t]+Status:[ \t]*([A-Za-z]+)", re.MULTILINE),  # MADR 2
    re.compile(r"^##[ \t]+Status[ \t]*\n+[ \t]*([A-Za-z]+)", re.MULTILINE),  # Nygard
)


_MEANT: Final = re.compile(r"\A(\s*)---[ \t]*\n(?:[ \t]*(?:#.*)?\n)*[A-Za-z][\w-]*[ \t]*:(?:[ \t]|$)", re.MULTILINE)
"""What somebody meant as front matter: a line `---`, and then a key. A line above a heading is only a line."""


class FaultWithFix(YamlFault):
    """A fault, and what to write instead."""

    def __init__(self, line: int, text: str, fix: str) -> None:
        super().__init__(line, text)
        self.fix = fix


class AdrHead(Struct, frozen=True):
    title: str
    status: str
    """One of STATUSES, or UNKNOWN."""
    matter: Mapping | None = None
    """The front matter, when there is any; its lines count from the line after the first `---`."""
    fault: YamlFault | None = None
    """Why the front matter cannot be read."""


def read(data: bytes) -> AdrHead:
    """Raises: UnicodeDecodeError: not UTF-8."""
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    title = _TITLE.search(text)
    name = title[1].strip() if title else ""
    try:
        matter = _matter(text)
    except YamlFault as fault:
        return AdrHead(name, UNKNOWN, fault=fault)
    return AdrHead(name, _status(text, matter), matter)


def _matter(text: str) -> Mapping | None:
    front = _FRONT_MATTER.match(text)
    meant = _MEANT.match(text)
    if front is None and meant is not None:
        # Passed over, it would be text: a status that nobody reads, and rules that bind nobody.
        above = meant[1].count("\n")
        if above:
            raise FaultWithFix(above, "it is not at the top of the file", "Write its `---` on the first line.")
        raise FaultWithFix(0, "no line `---` ends it", "Write `---` on a line of its own after its last key.")
    node = yamldoc.read(front[1].encode(), max_bytes=MAX_BYTES) if front else None
    if node is not None and not isinstance(node, Mapping):
        raise YamlFault(node.line, "front matter must be a map")
    return node


def _status(text: str, matter: Mapping | None) -> str:
    said = {word.lower() for pattern in _STATUS for word in pattern.findall(text)}
    front = matter.get("status") if matter else None
    if isinstance(front, Scalar):
        said.add("".join(front.text.split(maxsplit=1)[:1]).lower())
    word = said.pop() if len(said) == 1 else ""
    return word if word in STATUSES else UNKNOWN
