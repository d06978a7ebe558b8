"""Ids that are made of the call itself."""

from __future__ import annotations

import tracemalloc

from toolgate.model.clock import DeterministicIds


def test_equal_calls_are_numbered_and_others_are_not() -> None:
    one, other = DeterministicIds(), DeterministicIds()
    first, again = (one.for_call("t", {"a": 1}) for _ in range(2))
    assert first != again
    assert one.for_call("t", {"a": 2}) == other.for_call("t", {"a": 2})
    assert [other.for_call("t", {"a": 1}) for _ in range(2)] == [first, again]


def test_a_call_that_was_seen_is_remembered_by_its_digest_and_not_by_its_text() -> None:
    ids = DeterministicIds()
    tracemalloc.start()
    try:
        for number in range(20):
            ids.for_call("t", {"text": f"{number:0100000}"})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000
