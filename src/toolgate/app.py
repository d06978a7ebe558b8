"""The composition root: settings -> policy -> ledger -> powers -> packs -> gate. The only file that knows all of them.

Heavy things (SQL, outgoing HTTP, key files, worker processes) are made when a call first needs them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import jsonschema_rs
from msgspec import Struct, field

from toolgate.errors import SettingsError
from toolgate.faces.mrt import REQUEST_SCHEMA, MrtFace
from toolgate.faces.rpc import RpcFace
from toolgate.gate.admit import Rate, Slots
from toolgate.gate.keys import KeyRing
from toolgate.gate.permit import Grant, Permits
from toolgate.gate.road import Road, Ticket
from toolgate.gate.validate import SchemaRegistry
from toolgate.ledger import LOG_PATH, Anchors, LocalLedger, Rules, arguments_digest, open_ledger
from toolgate.ledger.files import KEY_FILE
from toolgate.model.call import no_progress
from toolgate.model.clock import DeterministicIds, RandomIds, SystemClock
from toolgate.model.tool import Context, ServiceContext
from toolgate.packs.loader import load_packs
from toolgate.policy.bundle import load_policy
from toolgate.policy.rules import check_start
from toolgate.powers.bus import NatsBuses
from toolgate.powers.compute import CallCompute, ComputePool
from toolgate.powers.files import ReadOnlyWorkspace, Workspace
from toolgate.powers.jobs import JobKeeper, OwnJobs
from toolgate.powers.secrets import SecretSources

if TYPE_CHECKING:
    from toolgate.model.call import Caller, Environment
    from toolgate.model.clock import Clock
    from toolgate.model.powers import Egress, SigningKeys, Store, Stores
    from toolgate.model.tool import Pack
    from toolgate.powers.sql import SqlStores
    from toolgate.settings import Settings

COMPUTE_WORKERS: Final = max(2, os.cpu_count() or 2)
"""Worker processes at most: one a core, and never so few that one slow document stops all others."""
SHARED_CONTEXTS: Final = 1024
"""Contexts of inline tools that are kept: tools times callers that come again and again."""
_LOCAL: Final[tuple[Environment, tuple[str, ...]]] = ("local", ())

T = TypeVar("T")


def build(settings: Settings, *, clock: Clock | None = None) -> App:
    """Everything a server needs, ready to serve.

    Raises: StartRefused: settings, policy, contract, keys or log stand in the way; the text names fault and fix.
    Side effects: opens the workspace and the audit log (which begins a run). `App.close` ends both.
    """
    clock = clock or SystemClock()
    packs = load_packs(settings.packs.enabled)
    policy = load_policy(settings.paths.policy, [tool.name for pack in packs for tool in pack.tools])
    warnings = check_start(packs, policy.manifest, policy.adrs, policy.lock)
    tables = {pack.name: _pack_settings(pack, settings) for pack in packs}
    registry = SchemaRegistry(tool for pack in packs for tool in pack.tools)
    rows = policy.manifest.rows
    permits = Permits(
        Grant(
            tool,
            pack.name,
            rows[tool.name].tier,
            frozenset(rows[tool.name].roles),
            rows[tool.name].hint,
            registry.load_tool_io(tool.name),
            tool.canonical_id,
        )
        for pack in packs
        for tool in pack.tools
        if tool.name in rows  # what a deployment's manifest leaves out is not served (orphans were refused above)
    )
    keys = KeyRing(settings.paths.keys, clock)
    keys.check()
    powers = Powers(settings, packs, tables, clock, policy.lock)
    ledger = _open_ledger(settings, clock)
    road = Road(
        authenticate=keys.authenticate,
        permits=permits,
        slots=Slots(per_caller=settings.limits.concurrency_per_caller, total=settings.limits.concurrency_total),
        rate=Rate(per_minute=settings.limits.rate_per_minute),
        ledger=ledger,
        environment=powers.environment,
        context_for=powers.context_for,
        digest=arguments_digest,
        clock=clock,
        ids=DeterministicIds() if settings.deterministic_ids else RandomIds(),
        max_output_bytes=settings.limits.output_bytes,
    )
    return App(settings, road, ledger, powers, registry, packs, warnings)


class App(Struct):
    """What `build` made, and how to end it."""

    settings: Settings
    road: Road
    ledger: LocalLedger
    powers: Powers
    registry: SchemaRegistry
    packs: tuple[Pack, ...]
    warnings: list[str]
    _started: list[Any] = field(default_factory=list)

    def mrt_face(self) -> MrtFace:
        return MrtFace(self.registry.compile(REQUEST_SCHEMA), text_bytes=self.settings.limits.text_bytes)

    def rpc_face(self) -> RpcFace:
        return RpcFace(self.registry.load_envelope(), self.road.permits.short_name)

    async def start_services(self) -> None:
        for pack in self.packs:
            for service in pack.services:
                await service.start(self.powers.service_context(pack.name))
                self._started.append(service)

    async def ready(self) -> dict[str, bool]:
        """What /readyz tells: policy and contract were checked before we got here, log and stores are asked now."""
        environment, notes = self.powers.environment()
        return {
            "policy": True,
            "contract": True,
            "log": self.ledger.probe(),
            "stores": environment == "cloud" or not notes,
        }

    async def close(self) -> None:
        """Services first, then what they stood on, the log last: the end of a run is its last record."""
        for service in reversed(self._started):
            await service.stop()
        await self.powers.close()
        self.ledger.close()


def _open_ledger(settings: Settings, clock: Clock) -> LocalLedger:
    chosen = settings.ledger
    return open_ledger(
        settings.paths.runs / LOG_PATH,
        clock=clock,
        key_file=settings.paths.secrets / KEY_FILE,
        rules=Rules(chosen.segment_bytes, chosen.checkpoint_seconds, chosen.checkpoint_records, chosen.retention_days),
        anchors=Anchors(chosen.anchor_file, chosen.anchor_command),
        deterministic=settings.deterministic_ids,
    )


def _pack_settings(pack: Pack, settings: Settings) -> Mapping[str, Any]:
    """The pack's own table, checked against its schema, defaults filled in. Raises: SettingsError."""
    table = dict(settings.packs.tables.get(pack.name, {}))
    faults = list(jsonschema_rs.Draft202012Validator(dict(pack.settings_schema)).iter_errors(table))
    if faults:
        place = ".".join(["packs", pack.name, *(str(part) for part in faults[0].instance_path)])
        raise SettingsError(
            f"{place}: {faults[0].message}.\nSee the settings of the pack in docs/reference/settings.md."
        )
    properties: Mapping[str, Any] = pack.settings_schema.get("properties", {})
    return {name: about["default"] for name, about in properties.items() if "default" in about} | table


class Powers:
    """What tools may touch. The effect of a tool selects what its context holds."""

    def __init__(
        self,
        settings: Settings,
        packs: tuple[Pack, ...],
        tables: Mapping[str, Mapping[str, Any]],
        clock: Clock,
        contract: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._packs = packs
        self._tables = tables
        self._clock = clock
        self._contract = contract
        self._workspace = Workspace(settings.paths.workspace)
        self._reading = ReadOnlyWorkspace(self._workspace)
        self._compute = Lazy(lambda: ComputePool(COMPUTE_WORKERS))
        self._inline: dict[tuple[str, str], Context] = {}
        self._stores = Lazy(self._open_stores)
        self._reading_stores = _ReadingStores(self._stores.made)
        self._keys = Lazy(self._open_keys)
        self._nets = {pack.name: Lazy(partial(self._open_net, pack.peers(tables[pack.name]))) for pack in packs}
        self._jobs = Lazy(self._open_jobs)
        self._shared = bool(settings.stores.false_positives or settings.stores.consent)
        if self._shared:
            self._stores.made().start()

    def environment(self) -> tuple[Environment, tuple[str, ...]]:
        """`cloud` only if both binding stores are on a shared engine and answered lately. Never waits."""
        if not self._shared:
            return _LOCAL
        from toolgate.powers.sql import environment_of  # noqa: PLC0415 (SQLAlchemy is loaded when a store is configured or used)

        return environment_of(self._stores.made())

    def context_for(self, grant: Grant, ticket: Ticket) -> Context:
        """What this call's handler may touch.

        An inline handler has no deadline and ends before the next one begins, so a caller's calls of it share one context.
        """
        caller, progress = ticket.caller, ticket.call.progress
        if not grant.tool.inline or progress is not no_progress:
            return self._new_context(grant, caller, self._clock.monotonic() + grant.tool.deadline_s, progress)
        shared = self._inline.get((grant.tool_id, caller.key_id))
        if shared is None or shared.caller is not caller:
            if len(self._inline) >= SHARED_CONTEXTS:
                self._inline.clear()
            shared = self._new_context(grant, caller, float("inf"), progress)
            self._inline[grant.tool_id, caller.key_id] = shared
        return shared

    def _new_context(
        self, grant: Grant, caller: Caller, deadline: float, progress: Callable[[int, int | None, str], None]
    ) -> Context:
        effect = grant.tool.effect
        return Context(
            caller=caller,
            clock=self._clock,
            deadline=deadline,
            settings=self._tables[grant.pack],
            compute=CallCompute(self._compute.made, deadline),
            progress=progress,
            files=self._reading,
            stores=self._reading_stores if effect == "read" else cast("Stores", self._stores),
            writer=None if effect == "read" else self._workspace,
            keys=cast("SigningKeys", self._keys) if effect == "crypto" else None,
            net=cast("Egress", self._nets[grant.pack]) if effect == "network" else None,
            jobs=OwnJobs(self._jobs.made, caller.key_id) if effect == "write" else None,
            contract=self._contract,
        )

    def service_context(self, pack: str) -> ServiceContext:
        return ServiceContext(
            clock=self._clock,
            settings=self._tables[pack],
            compute=CallCompute(self._compute.made, float("inf")),
            files=self._reading,
            stores=cast("Stores", self._stores),
            keys=cast("SigningKeys", self._keys),
            net=cast("Egress", self._nets[pack]),
            secrets=SecretSources(self._settings.paths.secrets, os.environ),
            buses=NatsBuses(),
        )

    async def close(self) -> None:
        if self._jobs.is_made:
            await self._jobs.made().close()
        for lazy in (self._compute, self._stores):
            if lazy.is_made:
                lazy.made().close()
        self._workspace.close()

    def _open_stores(self) -> SqlStores:
        from toolgate.powers.sql import SqlStores  # noqa: PLC0415 (as above)

        chosen = self._settings.stores
        urls = {"false_positives": chosen.false_positives, "consent": chosen.consent, "consensus": chosen.consensus}
        migrations = [step for pack in self._packs for step in pack.migrations]
        return SqlStores({name: url for name, url in urls.items() if url}, self._settings.paths.state, migrations)

    def _open_jobs(self) -> JobKeeper:
        from toolgate.servers.devsite import DevSites  # noqa: PLC0415 (watchfiles, for tools that serve)

        sites = DevSites(self._settings.paths.workspace, self._reading, CallCompute(self._compute.made, float("inf")))
        return JobKeeper({"site": sites})

    def _open_keys(self) -> SigningKeys:
        from toolgate.powers.keys import KeyDirectory  # noqa: PLC0415 (cryptography, 25 ms, for tools that sign)

        return KeyDirectory(self._settings.paths.secrets, workspace=self._settings.paths.workspace)

    def _open_net(self, peers: Sequence[str]) -> Egress:
        from toolgate.powers.net import Egress as GuardedEgress  # noqa: PLC0415 (httpcore, 100 ms, for tools that fetch)

        return GuardedEgress(allow=peers)


class Lazy(Generic[T]):
    """A power that is made when it is first used. Stands in for it: attributes are the made thing's own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._lock = threading.Lock()  # handlers run in threads

    def made(self) -> T:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made(), name)


class _ReadingStores:
    """The stores as a `read` tool gets them."""

    __slots__ = ("_made",)

    def __init__(self, made: Callable[[], SqlStores]) -> None:
        self._made = made

    def get(self, name: str) -> Store:
        return self._made().reading.get(name)
