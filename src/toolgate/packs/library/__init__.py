"""Full-text search over the workspace's papers, decision records and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolgate.later import holding

if TYPE_CHECKING:
    from toolgate.packs.library.door import PACK as PACK

__getattr__ = holding(PACK="toolgate.packs.library.door:PACK")
