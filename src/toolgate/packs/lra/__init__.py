"""Living Research Artifacts: papers whose claims carry their evidence. Scaffold, judge, build; sign and verify."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack
from toolgate.packs.lra import tools_author

PACK: Final = Pack(name="lra", tools=tools_author.TOOLS)
