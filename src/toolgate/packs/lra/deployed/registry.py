"""The registry of papers, `lra-registry.json` (LRA-1.0): read strictly, looked up by address or hash, searched, linted.

All passes are linear in the file; a lookup in 10 000 entries is a dictionary access.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.receipts.receipt import is_digest


class Known(Struct, frozen=True):
    """What a registry holds of a paper."""

    page: str
    root: str | None = None
    """None in entries of LRA-1.0, which lists the page alone."""


MAX_BYTES: Final = 5 * 1024 * 1024
"""LRA-1.0's own bounds."""
MAX_ENTRIES: Final = 10_000
MAX_RESULTS: Final = 100
_TEXTS: Final = ("title", "url", "hash", "capability", "license", "version", "registered")
_LISTS: Final = ("authors", "keywords", "depends")
_OPTIONAL: Final = ("verifications", "artifact_root")
"""`artifact_root` is ours: LRA-1.0 lists the page's hash alone, and its readers pass over what they do not know."""
_VERSION: Final = re.compile(r"[0-9]{1,10}\.[0-9]{1,10}\.[0-9]{1,10}")
_STAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


class Registry(Struct, frozen=True):
    entries: tuple[Mapping[str, Any], ...] = ()
    by_url: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_hash: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def find(self, target: str) -> Mapping[str, Any] | None:
        """By exact address (a final slash does not matter) or by `sha256:` hash."""
        return self.by_hash.get(target) if is_digest(target) else self.by_url.get(_plain(target))

    def known(self, url: str) -> Known | None:
        """What the registry holds of the paper at this address."""
        entry = self.find(url)
        return Known(str(entry["hash"]), entry.get("artifact_root")) if entry else None

    def search(self, words: str) -> list[Mapping[str, Any]]:
        """Entries that hold the text in title, keywords, capability or authors, whatever the case; at most 100."""
        wanted = words.casefold()
        found = (entry for entry in self.entries if wanted in _searched(entry))
        return [entry for entry, _ in zip(found, range(MAX_RESULTS), strict=False)]


def _malformed(text: str) -> ToolError:
    return ToolError("REGISTRY_MALFORMED", f"Invalid JSON: registry parse failed: {text}")


def parse(data: bytes) -> Registry:
    """Raises ToolError REGISTRY_MALFORMED: anything but a registry whose every entry has every required field."""
    try:
        value = strictjson.loads(data, max_bytes=MAX_BYTES, max_values=None)
    except strictjson.JsonFault as fault:
        raise _malformed(str(fault)) from None
    entries = value.get("entries") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not isinstance(value.get("version"), str | int):
        raise _malformed("a registry has version, updated and entries")
    if len(entries) > MAX_ENTRIES:
        raise _malformed(f"more than {MAX_ENTRIES} entries")
    for number, entry in enumerate(entries):
        fault_text = next(_entry_faults(entry), None)
        if fault_text:
            raise _malformed(f"entry {number}: {fault_text}")
    return _indexed(entries)


def _indexed(entries: Sequence[Mapping[str, Any]]) -> Registry:
    """The first entry of an address or a hash is the one that counts."""
    return Registry(
        tuple(entries),
        {_plain(entry["url"]): entry for entry in reversed(entries)},
        {entry["hash"]: entry for entry in reversed(entries)},
    )


def about(work: tuple[bytes, str]) -> Registry:
    """(registry file, target): only what it holds of one paper. For a worker, whose answer is then small.

    Raises ToolError REGISTRY_MALFORMED.
    """
    data, target = work
    registry = parse(data)
    named = [registry.find(target), registry.find(f"sha256:{target}")]
    found = [entry for entry in named if entry is not None]
    found += [registry.by_url[_plain(entry["url"])] for entry in found]
    wanted = {id(entry) for entry in found}
    return _indexed([entry for entry in registry.entries if id(entry) in wanted])


def _plain(url: str) -> str:
    return url.rstrip("/")


def _searched(entry: Mapping[str, Any]) -> str:
    return "\n".join([entry["title"], entry["capability"], *entry["keywords"], *entry["authors"]]).casefold()


def _entry_faults(entry: Any) -> Iterator[str]:
    """What makes an entry unusable, first fault first."""
    if not isinstance(entry, dict):
        yield "not an object"
        return
    for name in _TEXTS:
        if not isinstance(entry.get(name), str) or not entry[name]:
            yield f"{name} is missing or not text"
    for name in _LISTS:
        items = entry.get(name)
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            yield f"{name} is missing or not a list of texts"
    if isinstance(entry.get("hash"), str) and not is_digest(entry["hash"]):
        yield "hash is not sha256: and 64 lower-case hex digits"
    root = entry.get("artifact_root")
    if root is not None and not (isinstance(root, str) and is_digest(root)):
        yield "artifact_root is not sha256: and 64 lower-case hex digits"


def lint(data: bytes) -> list[str]:
    """Everything worth saying about a registry file, in the order of its entries. Never raises."""
    try:
        registry = parse(data)
    except ToolError as fault:
        return [fault.text]
    known = set(registry.by_hash)
    seen: dict[str, int] = {}
    found = []
    for number, entry in enumerate(registry.entries):
        found += [f"entry {number}: {text}" for text in _entry_remarks(entry, known)]
        for key in (_plain(entry["url"]), entry["hash"]):
            if key in seen:
                found.append(f"entry {number}: the same paper as entry {seen[key]} ({key})")
            seen.setdefault(key, number)
    return found


def _entry_remarks(entry: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    if not _VERSION.fullmatch(entry["version"]):
        yield "version is not X.Y.Z"
    if not _STAMP.fullmatch(entry["registered"]):
        yield "registered is not an RFC 3339 time"
    if not entry["url"].startswith("https://"):
        yield "url is not https"
    for name in sorted(set(entry) - {*_TEXTS, *_LISTS, *_OPTIONAL}):
        yield f"{name} is not a field of LRA-1.0"
    for depends in entry["depends"]:
        if not is_digest(depends):
            yield "depends holds something that is not a hash"
        elif depends not in known:
            yield f"depends on {depends}, which the registry does not hold"


def with_entry(data: bytes | None, entry: Mapping[str, Any], updated: str) -> bytes:
    """The registry file with `entry` added; one of the same address is replaced, its verification history kept.

    Raises ToolError REGISTRY_MALFORMED.
    """
    registry = parse(data) if data is not None else Registry()
    fault = next(_entry_faults(dict(entry)), None)
    if fault:
        raise _malformed(f"the new entry: {fault}")
    others = [other for other in registry.entries if _plain(other["url"]) != _plain(entry["url"])]
    if len(others) >= MAX_ENTRIES:
        raise _malformed(f"more than {MAX_ENTRIES} entries")
    old = registry.find(entry["url"])
    history = {"verifications": old["verifications"]} if old and "verifications" in old else {}
    value = {"version": "1.0", "updated": updated, "entries": [*others, {**history, **entry}]}
    written = strictjson.dumps_pretty(value)
    if len(written) > MAX_BYTES:
        raise _malformed(f"the registry would be larger than {MAX_BYTES} bytes")
    return written


def entry_of(receipt: Mapping[str, Any], facts: Mapping[str, Any], registered: str) -> dict[str, Any]:
    """A registry entry for a paper that was just verified: its address and hash from the receipt, the rest from its page."""
    keywords: Sequence[str] = facts.get("keywords", ())
    return {
        "title": facts.get("title") or receipt["target_url"],
        "authors": list(facts.get("authors", ())),
        "url": receipt["target_url"],
        "hash": receipt["target_hash"],
        **({"artifact_root": receipt["artifact_root"]} if "artifact_root" in receipt else {}),
        "capability": facts.get("capability") or "none",
        "keywords": list(keywords),
        "license": facts.get("license") or "unknown",
        "version": facts.get("version") or "1.0.0",
        "depends": list(facts.get("depends", ())),
        "registered": registered,
    }
