"""The consensus pack: arbiters certify tuples of a Merkle root and a rule hash, round by round (ADR-0013)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolgate.later import Command, holding

if TYPE_CHECKING:
    from toolgate.packs.consensus.door import PACK as PACK

COMMANDS: Final = (Command("consensus", "Rounds, votes and sealing.", "toolgate.packs.consensus.cli:app"),)
__getattr__ = holding(PACK="toolgate.packs.consensus.door:PACK")
