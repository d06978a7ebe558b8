"""What happened: an append-only, signed, verifiable log of every call, and the tools to read and check it."""

from __future__ import annotations

from toolgate.ledger.anchors import Anchors
from toolgate.ledger.files import LOG_PATH
from toolgate.ledger.local import LocalLedger, Rules
from toolgate.ledger.opening import open_for_server, open_ledger

__all__ = ["LOG_PATH", "Anchors", "LocalLedger", "Rules", "open_for_server", "open_ledger"]
