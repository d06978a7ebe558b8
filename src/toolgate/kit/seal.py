"""Sealing small things into texts that strangers carry: AES-256-GCM, bound to what the text is for.

Who holds a text can neither read nor change it, and it opens only for the purpose and the owner that it was made for. Nothing is
kept here: the text is the whole state.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any, Final

from toolgate.model import strictjson

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_VERSION: Final = b"\x01"
MAX_TEXT: Final = 16_384
"""Characters of a sealed text that are looked at."""


class NotSealed(Exception):
    """Not a text of ours, or one for another purpose. Says nothing else on purpose."""


def seal(key: bytes, content: Any, *purpose: str | bytes) -> str:
    return base64.urlsafe_b64encode(encrypt(key, strictjson.dumps(content), *purpose)).decode().rstrip("=")


def unseal(key: bytes, text: str, *purpose: str | bytes) -> Any:
    """Raises: NotSealed."""
    return strictjson.loads(decrypt(key, _decoded(text), *purpose))


def encrypt(key: bytes, content: bytes, *purpose: str | bytes) -> bytes:
    """For what is kept and not carried."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (25 ms, for servers that seal something)

    nonce = os.urandom(_NONCE_BYTES)
    return _VERSION + nonce + AESGCM(key).encrypt(nonce, content, _bound(purpose))


def decrypt(key: bytes, sealed: bytes, *purpose: str | bytes) -> bytes:
    """Raises: NotSealed."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (as above)
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (as above)

    if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE_BYTES + 16:
        raise NotSealed
    try:
        return AESGCM(key).decrypt(sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :], _bound(purpose))
    except InvalidTag:
        raise NotSealed from None


def _decoded(text: str) -> bytes:
    """Only the one spelling that `seal` makes: two texts never mean the same."""
    if len(text) > MAX_TEXT or not text.isascii():
        raise NotSealed
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise NotSealed from None
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise NotSealed
    return raw


def _bound(purpose: tuple[str | bytes, ...]) -> bytes:
    """Each part with its length, so that no two lists of parts make the same bytes."""
    parts = [part.encode() if isinstance(part, str) else part for part in purpose]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
