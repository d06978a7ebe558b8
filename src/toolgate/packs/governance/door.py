"""What the pack brings."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack, later
from toolgate.packs.governance import COMMANDS
from toolgate.packs.governance.settings import SETTINGS_SCHEMA
from toolgate.packs.governance.tables import MIGRATIONS, STORES

PACK: Final = Pack(
    name="governance",
    tools=later("toolgate.packs.governance.tools:TOOLS"),
    prompts=later("toolgate.packs.governance.prompts:PROMPTS"),
    resources=later("toolgate.packs.governance.resources:RESOURCES"),
    panels=later("toolgate.packs.governance.panels:PANELS"),
    settings_schema=SETTINGS_SCHEMA,
    stores=STORES,
    migrations=MIGRATIONS,
    commands=COMMANDS,
    memory=later("toolgate.packs.governance.stores.known:GovernanceMemory"),
    limits=later("toolgate.packs.governance.repository.reading:LIMITS"),
)
