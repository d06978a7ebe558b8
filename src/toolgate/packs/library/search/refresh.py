"""Keeping the index equal to the files: what changed is read in batches, by a worker, within a search's time."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from toolgate.errors import ToolError, ToolgateError
from toolgate.model.threads import in_thread
from toolgate.packs.library.search.documents import MAX_DOCUMENT_BYTES, index_documents, kind_of
from toolgate.packs.library.search.index import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolgate.model.powers import ReadFiles, WatchedTree
    from toolgate.model.tool import Context
    from toolgate.packs.library.search.documents import Indexed
    from toolgate.packs.library.search.index import Index

BATCH_BYTES: Final = 512 * 1024
"""Sent to a worker at once: bounds memory while a large library is read for the first time."""
BATCH_FILES: Final = 200
BATCH_SECONDS: Final = 4.0
"""For one batch: ten times what half a megabyte of words takes that are all different."""
REFRESH_SECONDS: Final = 5.0
"""Of a call's ten: a library that takes longer to read is searched as far as it was read, and the next search goes on."""
_NOT_THE_DOCUMENT: Final = frozenset({"no_thread", "no_worker", "workers_busy"})
"""Reasons of WorkFailed that say nothing about what was to be read."""


async def refresh(ctx: Context, index: Index) -> None:
    """Make the index equal to the files, as far as there is time; `index.pending` tells how many had to wait.

    One search does it for all that ask meanwhile: a look at the files that began after a search did is good for it.
    """
    asked = ctx.clock.monotonic()
    if index.is_current(asked):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(REFRESH_SECONDS), index.refreshing:
            if index.as_of < asked:
                await _read_changed(ctx, index, asked + REFRESH_SECONDS)


async def _read_changed(ctx: Context, index: Index, due: float) -> None:
    began = ctx.clock.monotonic()
    tree = await in_thread(ctx.files.watched)
    present = _documents_in(tree)
    known = index.paths()
    todo = index.changed(present)
    at_changes = bool(todo) or known != present.keys()
    index.pending = len(todo)
    batches = deque(_batches(todo, present, alone=lambda path: index.has_failed(path, present[path])))
    while batches and ctx.clock.monotonic() < due:
        batch = batches.popleft()
        stamps = {path: present[path] for path in batch}
        documents = await _read_batch(ctx, batch, due)
        if documents is None:
            index.failed(stamps)
            batches.extend([path] for path in batch if len(batch) > 1)
        else:
            index.put(stamps, documents)
            index.pending -= len(batch)
    index.pending = len(index.changed(present))
    if index.pending == 0:
        index.looked(tree, began, at_changes=at_changes)


async def _read_batch(ctx: Context, batch: Sequence[str], due: float) -> Sequence[Indexed] | None:
    """None: one of these ends its worker. Raises: TimeoutError: our time is over, or no worker is free."""
    contents = await in_thread(contents_of, ctx.files, batch)
    allowed = min(BATCH_SECONDS, due - ctx.clock.monotonic())
    try:
        return await ctx.compute(index_documents, contents, timeout_s=max(0.0, allowed))
    except TimeoutError:
        if allowed < BATCH_SECONDS:
            raise
    except ToolgateError as fault:
        if getattr(fault, "reason", "") in _NOT_THE_DOCUMENT:
            raise TimeoutError from None
    return None


def _documents_in(tree: WatchedTree) -> dict[str, Stamp]:
    return {file.path: Stamp(file.size, file.modified) for file in tree.files if kind_of(file.path) is not None}


def _batches(paths: Sequence[str], stamps: Mapping[str, Stamp], alone: Callable[[str], bool]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        weight = min(stamps[path].size, MAX_DOCUMENT_BYTES)
        if batch and (size + weight > BATCH_BYTES or len(batch) == BATCH_FILES or alone(path)):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += weight
    if batch:
        yield batch


def contents_of(files: ReadFiles, paths: Sequence[str]) -> list[tuple[str, bytes]]:
    found = []
    for path in paths:
        try:
            found.append((path, files.read_bytes(path, max_bytes=MAX_DOCUMENT_BYTES)))
        except ToolError:
            continue
    return found
