"""What looks like a secret: for files in which none should stand, and for moving those that do."""

from __future__ import annotations

import re
from math import log2
from typing import Final

_REFERENCE: Final = re.compile(r"(env|file):[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_KNOWN: Final = re.compile(
    r"(sk-|sk_|pk_|rk_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abpr]-|AKIA|ASIA|AIza|ya29\.|eyJ[A-Za-z0-9_-]{8,}\.|npm_|hf_)"
    r"[A-Za-z0-9_.=/+-]{8,}"
)
"""How the tokens of the field begin."""
_DENSE: Final = re.compile(r"[A-Za-z0-9_+=.-]{24,}")
_BITS: Final = 3.5
"""What each character of a random token carries at least, also in hexadecimal; those of words carry less."""
_NAMED: Final = re.compile(
    r"token|secret|passw|api.?key|apikey|credential|private.?key|authorization|(^|_)(key|pat|auth)$", re.IGNORECASE
)


def is_reference(text: str) -> bool:
    """`env:NAME`, or `file:NAME` for a file of the secrets directory."""
    return _REFERENCE.fullmatch(text) is not None


def looks_secret(value: str) -> bool:
    """A token by its beginning, or long text without blanks that is too random for words. A reference is none."""
    last = value.rpartition(" ")[2]
    if not last or is_reference(last):
        return False
    if _KNOWN.match(last):
        return True
    return _DENSE.fullmatch(last) is not None and any(map(str.isdigit, last)) and _bits(last) >= _BITS


def is_named_secret(name: str) -> bool:
    """A variable or header that is called like one: what it holds is a secret, whatever it looks like."""
    return _NAMED.search(name) is not None


def _bits(text: str) -> float:
    shares = [text.count(char) / len(text) for char in set(text)]
    return -sum(share * log2(share) for share in shares)
