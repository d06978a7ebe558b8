"""The shapes of the powers. The powers themselves are in `toolgate.powers`; packs know only these shapes.

Powers keep honest code honest and testable. They are not a sandbox: a pack is trusted code in our process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

In = TypeVar("In")
Out = TypeVar("Out")


class FileEntry(Struct, frozen=True):
    """One file of the workspace: a path with forward slashes, relative to the workspace."""

    path: str
    size: int
    modified: float


class ReadFiles(Protocol):
    """The workspace beneath one directory descriptor: no `..`, no absolute path, no symlink out, no device (decision 56).

    Every method raises ToolError: FILE_NOT_FOUND (missing), IO_ERROR, INVALID_PATH, FILE_TOO_LARGE.
    """

    def read_bytes(self, path: str, *, max_bytes: int) -> bytes: ...
    def is_file(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def walk(self, path: str = ".", *, max_files: int = 10_000) -> Iterator[FileEntry]:
        """Regular files below `path`, sorted by path, dotfiles left out, links not followed."""
        ...


class WriteFiles(ReadFiles, Protocol):
    def write_bytes(self, path: str, data: bytes, *, exclusive: bool = False, mode: int = 0o644) -> None:
        """Replace a file atomically (temporary file, sync, rename); `exclusive` refuses an existing one (FILE_EXISTS)."""
        ...

    def create_tree(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Make `directory` with these files, or nothing: mkdir is the claim (DIRECTORY_EXISTS), a failure removes all."""
        ...


class SigningKeys(Protocol):
    """Ed25519 keys by name, from a directory outside the workspace. The secret never leaves: callers get signatures."""

    def public_key(self, name: str) -> bytes:
        """32 bytes. Raises ToolError KEY_NOT_FOUND (missing), INVALID_KEY_FORMAT."""
        ...

    def sign(self, name: str, message: bytes) -> bytes: ...
    def seed(self, name: str) -> bytes:
        """The 32 secret bytes, for constructions that need them (the VRF). Never store, log or answer them."""
        ...

    def temporary(self, name: str) -> bytes:
        """The public half of a key that lives and dies with this process; made on the first call. For development."""
        ...

    def bind(self, name: str, owner: str, *, replace: bool = False) -> str:
        """Write beside the key, once and for good, who keeps the record of what it signed; returns who that is.

        `replace` is a person's explicit decision to move a key: another owner may know of signatures that this one does not.
        """
        ...


class Secrets(Protocol):
    """Secrets of this server's own (keys that others gave us), by where they are kept. Handed to services only."""

    def read(self, source: str) -> str:
        """`env:NAME` or `file:NAME` (in the secrets directory). Raises StartRefused: names the source, never the value."""
        ...


class Bus(Protocol):
    """A message broker, used as a wire and never as a record."""

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Ask whoever serves `subject`. Raises ToolError: TARGET_NOT_FOUND (missing), TIMEOUT."""
        ...

    async def serve(self, subject: str, answer: Callable[[bytes], Awaitable[bytes]]) -> None: ...
    async def close(self) -> None: ...


class Buses(Protocol):
    async def open(self, url: str) -> Bus:
        """Raises StoreUnavailable: the broker does not answer; StartRefused: the extra is not installed."""
        ...


class Hop(Struct, frozen=True):
    """One answer on the way: who was really spoken to."""

    url: str
    status: int
    address: str
    """The peer's address, as connected to."""
    certificate_sha256: str | None
    """Digest of the peer's certificate; None without TLS."""


class Fetched(Struct, frozen=True):
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
    """Outgoing HTTP as to a stranger: resolved, checked, pinned, bounded."""

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

    def visit(self) -> AbstractAsyncContextManager[Visit]: ...


class Store(Protocol):
    """One SQL store: SQLite by default, PostgreSQL by URL; synchronous SQLAlchemy Core on the store's own thread."""

    name: str
    shared: bool
    """True when the engine can be reached by several machines."""

    async def run(self, work: Callable[[Connection], Out]) -> Out:
        """Run `work` in one transaction on the store's thread. Raises StoreUnavailable when the engine does not answer."""
        ...

    async def probe(self) -> bool:
        """Does the engine answer now? Cached for at most a second."""
        ...


class Stores(Protocol):
    def get(self, name: str) -> Store:
        """The store of that name; opened, and its migrations applied, on first use."""
        ...


class Compute(Protocol):
    async def __call__(self, function: Callable[[In], Out], data: In, *, timeout_s: float | None = None) -> Out:
        """Run a module-level pure function in a worker process; at the deadline the process is killed (TimeoutError)."""
        ...


class Site(Struct, frozen=True):
    """What a job of kind `site` serves: a directory of the workspace, to browsers on this machine, while it is edited."""

    root: str
    port: int
    gather: Callable[[ReadFiles, str], Any]
    """(files, directory) -> what `judge` needs. Reads; runs in a thread."""
    judge: Callable[[Any], Mapping[str, Any]]
    """A module-level pure function, run as compute: what the page's overlay shows."""
    home: Callable[[ReadFiles, str], bytes] | None = None
    """The page at `/` when the directory has no index.html of its own. Reads; runs in a thread."""


class JobInfo(Struct, frozen=True):
    id: str
    kind: str
    owner: str
    details: Mapping[str, Any]


class Jobs(Protocol):
    """Things that outlive the call that started them, each owned by its caller. Idle ones end, and all end at shutdown.

    A pack says what is to run (`Site`); how it runs, and its sockets, belong to the server.
    """

    async def start(self, kind: str, options: Site, *, limit: int) -> JobInfo:
        """Raises ToolError: TOO_MANY_JOBS (the caller has `limit` of this kind), ADDRESS_IN_USE, UNAVAILABLE."""
        ...

    def list(self, kind: str) -> Sequence[JobInfo]:
        """The caller's own."""
        ...

    async def stop(self, job_id: str) -> bool:
        """False when the caller has no such job: another's job is not told from none."""
        ...
