"""The door: what a pack brings, and what a tool is handed when it runs.

A pack brings everything that belongs to it through `Pack`, and nothing outside a pack knows its name. Tier, ADR, hint and roles
are not here on purpose: they come from the policy manifest, so code cannot promote itself.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from toolgate.later import Command as Command  # noqa: PLC0414 (packs know it from here)
from toolgate.later import later as later  # noqa: PLC0414 (as above)
from toolgate.model.call import no_log

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.model.call import Caller
    from toolgate.model.clock import Clock
    from toolgate.model.mcpwire import Era
    from toolgate.model.offers import Prompt, Resource
    from toolgate.model.powers import Buses, Compute, Egress, Jobs, ReadFiles, Secrets, SigningKeys, Stores, WriteFiles

DOOR: Final = 1
"""The version of this door. A field that is added keeps it; a field that goes or changes its meaning raises it. The loader takes
packs of this version and refuses others by name (docs/reference/stability.md)."""

Effect = Literal["read", "write", "crypto", "network"]
Decision = Literal["block", "warn", "pass"]

Kind = Literal["tool", "prompt", "resource", "completion", "subscription", "listing"]
"""What a call is of. All but tools are made by `toolgate.model.offers`."""
Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of what a tool logs, the least urgent first (RFC 5424)."""
ASKING: Final[Mapping[str, str]] = {
    "elicitation": "elicitation/create",
    "sampling": "sampling/createMessage",
    "roots": "roots/list",
}
"""What a call may ask of its client, by the capability that the client must declare for it."""

ID_PREFIX: Final = "mcp.tool:"
"""One tool, two names: `notes_add` where people type, `mcp.tool:notes.add` in logs, registry and on rpc."""

CODE_FORM: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
"""How every code is spelt. One spelling only: a code that merely looks like a binding one would slip past the floor."""
COMMON_CODES: Final = frozenset({"INVALID_INPUT", "INVALID_OUTPUT", "EXECUTION_FAILED"})
"""What every tool may answer without declaring it: bad arguments, nonsense, a crash."""

PACK_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
USE_FORM: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""How the use of a signing key is spelt."""


class Result(Struct, frozen=True):
    """What a handler answers. The floor decides what of it may leave."""

    data: Any = None
    decision: Decision | None = None
    code: str | None = None
    message: str | None = None
    success: bool = True
    is_error: bool | None = None
    degraded: bool | None = None
    details: Any = None
    """What goes with a failure beside its code; it has no schema. `data` of a failure leaves only if the output schema takes it,
    because clients check what they are sent against what was advertised; what it does not take becomes the details."""
    exit_code: int = 0
    """What a command line would exit with: 1 for `the call went through and the finding is bad`."""
    raw: bytes | None = None
    """Of a relayed answer: `data` exactly as it came, already read strictly. For tools of upstreams only."""
    content: Sequence[Mapping[str, Any]] = ()
    """Images, sound and embedded texts for MCP clients, beside the data: `toolgate.model.offers` makes them."""
    ask: Ask | None = None
    """The call cannot go on without the client: see `Ask`."""
    counts: Mapping[str, int] | None = None
    """Numbers of which the log keeps the first sixteen, under names of the tool's own: how many findings of which severity."""


MAX_ASKED_BYTES: Final = 8192
"""All that one call asks at a time. It travels to the client twice, and back once."""


class Ask(Struct, frozen=True):
    """What a call needs of its client before it can be answered. The client calls again with the answers, and the handler
    finds them in `ctx.answers`. A tool declares what it asks for (`Tool.asks`), and its row in the manifest must allow it."""

    requests: Mapping[str, Mapping[str, Any]]
    """By a name of the tool's own: `{"method": "elicitation/create", "params": {...}}`."""
    state: Any = None
    """Comes back as `ctx.state`. The client carries it, sealed: it can neither read nor change it."""
    holds: bool = False
    """What has begun goes on at an upstream that waits for the answer: one that refuses to answer is told to the tool, too."""


class Foreign(Struct, frozen=True):
    """What is known of a tool that somebody else's server offers: whose it is, and what was approved."""

    upstream: str
    pin: str
    """Digest of all that was approved of the upstream."""
    definition: Mapping[str, Any]
    """As the upstream sent it, but for what concerns only the way to it. Clients are shown this, under the name that the tool
    has here."""


class Context(Struct, frozen=True):
    """What a tool may touch. The effect decides which powers are there: an absent power is None, and None cannot act."""

    caller: Caller
    clock: Clock
    deadline: float
    """Monotonic second at which the answer is given up."""
    settings: Mapping[str, Any]
    """The pack's own settings, checked against its schema."""
    compute: Compute
    """Pure functions over strangers' bytes run in a worker process that is killed at the deadline."""
    progress: Callable[[int, int | None, str], None]
    """progress(done, total, message): reaches callers that asked for it, costs nothing otherwise."""
    files: ReadFiles
    """The workspace, read only."""
    stores: Stores
    """The pack's own stores by name; a `read` tool gets them read only."""
    memory: Any = None
    """What the pack remembers between calls while this server runs: made by `Pack.memory`, shared by all its calls."""
    writer: WriteFiles | None = None
    """The workspace, writable: effect `write`, `crypto` or `network`."""
    keys: SigningKeys | None = None
    """Signing keys by name, for the uses that the pack declares: effect `crypto`."""
    net: Egress | None = None
    """Guarded outgoing HTTP, to the hosts that the pack declares: effect `network`."""
    secrets: Secrets | None = None
    """The secrets that the pack declares, by reference: effect `network` or `crypto`."""
    jobs: Jobs | None = None
    """Jobs of the kinds that the pack declares, which go on after the answer: effect `write`."""
    contract: Mapping[str, Any] | None = None
    """The contract this server runs under: what a committed one is compared with."""
    trace: Mapping[str, str] = {}
    """The caller's trace context (`traceparent`, `tracestate`), for a tool of an upstream, which is told."""
    log: Callable[[Level, Any], None] = no_log
    """log(level, data): reaches clients that want to read along, if the tool says `logs`. It is not the audit log."""
    changed: Callable[[str], None] | None = None
    """changed("tools"), ("prompts"), ("resources") or an address: tells those who listen. Not for effect `read`."""
    answers: Mapping[str, Any] = {}
    """What the client answered to what this call asked before (`Ask`): a stranger's words."""
    state: Any = None
    """Of the same `Ask`."""
    capabilities: frozenset[str] = frozenset()
    """What may be asked of this client in this call: of `ASKING`, what it declares."""
    allowed: frozenset[str] = frozenset()
    """Of `ASKING`, what the tool's row allows, whatever the client declares."""
    era: Era = "modern"
    """Of the client, as far as it can be asked."""
    holdings: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """What this caller may call, as the manifest in force has it: name, kind, tier, hint, summary, effect."""
    environment: Callable[[], str] = lambda: "local"
    """`cloud` or `local`, as the floor will find it."""
    records: Callable[[int], Sequence[Mapping[str, Any]]] | None = None
    """The caller's own latest records in the audit log, newest last; blocks. Effect `read` only."""


Run = Callable[[Context, dict[str, Any]], "Result | Awaitable[Result]"]
"""`def` runs in a worker thread: it may block, and is interrupted at the deadline. `async def` runs on the event loop as a
task: it must never block. Only a `def` whose tool says `inline` is called directly."""
AtOnce = Callable[["Clock", Any, dict[str, Any]], "Result | None"]
"""The answer to arguments that can be judged within microseconds, with a clock and what the pack remembers (`ctx.memory`) but
without any power; None: `run` has to. Such a call has no effect, whatever its tool's is: it is recorded as a read."""


class Tool(Struct, frozen=True):
    name: str
    """`notes_add`: on mcp, mrt and the command line."""
    id: str
    """`notes.add`: the part after `mcp.tool:`."""
    summary: str
    """What an agent reads before it calls. Locked by the contract."""
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: Effect
    deadline_s: float
    run: Run
    error_codes: Sequence[str] = ()
    """Every code the tool may answer, beyond `COMMON_CODES`. Any other is INVALID_OUTPUT, said by Result or by ToolError."""
    decisions: Sequence[Decision] = ()
    text: Callable[[Any], str] | None = None
    """The plain-text form of `data` (stdout in the dispatch face); without it, indented JSON."""
    title: str = ""
    """What clients show people; without it, the name as words."""
    at_once: AtOnce | None = None
    """Asked before `run`, for arguments that need nothing but arithmetic or memory."""
    inline: bool = False
    """`run` returns within microseconds, never waits and never loops over input: called directly, no thread, no task."""
    destructive: bool = True
    """A tool with an effect may overwrite or delete; False promises that it only adds. A client asks people by it."""
    idempotent: bool = False
    """The same call once more changes nothing more. A `read` tool changes nothing at all."""
    argument_roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Roles for one argument: `receipt` or `mode=calibration`. Others get auth_insufficient_role (ADR-0003)."""

    foreign: Foreign | None = None
    """Set for a tool of an upstream. Its schemas are a stranger's (`kit.foreignschema`), its answers are relayed."""
    logs: bool = False
    """It calls `ctx.log`."""
    asks: Sequence[str] = ()
    """What of `ASKING` it may ask of the client in the middle of a call."""
    kind: Kind = "tool"
    row: str = ""
    """Whose row of the manifest it goes by, if it has none of its own."""
    offer: Any = None
    """The prompt or resource that it was made of."""

    @property
    def canonical_id(self) -> str:
        return f"mcp.{self.kind}:{self.id}"


class ServiceRun(Protocol):
    """A service under way in one server."""

    async def start(self, context: ServiceContext, /) -> None: ...
    async def stop(self) -> None:
        """Must end within the drain time."""
        ...


class Service(Struct, frozen=True):
    """What runs beside calls (gossip, polling) while a server runs. `toolgate call` starts none."""

    name: str
    make: Callable[[], ServiceRun]
    """Called once for each server, so that nothing outlives it. A class is such a function."""


class ServiceContext(Struct, frozen=True):
    """What a service may touch: every power, because no caller chooses its work."""

    clock: Clock
    settings: Mapping[str, Any]
    compute: Compute
    files: ReadFiles
    stores: Stores
    keys: SigningKeys
    net: Egress
    """To the hosts that the pack declares."""
    secrets: Secrets
    buses: Buses
    memory: Any = None
    """The same object that the pack's tools get as `ctx.memory`."""
    changed: Callable[[str], None] = lambda what: None  # noqa: ARG005
    """As of a tool's context: tells those who listen that a list or a resource changed."""


class TableSpec(Struct, frozen=True):
    """How a store is kept in a DynamoDB table."""

    setting: str
    """The setting that names the table."""
    version: int
    """Of what is kept in it. A table that a later version has written is refused."""


class StoreSpec(Struct, frozen=True):
    """A store of the pack's own: SQLite in the state directory, or what the setting `stores.NAME` names."""

    name: str
    what: str
    """What is kept there: the setting's description."""
    binding: bool = False
    """Decisions count on it: the environment is `cloud` only while every binding store is on a shared engine and answers."""
    table: TableSpec | None = None
    """Where the pack can also use a DynamoDB table (`Store.in_table`). None: the store is SQL only."""


class Migration(Struct, frozen=True):
    """One numbered step of a store's tables: plain SQL statements that SQLite and PostgreSQL both take."""

    store: str
    version: int
    statements: Sequence[str]


class Hosts(Struct, frozen=True):
    """What a pack's network tools and services may reach; everything else is refused."""

    named: Sequence[str] = ()
    """`api.example.com` (port 443) or `api.example.com:8443`: over TLS, at a public address or behind the proxy."""
    private: Sequence[str] = ()
    """`host:port` pairs that may have a private address or no TLS. They are reached directly, never through the proxy. Such
    pairs come from settings: only an operator knows what may be asked on their network."""
    any_public: bool = False
    """Every public host, on the ports of the web, over TLS: for tools whose callers name the address."""


class JobContext(Struct, frozen=True):
    """What a kind of job is started with."""

    workspace: Path
    """The workspace's directory, for what must watch it."""
    files: ReadFiles
    compute: Compute
    settings: Mapping[str, Any]


class JobRun(Protocol):
    """A job under way."""

    details: Mapping[str, Any]

    def idle_s(self) -> float:
        """Seconds since somebody last used it; 0 while somebody does."""
        ...

    async def stop(self) -> None: ...


class Job(Struct, frozen=True):
    """A kind of job that `ctx.jobs` can start: it outlives the call that started it, and ends with the server."""

    kind: str
    starter: Callable[[JobContext], Callable[[Any], Awaitable[JobRun]]]
    """Called once for each server. What it returns starts one job from the options that the tool gave."""


class Limit(Struct, frozen=True):
    """A fixed bound of the pack, for the generated page of limits."""

    name: str
    value: int | float
    why: str
    sees: str
    """What a caller meets at it."""


class PanelCell(Struct, frozen=True):
    """More than a text in a panel's table."""

    text: str
    tone: Literal["good", "warn", "bad", "quiet", "plain"] = "quiet"
    """Drawn as a badge, which says the same in words; `plain`: as a text."""
    records: PanelTable | None = None
    """What the text was made of: it leads to a page with these rows."""


class PanelTable(Struct, frozen=True):
    title: str
    """By it the address knows the table: those of a panel differ, and what is the same keeps its own."""
    columns: Sequence[str]
    rows: Sequence[Sequence[PanelValue]]
    """A table in a cell is a count: it stands there as the number of its rows, and leads to a page with these. A bare number
    is a measure of what its row tells, such as a size."""
    note: str = ""
    tool: str = ""
    """By whose calls these came about: the console links to their records."""


PanelValue: TypeAlias = str | int | float | PanelCell | PanelTable | None


class PanelCalls(Struct, frozen=True):
    """A table that the console makes of the log: the newest calls of a tool, with numbers that their records have."""

    title: str
    tool: str
    counts: Sequence[str] = ()
    """Names in `Result.counts`, each a column."""
    note: str = ""


class PanelMark(Struct, frozen=True):
    """One of a row of marks: what it is of, what it says, and how it is drawn."""

    of: str
    text: str
    tone: Literal["good", "warn", "bad", "quiet"] = "quiet"


class PanelStrip(Struct, frozen=True):
    """Marks in a row, such as the days of a window."""

    title: str
    marks: Sequence[PanelMark]
    note: str = ""


class PanelContext(Struct, frozen=True):
    """What a panel may look at. It changes nothing: stores are those of a `read` tool."""

    clock: Clock
    settings: Mapping[str, Any]
    files: ReadFiles
    stores: Stores
    compute: Compute


class Panel(Struct, frozen=True):
    """A page of the pack in the console, for people who see everybody's calls: admins and auditors."""

    name: str
    """In its address: `panels/PACK/NAME`."""
    title: str
    summary: str
    make: Callable[[PanelContext], Awaitable[Sequence[PanelTable | PanelCalls | PanelStrip]]]
    """Called for each look. Texts are shown as texts, whatever they hold; a hundred rows of a table are shown on a page."""


class MakeContext(Struct, frozen=True):
    """What `Pack.makes` is given to make packs from."""

    settings: Mapping[str, Any]
    """The maker's own settings, checked."""
    policy: ReadFiles | None
    """The deployment's policy directory, read only; None where the packaged policy holds."""


class Pack(Struct, frozen=True):
    """Tools, and everything else that belongs to them. Only `name` and `tools` are required."""

    name: str
    tools: Sequence[Tool]
    settings_schema: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "additionalProperties": False}
    )
    """JSON Schema of the `[packs.NAME]` table in toolgate.toml; closed, every key with a default."""
    stores: Sequence[StoreSpec] = ()
    """Stores of its own. `ctx.stores` holds these and no others."""
    migrations: Sequence[Migration] = ()
    """The tables of its stores, step by step."""
    secrets: Callable[[Mapping[str, Any]], Sequence[str]] = lambda settings: ()  # noqa: ARG005
    """References (`env:NAME`, `file:NAME`), from its settings, to the secrets that it may read."""
    hosts: Callable[[Mapping[str, Any]], Hosts] = lambda settings: Hosts()  # noqa: ARG005
    """What it may reach, from its settings."""
    commands: Sequence[Command] = ()
    """Commands for people. They are there where the pack is enabled."""
    services: Sequence[Service] = ()
    jobs: Sequence[Job] = ()
    keys: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda settings: {}  # noqa: ARG005
    """Name -> use of the signing keys that its settings name. A new home is furnished with those of the defaults, so that
    the pack works at once. A use is a word like `voting`: no other part of the server gets a signature of that key."""
    key_uses: Sequence[str] = ()
    """Further uses, of keys that callers name. A use belongs to one pack."""
    memory: Callable[[], Any] = lambda: None
    """Makes what its tools and services share between calls (`ctx.memory`). Called once for each server; no module-level
    variable may do this, because it would outlive the server."""
    check: Callable[[ServiceContext], None] = lambda context: None  # noqa: ARG005
    """Raises StartRefused for what the pack cannot work with beyond its settings' schema. Every server asks before it starts
    a service, and so does `toolgate doctor`: it changes nothing and starts nothing."""
    limits: Sequence[Limit] = ()
    """Its fixed bounds, for the reference."""
    makes: Callable[[MakeContext], Sequence[Pack]] | None = None
    """Makes further packs at run time from data. They are judged, governed and served like any other."""
    prompts: Sequence[Prompt] = ()
    """`toolgate.model.offers.Prompt`: texts for models, made when asked for."""
    resources: Sequence[Resource] = ()
    """`toolgate.model.offers.Resource`: what can be read at an address."""
    panels: Sequence[Panel] = ()
    """What the console shows of the pack beside its calls."""
    metrics: Sequence[Any] = ()
    """Not served yet: must be empty."""
    door: int = 1
    """The `DOOR` that the pack was written for. A pack that says nothing was written for the first."""
