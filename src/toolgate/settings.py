# ruff: noqa: RUF009 (`_is` is dataclasses.field with a description, made anew for each field)
"""Which settings there are: every limit and place the server knows, each with a name, a unit and a reason.

Where their values come from is `toolgate.config`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "TOOLGATE_"
DEFAULT_PACKS: Final = ("consensus", "governance", "library", "lra")
"""The packs that ship with Toolgate and need nothing configured."""

Kind = Literal["text", "whole", "number", "switch", "words", "place"]
Source = Literal["flag", "environment", "file", "default"]


@dataclass(frozen=True, slots=True)
class Spec:
    """What one setting is. `docs/reference/settings.md`, the flags and the variables are all made from these."""

    key: str
    kind: Kind
    default: Any
    unit: str
    why: str
    low: float | None = None
    high: float | None = None
    secret: bool = False
    short: str | None = None
    """A second, shorter flag for what people type often."""

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return "--" + self.key.replace(".", "-").replace("_", "-")


def _is(kind: Kind, default: Any, why: str, unit: str = "", **more: Any) -> Any:
    """A dataclass field that carries its own description."""
    about = {"kind": kind, "why": why, "unit": unit, **more}
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class Server:
    """How the HTTP server listens, and how long it waits for slow or hostile clients."""

    host: str = _is("text", "127.0.0.1", "loopback unless someone decides otherwise", "address", short="--host")
    port: int = _is("whole", 8000, "0 picks a free one", "TCP port", low=0, high=65535, short="--port")
    allowed_hosts: tuple[str, ...] = _is(
        "words",
        (),
        "Host headers served besides the loopback ones; needed for any other address (DNS rebinding)",
        "host[:port]",
    )
    allowed_origins: tuple[str, ...] = _is(
        "words", (), "Origin headers served; a browser page of any other is refused", "origin"
    )
    header_read_seconds: float = _is(
        "number", 10.0, "a client that never ends its headers holds a connection", "s", low=0.1, high=300
    )
    body_read_seconds: float = _is(
        "number", 10.0, "a client that never ends its body holds a connection", "s", low=0.1, high=300
    )
    max_headers: int = _is("whole", 64, "clients send about ten; hundreds are an attack", "headers", low=8, high=256)
    header_bytes: int = _is("whole", 16_384, "all headers of a request together", "bytes", low=1024, high=65_536)
    max_connections: int = _is(
        "whole", 1024, "open at once; above it new ones are turned away", "connections", low=1, high=65_536
    )
    drain_seconds: float = _is(
        "number", 10.0, "how long a stopping server waits for calls under way", "s", low=0, high=600
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller, and all callers together, may use."""

    concurrency_per_caller: int = _is(
        "whole", 10, "calls of one key at once; the next is refused, never queued", "calls", low=1, high=10_000
    )
    concurrency_total: int = _is("whole", 128, "calls of all keys at once", "calls", low=1, high=100_000)
    rate_per_minute: int = _is(
        "whole", 0, "calls of one key in a minute; 0 is no limit", "calls/min", low=0, high=1_000_000
    )
    body_bytes: int = _is(
        "whole", 1_048_576, "the largest request body; may be lowered, not raised", "bytes", low=1024, high=1_048_576
    )
    output_bytes: int = _is(
        "whole", 1_048_576, "structured output above this is INVALID_OUTPUT", "bytes", low=1024, high=16_777_216
    )
    text_bytes: int = _is("whole", 65_536, "text output is cut here, at a character", "bytes", low=1024, high=1_048_576)


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things are. Relative paths are relative to the home directory. Only `workspace` is visible to tools."""

    workspace: Path = _is("place", "workspace", "the files tools may read and write")
    runs: Path = _is("place", "runs", "the audit log")
    policy: Path | None = _is(
        "place", "policy", "the policy manifest; without such a directory the packaged policy holds"
    )
    keys: Path = _is("place", "keys/callers.json", "digests of the callers' keys (0600 in a directory 0700)")
    secrets: Path = _is("place", "secrets", "signing keys by name (mode 0700)")
    state: Path = _is("place", "state", "SQLite stores")


@dataclass(frozen=True, slots=True)
class Packs:
    """Which packs are loaded, and each pack's own table `[packs.NAME]` as written (its schema checks it later)."""

    enabled: tuple[str, ...] = _is(
        "words", DEFAULT_PACKS, "only named packs are loaded, also if more are installed", "pack names"
    )
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stores:
    """Database URLs; empty means SQLite in the state directory. `cloud` needs the first two on a shared engine."""

    false_positives: str = _is("text", "", "the false-positive store", "URL", secret=True)
    consent: str = _is("text", "", "the consent store", "URL", secret=True)
    consensus: str = _is("text", "", "rounds, votes and the signer guard", "URL", secret=True)


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """The audit log."""

    segment_bytes: int = _is("whole", 67_108_864, "a new file after this", "bytes", low=65_536, high=1_073_741_824)
    checkpoint_seconds: float = _is(
        "number", 1.0, "at most this long between signed checkpoints", "s", low=0.01, high=3600
    )
    checkpoint_records: int = _is(
        "whole", 256, "at most this many records between signed checkpoints", "records", low=1, high=1_000_000
    )
    retention_days: int = _is("whole", 0, "older runs are deleted; 0 keeps everything", "days", low=0, high=36_500)
    anchor_file: Path | None = _is("place", "", "each checkpoint is also appended here, best on another machine's disk")
    anchor_command: tuple[str, ...] = _is(
        "words", (), "a program and its arguments, given each checkpoint on standard input", "argv"
    )


@dataclass(frozen=True, slots=True)
class Resolved:
    """One value and where it came from; `shown` hides what a secret holds."""

    spec: Spec
    value: Any
    source: Source

    @property
    def shown(self) -> Any:
        if self.spec.secret and self.value:
            return "(set, hidden)"
        if isinstance(self.value, Path):
            return str(self.value)
        return list(self.value) if isinstance(self.value, tuple) else self.value


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    """Absolute. Every relative path is relative to it."""
    file: Path | None
    """The toolgate.toml that was read, if there is one."""
    server: Server
    limits: Limits
    paths: Paths
    packs: Packs
    stores: Stores
    ledger: LedgerSettings
    deterministic_ids: bool = _is(
        "switch", default=False, why="the same call gets the same ids in every run: for tests and parity checks only"
    )
    sources: Mapping[str, Source] = field(default_factory=dict)

    def resolved(self) -> list[Resolved]:
        """Every value with its source, in the order of this file; packs' own tables last."""
        found = [Resolved(spec, self.value(spec.key), self.sources[spec.key]) for spec in SPECS]
        for pack, table in self.packs.tables.items():
            for name, value in table.items():
                key = f"packs.{pack}.{name}"
                found.append(Resolved(Spec(key, "text", None, "", "of the pack itself"), value, self.sources[key]))
        return found

    def value(self, key: str) -> Any:
        """The value of `server.port`."""
        table, _, name = key.rpartition(".")
        return getattr(getattr(self, table) if table else self, name)


TABLES: Final[Mapping[str, type]] = {
    "server": Server,
    "limits": Limits,
    "paths": Paths,
    "packs": Packs,
    "stores": Stores,
    "ledger": LedgerSettings,
}


def _specs() -> Iterator[Spec]:
    for table, kind in [*TABLES.items(), ("", Settings)]:
        for each in fields(kind):
            if "about" in each.metadata and each.default is not MISSING:
                yield Spec(
                    key=f"{table}.{each.name}" if table else each.name, default=each.default, **each.metadata["about"]
                )


SPECS: Final = tuple(_specs())
