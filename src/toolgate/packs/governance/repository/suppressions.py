"""Findings that a repository has decided to live with: a reviewed file in it, and comments beside the line.

# .toolgate/suppressions.toml
[[suppression]]
fingerprint = "434d5ae8..."       # 32 hex digits, in every report
rule = "MD-002"
reason = "vendored"
reviewer = "ann"
ticket = "OPS-7"
expires = 2027-01-31              # from this day on (UTC) it is over

- run: npx prettier .             # toolgate: ignore[MD-002] the lock file of the docs pins it
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.repository.config import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPRESSIONS: Final = ".toolgate/suppressions.toml"
MAX_ENTRIES: Final = 2_000
MAX_TEXT: Final = 500
"""Characters of a reason, a reviewer or a ticket."""
_KEYS: Final = ("fingerprint", "rule", "reason", "reviewer", "ticket", "expires")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}")
RULE_FORM: Final = re.compile(r"(?:MD|L0)-[0-9]{3}|BASELINE|zizmor/[a-z0-9-]{1,60}")
"""How the rules that a suppression may be about are spelt."""
_KNOWN: Final = frozenset({"L0-002", "BASELINE", *(f"MD-{number:03d}" for number in range(6))})
_INLINE: Final = re.compile(r"#\s{0,8}toolgate:\s{0,8}ignore\[([^\]]{0,200})\]\s{0,8}(.*)")
_FOR_ZIZMOR: Final = re.compile(r"#\s{0,8}zizmor:\s{0,8}ignore\[([^\r]*)", re.IGNORECASE)
"""Wider than what zizmor heeds (it takes all up to the last bracket of the line): none of its comments may be missed."""


class SuppressionEntry(Struct, frozen=True):
    fingerprint: str
    rule: str
    reason: str
    reviewer: str
    ticket: str
    expires: str
    """The first day on which it is over, as 2027-01-31."""
    line: int

    @property
    def ends_at(self) -> int:
        """Milliseconds since the epoch."""
        return int(datetime.fromisoformat(self.expires).replace(tzinfo=UTC).timestamp() * 1000)


class SuppressionFile(Struct, frozen=True, tag=True):
    entries: tuple[SuppressionEntry, ...]


class Ignore(Struct, frozen=True):
    """One comment. `at` is the line it is about: its own, or the next when it stands alone."""

    path: str
    line: int
    at: int
    rules: tuple[str, ...]
    reason: str


def knows(rule: str) -> bool:
    return rule in _KNOWN or (rule.startswith("zizmor/") and RULE_FORM.fullmatch(rule) is not None)


def read_suppressions(data: bytes) -> SuppressionFile:
    """Raises: YamlFault: a key too many or missing, a rule that does not exist, a fingerprint twice; with the line."""
    table = read_toml(data)
    lines = [number for number, line in enumerate(data.decode().splitlines(), 1) if line.strip() == "[[suppression]]"]
    unknown = sorted(table.keys() - {"suppression"})
    if unknown:
        raise YamlFault(1, f"there is no key {unknown[0][:40]!r}; a suppression is a table [[suppression]]")
    rows = table.get("suppression", [])
    if not isinstance(rows, list) or len(rows) > MAX_ENTRIES or len(rows) != len(lines):
        raise YamlFault(1, f"suppressions are tables [[suppression]], at most {MAX_ENTRIES}")
    entries = tuple(_entry(row, line) for row, line in zip(rows, lines, strict=True))
    seen: set[str] = set()
    for entry in entries:
        if entry.fingerprint in seen:
            raise YamlFault(entry.line, f"{entry.fingerprint} is suppressed twice")
        seen.add(entry.fingerprint)
    return SuppressionFile(entries)


def appended(text: str, entry: SuppressionEntry) -> str:
    """The file with one more entry; one of the same fingerprint is replaced."""
    pieces = re.split(r"(?m)^(?=\[\[suppression\]\]\s*$)", text)
    kept = [piece for piece in pieces if f'"{entry.fingerprint}"' not in piece]
    values = {key: getattr(entry, key) for key in _KEYS[:-1]}
    lines = [f"{key} = {_quoted(value)}" for key, value in values.items()]
    before = "".join(kept).rstrip("\n")
    return "\n".join([*([before, ""] if before else []), "[[suppression]]", *lines, f"expires = {entry.expires}", ""])


def _quoted(value: str) -> str:
    """A basic string of TOML: JSON's escapes are its own, except for what is beyond 16 bits, which needs none."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'


def _entry(row: Any, line: int) -> SuppressionEntry:
    if not isinstance(row, dict):
        raise YamlFault(line, "a suppression is a table")
    unknown, missing = sorted(row.keys() - set(_KEYS)), [key for key in _KEYS if key not in row]
    if unknown:
        raise YamlFault(line, f"a suppression has no key {unknown[0][:40]!r}; it has {', '.join(_KEYS)}")
    if missing:
        raise YamlFault(line, f"a suppression needs {missing[0]!r}: without it nobody can judge it later")
    for key in ("fingerprint", "rule", "reason", "reviewer", "ticket"):
        if not isinstance(row[key], str) or not row[key].strip() or len(row[key]) > MAX_TEXT:
            raise YamlFault(line, f"`{key}` must be a text of 1 to {MAX_TEXT} characters")
    if not _FINGERPRINT.fullmatch(row["fingerprint"]):
        raise YamlFault(line, "`fingerprint` must be 32 hex digits, as every report shows it")
    if not knows(row["rule"]):
        raise YamlFault(line, f"there is no rule {row['rule'][:40]!r}")
    return SuppressionEntry(**{key: row[key] for key in _KEYS[:-1]}, expires=_day(row["expires"], line), line=line)


def _day(value: Any, line: int) -> str:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise YamlFault(line, "`expires` must be a day such as 2027-01-31")
    return value.isoformat()


def inline_ignores(path: str, text: str) -> Iterator[Ignore]:
    """Every comment of the form `# toolgate: ignore[RULE, RULE] reason` in a file."""
    if "toolgate:" not in text:
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = _INLINE.search(line)
        if found:
            alone = not line.partition(found[0])[0].strip()
            rules = tuple(rule.strip() for rule in found[1].split(",") if rule.strip())
            yield Ignore(path, number, number + alone, rules, found[2].strip()[:MAX_TEXT])


def zizmor_ignores(path: str, text: str) -> Iterator[Ignore]:
    """Every comment of the form `# zizmor: ignore[audit, audit] reason` in a file: zizmor's own, which it heeds itself."""
    if "zizmor" not in text.lower():
        return
    # Only at line feeds: what else ends a line for Python is within a comment for zizmor.
    for number, line in enumerate(text.split("\n"), 1):
        for found in _FOR_ZIZMOR.finditer(line):
            named, _, reason = found[1].partition("]")
            rules = tuple(f"zizmor/{rule.strip()}" for rule in named.split(",") if rule.strip())
            yield Ignore(path, number, number, rules or ("zizmor",), reason.strip())
