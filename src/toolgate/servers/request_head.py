"""Reads the headers of a request into a `RequestHead`, which depends on the bytes alone and so can be reused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import Ending, Refusal
from toolgate.faces.reply import admits
from toolgate.servers.origins import NAMES, OriginHeaders, read_origin_headers

if TYPE_CHECKING:
    from toolgate.faces.face import Face
    from toolgate.servers.framing import Request

_ASKED_METHOD: Final = b"access-control-request-method"

RawHeaders = Sequence[tuple[bytes, bytes]]


class RequestHead(Struct, frozen=True):
    """One request before its body. Nothing here is decided yet; the application decides, in its order."""

    path: bytes
    served: bool
    """Host and Origin are ours."""
    face: Face | None
    """Of this path."""
    hints: Any
    """What the face wants to know of it."""
    credential: bytes | None
    key_fault: str | None
    """Why the key headers cannot be used."""
    fault: Refusal | None
    """Method or media type are not those of a call."""
    takes_events: bool
    takes_gzip: bool = False
    page: bytes | None = None
    """The Origin of a page in a browser that sends it."""
    is_preflight: bool = False
    """A browser asks whether a page may send what it is about to send."""
    is_look: bool = False
    """GET: a client of the handshake era looks whether there is a stream of events. There is none, and it goes on without."""
    said: OriginHeaders | None = None
    """Where it says it comes from."""
    visit: Request | None = None
    """The request itself, where it is for the pages beside the faces."""


class HeadReader:
    """Knows whose names the server answers to: `hosts` and `origins`, as header values in lower case."""

    def __init__(self, faces: Sequence[Face], pages: bytes | None = None) -> None:
        """`pages`: the path below which pages for people are."""
        self._pages = pages
        self.hosts: frozenset[bytes] = frozenset()
        self.origins: frozenset[bytes] = frozenset()
        self._faces = {path: face for face in faces if "http" in face.wires for path in _paths(face.route)}

    def read(self, request: Request) -> RequestHead:
        """A header that came twice counts with its last value, or not at all."""
        headers = request.headers
        fields = dict(headers)
        twice = _repeated(headers) if len(fields) != len(headers) else frozenset()
        credential, key_fault = _credential(fields, twice)
        face = self._faces.get(request.path)
        page = fields.get(b"origin")
        return RequestHead(
            path=request.path,
            served=b"origin" not in twice and self._is_ours(fields),
            face=face,
            hints=face.hints(fields, twice) if face is not None else None,
            credential=credential,
            key_fault=key_fault,
            fault=_fault(request.method, None if b"content-type" in twice else fields.get(b"content-type")),
            takes_events=admits(fields.get(b"accept"), "text/event-stream"),
            takes_gzip=b"gzip" in fields.get(b"accept-encoding", b""),
            page=page,
            is_preflight=request.method == b"OPTIONS" and page is not None and _ASKED_METHOD in fields,
            is_look=request.method == b"GET",
            said=None if fields.keys().isdisjoint(NAMES) else read_origin_headers(headers),
            visit=request if face is None and self._is_page(request.path) else None,
        )

    def _is_page(self, path: bytes) -> bool:
        return self._pages is not None and (path == self._pages or path.startswith(self._pages + b"/"))

    def _is_ours(self, fields: Mapping[bytes, bytes]) -> bool:
        """DNS rebinding: a page in a browser can reach loopback, but it cannot forge these two."""
        if fields.get(b"host", b"").lower() not in self.hosts:
            return False
        origin = fields.get(b"origin")
        return origin is None or origin.lower() in self.origins


def _paths(route: str) -> tuple[bytes, bytes]:
    """Some clients write an address with a slash at its end."""
    return route.encode(), route.encode() + b"/"


def _credential(fields: Mapping[bytes, bytes], twice: frozenset[bytes]) -> tuple[bytes | None, str | None]:
    """The key, from `X-MCP-API-Key` or `Authorization: Bearer`, or the reason why there is none."""
    if b"x-mcp-api-key" in twice or b"authorization" in twice:
        return None, "Send one key header."
    key = fields.get(b"x-mcp-api-key") or None  # an empty one is none: a variable that is not set
    scheme, _, token = fields.get(b"authorization", b"").partition(b" ")
    bearer = (token.strip() or None) if scheme.lower() == b"bearer" else None
    if key is not None and bearer is not None and key != bearer:
        return None, "The two key headers hold different keys."
    return (key if key is not None else bearer), None


def _fault(method: bytes, content_type: bytes | None) -> Refusal | None:
    if method != b"POST":
        return Refusal(Ending.WRONG_METHOD, "Use POST.", reason="method_not_allowed")
    if content_type is None or content_type.partition(b";")[0].strip().lower() != b"application/json":
        return Refusal(Ending.WRONG_MEDIA_TYPE, "Send application/json.", reason="unsupported_media_type")
    return None


def _repeated(headers: RawHeaders) -> frozenset[bytes]:
    counted = Counter(name for name, _ in headers)
    return frozenset(name for name, count in counted.items() if count > 1)
