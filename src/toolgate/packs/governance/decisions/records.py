"""Decision records as rules: take the machine-readable rules of their front matter, apply them.

    ---
    status: accepted
    applies-to: ["src/**/*.py"]
    rules:
      - id: no-print
        must-not: 'print\\('
        severity: high
        message: Programs write to standard output only through the reporter.
        remediation: Use report().
    ---

`must-not` is a pattern that no line may match; `must` one that each file must match somewhere. A rule may narrow
`applies-to`. Patterns are the repository's own text, so all of this runs in a worker that can be killed.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from toolgate.kit.adr import STATUSES, UNKNOWN, FaultWithFix, read
from toolgate.kit.reports.printable import printable
from toolgate.kit.yamldoc import Mapping, Scalar, Sequence, YamlFault
from toolgate.model.suggest import nearest
from toolgate.packs.governance.decisions.shape import SEVERITIES, Severity
from toolgate.packs.governance.repository.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.adr import AdrHead
    from toolgate.kit.yamldoc import Node

MAX_TEXT: Final = 500
"""Characters of a rule's pattern, message or fix."""
MAX_RULES: Final = 100
MAX_GLOBS: Final = 100
"""Path patterns of one rule."""
MAX_VIOLATIONS: Final = 10_000
"""Violations told of one call; the others are only counted. An answer shows fewer."""
MAX_PER_RULE_AND_FILE: Final = 100
"""Violations told of one rule in one file: after these, nobody reads on."""
MAX_TITLE: Final = 120
MAX_LINE: Final = 10_000
"""Characters of a line that are searched; a longer line is data, not source."""

FILE_NAME: Final = re.compile(r"(?:(?:ADR|adr)-)?([0-9]{1,6})(?:[-_].*)?\.md")


class AdrRule(Struct, frozen=True):
    id: str
    must: bool
    pattern: str
    globs: tuple[str, ...]
    severity: Severity
    message: str
    remediation: str


class DecisionRecord(Struct, frozen=True):
    id: str
    """`ADR-0007`, however the file spells it."""
    path: str
    title: str
    status: str
    """One of `kit.adr.STATUSES`, or `unknown`."""
    rules: tuple[AdrRule, ...] = ()
    fault: str | None = None
    """Why its rules cannot be used. Such a record enforces nothing, so where it should, nothing passes."""
    fault_line: int | None = None
    """In the file, from 1."""
    fix: str | None = None


class Violation(Struct, frozen=True):
    adr: str
    rule: str
    file: str
    line: int
    message: str
    severity: Severity
    remediation: str
    snippet: str


def number_of(name: str) -> int | None:
    """The number in a file name or an id: `0007-use-x.md`, `ADR-7` and `ADR-0007-use-x.md` are all 7."""
    match = FILE_NAME.fullmatch(name if name.endswith(".md") else name + ".md")
    return int(match[1]) if match else None


def read_adr(path: str, data: bytes) -> DecisionRecord:
    """Never raises: what cannot be read is a record with a fault."""
    number = number_of(path.rpartition("/")[2])
    name = f"ADR-{number:04d}"
    try:
        head = read(data)
    except UnicodeDecodeError:
        return DecisionRecord(name, path, "", UNKNOWN, fault="not UTF-8", fault_line=1, fix="Save it as UTF-8.")
    rules, wrong = _usable_rules(head, name)
    title = printable(head.title[:MAX_TITLE])
    if wrong is None and head.status == UNKNOWN and rules:
        wrong = YamlFault(_status_line(head), "its rules bind nobody: its status is not one, or said twice differently")
        return _faulty(DecisionRecord(name, path, title, head.status), wrong, f"Write status: {', '.join(STATUSES)}.")
    if wrong is None:
        return DecisionRecord(name, path, title, head.status, rules)
    return _faulty(DecisionRecord(name, path, title, head.status), wrong, _fix_of(wrong))


def _faulty(adr: DecisionRecord, wrong: YamlFault, fix: str) -> DecisionRecord:
    """Lines of front matter count from the line after its `---`."""
    line = wrong.line + 1
    return replace(adr, fault=f"front matter, line {line}: {wrong.text}", fault_line=line, fix=fix)


def _status_line(head: AdrHead) -> int:
    matter = head.matter
    return matter.key_line("status") if matter and "status" in matter.entries else 0


def _fix_of(wrong: YamlFault) -> str:
    return wrong.fix if isinstance(wrong, FaultWithFix) else "Correct the front matter, or remove it."


def _usable_rules(head: AdrHead, adr: str) -> tuple[tuple[AdrRule, ...], YamlFault | None]:
    try:
        return (_rules(head.matter, adr) if head.matter else ()), head.fault
    except YamlFault as fault:
        return (), fault


_OWN_KEYS: Final = frozenset({"status", "rules", "applies-to"})
"""Of front matter: the keys that decide what binds."""
_ALIKE: Final = 0.75
"""How alike a key must be to one of ours to be a slip: `rule` and `rulse` are, MADR's and Jekyll's keys are not."""
_OTHERS: Final = frozenset({"roles", "related-to", "relates-to"})
"""Keys that look like ours and mean something else."""


def _require_no_slip(matter: Mapping) -> None:
    """Other keys are other people's; but rules under a misspelt key would bind nobody, and nobody would be told."""
    ours = _OWN_KEYS - ({"status"} & matter.entries.keys())
    for key in matter.entries.keys() - _OWN_KEYS - _OTHERS:
        near = nearest(key, ours, _ALIKE)
        if near is not None:
            raise FaultWithFix(matter.key_line(key), f"there is no key {key[:40]!r}", f"Write {near!r}.")


def _rules(matter: Mapping, adr: str) -> tuple[AdrRule, ...]:
    _require_no_slip(matter)
    node = matter.get("rules")
    if node is None:
        return ()
    if not isinstance(node, Sequence) or len(node.items) > MAX_RULES:
        raise YamlFault(node.line, f"`rules` must be a list of at most {MAX_RULES}")
    default = _globs(matter.get("applies-to"))
    rules = tuple(_rule(item, default, f"{adr}-R{index}") for index, item in enumerate(node.items, 1))
    if len({rule.id for rule in rules}) != len(rules):
        raise YamlFault(node.line, "two rules have one id")
    return rules


_RULE_KEYS: Final = frozenset({"id", "must", "must-not", "applies-to", "severity", "message", "remediation"})


def _rule(node: Node, default: tuple[str, ...], fallback_id: str) -> AdrRule:
    if not isinstance(node, Mapping):
        raise YamlFault(node.line, "a rule must be a map")
    unknown = sorted(node.entries.keys() - _RULE_KEYS)
    if unknown:
        near = get_close_matches(unknown[0], _RULE_KEYS, n=1)
        fix = f"Write {near[0]!r}." if near else f"A rule has {', '.join(sorted(_RULE_KEYS))}."
        raise FaultWithFix(node.key_line(unknown[0]), f"a rule has no key {unknown[0][:40]!r}", fix)
    must, must_not = _text(node, "must"), _text(node, "must-not")
    if (must is None) == (must_not is None):
        fix = "Write the pattern under `must-not` (no line may match) or `must` (some line must)."
        raise FaultWithFix(node.line, "a rule needs exactly one of `must` and `must-not`", fix)
    pattern = must if must is not None else must_not or ""
    try:
        re.compile(pattern)
    except re.error as fault:
        key = "must" if must is not None else "must-not"
        fix = f"Correct `{key}` at character {(fault.pos or 0) + 1}; in single quotes a backslash stays as it is."
        raise FaultWithFix(node.key_line(key), f"not a regular expression: {fault.msg}", fix) from None
    globs = _globs(node.get("applies-to")) or default
    if not globs:
        fix = "Add `applies-to` with path patterns, to the rule or above `rules`."
        raise FaultWithFix(node.line, "a rule without `applies-to` applies to nothing", fix)
    severity = _text(node, "severity") or "medium"
    if severity not in SEVERITIES:
        raise FaultWithFix(
            node.key_line("severity"), f"there is no severity {severity[:40]!r}", f"Write {', '.join(SEVERITIES)}."
        )
    what = "must match" if must is not None else "must not match"
    return AdrRule(
        id=_text(node, "id") or fallback_id,
        must=must is not None,
        pattern=pattern,
        globs=globs,
        severity=severity,
        message=_text(node, "message") or f"The file {what} {pattern!r}.",
        remediation=_text(node, "remediation") or "Change the file, or the decision.",
    )


def _text(node: Mapping, key: str) -> str | None:
    value = node.get(key)
    if value is None:
        return None
    if not isinstance(value, Scalar) or len(value.text) > MAX_TEXT:
        raise YamlFault(node.key_line(key), f"`{key}` must be a text of at most {MAX_TEXT} characters")
    return value.text


def _globs(node: Node | None) -> tuple[str, ...]:
    items = node.items if isinstance(node, Sequence) else [node] if node is not None else []
    if len(items) > MAX_GLOBS:
        raise YamlFault(node.line if node else 1, f"`applies-to` names more than {MAX_GLOBS} path patterns")
    if not all(isinstance(item, Scalar) and 0 < len(item.text) <= 300 for item in items):
        raise YamlFault(node.line if node else 1, "`applies-to` must be a path pattern or a list of them")
    return tuple(item.text for item in items if isinstance(item, Scalar))


def glob_matches(glob: str, path: str) -> bool:
    """`**` crosses directories, `*` and `?` do not. A whole name of stars, as in `src/**/*.py`, also stands for no directory."""
    return re.fullmatch(_PIECE.sub(_translated, glob), path, re.DOTALL) is not None


_PIECE: Final = re.compile(r"(?P<directories>(?:(?<![^/])\*\*+/)+)|(?P<anything>\*\*+)|(?P<name>\*)|(?P<one>\?)|[^*?]+")
"""Several `**/` in a row mean the same as one, and would be tried in every split."""
_MEANING: Final = {"directories": "(?:[^/]*/)*", "anything": ".*", "name": "[^/]*", "one": "[^/]"}


def _translated(piece: re.Match[str]) -> str:
    return _MEANING[piece.lastgroup] if piece.lastgroup else re.escape(piece[0])


def governed(work: tuple[list[DecisionRecord], list[str]]) -> list[str]:
    """The paths that some rule is about. For a worker: path patterns are strangers' text, too."""
    adrs, paths = work
    globs = {glob for adr in adrs for rule in adr.rules for glob in rule.globs}
    return [path for path in paths if any(glob_matches(glob, path) for glob in globs)]


class Applied(Struct, frozen=True):
    """What was found: the first `room` violations, and how many there are of each severity."""

    violations: list[Violation]
    counts: dict[Severity, int]


def apply(work: tuple[list[DecisionRecord], list[tuple[str, bytes]], int]) -> Applied:
    """(records, texts, room): each rule of each record against each file it applies to. Pure; for a worker."""
    adrs, files, room = work
    rules = [(adr, rule, re.compile(rule.pattern)) for adr in adrs for rule in adr.rules]
    found: list[Violation] = []
    counts: dict[Severity, int] = dict.fromkeys(SEVERITIES, 0)
    for path, data in files:
        lines = data.decode().splitlines()
        for adr, rule, pattern in rules:
            if not any(glob_matches(glob, path) for glob in rule.globs):
                continue
            for number in _broken_lines(rule, pattern, lines):
                counts[rule.severity] += 1
                if len(found) < room:
                    found.append(_violation(adr, rule, path, number, lines[number - 1] if lines else ""))
    return Applied(found, counts)


def _broken_lines(rule: AdrRule, pattern: re.Pattern[str], lines: list[str]) -> Iterator[int]:
    """The numbers of the lines that break the rule; the first line stands for the file."""
    matching = (number for number, line in enumerate(lines, 1) if pattern.search(line[:MAX_LINE]))
    if not rule.must:
        yield from islice(matching, MAX_PER_RULE_AND_FILE)
    elif next(matching, None) is None:
        yield 1


def _violation(adr: DecisionRecord, rule: AdrRule, path: str, line: int, snippet: str) -> Violation:
    return Violation(adr.id, rule.id, path, line, rule.message, rule.severity, rule.remediation, redacted(snippet))


def read_all(files: list[tuple[str, bytes]]) -> list[DecisionRecord]:
    """For a worker."""
    return [read_adr(path, data) for path, data in files]
