"""Governance tools."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack
from toolgate.packs.governance.dummy import DUMMY

PACK: Final = Pack(name="governance", tools=(DUMMY,))
