"""The consensus pack: arbiters certify tuples of a Merkle root and a rule hash, round by round (document 004)."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack, Service
from toolgate.packs.consensus.service import GossipService
from toolgate.packs.consensus.settings import DEFAULTS, SCHEMA, addresses
from toolgate.packs.consensus.tables import MIGRATIONS
from toolgate.packs.consensus.tools import TOOLS

_gossip: Final = GossipService()

PACK: Final = Pack(
    name="consensus",
    tools=TOOLS,
    settings_schema=SCHEMA,
    migrations=MIGRATIONS,
    services=(Service("gossip", _gossip.start, _gossip.stop),),
    peers=addresses,
    keys=(DEFAULTS["voting_key"], DEFAULTS["vrf_key"]),
)
