"""What the pack brings."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack, Service, later
from toolgate.packs.consensus import COMMANDS
from toolgate.packs.consensus.settings import SCHEMA, hosts, key_uses, secrets
from toolgate.packs.consensus.tables import MIGRATIONS, STORES

PACK: Final = Pack(
    name="consensus",
    tools=later("toolgate.packs.consensus.tools:TOOLS"),
    resources=later("toolgate.packs.consensus.resources:RESOURCES"),
    panels=later("toolgate.packs.consensus.panels:PANELS"),
    settings_schema=SCHEMA,
    stores=STORES,
    migrations=MIGRATIONS,
    secrets=secrets,
    hosts=hosts,
    commands=COMMANDS,
    services=(Service("gossip", later("toolgate.packs.consensus.gossip.service:GossipService")),),
    keys=key_uses,
    memory=later("toolgate.packs.consensus.arbiter.known:ArbiterMemory"),
    check=later("toolgate.packs.consensus.gossip.service:check_start"),
)
