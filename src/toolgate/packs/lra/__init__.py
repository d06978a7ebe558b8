"""Living Research Artifacts: papers whose claims carry their evidence. Scaffold, judge, build; sign and verify."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Command, Job, Pack, later
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
    commands=(Command("lra", "Living papers: write, judge, build, sign, verify.", "toolgate.packs.lra.cli:app"),),
    jobs=(Job("site", later("toolgate.packs.lra.devsite.site:starter")),),
)
