"""A pin: what a person approved of an upstream, as a file, and how what is offered now differs from it.

Every field of every definition has a digest of its own, unknown fields included, so a difference has a name. Definitions are
compared as canonical JSON (RFC 8785) after set-like arrays of schemas were sorted: the order of keys, of `required`, of `type`
and of `enum` means nothing and is not an alarm. The *set* of tools is pinned, too, because a rename would slip past any one tool.

Prompts, resources and templates of resources are pinned like tools. Each has a *place*, which names it among all of them: a
tool's is its name, those of the others say their kind first (`prompt:weekly`, `resource:file:///a`, `template:file:///{path}`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from toolgate.kit import canonical
from toolgate.kit.foreignschema import SUBSCHEMA, SUBSCHEMAS, SUBSCHEMAS_BY_NAME
from toolgate.model import strictjson

FORMAT: Final = "toolgate-pin/1"
FOLDER: Final = "upstreams"
"""Of pins, in the policy directory; and of notes about children, in the state directory."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A list has at most half of it; the digests come on top."""
UNPINNABLE: Final = "unpinnable"
"""In place of the digest of a value that has no single spelling. No pin holds it, so it never matches."""
SCHEMA_FIELDS: Final = ("inputSchema", "outputSchema")

_BY_NAME: Final = SUBSCHEMAS_BY_NAME | {"$defs", "definitions"}
_SETS: Final = frozenset({"required", "type", "enum"})
_SETS_BY_NAME: Final = frozenset({"dependentRequired", "dependencies"})


class PinFault(ValueError):
    """A pin cannot be made of this, or a file is not a pin. The text names the fault."""


PROMPT, TEMPLATE, RESOURCE = "prompt:", "template:", "resource:"
_KINDS: Final = ("tool:", PROMPT, TEMPLATE, RESOURCE)
T = TypeVar("T")


def tool_place(name: str) -> str:
    """A tool whose name looks like another place says its kind, too: no two places are one."""
    return f"tool:{name}" if name.startswith(_KINDS) else name


def _by_place(
    tools: Mapping[str, T], prompts: Mapping[str, T], templates: Mapping[str, T], resources: Mapping[str, T]
) -> dict[str, T]:
    others = (PROMPT, prompts), (TEMPLATE, templates), (RESOURCE, resources)
    found = {tool_place(name): item for name, item in tools.items()}
    return found | {kind + name: item for kind, items in others for name, item in items.items()}


class Offer(Struct, frozen=True):
    """All that an upstream says about itself, as it says it."""

    version: str
    """Of the protocol."""
    server: Mapping[str, Any]
    instructions: str | None
    tools: Mapping[str, Mapping[str, Any]]
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ttl_s: float = 300.0
    """How long the lists may be believed."""
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    logs: bool = False
    """It says that it logs for its clients."""

    def places(self) -> dict[str, Mapping[str, Any]]:
        """All that it offers, by place."""
        return _by_place(self.tools, self.prompts, self.templates, self.resources)


class Pinned(Struct, frozen=True):
    """One definition: of a tool, a prompt or a resource template."""

    definition: Mapping[str, Any]
    fields: Mapping[str, str]
    """Digest of each field."""

    @property
    def digest(self) -> str:
        return digest_of(self.fields)


class Pin(Struct, frozen=True):
    upstream: str
    peer: Mapping[str, Any]
    """Who it is: `{"url", "private"}`, or `{"command", "program", ...}` with digests of the files that run."""
    version: str
    server: Mapping[str, Any]
    instructions: str | None
    tools: Mapping[str, Pinned]
    """The approved ones, by the upstream's own names."""
    declined: tuple[str, ...] = ()
    """Places of what was there and was not approved: known, and not served."""
    prompts: Mapping[str, Pinned] = field(default_factory=dict)
    templates: Mapping[str, Pinned] = field(default_factory=dict)
    resources: Mapping[str, Pinned] = field(default_factory=dict)
    logs: bool = False

    @property
    def digest(self) -> str:
        """Of all that was approved: each record of a call names it."""
        return digest_of(self._about() | {kind: _digests(items) for kind, items in self.kinds().items()})

    def as_bytes(self) -> bytes:
        """The file: sorted and indented, so that a diff of two pins is one of what changed."""
        listed = {
            kind: [
                {"definition": item.definition, "fields": item.fields, "digest": item.digest}
                for _, item in sorted(items.items())
            ]
            for kind, items in self.kinds().items()
        }
        content = {"format": FORMAT, **self._about(), **listed, "digest": self.digest}
        return strictjson.dumps_pretty(_sorted(content))

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "upstream": self.upstream,
            "peer": dict(self.peer),
            "protocolVersion": self.version,
            "server": dict(self.server),
            "declined": sorted(self.declined),
        }
        about |= {"logs": True} if self.logs else {}
        return about if self.instructions is None else about | {"instructions": self.instructions}

    def kinds(self) -> dict[str, Mapping[str, Pinned]]:
        """Without resources where there are none: the pins of servers that were adopted before these were pinned stay valid."""
        kinds = {"tools": self.tools, "prompts": self.prompts, "resourceTemplates": self.templates}
        return kinds | ({"resources": self.resources} if self.resources else {})

    def places(self) -> dict[str, Pinned]:
        """All that was approved, by place."""
        return _by_place(self.tools, self.prompts, self.templates, self.resources)


_NAMES: Final = {"tools": "name", "prompts": "name", "resourceTemplates": "uriTemplate", "resources": "uri"}


def _digests(items: Mapping[str, Pinned]) -> dict[str, str]:
    return {name: item.digest for name, item in items.items()}


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


# -- making one -------------------------------------------------------------------------------------------------


def pin_of(
    upstream: str, peer: Mapping[str, Any], offer: Offer, approved: Callable[[str], bool] = lambda _: True
) -> Pin:
    """What a person approves when they approve these places. Raises: PinFault: a definition has no single spelling."""

    def chosen(items: Mapping[str, Mapping[str, Any]], place: Callable[[str], str]) -> dict[str, Pinned]:
        return {name: pinned(definition) for name, definition in items.items() if approved(place(name))}

    made = Pin(
        upstream,
        peer,
        offer.version,
        offer.server,
        offer.instructions,
        chosen(offer.tools, tool_place),
        tuple(sorted(place for place in offer.places() if not approved(place))),
        chosen(offer.prompts, PROMPT.__add__),
        chosen(offer.templates, TEMPLATE.__add__),
        chosen(offer.resources, RESOURCE.__add__),
        offer.logs,
    )
    for place, item in made.places().items():
        if UNPINNABLE in item.fields.values():
            raise PinFault(f"{place!a} holds a value that readers of JSON would read differently")
    if digest_of([made.server, made.instructions, made.peer]) == UNPINNABLE:
        raise PinFault("serverInfo or the instructions hold a value that readers of JSON would read differently")
    return made


def pinned(definition: Mapping[str, Any]) -> Pinned:
    lasting = _lasting(definition) if "uri" in definition and "inputSchema" not in definition else definition
    fields = {
        name: digest_of(normal_schema(value) if name in SCHEMA_FIELDS else value) for name, value in lasting.items()
    }
    return Pinned(definition, fields)


def _lasting(resource: Mapping[str, Any]) -> dict[str, Any]:
    """How large a resource is, and when it was changed last, say nothing about what it is."""
    kept = {name: value for name, value in resource.items() if name != "size"}
    notes = kept.get("annotations")
    if isinstance(notes, Mapping):
        kept["annotations"] = {name: value for name, value in notes.items() if name != "lastModified"}
    return kept


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical form, or `UNPINNABLE`."""
    try:
        return sha256(canonical.dumps(_plain(value))).hexdigest()
    except canonical.NotCanonicalError:
        return UNPINNABLE


def _plain(value: Any) -> Any:
    """Mappings as dicts, which is what the canonical writer takes; everything else as it is."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def normal_schema(schema: Any) -> Any:
    """The schema with its set-like arrays sorted. Values that are data (`default`, `const`, `examples`) are left alone."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: _normal_keyword(name, value) for name, value in schema.items()}


def _normal_keyword(name: str, value: Any) -> Any:
    if name in _BY_NAME and isinstance(value, Mapping):
        return {
            key: _as_set(item) if name in _SETS_BY_NAME and isinstance(item, list) else normal_schema(item)
            for key, item in value.items()
        }
    if name in _SETS_BY_NAME and isinstance(value, Mapping):
        return {key: _as_set(item) for key, item in value.items()}
    if name in SUBSCHEMAS and isinstance(value, list):
        return [normal_schema(item) for item in value]
    if name in SUBSCHEMA:
        return normal_schema(value)
    return _as_set(value) if name in _SETS else value


def _as_set(value: Any) -> Any:
    return sorted(value, key=strictjson.dumps_sorted) if isinstance(value, list) else value


# -- reading one ------------------------------------------------------------------------------------------------


def read_pin(data: bytes) -> Pin:
    """Raises: PinFault: not a pin, or its digests are not those of what it holds (somebody edited it by hand)."""
    try:
        content = strictjson.loads(data, max_bytes=MAX_FILE_BYTES, max_values=None)
    except strictjson.JsonFault as fault:
        raise PinFault(f"it is {fault}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PinFault(f"it is not of the format {FORMAT}")
    try:
        pin = _from_content(content)
    except (KeyError, TypeError, AttributeError):
        raise PinFault("a part of it is missing or of another kind") from None
    if pin.digest != content.get("digest"):
        raise PinFault("what it holds is not what its digest says: it was changed after it was approved")
    return pin


def _from_content(content: Mapping[str, Any]) -> Pin:
    """Raises: PinFault, KeyError, TypeError, AttributeError."""
    return Pin(
        _text(content["upstream"]),
        dict(content["peer"]),
        _text(content["protocolVersion"]),
        dict(content["server"]),
        content.get("instructions"),
        _items(content, "tools"),
        tuple(_text(name) for name in content["declined"]),
        _items(content, "prompts"),
        _items(content, "resourceTemplates"),
        _items(content, "resources") if "resources" in content else {},
        content.get("logs") is True,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _items(content: Mapping[str, Any], kind: str) -> dict[str, Pinned]:
    found: dict[str, Pinned] = {}
    for item in content[kind]:
        made = pinned(item["definition"])
        name = _text(made.definition[_NAMES[kind]])
        if name in found or made.fields != item["fields"] or made.digest != item["digest"]:
            raise PinFault(f"{kind}: {name!a} stands there twice, or is not what its digests say")
        found[name] = made
    return found


# -- comparing --------------------------------------------------------------------------------------------------


class PinDrift(Struct, frozen=True):
    """How what is offered differs from what was approved. Nothing in it is ever approved by looking again."""

    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Approved places that are there with another definition, each with the fields that differ."""
    gone: tuple[str, ...] = ()
    """Approved places that are not there."""
    added: tuple[str, ...] = ()
    """Places that nobody has looked at. They are not served."""
    about: tuple[str, ...] = ()
    """Parts beside them: server, instructions. They are told, and refuse nothing."""
    peer: bool = False
    """Another program runs, or it is somewhere else: everything is refused."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.added or self.about or self.peer)

    def refused(self, pin: Pin) -> dict[str, str]:
        """Each place that may not be called, with a stable reason."""
        if self.peer:
            return dict.fromkeys(pin.places(), "program_changed")
        return {place: "changed_" + "_".join(fields) for place, fields in self.changed.items()} | {
            place: "gone" if place.startswith(_KINDS) else "tool_gone" for place in self.gone
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "changed": {place: list(fields) for place, fields in sorted(self.changed.items())},
            "gone": list(self.gone),
            "added": list(self.added),
            "about": list(self.about),
            "peer": self.peer,
        }


def compare(pin: Pin, offer: Offer, peer: Mapping[str, Any] | None = None) -> PinDrift:
    """`peer`: who it is now; None where that was compared before."""
    was, now = pin.places(), offer.places()
    changed = {
        place: fields for place, item in was.items() if place in now and (fields := changed_fields(item, now[place]))
    }
    about = [
        name
        for name, before, after in (
            ("server", pin.server, offer.server),
            ("instructions", pin.instructions, offer.instructions),
        )
        if digest_of(before) != digest_of(after)
    ]
    return PinDrift(
        changed,
        tuple(sorted(was.keys() - now.keys())),
        tuple(sorted(now.keys() - was.keys() - set(pin.declined))),
        tuple(about),
        peer is not None and digest_of(peer) != digest_of(pin.peer),
    )


def changed_fields(item: Pinned, definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the fields that differ, one that is new or gone included."""
    now = pinned(definition).fields
    names = sorted(item.fields.keys() | now.keys())
    return tuple(name for name in names if item.fields.get(name) != now.get(name) or now.get(name) == UNPINNABLE)


def approve(pin: Pin, offer: Offer, peer: Mapping[str, Any], places: Iterable[str] | None = None) -> Pin:
    """The pin after a person approved what changed: all of it, or some places only. Raises: PinFault."""
    if places is None:
        return pin_of(pin.upstream, peer, offer, lambda place: place not in pin.declined)
    chosen = set(places)
    missing = sorted(chosen - offer.places().keys())
    if missing:
        raise PinFault(f"the upstream offers no {missing[0]!a}")
    fresh = pin_of(pin.upstream, pin.peer, offer, chosen.__contains__)
    return replace(
        pin,
        declined=tuple(place for place in pin.declined if place not in chosen),
        tools={**pin.tools, **fresh.tools},
        prompts={**pin.prompts, **fresh.prompts},
        templates={**pin.templates, **fresh.templates},
        resources={**pin.resources, **fresh.resources},
    )
