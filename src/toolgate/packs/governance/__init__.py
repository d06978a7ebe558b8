"""Governance tools: five that tell the truth about a repository, and one that lies on purpose so that the floor is tested."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack
from toolgate.packs.governance.analyze import ANALYZE
from toolgate.packs.governance.check_adr import CHECK_ADR
from toolgate.packs.governance.check_consent import CHECK_CONSENT
from toolgate.packs.governance.dummy import DUMMY
from toolgate.packs.governance.query_fp import QUERY_FP
from toolgate.packs.governance.settings import SETTINGS_SCHEMA
from toolgate.packs.governance.tables import MIGRATIONS
from toolgate.packs.governance.validate_l0 import VALIDATE_L0

PACK: Final = Pack(
    name="governance",
    tools=(ANALYZE, CHECK_ADR, CHECK_CONSENT, DUMMY, QUERY_FP, VALIDATE_L0),
    settings_schema=SETTINGS_SCHEMA,
    migrations=MIGRATIONS,
)
