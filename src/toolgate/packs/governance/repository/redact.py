"""Snippets of strangers' files, without the secrets that stand in them.

Replaced by the kind of what was there, never by a digest of it: a keyed digest of a secret lets whoever holds the key
confirm guesses.
"""

from __future__ import annotations

import re
from collections import Counter
from math import log2
from typing import Final

from toolgate.kit.reports.printable import printable

MAX_SNIPPET: Final = 200
"""Characters: one line of a finding, not a file."""

_KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("pem", re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----.*")),
    ("jwt", re.compile(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*")),
    ("github-token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("toolgate-key", re.compile(r"\btg_[A-Za-z0-9]{1,64}_[A-Za-z0-9_-]{16,}")),
    ("aws-key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("vendor-key", re.compile(r"\b(?:xox[abprs]-|sk-|sk_live_|rk_live_|glpat-|npm_|pypi-|AIza)[A-Za-z0-9_-]{16,}")),
    ("credentials", re.compile(r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)")),
    ("bearer", re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}")),
)
_ASSIGNED: Final = re.compile(
    r"""(?ix) (\b [\w-]{0,40} (?:passw(?:or)?d|secret|token|api[_-]?key|private[_-]?key) [\w-]{0,40}
               ["']? \s{0,4} [:=] \s{0,4} ["']?)
              ( [^\s"'${[] [^\s"'${]{5,} )"""
)
"""`DB_PASSWORD: value`; an expression such as `${{ secrets.X }}` is a name, not a value."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
_HEX: Final = re.compile(r"[0-9a-fA-F]+")
ENTROPY_BITS: Final = 4.5
"""Bits per character above which a long word is a key rather than a name; commit ids and digests (hex) never reach 4."""
_LEVELS: Final = frozenset({"write", "read", "none"})


def redacted(line: str) -> str:
    """One line, stripped, bounded and printable, with what looks like a secret replaced by `[kind]`."""
    text = printable(line.strip()[: MAX_SNIPPET * 4])
    for kind, pattern in _KINDS:
        text = pattern.sub(f"[{kind}]", text)
    text = _ASSIGNED.sub(_without_value, text)
    text = _TOKEN.sub(lambda word: "[key]" if _looks_random(word[0]) else word[0], text)
    return text if len(text) <= MAX_SNIPPET else text[: MAX_SNIPPET - 1] + "…"


def _without_value(found: re.Match[str]) -> str:
    # `id-token: write` is a permission and the very thing a finding is about.
    return found[0] if found[2] in _LEVELS else f"{found[1]}[secret]"


def _looks_random(word: str) -> bool:
    if _HEX.fullmatch(word):
        return False
    counts = Counter(word)
    return -sum(n / len(word) * log2(n / len(word)) for n in counts.values()) >= ENTROPY_BITS
