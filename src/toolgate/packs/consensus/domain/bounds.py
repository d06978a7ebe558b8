"""How many arbiters, and how long a window, there can be."""

from __future__ import annotations

from typing import Final

MAX_ARBITERS: Final = 100
"""A certificate then stays below 8 kB and one round costs an arbiter some 6 ms of signature checks."""
MAX_DISPUTE_WINDOW: Final = 1000
