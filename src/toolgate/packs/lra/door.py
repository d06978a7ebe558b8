"""What the pack brings."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Job, Pack, later
from toolgate.packs.lra import COMMANDS
from toolgate.packs.lra.settings import SCHEMA, hosts, keys

PACK: Final = Pack(
    name="lra",
    tools=later("toolgate.packs.lra.tools:TOOLS"),
    resources=later("toolgate.packs.lra.resources:RESOURCES"),
    panels=later("toolgate.packs.lra.panels:PANELS"),
    settings_schema=SCHEMA,
    memory=later("toolgate.packs.lra.checks.known:Reports"),
    hosts=hosts,
    keys=keys,
    key_uses=("receipts",),
    commands=COMMANDS,
    jobs=(Job("site", later("toolgate.packs.lra.devsite.site:starter")),),
)
