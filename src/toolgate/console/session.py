"""Who looks at a page: a key is exchanged for a sealed cookie, which is worth nothing without that key being live.

There is no table of sessions, so every process of a home knows every session. A session names a key and its role; both are asked
of the key file at every request, so a revoked or changed key ends it at once, and so does the
end of a secret that it may have begun with. It ends by itself after an hour without a page,
and after twelve hours in any case.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import Refusal
from toolgate.kit.seal import NotSealed, seal, unseal
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.gate.keys import KeyRing
    from toolgate.model.call import Caller
    from toolgate.model.clock import Clock

IDLE_S: Final = 3600
"""A session ends so long after its last page."""
RENEWED_S: Final = 300
"""A page renews a session that was last renewed so long ago."""
LONGEST_S: Final = 12 * 3600
_PURPOSE: Final = "console session"
MAX_KEY: Final = 256


class ConsoleSession(Struct, frozen=True):
    caller: Caller
    token: str
    """Stands in every form; what comes without it was not sent by a page of this session."""
    began: float
    renewed: float
    address: str = ""
    """From which it is used now."""
    is_secure: bool = False
    """It began over TLS, and its cookie never goes another way."""

    @property
    def sees_all(self) -> bool:
        return self.caller.administers or self.caller.role == "auditor"

    @property
    def acts(self) -> bool:
        return self.caller.administers

    @property
    def owner(self) -> str | None:
        """Whose calls it may see; None: everybody's."""
        return None if self.sees_all else self.caller.key_id

    def is_of(self, form: Mapping[str, str]) -> bool:
        return compare_digest(form.get("token", "").encode(), self.token.encode())


class Sessions:
    def __init__(self, keys: KeyRing, seal_key: Callable[[], bytes], clock: Clock) -> None:
        self._keys = keys
        self._key = seal_key
        self._clock = clock

    @property
    def cookie(self) -> str:
        """Its name. Of this home: two servers on one machine share the browser's cookies, whatever their ports."""
        return f"toolgate_{sha256(b'cookie' + self._key()).hexdigest()[:10]}"

    def begin(self, text: str, address: str, *, is_secure: bool = False) -> ConsoleSession | None:
        """None: the key is not accepted."""
        try:
            caller = self._keys.authenticate(text.strip()[:MAX_KEY].encode(), address or None)
        except Refusal:
            return None
        now = self._clock.wall()
        return ConsoleSession(caller, secrets.token_urlsafe(24), now, now, address, is_secure)

    def of(self, cookies: bytes | None, address: str = "") -> ConsoleSession | None:
        """That of a request's Cookie header, from this address."""
        text = _cookie(cookies, self.cookie)
        if text is None:
            return None
        try:
            key_id, role, token, began, renewed, is_secure = unseal(self._key(), text, _PURPOSE)
        except (NotSealed, strictjson.JsonFault, ValueError, TypeError):
            return None
        now, caller = self._clock.wall(), self._keys.live(key_id, address or None, since=began)
        if caller is None or caller.role != role or now >= renewed + IDLE_S or now >= began + LONGEST_S:
            return None
        return ConsoleSession(caller, token, began, renewed, address, is_secure)

    def header(self, session: ConsoleSession) -> tuple[bytes, bytes]:
        """Sets the cookie. Without `Path` it is the browser's address of the console, with whatever prefix a proxy gives it."""
        caller = session.caller
        content = [caller.key_id, caller.role, session.token, session.began, self._clock.wall(), session.is_secure]
        text = f"{self.cookie}={seal(self._key(), content, _PURPOSE)}; Max-Age={IDLE_S}; HttpOnly; SameSite=Strict"
        return b"set-cookie", (text + ("; Secure" if session.is_secure else "")).encode()

    def is_worn(self, session: ConsoleSession) -> bool:
        return self._clock.wall() >= session.renewed + RENEWED_S

    @property
    def end_header(self) -> tuple[bytes, bytes]:
        return b"set-cookie", f"{self.cookie}=; Max-Age=0; HttpOnly; SameSite=Strict".encode()


def _cookie(header: bytes | None, name: str) -> str | None:
    """Its value, if it is there exactly once."""
    pairs = [part.strip().partition(b"=") for part in (header or b"").split(b";")]
    found = [value for key, _, value in pairs if key == name.encode()]
    return found[0].decode("ascii", "replace") if len(found) == 1 else None
