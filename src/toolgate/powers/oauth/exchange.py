"""Requests to an authorization server, as to a stranger: guarded egress, bounded answers, strict JSON.

What a server says is never repeated but for its error code, and that only if it looks like one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.model.powers import Egress

UNAUTHORIZED: Final = 401
MAX_BYTES: Final = 262_144
"""Of a metadata document or an answer with tokens."""
SECONDS: Final = 10.0
MAX_TOKEN: Final = 16_384
"""Characters of a token: it travels in a header with each request."""
MAX_LIFE_S: Final = 366 * 86_400
_CODE: Final = re.compile(r"[a-zA-Z0-9_.:/-]{1,64}")
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN}}}")
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


class OAuthFailed(Exception):
    """A login or a refresh did not work. The text is ours and holds no token.

    `reason` is stable: an OAuth error code, or `bad_metadata`, `bad_answer`, `not_reachable`, ...
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class TokenSource(Protocol):
    """A login (`logins.Login`)."""

    async def token(self, refused: str | None = None) -> str:
        """Raises: OAuthFailed."""
        ...


class OAuthClient(Struct, frozen=True):
    """Who we are to an authorization server."""

    id: str
    secret: str = ""
    method: str = "none"
    """How it is told: none, client_secret_basic or client_secret_post."""


class Tokens(Struct, frozen=True):
    access: str
    refresh: str | None
    lives_s: float | None
    """None: not said, or not believable; it is used until it is refused."""
    scope: str | None = None


class TokenWire:
    """What an authorization server is asked."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def document(self, url: str) -> dict[str, Any] | None:
        """A metadata document; None: there is none at this address. Raises: OAuthFailed."""
        status, found = await self._exchange(url, "GET", {"Accept": "application/json"}, None)
        if status in (400, 401, 403, 404, 405, 410):
            return None
        if status != 200 or not isinstance(found, dict):
            raise OAuthFailed("bad_metadata", f"{_shown(url)} does not answer with a metadata document")
        return found

    async def challenge(self, url: str) -> str:
        """What a resource answers to a request without a token: its `WWW-Authenticate`. Raises: OAuthFailed."""
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        try:
            answer = await self._egress.fetch(
                url,
                method="POST",
                headers=headers,
                body=body,
                max_bytes=MAX_BYTES,
                timeout_s=SECONDS,
                same_origin_as=url,
            )
        except ToolError as fault:
            raise _unreached(url, fault) from None
        return answer.headers.get("www-authenticate", "")

    async def post(self, url: str, form: Mapping[str, str], client: OAuthClient) -> dict[str, Any]:
        """Raises: OAuthFailed: with the server's own error code where it has one."""
        status, found = await self._form(url, form, client)
        return _judged(url, status, found)

    async def tell(self, url: str, form: Mapping[str, str], client: OAuthClient) -> None:
        """Where the answer says nothing (RFC 7009). Raises: OAuthFailed."""
        status, found = await self._form(url, form, client)
        if status != 200:
            _judged(url, status, found)

    async def _form(self, url: str, form: Mapping[str, str], client: OAuthClient) -> tuple[int, Any]:
        fields, headers = dict(form), dict(_FORM)
        if client.method == "client_secret_basic":
            pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            fields["client_id"] = client.id
            if client.method == "client_secret_post":
                fields["client_secret"] = client.secret
        return await self._exchange(url, "POST", headers, urlencode(fields).encode())

    async def register(self, url: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Dynamic client registration (RFC 7591). Raises: OAuthFailed."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        status, found = await self._exchange(url, "POST", headers, strictjson.dumps(wanted))
        return _judged(url, status, found)

    async def _exchange(self, url: str, method: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, Any]:
        """(status, JSON or None). A redirect to another origin is refused: it would take a code or a token with it."""
        try:
            answer = await self._egress.fetch(
                url,
                method=method,
                headers=headers,
                body=body,
                max_bytes=MAX_BYTES,
                timeout_s=SECONDS,
                same_origin_as=url,
            )
        except ToolError as fault:
            raise _unreached(url, fault) from None
        try:
            return answer.status, strictjson.loads(answer.body, max_bytes=MAX_BYTES)
        except strictjson.JsonFault:
            return answer.status, None


def tokens_of(answer: Mapping[str, Any]) -> Tokens:
    """Raises: OAuthFailed."""
    access, refresh, kind = answer.get("access_token"), answer.get("refresh_token"), answer.get("token_type")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise OAuthFailed("bad_answer", "the authorization server's answer has no usable access token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise OAuthFailed("bad_answer", "the authorization server gives a token that is not a bearer token")
    if refresh is not None and (not isinstance(refresh, str) or not _TOKEN.fullmatch(refresh)):
        raise OAuthFailed("bad_answer", "the authorization server's answer has no usable refresh token")
    lives, scope = answer.get("expires_in"), answer.get("scope")
    believable = isinstance(lives, int | float) and not isinstance(lives, bool) and 0 < lives <= MAX_LIFE_S
    return Tokens(access, refresh, float(lives or 0) if believable else None, scope if isinstance(scope, str) else None)


def _judged(url: str, status: int, found: Any) -> dict[str, Any]:
    if status in (200, 201) and isinstance(found, dict) and "error" not in found:
        return found
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, str) and _CODE.fullmatch(error):
        raise OAuthFailed(error, f"{_shown(url)} says {error}")
    raise OAuthFailed("bad_answer", f"{_shown(url)} answers with status {status} and nothing that can be used")


def _unreached(url: str, fault: ToolError) -> OAuthFailed:
    reason = "address_refused" if fault.code == "ADDRESS_REFUSED" else "not_reachable"
    return OAuthFailed(reason, f"{_shown(url)}: {fault.text}")


def _shown(url: str) -> str:
    """Without its query, which may hold what only the server should see."""
    return url.partition("?")[0][:200]
