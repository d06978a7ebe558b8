"""Whose word is a badge? The page's script and its worker have the same bytes in every paper of one version: verifiers know them.

`paper.js` consists of parts that begin with a line `// lra-page:`: one compares claims with results and paints the badges, one
helps to read. What stands before them is the author's own. `sw.js` decides which bytes the page gets. A part that says it is one
of these and is not, is a forgery. Any other script is the author's own, and what it paints is the author's word.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.packs.lra.paper import page as pages
from toolgate.packs.lra.paper import service_worker
from toolgate.packs.lra.paper.loading.urls import local_path

if TYPE_CHECKING:
    from toolgate.packs.lra.paper.paper import Paper

PAGE_SCRIPT: Final = "paper.js"
WORKER: Final = "sw.js"
_MARK: Final = b"// lra-page:"
"""How the released parts and the worker begin."""
_PARTS: Final = re.compile(rb"^(?=// lra-page:)", re.MULTILINE)
INLINE: Final = "a script inside the page"
_SHOWN: Final = 120


class Scripts(Struct, frozen=True):
    forged: tuple[str, ...]
    """Files with a part that begins as released ones do and differs from all of them."""
    own: tuple[str, ...]
    """Files with a part of the author's own, among what the page runs."""


@cache
def released() -> frozenset[str]:
    """SHA-256 of every part and worker that was ever shipped; a worker's without its list of files."""
    lines = (files("toolgate.packs.lra") / "data" / "template" / "released.txt").read_text("ascii").splitlines()
    return frozenset(line.split()[0] for line in lines if line and not line.startswith("#"))


def parts(name: str, data: bytes) -> list[bytes]:
    """A script, divided where a released part begins; a worker without its list of files."""
    if name.rpartition("/")[2] == WORKER:
        data = service_worker.with_assets(data.decode("utf-8", "replace"), []).encode()
    return [part for part in _PARTS.split(data) if part.strip()]


def classify_scripts(paper: Paper) -> Scripts:
    named = dict.fromkeys([*_run_by_page(paper), PAGE_SCRIPT, WORKER])
    there = {name: parts(name, paper.artifact.files[name]) for name in named if name in paper.artifact.files}
    forged = [name for name, found in there.items() if any(map(_is_forged, found))]
    own = [name for name, found in there.items() if not all(part.startswith(_MARK) for part in found)]
    if any(
        pages.is_script(script) and not script.attr("src") and script.text.strip()
        for script in paper.page.by_tag["script"]
    ):
        own.append(INLINE)
    return Scripts(tuple(name[:_SHOWN] for name in forged), tuple(name[:_SHOWN] for name in own))


def _is_forged(part: bytes) -> bool:
    return part.startswith(_MARK) and sha256(part).hexdigest() not in released()


def _run_by_page(paper: Paper) -> list[str]:
    found = (local_path(load.url, load.file) for load in paper.loads if load.is_script and load.level == "local")
    return [name for name in found if name]
