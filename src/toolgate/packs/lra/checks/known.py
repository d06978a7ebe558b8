"""Reports of papers that were judged before, found again by the content of every file that was looked at.

The files are read and the digest covers all that the checks see, so a report is never older than its paper: what is saved is the
judging, which takes a worker process. A paper that is asked about again and again is not even read while the system tells that
nothing in the workspace has changed (`ctx.files.watched`), for a second at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.model import strictjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.model.powers import ReadFiles
    from toolgate.packs.lra.paper.artifact import Artifact

MAX_REPORTS: Final = 256
"""Papers of one server that are judged again and again."""
MAX_REPORT_BYTES: Final = 64 * 1024
"""As JSON. A longer report, of a paper with hundreds of faults, is made anew each time."""


TRUSTED_S: Final = 1.0
"""How long a look at the files is believed: a change made by another machine on a shared disk is not told. And how long until
the next look, which takes milliseconds in a large workspace."""


class Reports:
    """The latest ones, by what `digest_of` makes of an artifact, and by path while nothing has changed."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, dict[str, Any]] = OrderedDict()
        self._judged: OrderedDict[str, None] = OrderedDict()
        """Paths that were asked about: worth a look, the next time."""
        self._look: FilesLook | None = None
        self._looked = float("-inf")
        self._here: dict[str, dict[str, Any]] = {}
        """By path, of what `_look` found."""

    def current(self, now: float) -> FilesLook | None:
        """The last look, if nothing has changed since. `now` in monotonic seconds."""
        look = self._look
        return look if look is not None and now - look.began < TRUSTED_S and look.is_unchanged() else None

    def again(self, path: str, now: float) -> dict[str, Any] | None:
        report = self._here.get(path)
        return report if report is not None and self.current(now) is not None else None

    def wants_look(self, path: str, now: float) -> bool:
        """True: take one, before the paper is read. Nobody else is told so within the next second."""
        if path not in self._judged or now - self._looked < TRUSTED_S:
            return False
        self._looked = now
        return True

    def looked(self, look: FilesLook) -> None:
        self._look = look
        self._here.clear()

    def judged(self, path: str, page: str, report: dict[str, Any], look: FilesLook | None) -> None:
        """`page`: the file that was judged; `look`: taken before it was read. A page behind a link or a hidden folder is none
        of its files, and nothing tells of its changes."""
        _bounded(self._judged, path, None)
        if look is not None and look is self._look and page in look.names and len(self._here) < MAX_REPORTS:
            self._here[path] = report

    def get(self, digest: bytes) -> dict[str, Any] | None:
        found = self._found.get(digest)
        if found is not None:
            self._found.move_to_end(digest)
        return found

    def put(self, digest: bytes, report: dict[str, Any]) -> None:
        if len(strictjson.dumps(report)) <= MAX_REPORT_BYTES:
            _bounded(self._found, digest, report)


class FilesLook(Struct, frozen=True):
    """The workspace as it was found."""

    began: float
    names: frozenset[str]
    is_unchanged: Callable[[], bool]


def look_at(files: ReadFiles, began: float) -> FilesLook | None:
    """None: there is too much to look at, or no way to."""
    try:
        tree = files.watched()
    except ToolError:
        return None
    return FilesLook(began, frozenset(entry.path for entry in tree.files), tree.is_unchanged)


def _bounded(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > MAX_REPORTS:
        kept.popitem(last=False)


def digest_of(artifact: Artifact) -> bytes:
    """Over every name and every byte, each with its length before it: no two artifacts are spelt alike."""
    digest = sha256()
    for part in _parts(artifact):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _parts(artifact: Artifact) -> Iterator[bytes]:
    yield from (artifact.page.encode(), artifact.shown.encode(), artifact.html, b"%d" % len(artifact.files))
    for name, data in sorted(artifact.files.items()):
        yield from (name.encode(), data)
    for name, size in sorted(artifact.sizes.items()):
        yield from (name.encode(), b"%d" % size)
