"""One malicious key, of the lowest role, against every tool and by every trick that needs a key: others hardly notice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jsonschema_rs
import pytest

from tests.faces import speak
from tests.homes import make_home
from tests.ports import free_port
from tests.rough import abuse
from tests.rough.cores import before_other_sessions
from tests.rough.front import IS_LONG, SETTINGS, Range, allow_descriptors
from tests.rough.hostile import KEYED
from toolgate.settings import DEFAULT_PACKS

pytestmark = [
    pytest.mark.guard,
    pytest.mark.alone,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        sys.platform != "linux", reason="memory, descriptors and cores are read and set as Linux does it"
    ),
]

CALLS_AT_ONCE = 12
"""A few more than one key may have under way."""
TOOLS = [*abuse.rows(0), "refusals", "all"] if IS_LONG else ["refusals", "all"]
QUICK = {
    "keyed burst": (100,),
    "keyed, never reads": (100,),
    "keyed, chunks of one byte": (100,),
    "keyed, slow body": (100,),
    "keyed, large bodies": (100,),
}
LONG = dict.fromkeys(KEYED, (1, 10, 100, 256))
"""One key may hold a quarter of all connections."""


@dataclass
class Workshop:
    range_: Range
    site: int


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Iterator[Workshop]:
    allow_descriptors()
    site = free_port()
    settings = f'{SETTINGS}[packs.lra]\nallow = ["127.0.0.1:{site}"]\n'
    home = make_home(tmp_path_factory.mktemp("builder") / "home", packs=DEFAULT_PACKS, settings=settings)
    abuse.litter(home.workspace)
    with before_other_sessions(), home.serving() as server:
        for tool, every in abuse.rows(site).items():  # starts worker processes, opens stores, builds the index
            speak.mrt(server.port, tool, every[0], home.keys["committer"])
        yield Workshop(Range(home, server, say), site)


def test_every_tool_of_the_lowest_role_is_abused_by_valid_arguments(workshop: Workshop) -> None:
    range_ = workshop.range_
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    key = speak.key_header(range_.home.keys["builder"])
    _, _, answer = speak.send(range_.server.port, "/mcp", asked, key)
    schemas = {tool["name"]: tool["inputSchema"] for tool in answer["result"]["tools"]}
    rows = abuse.rows(workshop.site)
    assert rows.keys() == schemas.keys()
    for tool, every in rows.items():
        for arguments in every:
            jsonschema_rs.validate(schemas[tool], arguments)


@pytest.mark.parametrize("tool", TOOLS)
def test_abused_tools_are_hardly_noticed(workshop: Workshop, tool: str) -> None:
    found = workshop.range_.fares("abuse", tool, CALLS_AT_ONCE, workshop.site, ends=False)
    assert found == []


@pytest.mark.parametrize(
    ("name", "count"), [(name, count) for name, counts in (LONG if IS_LONG else QUICK).items() for count in counts]
)
def test_tricks_that_need_a_key_are_hardly_noticed(workshop: Workshop, name: str, count: int) -> None:
    assert workshop.range_.fares("hostile", name, count, ends=KEYED[name].ends) == []
