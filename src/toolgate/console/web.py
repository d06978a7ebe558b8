"""Requests and answers of the console: addresses, forms, headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from msgspec import Struct, field

from toolgate.faces.reply import Headers, Reply
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.servers.framing import Request

MAX_FORM_BYTES: Final = 8192
"""The longest form has a key or a label in it."""
MAX_FIELDS: Final = 32
FORM: Final = b"application/x-www-form-urlencoded"
HTML: Final = (b"content-type", b"text/html; charset=utf-8")
TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    b"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE: Final[Headers] = (
    (b"content-security-policy", _POLICY),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
"""Of every answer. `same-origin`, not `no-referrer`: with the latter a browser sends forms with `Origin: null`."""


class NotFound(Exception):
    """There is no such page, or not for this person."""


class ConsoleVisit(Struct):
    """One request, read."""

    method: str
    path: tuple[str, ...]
    """Its parts below the console."""
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    form: Mapping[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def up(self) -> str:
        """From this page to the console's own address. Pages know no other way: so they work behind any prefix of a proxy."""
        return "../" * (len(self.path) - 1) if self.path else "./"


def read_visit(request: Request, base: bytes, body: bytes, address: str) -> ConsoleVisit | None:
    """None: not an address that a page of ours could have."""
    rest = request.path.removeprefix(base).removeprefix(b"/")
    try:
        path = tuple(unquote_to_bytes(part).decode() for part in rest.split(b"/")) if rest else ()
        query = _fields(request.query)
        form = _fields(body) if body else {}
    except (UnicodeDecodeError, ValueError):
        return None
    return ConsoleVisit(request.method.decode(), path, query, dict(request.headers), form, address)


def _fields(text: bytes) -> dict[str, str]:
    """Raises: ValueError, UnicodeDecodeError. A field that came twice counts with its first value."""
    pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def answer(body: str, status: int = 200, *more: tuple[bytes, bytes]) -> Reply:
    return Reply(status, body.encode(errors="replace"), (HTML, *SAFE, *more))


def plain(text: str, status: int) -> Reply:
    return Reply(status, text.encode(), (TEXT, *SAFE))


def elsewhere(address: str, *more: tuple[bytes, bytes]) -> Reply:
    """On to another page, by GET. `address` is relative."""
    return Reply(303, b"", ((b"location", address.encode()), *SAFE, *more))


def as_json(value: object) -> Reply:
    return Reply(200, strictjson.dumps(value), ((b"content-type", b"application/json"), *SAFE))
