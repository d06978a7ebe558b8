"""Which addresses a URI template (RFC 6570) makes: judged without backtracking, because callers choose the address.

Only whether an address is one of the template's is found out, not what its variables are: whoever wrote the template knows that.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

MAX_EXPRESSIONS: Final = 32
_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([A-Za-z0-9_.%,*:]{1,256})\}")
_STOPS: Final = {"": "/?#", "+": "", "#": "", ".": "/?#", "/": "?#", ";": "/?#", "?": "#", "&": "#"}
"""By the operator of an expression: characters that what it stands for does not hold."""
_NEVER: Final = frozenset('{}"<>\\^`| \t\r\n')


class _Expression(Struct, frozen=True):
    leads: str
    """The character that begins it, if it is there at all; without one, at least one character is."""
    stops: frozenset[str]

    def ends(self, text: str, begins: set[int]) -> set[int]:
        """Where it can end, for any of these places where it can begin."""
        ends, starts = set(), begins
        if self.leads:
            ends |= begins
            starts = {at + 1 for at in begins if text.startswith(self.leads, at)}
            ends |= starts
        inside = False
        for at in range(min(starts, default=len(text)), len(text)):
            inside = (inside or at in starts) and text[at] not in self.stops
            if inside:
                ends.add(at + 1)
        return ends


class UriTemplate:
    def __init__(self, template: str) -> None:
        """Raises: ValueError: names the fault."""
        self._parts: list[str | _Expression] = []
        at = 0
        for found in _EXPRESSION.finditer(template):
            self._literal(template[at : found.start()])
            operator = found[1]
            leads = operator if operator not in ("", "+") else ""
            self._parts.append(_Expression(leads, _NEVER | frozenset(_STOPS[operator])))
            at = found.end()
        self._literal(template[at:])
        if sum(isinstance(part, _Expression) for part in self._parts) > MAX_EXPRESSIONS:
            raise ValueError(f"it has more than {MAX_EXPRESSIONS} variables")

    def _literal(self, text: str) -> None:
        if not _NEVER.isdisjoint(text) or not text.isprintable():
            raise ValueError("it is no URI template")
        if text:
            self._parts.append(text)

    def fits(self, address: str) -> bool:
        """Is this an address that it makes?"""
        reached = {0}
        for part in self._parts:
            if isinstance(part, str):
                reached = {at + len(part) for at in reached if address.startswith(part, at)}
            else:
                reached = part.ends(address, reached)
            if not reached:
                return False
        return len(address) in reached
