"""A warm governed call, traced: how many files a reader has to open, and whether the README names them."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import toolgate
from tests.homes import ROOT, Home, make_home
from tests.servers.byhand import Later, connected, feed
from toolgate.model import strictjson
from toolgate.servers.http import HttpApp

SOURCE = Path(toolgate.__file__).parent
MOST_FILES = 12
MOST_JUMPS = 20
MOST_CALLS = 72
"""Functions of ours that it enters, with room for a look at the key file."""
CALL = strictjson.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "dummy_experimental", "arguments": {}}}
)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The file of every Python function of ours that the call enters, in order: from its bytes to the bytes of its answer.

    The client is alone, its head and its key were seen before, and the tool needs no thread.
    """
    home = make_home(tmp_path_factory.mktemp("walk") / "home", packs=("governance",))
    app = home.app()
    http = HttpApp(app.road, app.faces(), body_bytes=1 << 20, ready=app.ready)
    http.heads.hosts = frozenset({b"here"})
    connection, wire = connected(http, Later())
    for _ in range(3):
        feed(connection, request(home))
    assert wire.sent.count(b"HTTP/1.1 200 OK") == 3
    entered = traced(lambda: feed(connection, request(home)))
    assert wire.sent.count(b"HTTP/1.1 200 OK") == 4
    asyncio.run(app.close())
    return entered


def request(home: Home) -> bytes:
    return (
        b"POST /mcp HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\nx-mcp-api-key: %b\r\n"
        b"content-length: %d\r\n\r\n%b"
    ) % (home.keys["builder"].encode(), len(CALL), CALL)


def traced(work: Any) -> list[str]:
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            entered.append(path.relative_to(SOURCE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return entered


def test_a_governed_call_is_followed_through_few_files(walk: list[str]) -> None:
    assert len(set(walk)) <= MOST_FILES, sorted(set(walk))
    jumps = [pair for pair in pairwise(walk) if pair[0] != pair[1]]
    assert len(jumps) <= MOST_JUMPS, jumps


def test_a_governed_call_enters_few_functions(walk: list[str]) -> None:
    assert len(walk) <= MOST_CALLS


def test_the_readme_names_these_files_in_the_order_in_which_they_are_entered(walk: list[str]) -> None:
    assert list(named_in_the_readme()) == list(dict.fromkeys(walk))


def named_in_the_readme() -> Iterator[str]:
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("## How to read the code")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if found := re.match(r"[0-9]+\. `src/toolgate/([a-z_/]+\.py)`", line):
            yield found[1]


def test_the_tracer_sees_every_function_of_ours() -> None:
    entered = traced(lambda: strictjson.loads(b'{"a":1}'))
    assert set(entered) == {"model/strictjson.py"}
    assert traced(lambda: None) == []
