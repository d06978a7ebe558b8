"""Paths of the workspace as text."""

from __future__ import annotations


def plain(path: str) -> str:
    """The one spelling of a path: `a`, `./a` and `.//a` are the same file, so they are counted and read once.

    A path that leads elsewhere (absolute, `..`) still does: whoever opens it refuses it.
    """
    kept = "/".join(part for part in path.split("/") if part not in ("", "."))
    return f"/{kept}" if path.startswith("/") else kept or "."
