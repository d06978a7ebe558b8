"""How what an upstream offers is called here: `{prefix}{name}`, in the letters that every client takes.

Tools have these names, prompts `prompt:` before them, and resources and templates `resource:`, as everywhere in the manifest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from toolgate.kit.pins import PROMPT, RESOURCE, TEMPLATE, Pinned
from toolgate.model.tool import Tool
from toolgate.packs.upstream.addresses import Rewriting, address_fault, claim

MAX_NAME: Final = 64
DIGEST_CHARS: Final = 8
UPSTREAM_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,32}")
WANTED_TWICE: Final = "is wanted by another upstream, too, so neither serves it"
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")


def default_prefix(upstream: str) -> str:
    return f"{upstream}_"


def served_name(prefix: str, tool: str) -> str:
    """Deterministic: what is too long, or holds other letters, is shortened and gets a digest of the whole name."""
    plain = prefix + tool
    if len(plain) <= MAX_NAME and not _ODD.search(plain):
        return plain
    return _marked(prefix + _ODD.sub("_", tool), tool)


def _marked(name: str, whole: str) -> str:
    mark = "_" + sha256(whole.encode(errors="surrogatepass")).hexdigest()[:DIGEST_CHARS]
    return name[: MAX_NAME - len(mark)] + mark


def taken_by(tools: Iterable[Tool]) -> set[str]:
    """What others have already: names, and kinds of addresses."""
    found: set[str] = set()
    for tool in tools:
        found.add(tool.name)
        if tool.kind == "resource":
            found.add(_address(tool.offer.uri))
    return found


def taken_with(upstream: str, prefix: str, pinned: Mapping[str, Pinned], taken: Collection[str]) -> set[str]:
    """What an adopted upstream takes besides."""
    names, _ = served_names(upstream, prefix, {place: item.definition for place, item in pinned.items()}, taken)
    rewriting = Rewriting(upstream, not prefix)
    addresses = [place.partition(":")[2] for place in names if place.startswith((RESOURCE, TEMPLATE))]
    return {*names.values(), *(_address(rewriting.here(uri)) for uri in addresses)}


def contested(claims: Iterable[Collection[str]]) -> frozenset[str]:
    """What more than one of them takes (`taken_with` of each upstream)."""
    counts = Counter(name for claim in claims for name in claim)
    return frozenset(name for name, count in counts.items() if count > 1)


def served_names(
    upstream: str,
    prefix: str,
    offered: Mapping[str, Mapping[str, Any]],
    taken: Collection[str],
    contested: Collection[str] = (),
) -> tuple[dict[str, str], dict[str, str]]:
    """(place -> name here, place -> why it is not served), of definitions by place. Two that want one name or one id both go
    without, also of two upstreams (`contested`), and so does one that wants a name which is taken: whoever calls it must not
    reach the other. Resources are known by their addresses, so two of one name are told apart by a digest."""
    wanted = {place: _wanted(prefix, place, definition) for place, definition in offered.items()}
    refused: dict[str, str] = {}
    for name, places in _rivals(wanted).items():
        if len(places) > 1 and name.startswith("resource:"):
            wanted |= {place: f"resource:{_marked(name.partition(':')[2], place)}" for place in places}
    ids = {place: _wanted("", place, offered[place]) for place in wanted if not place.startswith((RESOURCE, TEMPLATE))}
    for names in (ids, wanted):
        for name, places in _rivals(names).items():
            if len(places) > 1:
                refused |= dict.fromkeys(places, f"{len(places)} of its tools would be called {name}")
    for others, why in ((contested, WANTED_TWICE), (taken, "is taken by another tool")):
        refused |= {place: f"the name {name} {why}" for place, name in wanted.items() if name in others}
    for place in wanted:
        fault = _address_fault(Rewriting(upstream, not prefix), place, {*taken, *contested})
        if fault is not None:
            refused[place] = fault
    return {place: name for place, name in wanted.items() if place not in refused}, refused


def _wanted(prefix: str, place: str, definition: Mapping[str, Any]) -> str:
    own = str(definition.get("name") or "unnamed")
    if place.startswith(PROMPT):
        return f"prompt:{served_name(prefix, own)}"
    if place.startswith((RESOURCE, TEMPLATE)):
        return f"resource:{served_name(prefix, own)}"
    return served_name(prefix, own)


def _rivals(wanted: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for place, name in wanted.items():
        found.setdefault(name, []).append(place)
    return found


def _address_fault(rewriting: Rewriting, place: str, taken: Collection[str]) -> str | None:
    if not place.startswith((RESOURCE, TEMPLATE)):
        return None
    uri = place.partition(":")[2]
    fault = address_fault(uri, is_template=place.startswith(TEMPLATE))
    if fault is None and _address(rewriting.here(uri)) in taken:
        return "somebody else has addresses of that kind; give the upstream a prefix"
    return fault


def _address(uri: str) -> str:
    """Among names; no name looks like it."""
    return f"address:{claim(uri)}"


def canonical_id(upstream: str, tool: str) -> str:
    """The part after `mcp.tool:`: `upstream.NAME.tool`, in the letters of ids."""
    return f"upstream.{upstream}.{served_name('', tool)}"
