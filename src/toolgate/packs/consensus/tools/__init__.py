"""The pack's tools: those of one arbiter, and those that several need besides."""

from __future__ import annotations

from typing import Final

from toolgate.packs.consensus.tools.rounds import FINALITY, GOSSIP, PROPOSE, VOTE
from toolgate.packs.consensus.tools.vrf import VRF_EVAL, VRF_VERIFY

TOOLS: Final = (PROPOSE, VOTE, FINALITY, GOSSIP, VRF_EVAL, VRF_VERIFY)
