"""Living Research Artifacts: papers whose claims carry their evidence. Scaffold, judge, build; sign and verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolgate.later import Command, holding

if TYPE_CHECKING:
    from toolgate.packs.lra.door import PACK as PACK

COMMANDS: Final = (
    Command("lra", "Living papers: write, judge, build, sign, verify.", "toolgate.packs.lra.cli.commands:app"),
)
__getattr__ = holding(PACK="toolgate.packs.lra.door:PACK")
