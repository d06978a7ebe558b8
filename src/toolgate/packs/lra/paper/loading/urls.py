"""Is this address on another server? Read as a browser reads it, not as a file system would."""

from __future__ import annotations

import posixpath
import re
from typing import Final
from urllib.parse import unquote

_IGNORED: Final = re.compile(r"[\t\n\r]")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HERE: Final = frozenset({"data:", "blob:", "about:", "javascript:", "mailto:", "tel:"})
"""Schemes that load nothing from a server."""


def clean(url: str) -> str:
    """Browsers drop tabs and line breaks anywhere, blanks and control characters at both ends."""
    return _IGNORED.sub("", url).strip("\0\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x1b\x1f ")


def is_external(url: str) -> bool:
    text = clean(url)
    scheme = _SCHEME.match(text)
    if scheme:
        return scheme[0].lower() not in _HERE
    # A backslash is a slash to a browser: `\\host/x` and `/\host/x` leave the page's server like `//host/x`.
    return text[:2].replace("\\", "/") == "//"


def local_path(url: str, base: str = "") -> str | None:
    """The file of the artifact that a relative address names, seen from the file `base`; None when it is none."""
    text = clean(url)
    if not text or text.startswith(("#", "?", "/", "\\")) or _SCHEME.match(text):
        return None
    path = unquote(re.split(r"[?#]", text, maxsplit=1)[0])
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(base), path))
    return None if joined.startswith("..") or joined == "." else joined
