"""Strangers by the thousand: the good caller notices little, the server stays small, and ten seconds later it is as before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.homes import make_home
from tests.rough.cores import before_other_sessions
from tests.rough.front import IS_LONG, SETTINGS, Outcome, Pace, Range, State, allow_descriptors
from tests.rough.hostile import KINDS
from toolgate.settings import DEFAULT_PACKS

pytestmark = [
    pytest.mark.guard,
    pytest.mark.alone,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        sys.platform != "linux", reason="memory, descriptors and cores are read and set as Linux does it"
    ),
]

QUICK = {
    "burst": (1, 1000),
    "endless header value": (100,),
    "endless headers": (1000,),
    "never reads": (1000,),
    "CRLF once": (1000,),
    "silent": (2000,),
    "slow body": (100,),
    "half-closed": (1000,),
    "churn": (1000,),
}
"""What a minute is enough for. Twice as many silent ones as a server admits."""
LONG = dict.fromkeys(KINDS, (1, 10, 100, 1000)) | {"silent": (1, 10, 100, 1000, 4000)}


@pytest.fixture(scope="module")
def range_(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Iterator[Range]:
    allow_descriptors()
    home = make_home(tmp_path_factory.mktemp("rough") / "home", packs=DEFAULT_PACKS, settings=SETTINGS)
    with before_other_sessions(), home.serving() as server:
        yield Range(home, server, say)


@pytest.mark.parametrize(
    ("name", "count"), [(name, count) for name, counts in (LONG if IS_LONG else QUICK).items() for count in counts]
)
def test_strangers_are_hardly_noticed(range_: Range, name: str, count: int) -> None:
    assert range_.fares("hostile", name, count, ends=KINDS[name].ends) == []


def test_a_good_caller_who_still_notices_an_attack_after_it_is_a_fault() -> None:
    quiet, state = Pace(75, 0.0005, 0.001, 0.001, []), State(60_000_000, 0, 22)
    fine = Outcome("burst", 1, quiet, quiet, quiet, state, state, state, None, 0.0, {"opened": 1, "answers": {}})
    assert list(fine.faults(1024)) == []
    for calm in (
        replace(quiet, p50=0.011),
        replace(quiet, p99=0.02),
        replace(quiet, new=0.2),
        replace(quiet, failures=["503"]),
    ):
        assert ["the good caller fares not as before" in fault for fault in replace(fine, calm=calm).faults(1024)] == [
            True
        ]
