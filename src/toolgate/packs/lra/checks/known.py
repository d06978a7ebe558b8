"""Reports of papers that were judged before, found again by the content of every file that was looked at.

The files are read for each call and the digest covers all that the checks see, so a report is never older than its paper:
what is saved is the judging, which takes a worker process.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.model import strictjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.packs.lra.paper.artifact import Artifact

MAX_REPORTS: Final = 256
"""Papers of one server that are judged again and again."""
MAX_REPORT_BYTES: Final = 64 * 1024
"""As JSON. A longer report, of a paper with hundreds of faults, is made anew each time."""


class Reports:
    """The latest ones, by what `digest_of` makes of an artifact."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    def get(self, digest: bytes) -> dict[str, Any] | None:
        found = self._found.get(digest)
        if found is not None:
            self._found.move_to_end(digest)
        return found

    def put(self, digest: bytes, report: dict[str, Any]) -> None:
        if len(strictjson.dumps(report)) <= MAX_REPORT_BYTES:
            self._found[digest] = report
            if len(self._found) > MAX_REPORTS:
                self._found.popitem(last=False)


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
