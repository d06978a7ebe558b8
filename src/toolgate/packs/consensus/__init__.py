"""The consensus pack: arbiters certify tuples of a Merkle root and a rule hash, round by round (ADR-0013)."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Command, Pack, Service, later
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
    commands=(Command("consensus", "Rounds, votes and sealing.", "toolgate.packs.consensus.cli:app"),),
    services=(Service("gossip", later("toolgate.packs.consensus.gossip.service:GossipService")),),
    keys=key_uses,
    memory=later("toolgate.packs.consensus.arbiter.known:ArbiterMemory"),
    check=later("toolgate.packs.consensus.gossip.service:check_start"),
)
