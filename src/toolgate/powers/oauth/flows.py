"""How a person logs in: with a browser (authorization code, PKCE S256) or with a code on another device (RFC 8628)."""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from toolgate.powers.oauth.discovery import AuthorizationServer, ProtectedResource
from toolgate.powers.oauth.exchange import OAuthClient, OAuthFailed, Tokens, TokenWire, tokens_of

CALLBACK: Final = "/callback"
OFFLINE: Final = "offline_access"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_S: Final = 1800.0
"""How long a person may take, whatever the server allows."""
MAX_USER_CODE: Final = 64
_INTERVAL_S: Final = 5.0


class Attempt(Struct, frozen=True):
    """One visit of a browser to the authorization server."""

    url: str
    redirect: str
    state: str
    verifier: str


class DeviceCode(Struct, frozen=True):
    code: str
    user_code: str
    place: str
    """Where a person types it."""
    lives_s: float
    interval_s: float


def redirect_at(port: int) -> str:
    return f"http://127.0.0.1:{port}{CALLBACK}"


def scope_for(wanted: str, resource: ProtectedResource, server: AuthorizationServer) -> str:
    """What the settings name, else what the resource knows; and to stay logged in, where that is a scope of its own."""
    words = wanted.split() if wanted else list(resource.scopes)
    if OFFLINE in server.scopes and OFFLINE not in words:
        words.append(OFFLINE)
    return " ".join(words)


async def registered(wire: TokenWire, server: AuthorizationServer, redirect: str | None) -> OAuthClient:
    """A client of our own (RFC 7591); without `redirect` one for devices. Raises: OAuthFailed."""
    if server.registration_endpoint is None:
        text = "the authorization server registers no clients; register one by hand: oauth = { client_id = ... }"
        raise OAuthFailed("no_client", text)
    wanted: dict[str, Any] = {
        "client_name": "Toolgate",
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "grant_types": ["refresh_token", "authorization_code" if redirect else DEVICE_GRANT],
        "response_types": ["code"] if redirect else [],
        "redirect_uris": [redirect] if redirect else [],
    }
    answer = await wire.register(server.registration_endpoint, wanted)
    found, secret = answer.get("client_id"), answer.get("client_secret", "")
    if not isinstance(found, str) or not found or not isinstance(secret, str):
        raise OAuthFailed("bad_answer", "the authorization server registered no client")
    return OAuthClient(found, secret, method_of(server, secret) if secret else "none")


def method_of(server: AuthorizationServer, secret: str) -> str:
    if not secret:
        return "none"
    return "client_secret_basic" if "client_secret_basic" in server.auth_methods else "client_secret_post"


def begin(
    server: AuthorizationServer, client: OAuthClient, resource: ProtectedResource, redirect: str, scope: str
) -> Attempt:
    """Raises: OAuthFailed."""
    if server.authorization_endpoint is None:
        raise OAuthFailed("no_browser_login", "the authorization server has no page for browsers; use --device")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": resource.identifier,
    }
    if scope:
        query["scope"] = scope
    if OFFLINE in scope.split():
        query["prompt"] = "consent"  # OpenID Connect gives no refresh token without it
    glue = "&" if "?" in server.authorization_endpoint else "?"
    return Attempt(f"{server.authorization_endpoint}{glue}{urlencode(query)}", redirect, state, verifier)


def is_ours(attempt: Attempt, query: Mapping[str, str]) -> bool:
    """Whether a visit of our callback belongs to this attempt: any page of the browser can visit it."""
    return hmac.compare_digest(query.get("state", "").encode(), attempt.state.encode())


def code_of(server: AuthorizationServer, query: Mapping[str, str]) -> str:
    """Of a visit that is ours. Raises: OAuthFailed: said by the server, or by another one (RFC 9207)."""
    issuer = query.get("iss")
    if issuer != server.issuer and (issuer is not None or server.names_itself):
        raise OAuthFailed("wrong_issuer", "the answer came from another authorization server than was asked")
    if "error" in query:
        said = query["error"]
        shown = said if said.isascii() and said.isprintable() and len(said) <= 64 else "an error"
        raise OAuthFailed("denied", f"the authorization server says {shown}")
    if not query.get("code"):
        raise OAuthFailed("bad_answer", "the authorization server's answer has no code")
    return query["code"]


async def redeem(
    wire: TokenWire,
    server: AuthorizationServer,
    client: OAuthClient,
    resource: ProtectedResource,
    attempt: Attempt,
    code: str,
) -> Tokens:
    """Raises: OAuthFailed."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect,
        "code_verifier": attempt.verifier,
        "resource": resource.identifier,
    }
    return tokens_of(await wire.post(server.token_endpoint, form, client))


async def device_code(
    wire: TokenWire, server: AuthorizationServer, client: OAuthClient, resource: ProtectedResource, scope: str
) -> DeviceCode:
    """Raises: OAuthFailed."""
    if server.device_endpoint is None:
        raise OAuthFailed("no_device_login", "the authorization server has no login for devices")
    form = {"resource": resource.identifier} | ({"scope": scope} if scope else {})
    answer = await wire.post(server.device_endpoint, form, client)
    code, user, place = (answer.get(key) for key in ("device_code", "user_code", "verification_uri"))
    place = answer.get("verification_uri_complete") or place
    if not all(isinstance(each, str) and each for each in (code, user, place)):
        raise OAuthFailed("bad_answer", "the authorization server gave no code for a device")
    if (
        not str(user).isprintable()
        or len(str(user)) > MAX_USER_CODE
        or not str(place).startswith(("https://", "http://"))
    ):
        raise OAuthFailed("bad_answer", "the authorization server's code cannot be shown")
    lives, interval = _seconds(answer.get("expires_in"), DEVICE_S), _seconds(answer.get("interval"), _INTERVAL_S)
    return DeviceCode(str(code), str(user), str(place), min(lives, DEVICE_S), interval)


async def await_device(
    wire: TokenWire,
    server: AuthorizationServer,
    client: OAuthClient,
    resource: ProtectedResource,
    device: DeviceCode,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Tokens:
    """Ask until the person is done. Raises: OAuthFailed."""
    form = {"grant_type": DEVICE_GRANT, "device_code": device.code, "resource": resource.identifier}
    waited, interval = 0.0, device.interval_s
    while waited < device.lives_s:
        await pause(interval)
        waited += interval
        try:
            return tokens_of(await wire.post(server.token_endpoint, form, client))
        except OAuthFailed as fault:
            if fault.reason == "slow_down":
                interval += _INTERVAL_S
            elif fault.reason != "authorization_pending":
                raise
    raise OAuthFailed("expired_token", "nobody typed the code in time")


def _seconds(value: Any, otherwise: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= DEVICE_S
    return float(value) if good else otherwise
