"""Settings of what leaves this machine: the way of tools to the network, and the webhook of approvals."""

from __future__ import annotations

from typing import NamedTuple

from toolgate.settings.spec import defaulted
from toolgate.settings.spec import described as _is


@defaulted
class EgressSettings(NamedTuple):
    """The way out, for tools that use the network. What they may reach is declared by their packs."""

    proxy: str = _is(
        "text",
        "",
        "the HTTP proxy through which public hosts are reached, like http://proxy.example:3128; hosts that a pack may "
        "reach at private addresses are reached directly",
        "URL",
    )
    proxy_credentials: str = _is(
        "text",
        "",
        "where the proxy's USER:PASSWORD is kept: env:NAME, or file:NAME for a file in paths.secrets",
        "reference",
    )


@defaulted
class ApprovalSettings(NamedTuple):
    """Calls that a person must approve."""

    webhook: str = _is("text", "", "the service that is told of each new request, by a signed POST", "https URL")
    webhook_secret: str = _is(
        "text",
        "",
        "where the secret that signs it is kept: env:NAME, or file:NAME for a file in paths.secrets",
        "reference",
    )
    webhook_private: bool = _is(
        "switch", default=False, what="the service may have a private address, or be without TLS"
    )
