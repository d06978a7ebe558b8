"""`toolgate upstream login` and `logout`: a person lets the gate use an upstream in their name."""

from __future__ import annotations

import asyncio
import os
import time
import webbrowser
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct

from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.options import Home, Json, home_at
from toolgate.cli.upstream.files import add_oauth
from toolgate.cli.upstream.shared import Name, report, table_of
from toolgate.errors import StartRefused, ToolError
from toolgate.model.threads import in_thread
from toolgate.powers.mcp.program import is_private
from toolgate.powers.oauth import flows
from toolgate.powers.oauth.discovery import AuthorizationServer, ProtectedResource, find_resource, find_server
from toolgate.powers.oauth.exchange import OAuthClient, OAuthFailed, Tokens, TokenWire
from toolgate.powers.oauth.logins import LoginFile, LoginState
from toolgate.powers.oauth.loopback import Loopback, listening
from toolgate.powers.secrets import SecretSources
from toolgate.upstreams import logins_of

if TYPE_CHECKING:
    from toolgate.powers.mcp.table import OAuthTable, UpstreamTable
    from toolgate.settings import Settings

app = typer.Typer()

PERSON_S: Final = 300.0
"""For a person to log in with a browser."""


class _Asking(Struct, frozen=True):
    """Whom we ask for what."""

    wire: TokenWire
    resource: ProtectedResource
    server: AuthorizationServer
    table: OAuthTable
    scope: str
    known: LoginState | None
    read: SecretSources

    async def client(self, port: int | None) -> OAuthClient:
        """The configured one, the one that was registered before, or a new one. `port`: of the loopback; None: a device.

        Raises: OAuthFailed, StartRefused.
        """
        if self.table.client_id:
            secret = self.read.read(self.table.client_secret) if self.table.client_secret else ""
            return OAuthClient(self.table.client_id, secret, flows.method_of(self.server, secret))
        known = self.known
        if known is not None and known.issuer == self.server.issuer and known.redirect_port == port:
            return OAuthClient(known.client_id, known.client_secret, known.auth_method)
        redirect = None if port is None else flows.redirect_at(port)
        return await flows.registered(self.wire, self.server, redirect)


@app.command()
def login(
    name: Name,
    device: Annotated[
        bool, typer.Option("--device", help="Show a code to type on another device, where no browser is here.")
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address instead of opening a browser.")
    ] = False,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="Of 127.0.0.1, for the browser's answer; 0 picks a free one."),
    ] = 0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Log in to an upstream that wants OAuth: with a browser, or with a code on another device."""
    settings = home_at(home)
    table = table_of(settings, name)
    if not table.url:
        raise StartRefused(f"{name} is a program, and programs are not logged in to.\nGive it a secret in env.")
    if table.oauth is None:
        add_oauth(settings, name)
        settings = home_at(home)
        table = table_of(settings, name)
    with recorded(settings, "upstream.login", {"upstream": name}) as found:
        try:
            state = asyncio.run(_log_in(settings, table, device=device, no_browser=no_browser, port=port))
        except OAuthFailed as fault:
            raise StartRefused(f"No login came about ({fault.reason}): {fault}.") from None
        except (ToolError, TimeoutError) as fault:
            text = fault.text if isinstance(fault, ToolError) else f"nobody logged in within {PERSON_S:g} s"
            raise StartRefused(f"No login came about: {text}.") from None
        except OSError as fault:
            raise StartRefused(f"Port {port} cannot be used ({fault.strerror}).\nChoose another --port.") from None
        found |= {"issuer": state.issuer, "scope": state.scope}
    told = {"upstream": name, "issuer": state.issuer, "scope": state.scope, "renews": state.refresh is not None}
    again = "" if state.refresh is not None else " It ends with its token: the server gave none to renew it."
    report(json, told, f"logged in to {name} by {state.issuer}.{again}")


@app.command()
def logout(name: Name, home: Home = None, json: Json = False) -> None:
    """End the login to an upstream: its tokens are revoked where that is offered, and deleted."""
    settings = home_at(home)
    table = table_of(settings, name)
    if table.oauth is None:
        raise StartRefused(f"{name} has no login.\nIts table in toolgate.toml has no oauth.")
    with recorded(settings, "upstream.logout", {"upstream": name}) as found:
        was_there, revoked = asyncio.run(_log_out(settings, table))
        found["revoked"] = revoked
    text = f"logged out of {name}" if was_there else f"nobody was logged in to {name}"
    rest = "." if revoked or not was_there else "; the authorization server was not told, so tokens end by themselves."
    report(json, {"upstream": name, "loggedOut": was_there, "revoked": revoked}, text + rest)


async def _log_in(settings: Settings, table: UpstreamTable, *, device: bool, no_browser: bool, port: int) -> LoginState:
    """Raises: OAuthFailed, ToolError, StartRefused, TimeoutError, OSError."""
    assert table.oauth is not None
    logins = logins_of(settings)
    file, wire = logins.file(table), logins.wire(table, private=await is_private(table.url))
    resource = await find_resource(wire, table.url, table.oauth.issuer or None)
    server = await find_server(wire, resource.issuer)
    known = _known(file)
    scope = flows.scope_for(table.oauth.scope, resource, server)
    read = SecretSources(settings.paths.secrets, os.environ)
    asking = _Asking(wire, resource, server, table.oauth, scope, known, read)
    if device:
        client, tokens, used = await _with_device(asking)
    else:
        client, tokens, used = await _with_browser(asking, port, opens=not no_browser)
    state = LoginState(
        upstream=table.name,
        issuer=server.issuer,
        resource=resource.identifier,
        token_endpoint=server.token_endpoint,
        client_id=client.id,
        access="",
        scope=scope or None,
        client_secret="" if table.oauth.client_secret else client.secret,
        client_secret_from=table.oauth.client_secret,
        auth_method=client.method,
        revocation_endpoint=server.revocation_endpoint,
        redirect_port=0 if table.oauth.client_id else used,
    ).with_tokens(tokens, time.time())
    async with file.locked():
        file.write(state)
    return state


def _known(file: LoginFile) -> LoginState | None:
    """A login that was here before, whose client may be used again."""
    try:
        return file.read()
    except OAuthFailed:
        return None


async def _with_browser(asking: _Asking, port: int, *, opens: bool) -> tuple[OAuthClient, Tokens, int]:
    async with _loopback(port, asking.known) as loopback:
        client = await asking.client(loopback.port)
        redirect = flows.redirect_at(loopback.port)
        attempt = flows.begin(asking.server, client, asking.resource, redirect, asking.scope)
        output.note(f"log in at {attempt.url}")
        if opens:
            await in_thread(webbrowser.open, attempt.url)
        query = await loopback.answer(lambda found: flows.is_ours(attempt, found), PERSON_S)
        code = flows.code_of(asking.server, query)
        tokens = await flows.redeem(asking.wire, asking.server, client, asking.resource, attempt, code)
        return client, tokens, loopback.port


def _loopback(port: int, known: LoginState | None) -> _Listening:
    return _Listening(port or (known.redirect_port if known is not None else 0), is_chosen=bool(port))


class _Listening:
    """On the chosen port; else on that of the registered client, if it is free; else on any."""

    def __init__(self, port: int, *, is_chosen: bool) -> None:
        self._port, self._is_chosen = port, is_chosen

    async def __aenter__(self) -> Loopback:
        try:
            self._around = listening(self._port)
            return await self._around.__aenter__()
        except OSError:
            if self._is_chosen:
                raise
            self._around = listening()
            return await self._around.__aenter__()

    async def __aexit__(self, *fault: object) -> None:
        await self._around.__aexit__(None, None, None)


async def _with_device(asking: _Asking) -> tuple[OAuthClient, Tokens, int]:
    client = await asking.client(None)
    code = await flows.device_code(asking.wire, asking.server, client, asking.resource, asking.scope)
    output.note(f"open {code.place} and type {code.user_code}")
    tokens = await flows.await_device(asking.wire, asking.server, client, asking.resource, code)
    return client, tokens, 0


async def _log_out(settings: Settings, table: UpstreamTable) -> tuple[bool, bool]:
    """(somebody was logged in, the server was told). The file goes, whatever the server says."""
    logins = logins_of(settings)
    file = logins.file(table)
    async with file.locked():
        state, revoked = _known(file), False
        if state is not None and state.revocation_endpoint is not None:
            try:
                wire = logins.wire(table, private=await is_private(table.url))
                await _revoke(wire, state, SecretSources(settings.paths.secrets, os.environ))
                revoked = True
            except (OAuthFailed, ToolError):
                revoked = False
        return file.delete(), revoked


async def _revoke(wire: TokenWire, state: LoginState, read: SecretSources) -> None:
    """RFC 7009. Raises: OAuthFailed."""
    assert state.revocation_endpoint is not None
    kind = "refresh_token" if state.refresh else "access_token"
    form = {"token": state.refresh or state.access, "token_type_hint": kind}
    await wire.tell(state.revocation_endpoint, form, state.client(read.read))
