"""What the documents demand of signing keys."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "000-D-SIGN-KEY-404": "document 000: a signing key that is not there ends as `Key file not found`",
    "000-D-SIGN-KEY-FORMAT": "document 000: a file that is not an Ed25519 secret key ends as `Invalid key format`",
    "000-D-SIGN-KEY-PATH": "document 000: a key path with `..` is refused",
}
