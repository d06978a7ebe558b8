"""What is odd about an upstream, before a person approves it: findings in the same format as all others.

A `critical` finding is a reason not to serve the tool at all: approving it is refused. The others are for the person who reads
them. Nothing here is a proof of innocence: text that persuades a model cannot be told from text that describes a tool for
certain, so what is odd is shown, and what was approved is pinned.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from toolgate.kit.findings import Finding, Severity, fingerprinted
from toolgate.kit.foreignschema import ForeignSchema, is_open
from toolgate.kit.paramheaders import param_headers
from toolgate.kit.pins import PROMPT, RESOURCE, TEMPLATE, UNPINNABLE, Offer, pinned
from toolgate.model import strictjson
from toolgate.packs.upstream.names import served_names

MAX_DEFINITION_BYTES: Final = 65_536
"""One tool's definition; agents read it before every call. The longest of the real ones has six thousand."""
LONG_TEXT: Final = 4000
"""Characters of a description beyond which a person will not read it to the end."""
MAX_PER_RULE: Final = 20
"""Findings of one rule about one tool."""


class ScanRule(Struct, frozen=True):
    severity: Severity
    why: str
    fix: str


RULES: Final[Mapping[str, ScanRule]] = {
    "UP-001": ScanRule(
        "high",
        "Characters that nobody sees can carry instructions to a model.",
        "Ask the author why they are there; do not approve the tool until you know.",
    ),
    "UP-002": ScanRule(
        "critical",
        "Characters that turn the direction of text show a person something else than a model reads.",
        "Have the author remove them.",
    ),
    "UP-003": ScanRule(
        "high",
        "A description that tells the model what to do beyond calling this tool is how tools take over agents.",
        "Read the text. Approve it only if you would say the same to your agents yourself.",
    ),
    "UP-004": ScanRule(
        "high",
        "A tool that looks like another one is called in its place.",
        "Give the upstream a prefix of its own, or do not approve the tool.",
    ),
    "UP-005": ScanRule(
        "critical",
        "Arguments and answers can only be checked against a schema that can be used.",
        "Have the author mend the schema.",
    ),
    "UP-006": ScanRule(
        "medium",
        "Hints of an upstream are claims; clients use them to decide what to ask a person about.",
        "Rely on the tool's effect in the policy, not on the hint.",
    ),
    "UP-007": ScanRule(
        "medium",
        "A program without a pinned version is another program tomorrow.",
        "Name an exact version, or a digest.",
    ),
    "UP-008": ScanRule("info", "A schema that takes any further argument checks only those it names.", ""),
    "UP-009": ScanRule(
        "critical",
        "A definition that is too large, or has no single spelling, cannot be pinned.",
        "Have the author shorten or mend it.",
    ),
    "UP-010": ScanRule(
        "medium", "Nobody reads so long a text, and everything in it reaches the model.", "Read all of it."
    ),
    "UP-011": ScanRule(
        "medium",
        "What is sent without TLS can be read and changed on the way.",
        "Use https, except on this machine.",
    ),
}

_DIRECTION: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
_ADDRESSES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(ignore|disregard|forget|override)\b.{0,40}\b(instructions?|rules?|prompts?|guidelines?|context)\b",
        r"</?\s*(important|system|assistant|instructions?|secret|admin)\s*>",
        r"\b(do not|don't|never|without)\b.{0,30}\b(tell|mention|inform|show|notify|reveal|asking|alert)\w*\b.{0,30}\buser\b",
        r"\b(system|developer)\s+prompt\b",
        r"\byou (must|should|have to|need to)\b.{0,60}\b(before|first|always|instead|any other|every)\b",
        r"\b(before|after|whenever|when)\b.{0,30}\b(using|calling|invoking)\b.{0,30}\b(this|any|other|another)\b.{0,20}\btools?\b",
        r"\b(always|must)\s+(call|use|invoke|run)\s+this\b",
        r"(~|\$HOME|/home/\w+|/root)/\.(ssh|aws|config|gnupg|netrc|cursor|claude)\b|\bid_rsa\b|\bmcp\.json\b",
        r"\b(conversation|chat)\s+(history|transcript|log)\b.{0,60}\b(send|include|pass|attach|forward|append)\w*\b",
        r"\b(send|include|pass|attach|forward|append)\w*\b.{0,60}\b(conversation|chat)\s+(history|transcript|log)\b",
    )
)
_CHANGES: Final = re.compile(
    r"(?:^|[_.-])(write|delete|remove|create|update|edit|move|rename|drop|insert|set|put|post|send|push|commit|reset|exec|"
    r"execute|run|kill|install|upload|add|checkout|navigate|click|type|fill)(?:[_.-]|$)",
    re.IGNORECASE,
)
_DESTROYS: Final = re.compile(
    r"(?:^|[_.-])(delete|remove|drop|reset|kill|purge|destroy|wipe)(?:[_.-]|$)", re.IGNORECASE
)
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Scanned(Struct, frozen=True):
    """What is looked at: one upstream's offer and how it would be served."""

    upstream: str
    offer: Offer
    prefix: str
    taken: Sequence[str] = ()
    """Names that other tools here have."""
    command: Sequence[str] = ()
    url: str = ""


def scan(scanned: Scanned) -> list[Finding]:
    """Every finding, fingerprinted."""
    about = _Place(f"policy/upstreams/{scanned.upstream}.pin.json")
    found = [*_program(scanned, about), *_names(scanned, about)]
    if scanned.offer.instructions is not None:
        found += _text(about, "instructions", scanned.offer.instructions)
    for place, definition in sorted(scanned.offer.places().items()):
        found += _offered(about, place, definition)
    return fingerprinted(found)


def not_servable(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """What has a critical finding, by its `shown` place."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.severity == "critical" and "tool" in finding.extra:
            found.setdefault(finding.extra["tool"], []).append(finding)
    return found


class _Place(Struct, frozen=True):
    file: str

    def finding(self, rule: str, message: str, selector: str, *, tool: str | None = None, anchor: str = "") -> Finding:
        about = RULES[rule]
        return Finding(
            rule,
            "fail",
            about.severity,
            message,
            file=self.file,
            selector=selector,
            why=about.why,
            fix=about.fix,
            anchor=anchor or f"{selector} {message}",
            extra={"tool": shown(tool)} if tool is not None else {},
        )


# -- the program and the names ----------------------------------------------------------------------------------


def _program(scanned: Scanned, about: _Place) -> Iterator[Finding]:
    if scanned.command and (unpinned := unpinned_package(scanned.command)):
        yield about.finding("UP-007", f"{unpinned} is started in whatever version is newest.", "peer.command")
    if scanned.url.lower().startswith("http://"):
        yield about.finding("UP-011", "The address is plain http.", "peer.url")


_RUNNERS: Final[Mapping[str, re.Pattern[str]]] = {
    "npx": re.compile(r"@?[^@]+@\d+\.\d+\.\d+[\w.+-]*"),
    "bunx": re.compile(r"@?[^@]+@\d+\.\d+\.\d+[\w.+-]*"),
    "uvx": re.compile(r"[^=@]+(==|@)\d[\w.+-]*"),
    "pipx": re.compile(r"[^=@]+==\d[\w.+-]*"),
    "docker": re.compile(r".+@sha256:[0-9a-f]{64}"),
    "podman": re.compile(r".+@sha256:[0-9a-f]{64}"),
}
"""Programs that fetch what they run, and how a pinned version is written for each."""
_TAKE_A_VALUE: Final = frozenset(
    {"-p", "--package", "-c", "--from", "--with", "--python", "-e", "--env", "-v", "--volume", "--name", "--network"}
    | {"--mount", "-u", "--user", "-w", "--workdir", "--entrypoint", "--memory", "--cpus", "--index-url", "--registry"}
)


def unpinned_package(command: Sequence[str]) -> str | None:
    """The package that a runner would fetch in any version; None: a version is pinned, or nothing is fetched."""
    runner = command[0].rpartition("/")[2]
    form = _RUNNERS.get(runner)
    if form is None:
        return None
    wanted = _fetched(command[1:])
    return next((each for each in wanted if not form.fullmatch(each)), None)


def _fetched(arguments: Sequence[str]) -> list[str]:
    """`--package` and `--from` name it; else the first plain word does (after `run` of a container tool)."""
    named = [value for flag, value in pairwise(arguments) if flag in {"-p", "--package", "--from"}]
    named += [each.partition("=")[2] for each in arguments if each.startswith(("--package=", "--from="))]
    if named:
        return named
    skip = False
    for each in arguments:
        if skip:
            skip = False
        elif each in _TAKE_A_VALUE:
            skip = True
        elif not each.startswith("-") and each != "run":
            return [each]
    return []


def _names(scanned: Scanned, about: _Place) -> Iterator[Finding]:
    names, refused = served_names(scanned.upstream, scanned.prefix, scanned.offer.places(), scanned.taken)
    for tool, why in sorted(refused.items()):
        yield about.finding("UP-004", f"{shown(tool)} cannot be served: {why}.", f"tools.{shown(tool)}", tool=tool)
    known = {_looks(other): other for other in scanned.taken}
    for tool, name in sorted(names.items()):
        twin = known.get(_looks(name)) or (known.get(_looks(tool)) if ":" not in tool else None)
        if twin is not None:
            message = f"{shown(tool)} looks like {twin}, which is another tool here."
            yield about.finding("UP-004", message, f"tools.{shown(tool)}.name", tool=tool)


def _looks(name: str) -> str:
    """What is left of a name when looks are all that counts."""
    return re.sub(r"[^a-z0-9]", "", unicodedata.normalize("NFKC", name).casefold())


# -- one tool, prompt or resource ---------------------------------------------------------------------------------


def _offered(about: _Place, name: str, definition: Mapping[str, Any]) -> Iterator[Finding]:
    """By its place."""
    place = f"tools.{shown(name)}"
    if UNPINNABLE in pinned(definition).fields.values():
        yield about.finding("UP-009", f"{shown(name)} holds a value that cannot be pinned.", place, tool=name)
        return
    size = len(strictjson.dumps(definition))
    if size > MAX_DEFINITION_BYTES:
        message = f"The definition of {shown(name)} has {size} bytes; at most {MAX_DEFINITION_BYTES} are served."
        yield about.finding("UP-009", message, place, tool=name)
        return
    for selector, text in _texts(definition, place):
        yield from _text(about, selector, text, tool=name)
    if not name.startswith((PROMPT, RESOURCE, TEMPLATE)):
        yield from _schemas(about, place, name, definition)
        yield from _claims(about, place, name, definition)


def _texts(node: Any, selector: str) -> Iterator[tuple[str, str]]:
    """Every text in the definition, keys included: a model reads all of them."""
    if isinstance(node, str):
        yield selector, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{selector} (a key)", str(key)
            yield from _texts(value, f"{selector}.{shown(str(key))}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _texts(value, f"{selector}[{number}]")


def _text(about: _Place, selector: str, text: str, *, tool: str | None = None) -> Iterator[Finding]:
    turned = sorted({char for char in text if char in _DIRECTION})
    unseen = sorted({char for char in text if _is_unseen(char)})[:MAX_PER_RULE]
    if turned:
        message = f"The text turns its direction with {_points(turned)}."
        yield about.finding("UP-002", message, selector, tool=tool)
    if unseen:
        yield about.finding("UP-001", f"The text holds {_points(unseen)}, which nobody sees.", selector, tool=tool)
    for pattern in _ADDRESSES:
        if found := pattern.search(text):
            quoted = shown(" ".join(found[0].split()))[:120]
            message = f"The text addresses the model: “{quoted}”."
            yield about.finding("UP-003", message, selector, tool=tool)
            break
    if len(text) > LONG_TEXT:
        yield about.finding("UP-010", f"The text has {len(text)} characters.", selector, tool=tool)


def _is_unseen(char: str) -> bool:
    if char in _DIRECTION or char in "\n\r\t":
        return False
    if unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs", "Cn"}:
        return char != "\u200d"  # joins emoji; judged with its neighbours it would be noise
    return (
        "\ufe00" <= char <= "\ufe0e" or "\U000e0100" <= char <= "\U000e01ef" or char in "\u115f\u1160\u3164\uffa0\u034f"
    )


def _points(characters: Sequence[str]) -> str:
    return ", ".join(f"U+{ord(char):04X}" for char in characters)


def _schemas(about: _Place, place: str, name: str, definition: Mapping[str, Any]) -> Iterator[Finding]:
    for key in ("inputSchema", "outputSchema"):
        if key not in definition:
            if key == "inputSchema":
                yield about.finding("UP-005", "There is no inputSchema.", f"{place}.{key}", tool=name)
            continue
        fault = schema_fault(definition[key], is_input=key == "inputSchema")
        if fault is not None:
            yield about.finding("UP-005", f"The {key} cannot be used: {fault}.", f"{place}.{key}", tool=name)
        elif key == "inputSchema" and is_open(definition[key]):
            yield about.finding(
                "UP-008", "Arguments that the schema does not name are let through.", f"{place}.{key}", tool=name
            )


def schema_fault(schema: Any, *, is_input: bool) -> str | None:
    """Why a schema cannot be used; None: it can."""
    if not isinstance(schema, Mapping):
        return "it is not an object"
    if is_input and schema.get("type") != "object":
        return 'its root is not of "type": "object"'
    try:
        ForeignSchema(schema)
        if is_input:
            param_headers(schema)
    except ValueError as fault:  # a SchemaFault is one
        return str(fault)
    return None


def _claims(about: _Place, place: str, name: str, definition: Mapping[str, Any]) -> Iterator[Finding]:
    hints = definition.get("annotations")
    if not isinstance(hints, Mapping):
        return
    spelt = _WORDS.sub("_", name)
    if hints.get("readOnlyHint") is True and (word := _CHANGES.search(spelt)):
        message = f"It claims to change nothing, and its name says {word[1].lower()}."
        yield about.finding("UP-006", message, f"{place}.annotations.readOnlyHint", tool=name)
    if hints.get("destructiveHint") is False and (word := _DESTROYS.search(spelt)):
        message = f"It claims to destroy nothing, and its name says {word[1].lower()}."
        yield about.finding("UP-006", message, f"{place}.annotations.destructiveHint", tool=name)


def shown(text: str) -> str:
    """A stranger's text in a message: printable, and not endless."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text[:120])
