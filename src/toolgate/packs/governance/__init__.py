"""Governance tools: five that check a repository, and one that claims too much authority on purpose, to test the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolgate.later import Command, holding

if TYPE_CHECKING:
    from toolgate.packs.governance.door import PACK as PACK

_CLI: Final = "toolgate.packs.governance.cli"
COMMANDS: Final = (
    Command("analyze", "Find governance dissonance in your files.", f"{_CLI}.commands:analyze"),
    Command("baseline", "Record the baseline that drift is measured from.", f"{_CLI}.commands:baseline"),
    Command("l0", "Check L0 invariants on your files.", f"{_CLI}.commands:l0"),
    Command("adr", "Check files against accepted decision records.", f"{_CLI}.commands:adr"),
    Command("fp", "False positives: mark, rates, list, export and import reviews.", f"{_CLI}.fp:fp"),
    Command("consent", "Consent of organisations: grant, revoke, list.", f"{_CLI}.consent:consent"),
)
__getattr__ = holding(PACK="toolgate.packs.governance.door:PACK")
