"""Which settings there are: every limit and place the server knows, each with a name, a unit and a reason.

Where their values come from is `toolgate.config`.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolgate.settings.limits import LimitSettings
from toolgate.settings.outward import ApprovalSettings, EgressSettings
from toolgate.settings.spec import Resolved, Source, Spec, defaulted
from toolgate.settings.spec import described as _is

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_PACKS: Final = ("consensus", "governance", "library", "lra")
"""The packs that ship with Toolgate and need nothing configured."""
STORES: Final = "stores."
"""Before the name of a store. Which stores there are is said by the packs."""

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_FULL: Final = "429 `too_many_idempotency_keys` for the next key, on MCP a result with `isError`; before anything runs"


@defaulted
class ServerSettings(NamedTuple):
    """How the HTTP server listens, and how long it waits for slow or hostile clients."""

    host: str = _is(
        "text",
        "127.0.0.1",
        "the address to listen on",
        "address",
        short="--host",
        why="loopback unless someone decides otherwise",
    )
    port: int = _is(
        "whole", 8000, "the port to listen on; 0 picks a free one", "TCP port", low=0, high=65535, short="--port"
    )
    workers: str = _is(
        "text",
        "1",
        "how many processes serve the port; auto is one a core",
        "a number from 1 to 99, or auto",
        form=r"auto|[1-9][0-9]?",
        like="4",
        short="--workers",
        why="a process uses one core",
    )
    allowed_hosts: tuple[str, ...] = _is(
        "words",
        (),
        "Host headers served besides the loopback ones; needed for any other address (DNS rebinding)",
        "host[:port]",
        live=True,
    )
    allowed_origins: tuple[str, ...] = _is(
        "words",
        (),
        "Origin headers served; a browser page of any other is refused",
        "origin",
        live=True,
    )
    trusted_proxies: tuple[str, ...] = _is(
        "words",
        (),
        "proxies whose X-Forwarded-For or Forwarded is believed, for the client's address in the audit log",
        "address or network",
        live=True,
    )
    tls_certificate: Path | None = _is(
        "place",
        "",
        "the server's certificate with its chain, PEM: with it the server speaks TLS 1.2 and 1.3, and no plain HTTP",
        why="for those without a proxy",
    )
    tls_key: Path | None = _is("place", "", "the private key of that certificate, PEM, not readable by other users")
    header_read_seconds: float = _is(
        "number",
        10.0,
        "how long a client may take to send its headers, with TLS from the first byte of its handshake on",
        "s",
        low=0.1,
        high=300,
        sees="408 `request_timeout`, then closed",
        why="one that never ends them holds a connection",
    )
    body_read_seconds: float = _is(
        "number",
        10.0,
        "how long a client may take to send a body",
        "s",
        low=0.1,
        high=300,
        sees="408 `request_timeout`, then closed",
        why="one that never ends it holds a connection",
    )
    write_seconds: float = _is(
        "number",
        10.0,
        "how long a client may leave its answer unread",
        "s",
        low=0.1,
        high=300,
        sees="the connection ends",
        why="meanwhile it holds a connection",
    )
    keep_alive_seconds: float = _is(
        "number",
        75.0,
        "how long a connection may rest between an answer and the next request",
        "s",
        low=1,
        high=3600,
        sees="the connection is closed",
    )
    request_line_bytes: int = _is(
        "whole",
        4096,
        "the longest request line: method, target and version",
        "bytes",
        low=256,
        high=65_536,
        sees="414 `request_line_too_long`, then closed",
        why="our longest path is short",
    )
    max_headers: int = _is(
        "whole",
        64,
        "how many headers a request may have",
        "headers",
        low=8,
        high=256,
        sees="431 `headers_too_large`, then closed",
        why="clients send about ten, and hundreds are an attack",
    )
    header_bytes: int = _is(
        "whole",
        16_384,
        "how long all headers of a request may be together; likewise what frames a chunked body, with extensions and trailers",
        "bytes",
        low=1024,
        high=65_536,
        sees="431 `headers_too_large` (chunks: `chunks_too_small_or_trailers_too_large`), then closed",
    )
    max_connections: int = _is(
        "whole",
        1024,
        "how many connections may be open at once; then the oldest idle one without an accepted key goes; a quarter is kept "
        "for accepted keys, and one key holds at most a quarter",
        "connections",
        low=4,
        high=65_536,
        sees="its connection ends; 503 `too_many_connections` while every place is being answered",
    )
    drain_seconds: float = _is(
        "number",
        10.0,
        "how long a stopping server, or one whose standard input was closed, waits for calls under way",
        "s",
        low=0,
        high=600,
        sees="calls under way are cancelled, and answered as that",
    )

    @property
    def scheme(self) -> str:
        return "http" if self.tls_certificate is None else "https"


@defaulted
class McpSettings(NamedTuple):
    """How answers are spelt on MCP."""

    text: str = _is(
        "text",
        "reader",
        "the text of an answer: for a reader (the tool's own text and one line about the verdict), or the whole envelope as JSON",
        choices=("reader", "envelope"),
        why="the envelope is always in structuredContent; as text it costs a model some 150 tokens a call",
        live=True,
    )


@defaulted
class ConsoleSettings(NamedTuple):
    """The pages for people at /console."""

    enabled: bool = _is(
        "switch",
        default=False,
        what="serve the console, where people who have a key see calls, tools and keys, at /console on the same port",
    )


@defaulted
class PathSettings(NamedTuple):
    """Where things are. Relative paths are relative to the home directory. Only `workspace` is visible to tools."""

    workspace: Path = _is("place", "workspace", "the directory of the files that tools may read and write")
    runs: Path = _is("place", "runs", "the directory of the audit log")
    policy: Path | None = _is(
        "place", "policy", "the directory of the policy manifest; without it the packaged policy holds"
    )
    keys: Path = _is(
        "place", "keys/callers.json", "the file with the digests of callers' keys (0600 in a directory 0700)"
    )
    secrets: Path = _is("place", "secrets", "the directory of signing keys, by name (mode 0700)")
    state: Path = _is("place", "state", "the directory of SQLite stores")


@defaulted
class PackSettings(NamedTuple):
    """Which packs are loaded, and each pack's own table `[packs.NAME]` as written (its schema checks it later)."""

    enabled: tuple[str, ...] = _is(
        "words", DEFAULT_PACKS, "the packs to load: only these, also if more are installed", "pack names"
    )
    tables: Mapping[str, Mapping[str, Any]] = _NONE


@defaulted
class StoreSettings(NamedTuple):
    """Database URLs of the packs' stores; without one, SQLite in the state directory. `cloud` needs every binding store on a
    shared engine.
    """

    urls: Mapping[str, str] = _NONE
    """Those that are set, by store."""


def store_setting(name: str, what: str) -> Spec:
    """What the setting of one store is."""
    return Spec(STORES + name, "text", "", "URL", what, secret=True)


@defaulted
class IdempotencySettings(NamedTuple):
    """Answers of calls with an idempotency key, kept for who asks again. None is dropped early: its call would run again."""

    url: str = _is(
        "text", "", "where machines share them (postgresql://...); else SQLite in paths.state", "URL", secret=True
    )
    keep_seconds: float = _is(
        "number", 86_400.0, "how long a key is known; then the same call runs again", "s", low=1800, high=2_592_000
    )
    keys_per_caller: int = _is(
        "whole", 10_000, "how many keys of one caller are kept", "keys", low=10, high=10_000_000, sees=_FULL
    )
    bytes_per_caller: int = _is(
        "whole", 67_108_864, "how long its kept answers are together", "bytes", low=1_048_576, high=2**40, sees=_FULL
    )


@defaulted
class LedgerSettings(NamedTuple):
    """The audit log."""

    segment_bytes: int = _is(
        "whole",
        67_108_864,
        "how large a file of the log grows before the next is begun",
        "bytes",
        low=65_536,
        high=1_073_741_824,
    )
    checkpoint_seconds: float = _is(
        "number", 1.0, "the longest time between signed checkpoints", "s", low=0.01, high=3600
    )
    checkpoint_records: int = _is(
        "whole", 256, "the most records between signed checkpoints", "records", low=1, high=1_000_000
    )
    low_space_bytes: int = _is(
        "whole",
        1_073_741_824,
        "free space for the log below which the server warns on standard error; 0 is never",
        "bytes",
        low=0,
        high=1_099_511_627_776,
        why="on a full disk it refuses every call",
    )
    retention_days: int = _is(
        "whole", 0, "how long runs are kept before they are deleted; 0 keeps everything", "days", low=0, high=36_500
    )
    anchor_file: Path | None = _is(
        "place", "", "a file to which each checkpoint is also appended, best on another machine's disk"
    )
    anchor_command: tuple[str, ...] = _is(
        "words", (), "a program, with its arguments, that is given each checkpoint on standard input", "argv"
    )
    keep: Mapping[str, tuple[str, ...]] = _NONE
    """`[ledger.keep]`: arguments that are written down, by tool. Checked against the tools at start."""


@defaulted
class MetricsSettings(NamedTuple):
    """Numbers for Prometheus."""

    enabled: bool = _is(
        "switch",
        default=False,
        what="serve numbers for Prometheus at /metrics, on the server's own port, to keys of the role admin; "
        "needs the extra toolgate[metrics]",
    )
    listen: str = _is(
        "text",
        "",
        "an address for /metrics alone, like 127.0.0.1:9464, where it needs no key; needs the extra toolgate[metrics]",
        "an address with a port",
        form=r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}",
        like="127.0.0.1:9464",
        why="a scraper then holds no key; let only scrapers reach it",
    )

    @property
    def are_shown(self) -> bool:
        return self.enabled or bool(self.listen)


@defaulted
class TraceSettings(NamedTuple):
    """Spans for OpenTelemetry, made of what the audit log is told."""

    endpoint: str = _is(
        "text",
        "",
        "where spans are sent, as OTLP over HTTP, like http://127.0.0.1:4318/v1/traces; reached directly, never by "
        "egress.proxy; needs the extra toolgate[otel]",
        "URL",
        form=r"https?://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?(/[A-Za-z0-9._~/%-]*)?",
        like="http://127.0.0.1:4318/v1/traces",
    )
    sample: float = _is(
        "number",
        0.05,
        "how many of the calls without a trace become spans; a caller that sends a traceparent decides by its flag",
        "share",
        low=0,
        high=1,
        why="a span costs a good part of a call",
    )
    headers: str = _is(
        "text",
        "",
        "where the headers that the collector asks for are kept (NAME=VALUE,NAME=VALUE): env:NAME, or file:NAME for a "
        "file in paths.secrets; over a network only with https",
        "reference",
        form=r"(env|file):[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
    )


@defaulted
class LogSettings(NamedTuple):
    """What a server says to its operator, on standard error. Calls are in the audit log."""

    format: str = _is("text", "text", "how lines are written", choices=("text", "json"))
    level: str = _is(
        "text",
        "warning",
        "from which level on; info adds starts, stops, what is up again, and refusals in sums",
        choices=("debug", "info", "warning", "error"),
    )

    @property
    def sums_refusals(self) -> bool:
        return self.level in ("debug", "info")


@defaulted
class Settings(NamedTuple):
    home: Path
    """Absolute. Every relative path is relative to it."""
    file: Path | None
    """The toolgate.toml that was read, if there is one."""
    server: ServerSettings
    limits: LimitSettings
    mcp: McpSettings
    console: ConsoleSettings
    paths: PathSettings
    packs: PackSettings
    stores: StoreSettings
    ledger: LedgerSettings
    idempotency: IdempotencySettings
    approvals: ApprovalSettings
    egress: EgressSettings
    metrics: MetricsSettings
    traces: TraceSettings
    log: LogSettings
    deterministic_ids: bool = _is(
        "switch", default=False, what="the same call gets the same ids in every run: for tests and parity checks only"
    )
    # The next three are named as in the deployments that already have such tables.
    fpTableName: str = _is(  # noqa: N815
        "text",
        "",
        "the DynamoDB table of reviews and suppressions, instead of stores.false_positives",
        "table",
        variable_name="FP_TABLE_NAME",
    )
    consentTableName: str = _is(  # noqa: N815
        "text",
        "",
        "the DynamoDB table of consent, instead of stores.consent",
        "table",
        variable_name="CONSENT_TABLE_NAME",
    )
    awsRegion: str = _is(  # noqa: N815
        "text",
        "",
        "the AWS region of these tables; without it, what the machine's AWS configuration says",
        "region",
        variable_name="AWS_REGION",
    )
    sources: Mapping[str, Source] = _NONE
    upstreams: Mapping[str, Any] = _NONE
    """Each table `[upstreams.NAME]` as written; `toolgate.powers.mcp.table` checks it."""

    def resolved(self) -> list[Resolved]:
        """Every value with its source, in the order of this file; packs' own tables last."""
        found = [Resolved(spec, self.value(spec.key), self.sources[spec.key]) for spec in SPECS]
        for name, url in self.stores.urls.items():
            found.append(Resolved(store_setting(name, "a database"), url, self.sources[STORES + name]))
        for tool, names in self.ledger.keep.items():
            key = f"ledger.keep.{tool}"
            why = "arguments of this tool that the log keeps"
            found.append(Resolved(Spec(key, "words", (), "argument names", why), names, self.sources[key]))
        for pack, table in self.packs.tables.items():
            for name, value in table.items():
                key = f"packs.{pack}.{name}"
                found.append(
                    Resolved(Spec(key, "text", None, "", "a setting of the pack itself"), value, self.sources[key])
                )
        for name, table in self.upstreams.items():
            where = table.get("url") or table.get("command") if isinstance(table, dict) else None
            about = Spec(f"upstreams.{name}", "text", None, "", "where an upstream is")
            found.append(Resolved(about, where, "file"))
        return found

    def value(self, key: str) -> Any:
        """The value of `server.port`."""
        table, _, name = key.rpartition(".")
        return getattr(getattr(self, table) if table else self, name)


TABLES: Final[Mapping[str, type[Any]]] = {
    "server": ServerSettings,
    "limits": LimitSettings,
    "mcp": McpSettings,
    "console": ConsoleSettings,
    "paths": PathSettings,
    "packs": PackSettings,
    "stores": StoreSettings,
    "ledger": LedgerSettings,
    "idempotency": IdempotencySettings,
    "approvals": ApprovalSettings,
    "egress": EgressSettings,
    "metrics": MetricsSettings,
    "traces": TraceSettings,
    "log": LogSettings,
}


def _specs() -> Iterator[Spec]:
    every: dict[str, type[Any]] = {**TABLES, "": Settings}
    for name, kind in every.items():
        for field, spec in kind._field_defaults.items():
            if isinstance(spec, Spec):
                yield spec._replace(key=f"{name}.{field}" if name else field)


SPECS: Final = tuple(_specs())
