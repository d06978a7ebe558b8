"""Governance tools: five that check a repository, and one that claims too much authority on purpose, to test the floor."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Command, Pack, later
from toolgate.packs.governance.settings import SETTINGS_SCHEMA
from toolgate.packs.governance.tables import MIGRATIONS, STORES

_CLI: Final = "toolgate.packs.governance.cli"

PACK: Final = Pack(
    name="governance",
    tools=later("toolgate.packs.governance.tools:TOOLS"),
    prompts=later("toolgate.packs.governance.prompts:PROMPTS"),
    resources=later("toolgate.packs.governance.resources:RESOURCES"),
    panels=later("toolgate.packs.governance.panels:PANELS"),
    settings_schema=SETTINGS_SCHEMA,
    stores=STORES,
    migrations=MIGRATIONS,
    commands=(
        Command("analyze", "Find governance dissonance in your files.", f"{_CLI}.commands:analyze"),
        Command("baseline", "Record the baseline that drift is measured from.", f"{_CLI}.commands:baseline"),
        Command("l0", "Check L0 invariants on your files.", f"{_CLI}.commands:l0"),
        Command("adr", "Check files against accepted decision records.", f"{_CLI}.commands:adr"),
        Command("fp", "False positives: mark, rates, list, export and import reviews.", f"{_CLI}.fp:fp"),
        Command("consent", "Consent of organisations: grant, revoke, list.", f"{_CLI}.consent:consent"),
    ),
    memory=later("toolgate.packs.governance.stores.known:GovernanceMemory"),
    limits=later("toolgate.packs.governance.repository.reading:LIMITS"),
)
