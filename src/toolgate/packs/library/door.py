"""What the pack brings."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack, later

PACK: Final = Pack(
    name="library",
    tools=later("toolgate.packs.library.tools:TOOLS"),
    resources=later("toolgate.packs.library.resources:RESOURCES"),
    memory=later("toolgate.packs.library.search.index:Index"),
    limits=later("toolgate.packs.library.tools:LIMITS"),
)
