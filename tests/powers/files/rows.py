"""What the documents demand of files, as rows."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "000-D-PATH": "document 000: a path with a .. segment, or one that leaves the workspace, is refused",
    "000-D-INIT-EXISTS": "document 000: scaffolding into an existing directory fails and changes nothing",
}
