"""The shapes of the powers. The powers themselves are in `toolgate.powers`; packs know only these shapes.

Powers keep honest code honest and testable. They are not a sandbox: a pack is trusted code in our process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

In = TypeVar("In")
Out = TypeVar("Out")


Unchanged = Callable[[], bool]
"""True: what it was made of is as it was then, whoever might have changed it, in this process or another. It never waits."""


class FileEntry(NamedTuple):
    """One file of the workspace: a path with forward slashes, relative to the workspace."""

    path: str
    size: int
    modified: float
    is_link: bool = False
    """A link, which nobody follows. Only a walk that asks for links, or for everything, tells of them."""


class WatchedTree(NamedTuple):
    """The files of a workspace as they were found, sorted by path."""

    files: Sequence[FileEntry]
    is_unchanged: Callable[[], bool]
    """No file was written, made, moved or removed since. False also where the system does not tell: look again. A change made
    by another machine on a shared disk, or through mapped memory, is not noticed: look again after a second, too."""


class ReadFiles(Protocol):
    """The workspace beneath one directory descriptor: no `..`, no absolute path, no symlink out, no device (ADR-0011).

    Every method raises ToolError: FILE_NOT_FOUND (missing), IO_ERROR, INVALID_PATH, FILE_TOO_LARGE.
    """

    def read_bytes(self, path: str, *, max_bytes: int) -> bytes: ...
    def is_file(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def is_there(self, path: str) -> bool:
        """Whether anything has this name: also a folder, a device, or a link, wherever it leads."""
        ...

    def walk(
        self, path: str = ".", *, max_files: int = 10_000, everything: bool = False, links: bool = False
    ) -> Iterator[FileEntry]:
        """Regular files below `path`, sorted by path, dotfiles left out, links not followed.

        `everything`: with dotfiles, and with links as such. `links`: with links as such.
        """
        ...

    def watched(self, *, max_files: int = 10_000) -> WatchedTree:
        """What `walk` finds, and whether that still holds."""
        ...


class WriteFiles(ReadFiles, Protocol):
    """What a call writes is counted first. Both methods raise WorkFailed beyond the share of the call or of its caller."""

    def write_bytes(self, path: str, data: bytes, *, exclusive: bool = False, mode: int = 0o644) -> None:
        """Replace a file atomically (temporary file, sync, rename); `exclusive` refuses an existing one (FILE_EXISTS)."""
        ...

    def create_tree(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Make `directory` with these files, or nothing: mkdir is the claim (DIRECTORY_EXISTS), a failure removes all."""
        ...


class SigningKeys(Protocol):
    """Ed25519 keys by name, from a directory outside the workspace. The secret never leaves: callers get signatures.

    A key has one use, a word that its pack chooses. Asked for another, every method that uses the secret raises ToolError
    WRONG_KEY_USE; a key that nothing was said about is for what it is first used for.
    """

    @property
    def place(self) -> str:
        """Where the keys are, for messages to people."""
        ...

    def public_key(self, name: str) -> bytes:
        """32 bytes. Raises ToolError KEY_NOT_FOUND (missing), INVALID_KEY_FORMAT."""
        ...

    def mark(self, name: str) -> Unchanged | None:
        """What tells later that key, use and owner are the same files as now. None: one was changed a moment ago."""
        ...

    def sign(self, name: str, message: bytes, *, use: str) -> bytes: ...
    def seed(self, name: str, *, use: str, named: str = "") -> bytes:
        """The 32 secret bytes, for constructions that need them (the VRF). Never store, log or answer them.

        `named`: the path by which a person named the key. Where a file of that path is another key, ToolError KEY_NOT_FOUND.
        """
        ...

    def temporary(self, name: str, *, use: str) -> bytes:
        """The public half of a key that lives and dies with this process; made on the first call. For development."""
        ...

    def bind(self, name: str, owner: str, *, replace: bool = False) -> str:
        """Write beside the key, once and for good, who keeps the record of what it signed; returns who that is.

        `replace` is a person's explicit decision to move a key: another owner may know of signatures that this one does not.
        """
        ...


class Secrets(Protocol):
    """Secrets of this server's own (keys that others gave us), by where they are kept; those that the pack declares."""

    def read(self, source: str) -> str:
        """`env:NAME` or `file:NAME` (in the secrets directory), read anew each time, so that a replaced one counts at once.

        Raises, naming the source at most and never the value: WorkFailed in a tool, StartRefused in a service.
        """
        ...


class Bus(Protocol):
    """A message broker, used as a wire and never as a record."""

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Ask whoever serves `subject`. Raises ToolError: TARGET_NOT_FOUND (missing), TIMEOUT."""
        ...

    async def serve(self, subject: str, answer: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        """Answer requests on `subject`, within a limit; None sends no answer."""
        ...

    async def close(self) -> None: ...


class Buses(Protocol):
    def require_client(self) -> None:
        """Raises StartRefused: the extra is not installed."""
        ...

    async def open(self, url: str) -> Bus:
        """Raises StoreUnavailable: the broker does not answer; StartRefused, as `require_client`."""
        ...


class Hop(NamedTuple):
    """One answer on the way: who was really spoken to."""

    url: str
    status: int
    address: str
    """The peer's address, as connected to."""
    certificate_sha256: str | None
    """Digest of the peer's certificate; None without TLS."""


class Fetched(NamedTuple):
    url: str
    """The final address, after redirects."""
    status: int
    headers: Mapping[str, str]
    body: bytes
    chain: tuple[Hop, ...] = ()
    """Every hop, the last one included."""
    explicitly_allowed: bool = False
    """True when a hop was to an address that only the settings' allow-list opens."""


class Visit(Protocol):
    """One stranger's site, looked at once: one deadline and one budget over all that is fetched from it."""

    async def page(self, url: str) -> Fetched:
        """The document itself; must be HTML. It fixes the origin. Raises as `Egress.fetch`, and BAD_RESPONSE: not HTML."""
        ...

    async def part(self, reference: str) -> Fetched:
        """Something the page refers to, from the same origin only, within the visit's budget of files and bytes."""
        ...


class Egress(Protocol):
    """Outgoing HTTP as to a stranger, to the hosts that the pack declares: resolved, checked, pinned, bounded."""

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int | None = None,
        timeout_s: float | None = None,
        same_origin_as: str | None = None,
    ) -> Fetched:
        """Raises ToolError: TARGET_NOT_FOUND (missing: no such name, nobody listens), TIMEOUT, ADDRESS_REFUSED,
        RESPONSE_TOO_LARGE, INVALID_TARGET, BAD_RESPONSE (not HTTP, compressed, endless redirects), TLS_FAILED.
        """
        ...

    def visit(self, *, ca_file: str = "") -> AbstractAsyncContextManager[Visit]:
        """One look at one site. `ca_file`: a PEM file of authorities that count for it beside the system's."""
        ...


Item = dict[str, str | int | bytes]
"""What is kept under two keys of a table. An attribute that has no value is left out."""


class Put(NamedTuple):
    """One item to write, in place of the one under its keys. Its conditions are judged together with the write."""

    pk: str
    sk: str
    item: Item
    absent: bool = False
    """Only where there is no item."""
    unless_below: tuple[str, int] | None = None
    """With `absent`: or where the item that is there has less than this in this attribute."""
    equal: tuple[str, int] | None = None
    """Only where the item that is there has this value in this attribute."""


class Delete(NamedTuple):
    pk: str
    sk: str


class Table(Protocol):
    """A store in a DynamoDB table: items under a partition key and a sort key. Reads are strongly consistent.

    Every method raises StoreUnavailable, and `write` ReadOnlyStoreError where the tool may only read.
    """

    def get(self, pk: str, sk: str) -> Item | None: ...
    def query(self, pk: str, first: str = "", last: str = "", *, newest_first: bool = False) -> Iterator[Item]:
        """The items of one partition, by sort key, from `first` to `last` (both included; empty: no bound)."""
        ...

    def count(self, pk: str) -> int: ...
    def scan(self, pk_prefix: str, sk_prefix: str = "") -> Iterator[Item]:
        """Every item whose keys begin like this. It reads the whole table: for what people ask for now and then."""
        ...

    def write(self, *writes: Put | Delete) -> bool:
        """All of them or none, at most 100. False: a condition does not hold."""
        ...


class Store(Protocol):
    """One store: SQLite by default, PostgreSQL by URL, or a DynamoDB table where the pack can use one.

    Work is synchronous and runs on the store's own thread.
    """

    name: str
    shared: bool
    """True when the engine can be reached by several machines."""
    in_table: bool
    """True: it is in a table, and `run_on_table` is how to use it; else `run` is."""

    @property
    def untouched(self) -> bool:
        """True: nothing was ever kept in it, so who only reads need not open it."""
        ...

    def mark(self) -> Unchanged | None:
        """How the store stands now: what tells later, within microseconds, that nobody has changed it. None: nothing can tell.

        Take it before what you read: a change in between is then seen. `toolgate.kit.sql.Views` keeps what was read by it.
        """
        ...

    async def run(self, work: Callable[[Connection], Out]) -> Out:
        """Run `work` in one transaction (SQLAlchemy Core). Raises StoreUnavailable when the engine does not answer."""
        ...

    async def run_on_table(self, work: Callable[[Table], Out]) -> Out:
        """Run `work` on the table. Each request is atomic; there is no transaction around them all."""
        ...

    async def probe(self) -> bool:
        """Does the engine answer now? Cached for at most a second."""
        ...


class Stores(Protocol):
    def get(self, name: str) -> Store:
        """The pack's store of that name; opened, and its migrations applied, on first use. Raises KeyError: it has none."""
        ...


class Compute(Protocol):
    async def __call__(self, function: Callable[[In], Out], data: In, *, timeout_s: float | None = None) -> Out:
        """Run a module-level pure function in a worker process; at the deadline the process is killed (TimeoutError)."""
        ...


class JobInfo(NamedTuple):
    id: str
    kind: str
    owner: str
    details: Mapping[str, Any]


class Jobs(Protocol):
    """Jobs of the pack, each owned by its caller; an admin sees and stops everybody's. Idle ones end, and all end at shutdown."""

    async def start(self, kind: str, options: Any, *, limit: int) -> JobInfo:
        """`kind`: one that `Pack.jobs` declares; `options`: what its starter takes.

        Raises ToolError: TOO_MANY_JOBS (the caller has `limit` of this kind), UNAVAILABLE; and what the starter raises.
        """
        ...

    def list(self, kind: str) -> Sequence[JobInfo]:
        """The caller's own; an admin's are everybody's."""
        ...

    async def stop(self, job_id: str) -> bool:
        """False when the caller sees no such job; another caller's job looks the same as none."""
        ...
