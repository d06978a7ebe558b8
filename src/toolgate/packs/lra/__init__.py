"""Living Research Artifacts: papers whose claims carry their evidence. Scaffold, judge, build; sign and verify."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack
from toolgate.packs.lra import tools_author, tools_review

PACK: Final = Pack(
    name="lra",
    tools=(*tools_author.TOOLS, *tools_review.TOOLS),
    settings_schema=tools_review.SETTINGS,
    peers=tools_review.allowed,
)
