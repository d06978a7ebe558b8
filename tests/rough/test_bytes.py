"""Bytes that nobody thought of: every connection is answered or closed in time, and however they are cut, alike."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S, Home, Server, make_home
from tests.rough.front import IS_LONG, TRIES, state_of
from tests.rough.mutate import Mutator
from tests.servers.smuggling import Client
from toolgate.cli.main import main
from toolgate.settings import DEFAULT_PACKS

SECONDS = float(os.environ.get("ROUGH_SECONDS", "60" if IS_LONG else "6"))
SEED = int(os.environ.get("ROUGH_SEED", secrets.randbelow(10**9)))
AT_ONCE = 32
READ_S = 0.5
SETTINGS = f"""
[server]
header_read_seconds = {READ_S}
body_read_seconds = {READ_S}
keep_alive_seconds = 1
[limits]
concurrency_per_caller = 1000
concurrency_total = 1001
"""
EARLY = {401, 403, 404, 405, 413, 415, 417}
"""Said before the body has come, if it has not come: what follows then is not read."""
FAULTS = {400, 414, 431, 501, 505}
"""No message: which of its faults is seen first depends on what has come of it. Nothing is read after it."""
KNOWN = {200, 202, 406, 408, 429} | EARLY | FAULTS
"""Whatever comes in, nothing else goes out; above all no 500."""


@dataclass
class Tally:
    streams: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@pytest.mark.guard
@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors are read as Linux shows them")
def test_bytes_that_nobody_thought_of_are_answered_or_closed(tmp_path: Path, say: Callable[[str], None]) -> None:
    home = make_home(tmp_path / "home", packs=(*DEFAULT_PACKS, "unruly"), settings=SETTINGS)
    (home.workspace / "release").touch()
    with home.serving() as server:
        asyncio.run(converse(home, server, 0.5, SEED))  # warms it up
        pid = server.process.pid
        before = state_of(pid)
        tally = asyncio.run(converse(home, server, SECONDS, SEED))
        say(f"seed {SEED}: {tally.streams} streams in {SECONDS:.0f} s, heard {dict(sorted(tally.statuses.items()))}")
        assert tally.faults == []
        assert tally.streams > 50 * SECONDS
        due = time.monotonic() + PATIENCE_S
        while (after := state_of(pid)).fds > before.fds + 2:
            assert time.monotonic() < due, f"descriptors leak: {before} became {after}"
        say(f"memory {before.rss / 1e6:.0f} -> {after.rss / 1e6:.0f} MB, descriptors {before.fds} -> {after.fds}")
        assert after.rss < before.rss + 32_000_000
        assert asyncio.run(statuses(server.port, [probe(server.port)])) == [200]
        assert not select.select([server.process.stderr], [], [], 0)[0], "a stranger's bytes are not news"
    assert main(["audit", "verify", "--home", str(home.path)]) == 0


async def converse(home: Home, server: Server, seconds: float, seed: int) -> Tally:
    """Streams of one seed after the other, many at once, until the time is over or one has found a fault."""
    mutator = Mutator(Client(b"127.0.0.1:%d" % server.port, home.keys["admin"].encode()))
    tally, numbers, over = Tally(), iter(range(seed, seed + 10**9)), time.monotonic() + seconds

    async def one_after_the_other() -> None:
        while time.monotonic() < over and not tally.faults:
            number = next(numbers)
            try:
                await one(mutator, server.port, number, tally)
            except (AssertionError, TimeoutError) as fault:
                data = mutator.stream(number)
                tally.faults.append(f"ROUGH_SEED={number}: {fault!r}: {mutator.cuts(number, data)!r}")
            tally.streams += 1

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
    return tally


async def one(mutator: Mutator, port: int, seed: int, tally: Tally) -> None:
    """Raises: AssertionError, TimeoutError."""
    data = mutator.stream(seed)
    pieces = mutator.cuts(seed, data)
    if seed % 4 == 0:
        heard = await statuses(port, pieces, leaves=True)
        tally.statuses.update(heard)
        return
    for _ in range(TRIES):
        whole = await statuses(port, [data, probe(port)])
        cut = await statuses(port, [*pieces, probe(port)])
        tally.statuses.update(whole + cut)
        if 429 in whole + cut or alike(whole, cut):
            return
        if 408 not in whole + cut:
            break  # else we may have been too slow ourselves, once
    raise AssertionError(f"in one piece {whole}, cut {cut}")


def alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """The same answers, up to one that was given before its body had come: such a body is not read, nor what follows it."""
    for number, (first, second) in enumerate(zip_longest(one, other)):
        if first in EARLY or second in EARLY:
            return True
        if first != second:
            return first in FAULTS and second in FAULTS and len(one) == len(other) == number + 1
    return True


def probe(port: int) -> bytes:
    """Ends the connection if it is read as a request; else whatever it was taken for is over, or never is: time is up."""
    return b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port


async def statuses(port: int, pieces: Sequence[bytes], *, leaves: bool = False) -> list[int]:
    """Of all answers until the server closes. Raises: TimeoutError: it does not; AssertionError: this is not an answer."""
    loop, heard = asyncio.get_running_loop(), bytearray()
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(PATIENCE_S):
            await loop.sock_connect(connection, ("127.0.0.1", port))
            with suppress(BrokenPipeError, ConnectionResetError):  # it was refused before it had come whole
                for piece in pieces:
                    await loop.sock_sendall(connection, piece)
                if leaves:
                    connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while data := await loop.sock_recv(connection, 65536):
                    heard += data
    return read(bytes(heard), bodies=b"HEAD" not in b"".join(pieces))


def read(heard: bytes, *, bodies: bool) -> list[int]:
    """Raises: AssertionError."""
    if not bodies:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-5][0-9]{2}) ", heard)]
    found = []
    while heard:
        head, end, heard = heard.partition(b"\r\n\r\n")
        first = re.match(rb"HTTP/1\.1 ([0-9]{3}) ", head)
        assert first, head[:200]
        assert end, head[:200]
        status = int(first[1])
        if status == 100:
            continue
        assert status in KNOWN, head
        length = re.search(rb"\r\ncontent-length: ([0-9]+)", head)
        assert length, head
        assert len(heard) >= int(length[1]), head
        heard = heard[int(length[1]) :]
        found.append(status)
    return found
