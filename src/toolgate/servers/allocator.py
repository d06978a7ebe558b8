"""How much freed memory the process keeps: by default, memory that was allocated in a busy minute is never returned.

glibc raises the size from which a block goes back to the kernel when it is freed to the largest block it has seen, so after
one large body all large bodies share the heap with what lives long, and holes remain. It also gives threads heaps of their
own, eight a core, and each keeps what its threads freed. Under good and hostile calls at once that doubled the memory of a
server whose own objects had not grown.
"""

from __future__ import annotations

import os
from typing import Final

MMAP_THRESHOLD_BYTES: Final = 128 * 1024
"""Blocks from this size on are mapped alone and go back when they are freed: where glibc begins, and where it now stays.
At twice that, the pieces of large bodies were below it and left the heap full of holes."""
ARENAS: Final = 2
"""Heaps: one for the event loop, one for all handlers' threads. Python's threads take turns, so they seldom wait here."""
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_CHOSEN: Final = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Where an operator may have chosen otherwise."""


def keep_little() -> bool:
    """Bound what the allocator keeps. False: it is not glibc's, or the environment already tells it what to do."""
    if any(name in os.environ for name in _CHOSEN):
        return False
    import ctypes  # noqa: PLC0415 (2 ms, for servers)

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(mallopt(_M_ARENA_MAX, ARENAS))
