"""Who gives out tokens for an upstream: protected-resource metadata (RFC 9728), then the authorization server's (RFC 8414, OIDC).

Every document must name itself as it was asked for; otherwise a server could speak for another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.powers.addresses import UrlTarget, parse_target
from toolgate.powers.oauth.exchange import OAuthFailed, TokenWire

MAX_SCOPES: Final = 64
_METADATA: Final = re.compile(r'resource_metadata="([^"\\]{1,2048})"')
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
_PROTECTED: Final = "/.well-known/oauth-protected-resource"
_SERVER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"


class ProtectedResource(Struct, frozen=True):
    """An upstream, as its authorization server knows it."""

    identifier: str
    issuer: str
    scopes: tuple[str, ...] = ()


class AuthorizationServer(Struct, frozen=True):
    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    device_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    names_itself: bool = False
    """Its answers to a browser carry `iss` (RFC 9207)."""


async def find_resource(wire: TokenWire, url: str, issuer: str | None = None) -> ProtectedResource:
    """`issuer`: the one that the settings name. Raises: OAuthFailed."""
    for place in await _resource_places(wire, url):
        found = await wire.document(place)
        if found is not None:
            return _resource_of(found, url, issuer)
    if issuer is not None:
        return ProtectedResource(url, issuer)
    text = "the upstream says nowhere who gives out its tokens; name the issuer: oauth = { issuer = ... }"
    raise OAuthFailed("no_metadata", text)


async def _resource_places(wire: TokenWire, url: str) -> list[str]:
    """Where the upstream says; else where RFC 9728 says. Only on its own origin: it speaks for itself alone."""
    target = parse_target(url)
    told = _METADATA.search(await wire.challenge(url))
    if told is not None:
        place = _checked(told[1], "resource_metadata")
        if parse_target(place).origin != target.origin:
            raise OAuthFailed("bad_metadata", "the upstream's metadata is at another origin than itself")
        return [place]
    path = target.path.partition("?")[0].rstrip("/")
    return list(dict.fromkeys([f"{target.origin}{_PROTECTED}{path}", f"{target.origin}{_PROTECTED}"]))


def _resource_of(found: Mapping[str, Any], url: str, issuer: str | None) -> ProtectedResource:
    named = found.get("resource")
    if not isinstance(named, str) or not _covers(_target(named, "resource"), parse_target(url)):
        raise OAuthFailed("bad_metadata", "the metadata is that of another resource")
    servers = found.get("authorization_servers")
    listed = [each for each in servers if isinstance(each, str)] if isinstance(servers, list) else []
    if issuer is not None and issuer not in listed:
        raise OAuthFailed("bad_metadata", "the upstream does not name the issuer of the settings")
    if not listed:
        raise OAuthFailed("bad_metadata", "the upstream names no authorization server")
    return ProtectedResource(named, issuer or _checked(listed[0], "authorization_servers"), _scopes(found))


def _covers(resource: UrlTarget, url: UrlTarget) -> bool:
    """The URL itself, or what lies above it on the same origin."""
    above, path = resource.path.rstrip("/"), url.path.partition("?")[0]
    return resource.origin == url.origin and (path.rstrip("/") == above or path.startswith(f"{above}/"))


async def find_server(wire: TokenWire, issuer: str) -> AuthorizationServer:
    """Raises: OAuthFailed."""
    target = parse_target(_checked(issuer, "issuer"))
    path = target.path.rstrip("/")
    places = [f"{target.origin}{_SERVER}{path}", f"{target.origin}{_OPENID}{path}", f"{target.origin}{path}{_OPENID}"]
    for place in dict.fromkeys(places):
        found = await wire.document(place)
        if found is not None:
            return _server_of(found, issuer)
    raise OAuthFailed("no_metadata", "the authorization server has no metadata")


def _server_of(found: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    if found.get("issuer") != issuer:
        raise OAuthFailed("bad_metadata", "the authorization server's metadata names another issuer")
    challenges = found.get("code_challenge_methods_supported")
    authorization = _endpoint(found, "authorization_endpoint")
    if authorization is not None and not (isinstance(challenges, list) and "S256" in challenges):
        raise OAuthFailed("no_pkce", "the authorization server does not offer PKCE with S256")
    token = _endpoint(found, "token_endpoint")
    if token is None:
        raise OAuthFailed("bad_metadata", "the authorization server names no token endpoint")
    methods = found.get("token_endpoint_auth_methods_supported")
    return AuthorizationServer(
        issuer,
        token,
        authorization,
        _endpoint(found, "device_authorization_endpoint"),
        _endpoint(found, "registration_endpoint"),
        _endpoint(found, "revocation_endpoint"),
        _scopes(found),
        tuple(map(str, methods[:MAX_SCOPES])) if isinstance(methods, list) else ("client_secret_basic",),
        found.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    return None if value is None else _checked(value, name)


def _checked(value: Any, name: str) -> str:
    _target(value, name)
    return str(value)


def _target(value: Any, name: str) -> UrlTarget:
    try:
        if not isinstance(value, str) or "#" in value or not value.isascii():
            raise ToolError("INVALID_INPUT", "not a URL")
        return parse_target(value)
    except ToolError:
        raise OAuthFailed("bad_metadata", f"{name} is not an address") from None


def _scopes(found: Mapping[str, Any]) -> tuple[str, ...]:
    listed = found.get("scopes_supported")
    usable = (
        [each for each in listed if isinstance(each, str) and _SCOPE.fullmatch(each)]
        if isinstance(listed, list)
        else []
    )
    return tuple(usable[:MAX_SCOPES])
