"""MCP servers that somebody else wrote, joined: settings, pins, secrets and the client, as packs for the road.

Beside `app.py`, which calls it: what is here knows the powers, the packs and the policy.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import StartRefused, ToolError
from toolgate.kit.pins import FOLDER, MAX_FILE_BYTES, Pin, PinFault, compare, digest_of, read_pin
from toolgate.model.threads import in_thread
from toolgate.model.tool import Pack
from toolgate.packs.upstream.addresses import Rewriting
from toolgate.packs.upstream.names import contested, taken_with
from toolgate.packs.upstream.tools import MAKER, pack_of
from toolgate.powers.mcp.bounds import Bounds
from toolgate.powers.mcp.children import ChildRegister, Program, environment_for, open_child
from toolgate.powers.mcp.failures import NotSent, drift
from toolgate.powers.mcp.http import Dialer, Endpoint, HttpTransport
from toolgate.powers.mcp.program import is_private, peer_of_command, peer_of_url
from toolgate.powers.mcp.sandbox import confined, is_there
from toolgate.powers.mcp.table import UpstreamTable, read_table
from toolgate.powers.mcp.upstream import Upstream, UpstreamEvent, UpstreamOptions
from toolgate.powers.oauth.exchange import OAuthFailed
from toolgate.powers.oauth.opening import Logins
from toolgate.powers.proxy import proxy_of
from toolgate.powers.secrets import SecretSources

if TYPE_CHECKING:
    from toolgate.kit.pins import Offer, PinDrift
    from toolgate.model.powers import Secrets
    from toolgate.model.tool import Effect
    from toolgate.policy.manifest import ManifestRow
    from toolgate.powers.mcp.transport import Transport
    from toolgate.settings import Settings

LISTS: Final = ("tools", "prompts", "resources")
"""What can change beside resources."""
SUFFIX: Final = ".pin.json"
MAX_TOLD: Final = 64
"""Lists of one upstream with something new, and as many with something changed, that the log is told of. What is new is not
served and what changed is refused, told or not."""
MAX_NAMED: Final = 20
_NAME_CHARS: Final = 200


class UpstreamStatus(Struct, frozen=True):
    """One upstream, for /readyz, doctor and `upstream status`."""

    name: str
    state: str
    """`not_adopted`, `idle` (nothing was asked of it yet), `up` or `down`."""
    reason: str = ""
    pin: str = ""
    refused: Mapping[str, str] = {}
    """Places of the pin that are not served, each with the reason."""

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.name, "state": self.state}
        if self.reason:
            told["reason"] = self.reason
        return told | ({"refused": dict(sorted(self.refused.items()))} if self.refused else {})


def read_tables(settings: Settings) -> dict[str, UpstreamTable]:
    """Raises: SettingsError."""
    return {name: read_table(name, given) for name, given in settings.upstreams.items()}


def pin_path(policy: Path, name: str) -> Path:
    return policy / FOLDER / f"{name}{SUFFIX}"


def read_pins(policy: Path | None, names: Iterable[str]) -> dict[str, Pin]:
    """The pins of these upstreams, as far as there are any. Raises: StartRefused: a file is not a pin, or somebody else's."""
    found: dict[str, Pin] = {}
    for name in names if policy is not None else ():
        assert policy is not None
        path = pin_path(policy, name)
        try:
            with path.open("rb") as file:
                pin = read_pin(file.read(MAX_FILE_BYTES + 1))
        except FileNotFoundError:
            continue
        except OSError as fault:
            raise StartRefused(
                f"{path} cannot be read ({fault.strerror}).\nGive the server's user access to it."
            ) from None
        except PinFault as fault:
            raise StartRefused(f"{path} is refused: {fault}.\nRun toolgate upstream adopt {name} again.") from None
        if pin.upstream != name:
            raise StartRefused(f"{path} is the pin of {pin.upstream!a}.\nAdopt {name} itself.")
        found[name] = pin
    return found


async def peer_now(table: UpstreamTable) -> dict[str, Any]:
    """Who the upstream is today. Raises: NotSent, ToolError."""
    if table.url:
        return peer_of_url(table.url, private=await is_private(table.url))
    environment = environment_for({}, os.environ)
    return await in_thread(peer_of_command, table.command, environment.get("PATH"), table.directory)


def connector(
    table: UpstreamTable,
    secrets: Secrets,
    peer: Mapping[str, Any],
    births: ChildRegister | None,
    bounds: Bounds,
    hidden: Sequence[Path] = (),
    logins: Logins | None = None,
) -> Callable[[], Any]:
    """How a connection to this upstream is made. Secrets are read each time, so that a replaced one counts at once.
    `hidden`: what a confined program sees nothing of."""

    def resolved() -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        """(headers, environment, the secrets in them)"""
        try:
            return *table.resolved(secrets.read), tuple(map(secrets.read, table.secrets()))
        except StartRefused as fault:
            raise NotSent("no_secret", str(fault).partition("\n")[0]) from None

    async def start() -> Transport:
        _, declared, given = resolved()
        environment, command = environment_for(declared, os.environ), table.command
        if table.sandbox != "none":
            command = confined(command, table.directory, hidden, environment.get("PATH"))
        program = Program(command, environment, table.directory, secrets=given)
        return await open_child(program, bounds, births)

    async def reach() -> Transport:
        headers, _, _ = resolved()
        endpoint = Endpoint(table.url, private=bool(peer.get("private")), headers=headers)
        login = logins.of(table, private=endpoint.private) if logins is not None and table.oauth is not None else None
        return HttpTransport(endpoint, Dialer(endpoint), bounds, most_idle=table.concurrency, login=login)

    return reach if table.url else start


class Adopted:
    """One upstream that has a pin: the way to it, and what of it is refused."""

    def __init__(
        self,
        table: UpstreamTable,
        pin: Pin,
        secrets: Secrets,
        births: ChildRegister | None,
        on_event: Callable[[str, UpstreamEvent], None],
        on_change: Callable[[str], None],
        reach: Callable[..., Callable[[], Any]] = connector,
        *,
        owns: bool = True,
    ) -> None:
        """`on_change`: told of a list, or of an address here, that changed. `owns`: it is this process that connects."""
        self._owns = owns
        self.table = table
        self.pin = pin
        bounds = Bounds()
        self._connect = reach(table, secrets, pin.peer, births, bounds)
        self._on_event = on_event
        self._told: dict[str, set[str]] = {"unapproved": set(), "drifted": set()}
        """Digests of what the log has of these."""
        rewriting = Rewriting(table.name, not table.prefix)
        self.upstream = Upstream(
            table.name,
            self._checked,
            self._judge,
            options=UpstreamOptions(concurrency=table.concurrency, bounds=bounds),
            on_event=self._heard,
            on_change=lambda what: on_change(what if what in LISTS else rewriting.here(what)),
        )

    async def _checked(self) -> Transport:
        """Another program than the approved one is not even started. Raises: NotSent, UpstreamFailed."""
        table = self.table
        if not self._owns:
            raise NotSent("not_owner", f"{table.name} is reached by another process of this server")
        if table.url:
            same = table.url == self.pin.peer.get("url")
        else:
            same = digest_of(await peer_now(table)) == digest_of(self.pin.peer)
        if not same:
            self._tell_drifted(dict.fromkeys(sorted(self.pin.places()), "program_changed"))
            raise drift("program_changed", f"{table.name} is not the program or address that was approved")
        transport: Transport = await self._connect()
        return transport

    def _judge(self, offer: Offer) -> dict[str, str]:
        found = compare(self.pin, offer)
        if found.added or found.about:
            self._tell_unapproved(found, offer)
        return found.refused(self.pin)

    def _heard(self, event: UpstreamEvent) -> None:
        if event.kind == "drifted":
            self._tell_drifted(event.details["tools"])
        else:
            self._on_event(self.table.name, event)

    def _tell_drifted(self, refused: Mapping[str, str]) -> None:
        """A server that is now as approved and now otherwise, or a program that stays replaced, is met at every connection."""
        if self._is_new("drifted", refused):
            named = dict(list(refused.items())[:MAX_NAMED])
            self._on_event(self.table.name, UpstreamEvent("drifted", {"tools": named, "count": len(refused)}))

    def _tell_unapproved(self, found: PinDrift, offer: Offer) -> None:
        """What is new is not served and refuses nothing, so no call would ever tell of it. The names are a stranger's: neither
        their number nor their length fills the log."""
        if self._is_new("unapproved", [found.added, offer.server, offer.instructions]):
            named = [place[:_NAME_CHARS] for place in found.added[:MAX_NAMED]]
            details = {"new": named, "count": len(found.added), "differs": list(found.about)}
            self._on_event(self.table.name, UpstreamEvent("unapproved", details))

    def _is_new(self, kind: str, what: Any) -> bool:
        """Each is told once, whatever comes between, and only so many are."""
        told, digest = self._told[kind], digest_of(what)
        if digest in told or len(told) >= MAX_TOLD:
            return False
        told.add(digest)
        return True

    def is_same(self, table: UpstreamTable, pin: Pin) -> bool:
        return self.table == table and self.pin == pin

    def status(self, unserved: Mapping[str, str]) -> UpstreamStatus:
        refused = {**unserved, **self.upstream.mismatch}
        return UpstreamStatus(self.table.name, self.upstream.state, self.upstream.reason, self.pin.digest, refused)


class Upstreams:
    """All of a server's."""

    def __init__(
        self, settings: Settings, secrets: Secrets, *, before: Upstreams | None = None, owns: bool = True
    ) -> None:
        """`before`: those that are served now; what has the same table and pin is taken over with its connection.
        `owns`: the children are this process's.

        Raises: StartRefused. Side effects: without `before`, children that a killed server left behind are ended.
        """
        self.tell: Callable[[str, UpstreamEvent], None] = before.tell if before is not None else _tell_nobody
        self.changed: Callable[[str], None] = before.changed if before is not None else _tell_no_change
        tables = read_tables(settings)
        pins = read_pins(settings.paths.policy, tables)
        self.births: ChildRegister = (
            before.births if before is not None else ChildRegister(settings.paths.state / FOLDER)
        )
        if before is None and owns:
            self.births.reap()
        self._waiting = sorted(tables.keys() - pins.keys())
        self._unserved: dict[str, Mapping[str, str]] = {}
        """Of each upstream, places of the pin that cannot be served under the name they would have."""
        known = before.adopted if before is not None else {}
        reach = partial(connector, hidden=hidden_from_programs(settings), logins=logins_of(settings))
        self.adopted: dict[str, Adopted] = {
            name: known[name]
            if name in known and known[name].is_same(tables[name], pin)
            else Adopted(tables[name], pin, secrets, self.births, self._tell, self._changed, reach, owns=owns)
            for name, pin in sorted(pins.items())
        }

    def _tell(self, name: str, event: UpstreamEvent) -> None:
        self.tell(name, event)

    def left_by(self, after: Upstreams | None) -> list[Adopted]:
        """Those that are not served any more."""
        kept = after.adopted if after is not None else {}
        return [adopted for name, adopted in self.adopted.items() if kept.get(name) is not adopted]

    def _changed(self, what: str) -> None:
        self.changed(what)

    def maker(self, taken: Iterable[str], rows: Mapping[str, ManifestRow]) -> Pack:
        """The pack that makes one of each pin. `taken`: names that no tool of an upstream may have."""
        effects = {name: row.effect for name, row in rows.items() if row.effect is not None}
        return Pack(MAKER, (), makes=lambda _: self._make(taken, effects))

    def _make(self, taken: Iterable[str], effects: Mapping[str, Effect]) -> list[Pack]:
        """A name that is taken by a tool of ours is not served twice, and one that two upstreams want is served by neither:
        which of them is first by name says nothing about which was meant."""
        own = frozenset(taken)
        wanted = contested(
            taken_with(name, adopted.table.prefix, adopted.pin.places(), own) for name, adopted in self.adopted.items()
        )
        made: list[Pack] = []
        for adopted in self.adopted.values():
            pack, self._unserved[adopted.table.name] = pack_of(
                adopted.pin,
                adopted.upstream,
                prefix=adopted.table.prefix,
                deadline_s=adopted.table.deadline_s,
                taken=own,
                contested=wanted,
                effects=effects,
            )
            made.append(pack)
        return made

    def status(self) -> list[UpstreamStatus]:
        waiting = [UpstreamStatus(name, "not_adopted") for name in self._waiting]
        known = [adopted.status(self._unserved.get(name, {})) for name, adopted in self.adopted.items()]
        return sorted([*known, *waiting], key=lambda status: status.name)

    async def close(self) -> None:
        await asyncio.gather(*(adopted.upstream.close() for adopted in self.adopted.values()))


def _tell_no_change(_what: str) -> None:
    pass


def _tell_nobody(_name: str, _event: UpstreamEvent) -> None:
    pass


def hidden_from_programs(settings: Settings) -> tuple[Path, ...]:
    """What is the gate's own: its home, and what the settings have put elsewhere."""
    paths = settings.paths
    return (settings.home, paths.secrets, paths.state, paths.runs)


def logins_of(settings: Settings) -> Logins:
    secrets = SecretSources(settings.paths.secrets, os.environ)
    return Logins(settings.paths.secrets, secrets, proxy_of(settings.egress, secrets))


async def describe(
    table: UpstreamTable, secrets: Secrets, hidden: Sequence[Path] = (), logins: Logins | None = None
) -> tuple[Offer, dict[str, Any]]:
    """(what an upstream offers today, who it is): for a person who looks at it. Raises: UpstreamFailed, NotSent, ToolError."""
    peer = await peer_now(table)
    bounds = Bounds()
    connect = connector(table, secrets, peer, None, bounds, hidden, logins)
    upstream = Upstream(table.name, connect, lambda _: {}, options=UpstreamOptions(bounds=bounds))
    return await upstream.describe(), peer


async def examine(settings: Settings, secrets: Secrets) -> dict[str, str]:
    """Each upstream with a reason code, without a connection: `adopted`, `not_adopted`, `no_login`, `no_secret`, `no_sandbox`,
    `not_found`, `program_changed`. Raises: StartRefused."""
    tables = read_tables(settings)
    pins = read_pins(settings.paths.policy, tables)
    logins = logins_of(settings)
    return {name: await _examined(table, pins.get(name), secrets, logins) for name, table in sorted(tables.items())}


async def _examined(table: UpstreamTable, pin: Pin | None, secrets: Secrets, logins: Logins) -> str:
    if pin is None:
        return "not_adopted"
    if table.oauth is not None and not _is_logged_in(logins, table):
        return "no_login"
    if table.sandbox != "none" and not is_there(environment_for({}, os.environ).get("PATH")):
        return "no_sandbox"
    try:
        table.resolved(secrets.read)
        peer = pin.peer if table.url and table.url == pin.peer.get("url") else await peer_now(table)
    except StartRefused:
        return "no_secret"
    except (NotSent, ToolError):
        return "not_found"
    return "adopted" if digest_of(peer) == digest_of(pin.peer) else "program_changed"


def _is_logged_in(logins: Logins, table: UpstreamTable) -> bool:
    try:
        return logins.file(table).read() is not None
    except OAuthFailed:
        return False
