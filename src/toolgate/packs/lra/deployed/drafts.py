"""A paper that is not published yet, or inside a company: on this machine, or behind an authority of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from toolgate.errors import ToolError

_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""One machine, three names: who allows one of them means it."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def pair_of(url: str) -> str:
    """`host:port` of an address, as settings write it; empty for what is not a web address."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host and port else ""


def loopback_pair(url: str) -> str:
    """`host:port` of an address on this machine; empty for any other."""
    pair = pair_of(url)
    return pair if pair.rpartition(":")[0] in _LOOPBACK else ""


def with_twins(pairs: Iterable[str]) -> list[str]:
    """Every pair, and for this machine all of its names."""
    found: list[str] = []
    for pair in pairs:
        host, _, port = pair.rpartition(":")
        found += [f"{name}:{port}" for name in _LOOPBACK] if host in _LOOPBACK else [pair]
    return list(dict.fromkeys(found))


def advised(fault: ToolError, target: str, allow: str, authority: str) -> ToolError:
    """The same fault, with what to do about it: `allow` (a text with `{pair}`) or `authority`."""
    pair = pair_of(target)
    if fault.code == "ADDRESS_REFUSED" and pair and "metadata" not in fault.text:
        return ToolError("ADDRESS_REFUSED", f"{fault.text}; {allow.format(pair=pair)}")
    if fault.code == "TLS_FAILED" and "authority" in fault.text:
        return ToolError("TLS_FAILED", f"{fault.text}; {authority}", elsewhere=fault.elsewhere)
    return fault
