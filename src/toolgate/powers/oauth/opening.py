"""Logins as the settings describe them: which file, and which way to the authorization server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate.model.tool import Hosts
from toolgate.powers.addresses import parse_target
from toolgate.powers.net import PackEgress
from toolgate.powers.oauth.exchange import TokenWire
from toolgate.powers.oauth.logins import Login, LoginFile

if TYPE_CHECKING:
    from toolgate.model.powers import Secrets
    from toolgate.powers.mcp.table import OAuthTable, UpstreamTable
    from toolgate.powers.proxy import Proxy


class Logins:
    """All of a home's, one object for each upstream: what waits for a new token waits together."""

    def __init__(self, directory: Path, secrets: Secrets, proxy: Proxy | None = None) -> None:
        """`directory`: of secrets."""
        self._directory = directory
        self._secrets = secrets
        self._proxy = proxy
        self._made: dict[tuple[str, str, OAuthTable], Login] = {}

    def of(self, table: UpstreamTable, *, private: bool) -> Login:
        """`private`: the upstream is at a private address."""
        assert table.oauth is not None
        place = table.name, table.url, table.oauth
        if place not in self._made:
            wire = partial(self.wire, table, private=private)
            self._made[place] = Login(table.name, self.file(table), wire, self._secrets.read)
        return self._made[place]

    def file(self, table: UpstreamTable) -> LoginFile:
        assert table.oauth is not None
        return LoginFile(self._directory, table.oauth.login)

    def wire(self, table: UpstreamTable, *, private: bool) -> TokenWire:
        """To any public host over https; to private ones only if a person named them: the upstream's own address, and the issuer
        in the settings. What metadata names beyond these is a stranger's word."""
        assert table.oauth is not None
        named = [table.url] if private else []
        named += [table.oauth.issuer] if table.oauth.issuer else []
        allowed = [_pair(url) for url in named]
        return TokenWire(PackEgress(Hosts(any_public=True, private=allowed), proxy=self._proxy))


def _pair(url: str) -> str:
    target = parse_target(url)
    return f"{target.authority_host}:{target.port}"
