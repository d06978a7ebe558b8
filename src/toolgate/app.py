"""The composition root: settings -> policy -> ledger -> powers -> packs -> gate. The only file that knows all of them.

Heavy things (SQL, outgoing HTTP, key files, worker processes) are made when a call first needs them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from toolgate.approving import ExpiryWatch, make_approvals, open_approvals, open_webhook
from toolgate.enabled import Enabled, store_places
from toolgate.errors import LedgerUnavailable
from toolgate.faces import Parts, make_faces
from toolgate.gate.admit import Admission, Grant, Permits, Rate, Slots, Ticket, rate_limits, slot_limits
from toolgate.gate.authority.stops import STOPS_FILE, Stops
from toolgate.gate.counted import TableRate, TableSlots
from toolgate.gate.keys import KeyRing
from toolgate.gate.road import LOCAL, Road
from toolgate.gate.sessions.seals import Seals
from toolgate.gate.sessions.watch import Watch
from toolgate.gate.shared import SharedBounds, SharedLimits
from toolgate.gate.validate import compile_schema
from toolgate.ledger import LocalLedger, open_for_server
from toolgate.ledger.files import KEY_FILE, LOG_PATH, derived_key
from toolgate.ledger.reading.query import Filter, latest
from toolgate.model.call import no_progress
from toolgate.model.clock import DeterministicIds, RandomIds, SystemClock
from toolgate.model.threads import Lazy, in_thread
from toolgate.model.tool import Context, JobContext, PanelContext, ServiceContext
from toolgate.observing import Observers
from toolgate.ownership import process_origin
from toolgate.packs.faults import uses_of
from toolgate.powers.bus import NatsBuses
from toolgate.powers.compute import CallCompute, ComputePool
from toolgate.powers.files import CallWriter, ReadOnlyWorkspace, Workspace, WriteShares
from toolgate.powers.jobs import JobKeeper, Kind, OwnJobs, Starter
from toolgate.powers.limits.redis import RedisEngine
from toolgate.powers.secrets import PackSecrets, SecretSources, ToolSecrets
from toolgate.powers.stores import OpenStores, environment_of
from toolgate.repeats import open_idempotency
from toolgate.ruleset import Ruleset, Share, read_rules

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.faces.face import Face
    from toolgate.model.call import Environment
    from toolgate.model.clock import Clock
    from toolgate.model.limits import LimitsEngine
    from toolgate.model.powers import Egress, Store, Stores
    from toolgate.model.tool import Hosts, Pack, ServiceRun
    from toolgate.powers.keys import KeyDirectory, PackKeys
    from toolgate.powers.mcp.upstream import UpstreamEvent
    from toolgate.registry import SchemaRegistry
    from toolgate.servers.application import PageSite
    from toolgate.settings import Settings
    from toolgate.settings.limits import LimitSettings
    from toolgate.telemetry.gathering import Telemetry
    from toolgate.telemetry.tracing import Sampler, Traces
    from toolgate.upstreams import Upstreams

COMPUTE_WORKERS: Final = max(2, os.cpu_count() or 2) + 1
"""Worker processes at most: one a core for a caller that is alone, and one more, which that caller does not get."""
_OUTWARD: Final = frozenset({"network", "crypto"})
"""Effects that a secret is of use for."""

_limits_log: Final = logging.getLogger("toolgate.limits")
_upstreams_log: Final = logging.getLogger("toolgate.upstreams")


def build(settings: Settings, *, clock: Clock | None = None, share: Share | None = None) -> App:
    """Everything a server needs, ready to serve. `share`: this is one of its processes.

    Raises: StartRefused: settings, policy, contract, keys or log stand in the way; the text names fault and fix.
    Side effects: opens the workspace and the audit log (which begins a run). `App.close` ends both.
    """
    clock = clock or SystemClock()
    rules = read_rules(settings, share=share)
    permits = rules.permits
    keys = KeyRing(settings.paths.keys, clock)
    keys.check()
    engine = open_limits_engine(settings.limits) if settings.limits.url else None
    ledger = open_for_server(settings, clock, leads=share is None or share.is_owner, serves=rules.digests)
    processes = 1 if share is None else share.processes
    powers = Powers(settings, rules.enabled, clock, rules.contract, permits, processes)
    stops = Stops(settings.paths.keys.parent / STOPS_FILE, clock)
    watch = Watch(keys.authenticate, powers.context_for, is_stopped=stops.has_stopped)
    powers.changed = watch.changed
    observers = Observers(settings, ledger, ledger.run, powers.short_name)
    road = Road(
        authenticate=keys.authenticate,
        admission=replace(_admission(settings, permits, engine, clock, ledger, share), stops=stops),
        ledger=observers.ledger,
        environment=powers.environment if powers.has_shared_stores else None,
        context_for=powers.context_for,
        clock=clock,
        max_output_bytes=settings.limits.output_bytes,
        seals=Seals(Lazy(partial(derived_key, settings.paths.secrets / KEY_FILE, b"seals")).made, clock, RandomIds()),
        watch=watch,
        addresses=rules.addresses,
        idempotency=open_idempotency(settings, clock, ledger),
        approvals=make_approvals(settings, powers.approvals, powers.webhook, clock, ledger, _server_acts(ledger)),
    )
    app = App(road, keys, ledger, powers, rules, share)
    app.hear_upstreams()
    observers.join(app)
    return app


def _admission(
    settings: Settings,
    permits: Permits,
    engine: LimitsEngine | None,
    clock: Clock,
    ledger: LocalLedger,
    share: Share | None,
) -> Admission:
    limits, ids = settings.limits, DeterministicIds() if settings.deterministic_ids else RandomIds()
    if share is not None and engine is None:
        held = TableSlots(share.table, **slot_limits(limits))
        return Admission(permits, held, TableRate(share.table, **rate_limits(limits)), clock, ids)
    slots = Slots(**slot_limits(limits))
    if engine is None:
        return Admission(permits, slots, Rate(**rate_limits(limits)), clock, ids)
    shared = _shared_limits(limits, engine, slots, clock, ledger)
    rate = Rate(per_minute=0, counts=False)  # the engine has that of all processes
    return Admission(permits, slots, rate, clock, ids, shared)


def open_limits_engine(limits: LimitSettings) -> LimitsEngine:
    """Raises: StartRefused. Nothing is connected yet."""
    return RedisEngine(
        limits.url,
        per_caller=limits.concurrency_per_caller,
        per_minute=limits.rate_per_minute,
        lease_s=limits.lease_seconds,
    )


def _shared_limits(
    limits: LimitSettings, engine: LimitsEngine, slots: Slots, clock: Clock, ledger: LocalLedger
) -> SharedLimits:
    bounds = SharedBounds(
        per_caller=limits.concurrency_per_caller,
        per_minute=limits.rate_per_minute,
        lease_s=limits.lease_seconds,
        share_slots=limits.concurrency_when_unreachable == "share",
        share_rate=limits.rate_when_unreachable == "share",
        may_exceed=limits.keys_may_exceed,
    )
    return SharedLimits(engine, slots, bounds, clock.monotonic, partial(_record_limits, ledger))


def _record_limits(ledger: LocalLedger, why: str | None) -> None:
    """The engine of shared limits was lost, or is back."""
    facts = {"about": {"event": "limits.lost" if why else "limits.back"}}
    _limits_log.warning("shared limits: %s", why or "the engine answers again", extra=facts)
    _record_act(ledger, "limits.lost" if why else "limits.back", {"reason": why} if why else {}, is_ok=why is None)


def _record_event(ledger: LocalLedger, name: str, event: UpstreamEvent) -> None:
    """An upstream came up, went down, is not as it was approved, or offers what nobody has approved."""
    facts = {"about": {"event": f"upstream.{event.kind}", "upstream": name, "reason": event.details.get("reason")}}
    level = logging.INFO if event.kind == "up" else logging.WARNING
    _upstreams_log.log(level, "upstream %s: %s", name, event.details.get("reason") or event.kind, extra=facts)
    _record_act(ledger, f"upstream.{event.kind}", {"upstream": name, **event.details}, is_ok=event.kind == "up")


def _server_acts(ledger: LocalLedger) -> Callable[[str, Mapping[str, Any]], bool]:
    return partial(_record_act, ledger, is_ok=True)


def _record_act(ledger: LocalLedger, act: str, about: Mapping[str, Any], *, is_ok: bool) -> bool:
    """Of the server itself; whether it was written. What cannot be written is refused at the next call."""
    try:
        ledger.append_act("outcome", act_facts(act, "server", about, is_ok=is_ok))
    except LedgerUnavailable:
        return False
    return True


def act_facts(act: str, way: str, about: Mapping[str, Any], *, is_ok: bool) -> dict[str, Any]:
    """Of an act of the server, how it ended."""
    return {
        "act": act,
        "requestId": RandomIds().for_call(None, None).request,
        **process_origin(way),
        "status": "ok" if is_ok else "error",
        "about": about,
    }


def open_stores(settings: Settings, enabled: Enabled) -> OpenStores:
    """Every store of these packs, where the settings say it is. Raises: StartRefused. Nothing is opened yet."""
    migrations = [step for pack in enabled.packs for step in pack.migrations]
    binding = [store.name for store in enabled.stores if store.binding]
    places, most = store_places(settings, enabled.stores), settings.limits.store_bytes
    return OpenStores(places, settings.paths.state, migrations, binding, most)


class App(Struct):
    """What `build` made, and how to end it."""

    road: Road
    keys: KeyRing
    ledger: LocalLedger
    powers: Powers
    rules: Ruleset
    share: Share | None = None
    telemetry: Telemetry | None = None
    """The numbers that it shows, if it shows any."""
    traces: Traces | None = None
    """The spans that it sends, if it sends any."""
    changes: Any = None
    """What the console asks about upstreams that changed (`console.ports.UpstreamChanges`), if somebody gave it that."""
    panels: tuple[Any, ...] = ()
    """What the console shows beside the pages of packs (`console.ports.PackPanel`)."""
    _started: list[ServiceRun] = field(default_factory=list)

    @property
    def stops(self) -> Stops:
        return self.road.admission.stops

    @property
    def settings(self) -> Settings:
        return self.rules.settings

    @property
    def registry(self) -> SchemaRegistry:
        return self.rules.registry

    @property
    def packs(self) -> tuple[Pack, ...]:
        return self.rules.enabled.packs

    @property
    def warnings(self) -> list[str]:
        return self.rules.warnings

    @property
    def upstreams(self) -> Upstreams | None:
        return self.rules.upstreams

    @property
    def shared_limits(self) -> SharedLimits | None:
        return self.road.admission.shared

    def faces(self, rules: Ruleset | None = None) -> list[Face]:
        """Of these rules; else of those in force."""
        rules = rules or self.rules
        return make_faces(
            Parts(
                compiled=compile_schema,
                envelope=rules.registry.load_envelope,
                short_name=rules.permits.short_name,
                text_bytes=rules.settings.limits.text_bytes,
                mcp_text=rules.settings.mcp.text,
                resource_at=rules.addresses.at,
            )
        )

    def hear_upstreams(self) -> None:
        if self.upstreams is not None:
            self.upstreams.tell = partial(_record_event, self.ledger)
            self.upstreams.changed = self.powers.tell_changed

    def obey(self, rules: Ruleset) -> None:
        """These rules, from the next call on. A call under way ends by those it began with."""
        limits, admission = rules.settings.limits, self.road.admission
        admission.slots.limit(**slot_limits(limits))
        if admission.shared is None:
            admission.rate.limit(**rate_limits(limits))
        self.rules = rules
        self.hear_upstreams()
        self.powers.obey(rules)
        self.road = self.road.obeying(rules.permits, rules.addresses, limits.output_bytes)
        self.road.watch.obey(rules.permits)

    def site(self) -> PageSite | None:
        """The console, if the settings want it."""
        if not self.settings.console.enabled:
            return None
        from toolgate.console.wiring import console_of  # noqa: PLC0415 (Jinja2 and SQLite, for servers that have a console)

        return console_of(self)

    async def start_services(self) -> None:
        """Raises: StartRefused: a pack cannot work like this; then none has been started."""
        self.powers.check_packs()
        if self.shared_limits is not None:
            await self.shared_limits.reached()
        if self.share is not None and not self.share.is_owner:
            return
        if self.powers.webhook is not None:
            self.powers.webhook.start()
        self._started.append(ExpiryWatch(self.road.approvals, self.settings))
        for pack in self.packs:
            for service in pack.services:
                running = service.make()
                await running.start(self.powers.service_context(pack.name))
                self._started.append(running)

    async def ready(self) -> dict[str, bool]:
        """What /readyz tells: policy and contract were checked before we got here, log and stores are asked now."""
        return {
            "policy": True,
            "contract": True,
            "log": self.ledger.probe(),
            "stores": not self.powers.silent_stores(),
            "limits": self.limits_fault() is None,
        }

    def limits_fault(self) -> str | None:
        """What is wrong with the engine of shared limits, if there is one. Never waits."""
        return self.shared_limits.fault() if self.shared_limits is not None else None

    def upstream_states(self) -> list[dict[str, Any]]:
        """What /readyz tells besides: an upstream that is down fails its own calls and nothing else."""
        return [status.as_json() for status in self.upstreams.status()] if self.upstreams is not None else []

    async def close(self) -> None:
        """Stops services first, then what they use, and the log last: the end of a run is its last record."""
        for service in reversed(self._started):
            await service.stop()
        if self.upstreams is not None:
            await self.upstreams.close()
        if self.shared_limits is not None:
            await self.shared_limits.close()
        await self.powers.close()
        self.road.idempotency.close()
        if self.traces is not None:
            await in_thread(self.traces.exporter.close)
        self.ledger.close()


class Powers:
    """What tools may touch. The effect of a tool, and what its pack declares, select what its context holds."""

    def __init__(
        self,
        settings: Settings,
        enabled: Enabled,
        clock: Clock,
        contract: Mapping[str, Any],
        permits: Permits,
        processes: int = 1,
    ) -> None:
        self._settings = settings
        self._enabled = enabled
        self._clock = clock
        self._contract = contract
        self._permits = permits
        self.changed: Callable[[str], None] = _nobody_listens
        self.sampler: Sampler | None = None
        """Which calls become spans, where any do."""
        self._workspace = Workspace(settings.paths.workspace)
        self._reading = ReadOnlyWorkspace(self._workspace)
        self._shares = WriteShares(
            settings.limits.write_bytes_per_caller, settings.limits.free_bytes, self._clock.monotonic
        )
        self._compute = Lazy(lambda: ComputePool(max(2, COMPUTE_WORKERS // processes)))
        self._stores = Lazy(lambda: open_stores(settings, enabled))
        self.approvals = Lazy(lambda: open_approvals(settings))
        self.webhook = open_webhook(settings, clock, self.approvals.made) if settings.approvals.webhook else None
        self._key_uses = enabled.key_uses(KEY_FILE)
        self._keys = Lazy(self._open_keys)
        self._jobs = Lazy(self._open_jobs)
        self._rooms = {pack.name: self._room(pack) for pack in enabled.packs}
        self.has_shared_stores = bool(store_places(settings, enabled.stores))
        """Or may have: the settings say where a store is."""
        if self.has_shared_stores:
            self._stores.made().start()

    def obey(self, rules: Ruleset) -> None:
        """Packs may have come, those of upstreams; rooms of packs that have gone stay for calls under way."""
        self._enabled, self._contract, self._permits = rules.enabled, rules.contract, rules.permits
        self._rooms |= {pack.name: self._room(pack) for pack in rules.enabled.packs if pack.name not in self._rooms}

    def _room(self, pack: Pack) -> _PackPowers:
        table = self._enabled.tables[pack.name]
        names = frozenset(store.name for store in pack.stores)
        declared = PackSecrets(SecretSources(self._settings.paths.secrets, os.environ), pack.secrets(table))
        return _PackPowers(
            settings=table,
            stores=_PackStores(names, self._stores.made),
            reading=_PackStores(names, lambda: self._stores.made().reading),
            keys=Lazy(partial(self._open_pack_keys, pack, table)),
            net=Lazy(partial(self._open_net, pack.hosts(table))),
            secrets=declared,
            tool_secrets=ToolSecrets(declared),
            memory=pack.memory(),
        )

    def tell_changed(self, what: str) -> None:
        """To those who listen now: among several processes that is known when this one has joined them."""
        self.changed(what)

    def short_name(self, tool_id: str) -> str:
        """Of a tool that is served now."""
        return self._permits.short_name(tool_id)

    def environment(self) -> tuple[Environment, tuple[str, ...]]:
        """`cloud` only if every binding store is on a shared engine and answered lately. Never waits."""
        if not self.has_shared_stores:
            return LOCAL
        return environment_of(self._stores.made())

    def _environment_name(self) -> str:
        return self.environment()[0]

    def silent_stores(self) -> tuple[str, ...]:
        """What is wrong with each shared store that does not answer. Never waits."""
        return self._stores.made().silent() if self.has_shared_stores else ()

    def shared_stores(self) -> dict[str, bool]:
        """Each shared store, and whether it answers. Never waits."""
        return self._stores.made().shared() if self.has_shared_stores else {}

    def compute_for(self, what: str) -> CallCompute:
        """Worker processes for the server's own work."""
        return CallCompute(self._compute.made, float("inf"), what)

    def panel_context(self, pack: str) -> PanelContext:
        room = self._rooms[pack]
        return PanelContext(self._clock, room.settings, self._reading, room.reading, self.compute_for(f"panel {pack}"))

    def context_for(self, grant: Grant, ticket: Ticket) -> Context:
        """What this call's handler may touch."""
        if grant.tool.foreign is not None:
            return self._relay_context(grant, ticket)
        caller = ticket.caller
        if caller.role in self._permits.bases:
            caller = replace(caller, base=self._permits.bases[caller.role])
        deadline = float("inf") if grant.tool.inline else self._clock.monotonic() + grant.tool.deadline_s
        effect = grant.tool.effect
        room = self._rooms[grant.pack]
        return Context(
            caller=caller,
            clock=self._clock,
            deadline=deadline,
            settings=room.settings,
            compute=CallCompute(self._compute.made, deadline, caller.key_id),
            progress=ticket.call.progress,
            files=self._reading,
            stores=room.reading if effect == "read" else room.stores,
            memory=room.memory,
            writer=None if effect == "read" else CallWriter(self._workspace, self._shares, caller.key_id),
            keys=cast("PackKeys", room.keys) if effect == "crypto" else None,
            net=cast("Egress", room.net) if effect == "network" else None,
            secrets=room.tool_secrets if effect in _OUTWARD else None,
            # Who is told that a port is taken must find someone who can free it.
            jobs=OwnJobs(self._jobs.made, grant.pack, caller.key_id, sees_all=caller.administers)
            if effect == "write"
            else None,
            contract=self._contract,
            log=ticket.call.log,
            changed=None if effect == "read" else self.tell_changed,
            answers=ticket.answers,
            state=ticket.state,
            capabilities=ticket.call.capabilities & grant.asks,
            holdings=partial(self._permits.holdings, caller),
            environment=self._environment_name,
            records=partial(_own_records, self._settings.paths.runs, caller.key_id) if effect == "read" else None,
        )

    def _relay_context(self, grant: Grant, ticket: Ticket) -> Context:
        """A call that is relayed touches nothing of ours: all of an upstream's calls share what is not their own."""
        room, deadline = self._rooms[grant.pack], self._clock.monotonic() + grant.tool.deadline_s
        if room.relaying is None:
            compute = CallCompute(self._compute.made, deadline, grant.pack)
            room.relaying = Context(
                ticket.caller, self._clock, deadline, room.settings, compute, no_progress, self._reading, room.reading
            )
        return replace(
            room.relaying,
            caller=ticket.caller,
            deadline=deadline,
            progress=ticket.call.progress,
            trace=ticket.origin.trace if self.sampler is None else self.sampler.onward(ticket.ids, ticket.origin),
            log=ticket.call.log,
            answers=ticket.answers,
            state=ticket.state,
            capabilities=ticket.call.capabilities & grant.asks,
            allowed=grant.asks,
            era=ticket.call.era,
        )

    def check_packs(self) -> None:
        """Let each pack check that it can work. Raises: StartRefused."""
        for pack in self._enabled.packs:
            pack.check(self.service_context(pack.name))

    def service_context(self, pack: str) -> ServiceContext:
        room = self._rooms[pack]
        return ServiceContext(
            clock=self._clock,
            settings=room.settings,
            compute=CallCompute(self._compute.made, float("inf"), f"service {pack}"),
            files=self._reading,
            stores=room.stores,
            keys=cast("PackKeys", room.keys),
            net=cast("Egress", room.net),
            secrets=room.secrets,
            buses=NatsBuses(),
            memory=room.memory,
            changed=self.tell_changed,
        )

    async def close(self) -> None:
        if self.webhook is not None:
            await self.webhook.close()
        if self._jobs.is_made:
            await self._jobs.made().close()
        for lazy in (self._compute, self._stores, self.approvals):
            if lazy.is_made:
                lazy.close()
        self._workspace.close()

    def _open_jobs(self) -> JobKeeper:
        kinds: dict[Kind, Starter] = {}
        for pack in self._enabled.packs:
            compute = CallCompute(self._compute.made, float("inf"), f"jobs {pack.name}")
            context = JobContext(
                self._settings.paths.workspace, self._reading, compute, self._enabled.tables[pack.name]
            )
            kinds |= {(pack.name, job.kind): job.starter(context) for job in pack.jobs}
        return JobKeeper(kinds)

    def _open_keys(self) -> KeyDirectory:
        from toolgate.powers.keys import KeyDirectory  # noqa: PLC0415 (cryptography, 25 ms, for tools that sign)

        paths = self._settings.paths
        return KeyDirectory(paths.secrets, workspace=paths.workspace, uses=self._key_uses)

    def _open_pack_keys(self, pack: Pack, table: Mapping[str, Any]) -> PackKeys:
        from toolgate.powers.keys import PackKeys  # noqa: PLC0415 (as above)

        return PackKeys(self._keys.made, uses_of(pack, table), pack.keys(table))

    def _open_net(self, hosts: Hosts) -> Egress:
        from toolgate.powers.net import PackEgress  # noqa: PLC0415 (TLS and names, for tools that fetch)
        from toolgate.powers.proxy import proxy_of  # noqa: PLC0415 (as above)

        paths, egress = self._settings.paths, self._settings.egress
        return PackEgress(hosts, proxy=proxy_of(egress, SecretSources(paths.secrets, os.environ)))


def _nobody_listens(what: str) -> None:
    """Until a server has streams to tell."""


def _own_records(runs: Path, key_id: str, most: int) -> list[dict[str, Any]]:
    return latest(runs / LOG_PATH, Filter(caller=key_id), most)


class _PackPowers(Struct):
    """What one pack's tools and services may touch, as far as it is the same for every call."""

    settings: Mapping[str, Any]
    stores: _PackStores
    reading: _PackStores
    """The stores as a `read` tool gets them."""
    keys: Lazy[PackKeys]
    net: Lazy[Egress]
    secrets: PackSecrets
    tool_secrets: ToolSecrets
    memory: Any
    relaying: Context | None = None
    """What calls to an upstream share, once there was one."""


class _PackStores:
    """A pack's own stores, opened on first use."""

    __slots__ = ("_made", "_names")

    def __init__(self, names: frozenset[str], made: Callable[[], Stores]) -> None:
        self._names = names
        self._made = made

    def get(self, name: str) -> Store:
        """Raises: KeyError: the pack declares no such store."""
        if name not in self._names:
            raise KeyError(name)
        return self._made().get(name)
