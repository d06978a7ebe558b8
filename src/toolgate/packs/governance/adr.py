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
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from toolgate.kit.adr import UNKNOWN, read
from toolgate.kit.render import printable
from toolgate.kit.yamldoc import Mapping, Scalar, Sequence, YamlFault
from toolgate.packs.governance.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.adr import Head
    from toolgate.kit.yamldoc import Node

MAX_TEXT: Final = 500
"""Characters of a rule's pattern, message or fix."""
MAX_RULES: Final = 100
MAX_PER_RULE_AND_FILE: Final = 100
"""Violations told of one rule in one file: after these, nobody reads on."""
MAX_TITLE: Final = 120
MAX_LINE: Final = 10_000
"""Characters of a line that are searched; a longer line is data, not source."""

Severity = Literal["critical", "high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "high", "medium", "low")

FILE_NAME: Final = re.compile(r"(?:(?:ADR|adr)-)?([0-9]{1,6})(?:[-_].*)?\.md")


class Rule(Struct, frozen=True):
    id: str
    must: bool
    pattern: str
    globs: tuple[str, ...]
    severity: Severity
    message: str
    remediation: str


class Adr(Struct, frozen=True):
    id: str
    """`ADR-0007`, however the file spells it."""
    path: str
    title: str
    status: str
    """One of `kit.adr.STATUSES`, or `unknown`."""
    rules: tuple[Rule, ...] = ()
    fault: str | None = None
    """Why its rules cannot be used. Such a record enforces nothing, and the answer says so."""


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


def read_adr(path: str, data: bytes) -> Adr:
    """Never raises: what cannot be read is a record with a fault."""
    number = number_of(path.rpartition("/")[2])
    name = f"ADR-{number:04d}"
    try:
        head = read(data)
    except UnicodeDecodeError:
        return Adr(name, path, "", UNKNOWN, fault="not UTF-8")
    rules, wrong = _usable_rules(head, name)
    fault = f"front matter, line {wrong.line + 1}: {wrong.text}" if wrong else None
    return Adr(name, path, printable(head.title[:MAX_TITLE]), head.status, rules, fault)


def _usable_rules(head: Head, adr: str) -> tuple[tuple[Rule, ...], YamlFault | None]:
    try:
        return (_rules(head.matter, adr) if head.matter else ()), head.fault
    except YamlFault as fault:
        return (), fault


def _rules(matter: Mapping, adr: str) -> tuple[Rule, ...]:
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


def _rule(node: Node, default: tuple[str, ...], fallback_id: str) -> Rule:
    if not isinstance(node, Mapping):
        raise YamlFault(node.line, "a rule must be a map")
    unknown = sorted(node.entries.keys() - _RULE_KEYS)
    if unknown:
        raise YamlFault(node.key_line(unknown[0]), f"a rule has no key {unknown[0][:40]!r}")
    must, must_not = _text(node, "must"), _text(node, "must-not")
    if (must is None) == (must_not is None):
        raise YamlFault(node.line, "a rule needs exactly one of `must` and `must-not`")
    pattern = must if must is not None else must_not or ""
    try:
        re.compile(pattern)
    except re.error as fault:
        raise YamlFault(node.line, f"not a regular expression: {fault.msg}") from None
    globs = _globs(node.get("applies-to")) or default
    if not globs:
        raise YamlFault(node.line, "a rule without `applies-to` applies to nothing")
    severity = _text(node, "severity") or "medium"
    if severity not in SEVERITIES:
        raise YamlFault(node.line, f"`severity` must be one of {', '.join(SEVERITIES)}")
    what = "must match" if must is not None else "must not match"
    return Rule(
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
    if not all(isinstance(item, Scalar) and 0 < len(item.text) <= 300 for item in items):
        raise YamlFault(node.line if node else 1, "`applies-to` must be a path pattern or a list of them")
    return tuple(item.text for item in items if isinstance(item, Scalar))


def glob_matches(glob: str, path: str) -> bool:
    """`**` crosses directories, `*` and `?` do not."""
    return re.fullmatch(_translated(glob), path) is not None


def _translated(glob: str) -> str:
    out, rest = "", glob
    while rest:
        if rest.startswith("**/"):
            out, rest = out + "(?:[^/]+/)*", rest[3:]
        elif rest.startswith("**"):
            out, rest = out + ".*", rest[2:]
        elif rest[0] == "*":
            out, rest = out + "[^/]*", rest[1:]
        elif rest[0] == "?":
            out, rest = out + "[^/]", rest[1:]
        else:
            out, rest = out + re.escape(rest[0]), rest[1:]
    return out


def apply(work: tuple[list[Adr], list[tuple[str, str]]]) -> list[Violation]:
    """Each rule of each record against each file it applies to. Pure; for a worker."""
    adrs, files = work
    return [
        violation
        for adr in adrs
        for rule in adr.rules
        for path, text in files
        if any(glob_matches(glob, path) for glob in rule.globs)
        for violation in _violations(adr, rule, path, text)
    ]


def _violations(adr: Adr, rule: Rule, path: str, text: str) -> Iterator[Violation]:
    pattern = re.compile(rule.pattern)
    lines = text.splitlines()
    if rule.must:
        if not any(pattern.search(line[:MAX_LINE]) for line in lines):
            yield _violation(adr, rule, path, 1, lines[0] if lines else "")
        return
    told = 0
    for number, line in enumerate(lines, 1):
        if pattern.search(line[:MAX_LINE]):
            yield _violation(adr, rule, path, number, line)
            told += 1
            if told == MAX_PER_RULE_AND_FILE:
                return


def _violation(adr: Adr, rule: Rule, path: str, line: int, snippet: str) -> Violation:
    return Violation(adr.id, rule.id, path, line, rule.message, rule.severity, rule.remediation, redacted(snippet))


def read_all(files: list[tuple[str, bytes]]) -> list[Adr]:
    """For a worker."""
    return [read_adr(path, data) for path, data in files]


def summary(violations: list[Violation]) -> dict[str, Any]:
    counts: dict[str, Any] = {severity: sum(one.severity == severity for one in violations) for severity in SEVERITIES}
    return {"total": len(violations)} | counts
