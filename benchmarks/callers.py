"""What a governed call costs as callers get more: each with a key of its own, in process, from request bytes to answer bytes.

A key file is bounded to some 60 000 keys; here it may be longer, so that what is beyond can be seen, too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.deployment import bench_home
from benchmarks.ours import LIMITED
from benchmarks.road import InProcess
from toolgate.cli.serve.start import uncollected
from toolgate.config import load_settings
from toolgate.gate import keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.homes import Home
    from toolgate.app import App


def callers_us(folder: Path, counts: Sequence[int], turns: int, rounds: int) -> dict[str, list[float]]:
    """CPU µs a call, a number a round, by how many callers take turns."""
    home = bench_home(folder / "home", settings=LIMITED)
    texts = _write_keys(load_settings(home.path, {}, {}).paths.keys, max(counts))
    found: dict[str, list[float]] = {str(count): [] for count in counts}
    with patch.object(keys, "MAX_FILE_BYTES", 1 << 26), _running(home, texts[0]) as app:
        whole = InProcess(app, texts[0].decode())
        for count in counts:
            _call_us(whole, texts[:count], count)  # each has come before
        for _ in range(rounds):
            for count in counts:
                found[str(count)].append(_call_us(whole, texts[:count], turns))
    return found


def _call_us(whole: InProcess, texts: Sequence[bytes], turns: int) -> float:
    before, after = whole.request.split(texts[0])
    began = process_time()
    for number in range(turns):
        whole.request = before + texts[number * 7919 % len(texts)] + after
        whole.call()
    took = process_time() - began
    whole.request = before + texts[0] + after
    return took / turns * 1e6


def _write_keys(file: Path, count: int) -> list[bytes]:
    """Their texts. Side effects: replaces the key file."""
    ids = [f"{number:012x}" for number in range(count)]
    texts = [f"tg_{each}_{each * 5}".encode() for each in ids]
    rows = [_row(each, text) for each, text in zip(ids, texts, strict=True)]
    file.write_text(json.dumps({"version": 1, "keys": rows}))
    return texts


def _row(key_id: str, text: bytes) -> dict[str, Any]:
    times = {"created": "2026-01-01T00:00:00.000Z", "expires": None, "revoked": None}
    return {"id": key_id, "role": "builder", "label": "", "digest": sha256(text).hexdigest(), **times}


@contextmanager
def _running(home: Home, key: bytes) -> Iterator[App]:
    with uncollected():  # as a server starts
        app = home.app()
        app.road.authenticate(key)
    try:
        yield app
    finally:
        asyncio.run(app.close())
