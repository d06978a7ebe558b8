"""What a request's headers say, read once into a `Head`: the same bytes always say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from toolgate.faces import mcp

_ROUTING: Final = {name.encode(): name for name in (mcp.VERSION_HEADER, mcp.METHOD_HEADER, mcp.NAME_HEADER)}

RawHeaders = Sequence[tuple[bytes, bytes]]


class Head(Struct, frozen=True):
    """One request before its body. Nothing here is decided yet; the application decides, in its order."""

    path: bytes
    served: bool
    """Host and Origin are ours."""
    post: bool
    fits: bool
    """Neither method nor announced length speaks against reading the body."""
    length: int
    """As `Content-Length` says: 0 without one, -1 for what is no number."""
    credential: bytes | None
    key_fault: str | None
    """Why the key headers cannot be used."""
    sends_json: bool
    takes_json: bool
    takes_events: bool
    routing: mcp.Routing
    routing_twice: str | None
    """One of them that came more than once."""


class HeadReader:
    """Knows whose names the server answers to: `hosts` and `origins`, as header values in lower case."""

    def __init__(self, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        self.hosts: frozenset[bytes] = frozenset()
        self.origins: frozenset[bytes] = frozenset()

    def read(self, method: bytes, path: bytes, headers: RawHeaders) -> Head:
        """`headers` with their names in lower case. A header that came twice counts with its last value, or not at all."""
        # RFC 9110 5.5: blanks around a value are not part of it; the parser leaves trailing ones.
        fields = {name: value.strip(b" \t") for name, value in headers}
        twice = _repeated(headers) if len(fields) != len(headers) else frozenset()
        text = fields.get(b"content-length", b"0")
        length = int(text) if text.isdigit() else -1
        credential, key_fault = _credential(fields, twice)
        accept = fields.get(b"accept")
        return Head(
            path=path,
            served=b"origin" not in twice and self._is_ours(fields),
            post=method == b"POST",
            fits=method == b"POST" and 0 <= length <= self._body_bytes,
            length=length,
            credential=credential,
            key_fault=key_fault,
            sends_json=b"content-type" not in twice and _is_json(fields.get(b"content-type", b"")),
            takes_json=_admits(accept, "application/json"),
            takes_events=_admits(accept, "text/event-stream"),
            routing=mcp.Routing.of(
                {text: fields[name].decode("latin-1") for name, text in _ROUTING.items() if name in fields}
            ),
            routing_twice=next((text for name, text in _ROUTING.items() if name in twice), None),
        )

    def _is_ours(self, fields: Mapping[bytes, bytes]) -> bool:
        """DNS rebinding: a page in a browser can reach loopback, but it cannot forge these two."""
        if fields.get(b"host", b"").lower() not in self.hosts:
            return False
        origin = fields.get(b"origin")
        return origin is None or origin.lower() in self.origins


def _credential(fields: Mapping[bytes, bytes], twice: frozenset[bytes]) -> tuple[bytes | None, str | None]:
    """The key, from `X-MCP-API-Key` or `Authorization: Bearer`, or why there is none to be had."""
    if b"x-mcp-api-key" in twice or b"authorization" in twice:
        return None, "Send one key header."
    key = fields.get(b"x-mcp-api-key")
    scheme, _, token = fields.get(b"authorization", b"").partition(b" ")
    bearer = token.strip() if scheme.lower() == b"bearer" else None
    if key is not None and bearer is not None and key != bearer:
        return None, "The two key headers hold different keys."
    return (key if key is not None else bearer), None


def _is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def _admits(accept: bytes | None, kind: str) -> bool:
    """Does `Accept` admit this media type? Absent means anything (RFC 9110)."""
    if accept is None:
        return True
    ranges = {part.partition(";")[0].strip().lower() for part in accept.decode("latin-1").split(",")}
    return bool(ranges & {kind, kind.partition("/")[0] + "/*", "*/*"})


def _repeated(headers: RawHeaders) -> frozenset[bytes]:
    counted = Counter(name for name, _ in headers)
    return frozenset(name for name, count in counted.items() if count > 1)
