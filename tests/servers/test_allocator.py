"""What the process keeps of memory that was freed, in processes of their own: an allocator cannot be set back."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S, make_home
from tests.waiting import until
from toolgate.servers import allocator

GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="bounds glibc's allocator")
MIB = 1 << 20

HOLES = """
import sys
from pathlib import Path
from toolgate.servers.allocator import keep_little

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if sys.argv[1] == "bounded":
    assert keep_little()
bytes(8 << 20)  # once a large block has been freed, glibc keeps such blocks in the heap
before = resident()
large, small = [], []
for _ in range(32):
    large.append(b"x" * (1 << 20))
    small.append(bytearray(4000))  # what lives longer, and keeps the heap from shrinking
large.clear()
print(resident() - before)
"""

ARENAS = """
import ctypes, sys, threading
from toolgate.servers.allocator import keep_little

assert keep_little()
together = threading.Barrier(12)

def work():
    together.wait(30)
    bytes(4000)
    together.wait(30)

threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


def in_process(script: str, *arguments: str, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=plain | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@GLIBC
def test_large_blocks_go_back_when_they_are_freed() -> None:
    assert int(in_process(HOLES, "bounded")) < 4 * MIB


@GLIBC
def test_without_the_bound_they_stay() -> None:
    """If this fails, glibc has changed its ways and the bound may go."""
    assert int(in_process(HOLES, "unbounded")) > 16 * MIB


@GLIBC
def test_threads_share_few_heaps(tmp_path: Path) -> None:
    in_process(ARENAS, str(tmp_path / "malloc.xml"))
    assert (tmp_path / "malloc.xml").read_text().count("<heap nr=") <= allocator.ARENAS


@GLIBC
def test_what_the_operator_chose_holds() -> None:
    script = "from toolgate.servers.allocator import keep_little; print(keep_little())"
    assert in_process(script).strip() == "True"
    assert in_process(script, MALLOC_ARENA_MAX="8").strip() == "False"


@GLIBC
def test_a_server_gives_back_what_bodies_took_that_came_at_once(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    body = json.dumps({"tool": "dummy_experimental", "args": {"text": "x" * 1_000_000}}).encode()
    with home.serving() as server:
        head = (
            f"POST /mrt_dispatch HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            f"X-MCP-API-Key: {home.keys['admin']}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        at_once(server.port, 1, head, body)
        before = resident(server.process.pid)
        at_once(server.port, 14, head, body)
        until(lambda: resident(server.process.pid) < before + 8 * MIB)


def at_once(port: int, count: int, head: bytes, body: bytes) -> None:
    """All bodies are nearly here before the first is complete."""
    with ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) for _ in range(count)]
        for peer in peers:
            peer.sendall(head + body[:-1])
        for peer in peers:
            peer.sendall(body[-1:])
        for peer in peers:
            with peer.makefile("rb") as answer:
                assert answer.readline().startswith(b"HTTP/1.1 400")
                while (line := answer.readline().lower()) != b"\r\n":
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                answer.read(length)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
