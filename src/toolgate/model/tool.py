"""The one small door: what a pack exports, and what a tool is handed when it runs.

Tier, ADR, hint and roles are not here on purpose: they come from the policy manifest, so code cannot promote itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from toolgate.model.call import Caller
    from toolgate.model.clock import Clock
    from toolgate.model.powers import Buses, Compute, Egress, Jobs, ReadFiles, Secrets, SigningKeys, Stores, WriteFiles

Effect = Literal["read", "write", "crypto", "network"]
Decision = Literal["block", "warn", "pass"]

ID_PREFIX: Final = "mcp.tool:"
"""One tool, two names (decision 11): `lra_init` where people type, `mcp.tool:lra.init` in logs, registry and on rpc."""


class Result(Struct, frozen=True):
    """What a handler answers. The floor decides what of it may leave."""

    data: Any = None
    decision: Decision | None = None
    code: str | None = None
    message: str | None = None
    success: bool = True
    is_error: bool | None = None
    degraded: bool | None = None
    exit_code: int = 0
    """What a command line would exit with: 1 for `the call went through and the finding is bad` (lra_verify)."""


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
    """SQL stores by name; a `read` tool gets them read only."""
    writer: WriteFiles | None = None
    """The workspace, writable: effect `write`, `crypto` or `network`."""
    keys: SigningKeys | None = None
    """Signing keys by name: effect `crypto`."""
    net: Egress | None = None
    """Guarded outgoing HTTP: effect `network`."""
    jobs: Jobs | None = None
    """Things that go on after the answer (dev servers): effect `write`."""
    contract: Mapping[str, Any] | None = None
    """The contract this server runs under: what a committed one is compared with."""


Run = Callable[[Context, dict[str, Any]], "Result | Awaitable[Result]"]
"""`def` runs in a worker thread: it may block, and is interrupted at the deadline. `async def` runs on the event loop as a
task: it must never block. Only a `def` whose tool says `inline` is called directly."""


class Tool(Struct, frozen=True):
    name: str
    """`lra_init`: on mcp, mrt and the command line."""
    id: str
    """`lra.init`: the part after `mcp.tool:`."""
    summary: str
    """What an agent reads before it calls. Locked by the contract."""
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: Effect
    deadline_s: float
    run: Run
    error_codes: Sequence[str] = ()
    """Every code the tool may answer, beyond INVALID_INPUT, INVALID_OUTPUT and EXECUTION_FAILED, which every tool may."""
    decisions: Sequence[Decision] = ()
    text: Callable[[Any], str] | None = None
    """The plain-text form of `data` (stdout in the dispatch face); without it, indented JSON."""
    inline: bool = False
    """`run` returns within microseconds, never waits and never loops over input: called directly, no thread, no task."""
    argument_roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Roles for one argument: `receipt` or `mode=calibration`. Others get auth_insufficient_role (decision 2)."""

    @property
    def canonical_id(self) -> str:
        return ID_PREFIX + self.id


class Service(Struct, frozen=True):
    """What runs beside calls (gossip ticks, dev servers). Both are awaited; stop must end within the drain time."""

    name: str
    start: Callable[[ServiceContext], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


class ServiceContext(Struct, frozen=True):
    """What a service may touch: every power, because no caller chooses its work."""

    clock: Clock
    settings: Mapping[str, Any]
    compute: Compute
    files: ReadFiles
    stores: Stores
    keys: SigningKeys
    net: Egress
    """Opened for what `Pack.peers` names, and for nothing else that is private."""
    secrets: Secrets
    buses: Buses


class Pack(Struct, frozen=True):
    """A room full of tools."""

    name: str
    tools: Sequence[Tool]
    settings_schema: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "additionalProperties": False}
    )
    """JSON Schema of the `[packs.NAME]` table in toolgate.toml; closed, every key with a default."""
    migrations: Sequence[Migration] = ()
    services: Sequence[Service] = ()
    keys: Sequence[str] = ()
    """Names of the signing keys that a new home is furnished with, so that the pack works at once."""
    peers: Callable[[Mapping[str, Any]], Sequence[str]] = lambda settings: ()  # noqa: ARG005
    """`host:port` pairs, from its settings, that the pack may reach although they are private or not HTTPS."""


class Migration(Struct, frozen=True):
    """One numbered step of a store's tables: plain SQL statements that SQLite and PostgreSQL both take."""

    store: str
    version: int
    statements: Sequence[str]
