"""What the documents demand of everything that leaves this machine."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "000-D-VERIFY-404": "document 000: a target that cannot be reached ends as not found",
    "000-D-VERIFY-TIMEOUT": "document 000: fetching a target ends after ten seconds with a time-out",
    "000-D-VERIFY-DOTDOT": "document 000: a target with a `..` segment is refused",
}
