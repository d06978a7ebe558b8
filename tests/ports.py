"""Ports for what must be told its port beforehand. Whatever can choose its own port (0) does that instead."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

RANGE = range(20_000, 30_000)
"""Below those that the kernel gives to whoever connects somewhere or asks for any port: nobody gets one of these by chance."""
_given: set[int] = set()


def free_port() -> int:
    """Nobody listens there, and this process gives it out once."""
    for port in random.sample(RANGE, 200):
        if port in _given:
            continue
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
    raise AssertionError("no port is free")
