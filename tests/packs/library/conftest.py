"""A workspace of a few documents, with the real worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolgate.model.clock import SystemClock
from toolgate.packs.library.search.index import Index
from toolgate.powers.compute import ComputePool
from toolgate.powers.files import ReadOnlyWorkspace, Workspace

FILES = {
    "paper/index.html": "<title>Signed &amp; sealed receipts</title><h1>x</h1><script>hidden()</script><p>Merkle trees.</p>",
    "docs/adr/ADR-0001-ledger.md": "# ADR-0001 One ledger\n\nThe ledger is an append-only Merkle tree.\n",
    "notes.md": "```\n# not a title\n```\n# Notes on voting\n\nQuorum and finality. Signing votes.\n",
    "plain.txt": "A text without heading about quorum.",
    ".secret/hidden.md": "# Hidden\nquorum canary",
    "data.csv": "quorum,1",
    "binary.md": "\udcff",
}


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    made = ComputePool(1)
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content.encode(errors="surrogateescape"))
    return tmp_path


@pytest.fixture
def ctx(place: Path, pool: ComputePool) -> Iterator[Any]:
    workspace = Workspace(place)

    async def compute(function: Any, data: Any, *, timeout_s: float) -> Any:
        return await pool.run(function, data, seconds=timeout_s)

    yield SimpleNamespace(files=ReadOnlyWorkspace(workspace), compute=compute, memory=Index(), clock=SystemClock())
    workspace.close()
