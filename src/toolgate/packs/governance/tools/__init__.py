"""The pack's tools."""

from __future__ import annotations

from typing import Final

from toolgate.packs.governance.tools.analyze_dissonance import ANALYZE
from toolgate.packs.governance.tools.check_adr_compliance import CHECK_ADR
from toolgate.packs.governance.tools.check_consent_requirements import CHECK_CONSENT
from toolgate.packs.governance.tools.dummy_experimental import DUMMY
from toolgate.packs.governance.tools.query_fp_store import QUERY_FP
from toolgate.packs.governance.tools.validate_l0_invariants import VALIDATE_L0

TOOLS: Final = (ANALYZE, CHECK_ADR, CHECK_CONSENT, DUMMY, QUERY_FP, VALIDATE_L0)
