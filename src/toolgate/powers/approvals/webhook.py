"""Tells a service of each new request for approval: one signed POST through the guarded egress, repeated if it fails.

Signed as Standard Webhooks are (standardwebhooks.com): HMAC-SHA256 over id, moment and body. Nobody waits for it. The store
knows which requests the service has taken: a server that starts, or looks again, tells the others, also those that another
process did not get through. So a service may hear of a request twice, with the same `webhook-id`.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolgate.errors import StartRefused, StoreUnavailable, ToolError
from toolgate.kit.conditions.approval import ApprovalRequest
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.model.tool import Hosts
from toolgate.powers.addresses import parse_target
from toolgate.powers.net import PackEgress, refuse_scheme_and_port
from toolgate.powers.proxy import proxy_of

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.model.powers import Egress
    from toolgate.powers.secrets import SecretSources
    from toolgate.settings import Settings

WAITS_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Before each repetition; a quarter of an hour together, well within the life of a request."""
TIMEOUT_S: Final = 10.0
"""For one attempt."""
LAST_S: Final = 3.0
"""For what is under way when the server ends, or a command that made the call."""
LOOK_S: Final = 60.0
"""Between two looks for requests that the service has not taken."""
MAX_UNDER_WAY: Final = 100
"""Requests that are being told at one time; the next ones wait for the next look."""
MAX_ANSWER_BYTES: Final = 64 * 1024
"""Of what the service says, which nobody reads."""
TYPE: Final = "approval.requested"
_ENCODED: Final = "whsec_"
"""Before a secret in base64, as libraries for such webhooks write it."""
_TOLD: Final = ("id", "tool", "caller", "label", "rule", "needed", "pin", "policy", "shown")
_HOPELESS: Final = frozenset({"ADDRESS_REFUSED", "INVALID_TARGET"})
"""What another attempt does not change."""
_log: Final = logging.getLogger("toolgate.approvals")


class UntoldRequests(Protocol):
    """Which requests the service has taken: `powers.approvals.tables.ApprovalTables`."""

    def untold(self, now: float) -> Coroutine[Any, Any, list[ApprovalRequest]]: ...

    def told(self, approval: str) -> Coroutine[Any, Any, None]: ...


def open_webhook(
    settings: Settings, secrets: SecretSources, clock: Clock, store: Callable[[], UntoldRequests]
) -> ApprovalWebhook | None:
    """None: the settings name no webhook. Raises: StartRefused: they name one that cannot work."""
    wanted = settings.approvals
    if not wanted.webhook:
        return None
    try:
        target = parse_target(wanted.webhook)
        refuse_scheme_and_port(target, explicitly_allowed=wanted.webhook_private, named=True)
    except ToolError as fault:
        text = "Give an https URL; for one without TLS or at a private address, set approvals.webhook_private as well."
        raise StartRefused(f"approvals.webhook cannot be used: {fault.text}.\n{text}") from None
    if not wanted.webhook_secret:
        text = "Set approvals.webhook_secret to env:NAME, or to file:NAME for a file in paths.secrets."
        raise StartRefused(f"approvals.webhook has no secret to sign with.\n{text}")
    secrets.read(wanted.webhook_secret)
    pair = (f"{target.authority_host}:{target.port}",)
    hosts = Hosts(private=pair) if wanted.webhook_private else Hosts(named=pair)
    egress = PackEgress(hosts, proxy=proxy_of(settings.egress, secrets))
    return ApprovalWebhook(wanted.webhook, lambda: secrets.read(wanted.webhook_secret), egress, clock, store)


class ApprovalWebhook:
    def __init__(
        self,
        url: str,
        secret: Callable[[], str],
        egress: Egress,
        clock: Clock,
        store: Callable[[], UntoldRequests],
        waits: Sequence[float] = WAITS_S,
    ) -> None:
        """`secret` is read anew for each attempt."""
        self._url = url
        self._secret = secret
        self._egress = egress
        self._clock = clock
        self._store = store
        self._waits = waits
        self._look_s = LOOK_S
        self._under_way: set[asyncio.Task[None]] = set()
        self._tried: set[str] = set()
        """Requests that this process tells, or has given up; the others are found when it looks."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Side effects: a task on the running loop, until `close`."""
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="approvals-webhook")

    def tell(self, request: ApprovalRequest) -> None:
        """Of a request that was just made. Returns at once."""
        if len(self._under_way) >= MAX_UNDER_WAY:
            _failed(request, "too_many_under_way")
            return
        self._tried.add(request.id)
        task = asyncio.get_running_loop().create_task(self._tell(request))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """What is under way gets a moment to end."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=LAST_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            try:
                found = await self._store().untold(self._clock.wall())
            except StoreUnavailable:
                found = []  # calls that need an approval are refused meanwhile, which says enough
            else:
                self._tried &= {request.id for request in found}
            free = MAX_UNDER_WAY - len(self._under_way)
            for request in [each for each in found if each.id not in self._tried][:free]:
                self.tell(request)
            await asyncio.sleep(self._look_s)

    async def _tell(self, request: ApprovalRequest) -> None:
        body = strictjson.dumps({"type": TYPE, "timestamp": rfc3339(request.created), "data": _shown(request)})
        reason = "interrupted"
        try:
            for wait in (*self._waits, None):
                reason = await self._attempt(request.id, body)
                if not reason:
                    await self._taken(request.id)
                    return
                if wait is None or reason in _HOPELESS:
                    break
                await asyncio.sleep(wait)
        except asyncio.CancelledError:
            _failed(request, reason)
            raise
        _failed(request, reason)

    async def _taken(self, approval: str) -> None:
        try:
            await self._store().told(approval)
        except StoreUnavailable:
            return  # then the service hears of it once more

    async def _attempt(self, approval: str, body: bytes) -> str:
        """What went wrong; empty when the service has taken it."""
        try:
            moment = str(int(self._clock.wall()))
            headers = {
                "Content-Type": "application/json",
                "webhook-id": approval,
                "webhook-timestamp": moment,
                "webhook-signature": f"v1,{signature(self._secret(), approval, moment, body)}",
            }
            answer = await self._egress.fetch(
                self._url, method="POST", headers=headers, body=body, max_bytes=MAX_ANSWER_BYTES, timeout_s=TIMEOUT_S
            )
        except ToolError as fault:
            return fault.code
        except (StartRefused, ValueError):
            return "no_secret"
        return "" if 200 <= answer.status < 300 else f"status_{answer.status}"


def signature(secret: str, approval: str, moment: str, body: bytes) -> str:
    """Raises: ValueError: the secret is not the base64 that it says it is."""
    encoded = secret.startswith(_ENCODED)
    key = base64.b64decode(secret.removeprefix(_ENCODED), validate=True) if encoded else secret.encode()
    return base64.b64encode(hmac.digest(key, f"{approval}.{moment}.".encode() + body, "sha256")).decode()


def _shown(request: ApprovalRequest) -> dict[str, Any]:
    """No binding, and secret arguments masked: as a person sees it."""
    moments = {"created": rfc3339(request.created), "expires": rfc3339(request.expires)}
    return {**{name: getattr(request, name) for name in _TOLD}, **moments}


def _failed(request: ApprovalRequest, reason: str) -> None:
    facts = {"about": {"event": "approvals.webhook", "approval": request.id, "reason": reason}}
    _log.warning("approvals: the webhook was not told of %s: %s", request.id, reason, extra=facts)
