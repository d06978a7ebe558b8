"""The pack's tools."""

from __future__ import annotations

from typing import Final

from toolgate.packs.lra.tools import author, review

TOOLS: Final = (*author.TOOLS, *review.TOOLS)
