"""The same messages to our server and to one built on the official SDK: the same answers, but for a documented few."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.homes import Home
from tests.wire import compare
from tests.wire.corpus import CASES, DIFFERENCES
from tests.wire.messages import GREETING, Case, Ours, enveloped, note, request
from tests.wire.world import StdioPeer, our_stdio, post, reference_stdio

SYNC = {"handshake": request("ping", ident="sync"), "modern": enveloped("server/discover", ident="sync")}
"""What is sent behind a message to learn that its answers, if any, have all come."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_over_http_the_answer_is_the_one_of_the_sdk(case: Case, home: Home, ours: str, reference: str) -> None:
    key = ("X-MCP-API-Key", home.keys["admin"])
    expected = compare.http(post(reference, case.body, case.headers, case.method))
    got = compare.http(post(ours, case.body, (*case.headers, key), case.method))
    if case.ours is None:
        assert got == expected
    else:
        assert got != expected, f"no longer different: take '{case.ours.why}' off this row"
        assert got["status"] == case.ours.status
        assert _code(got["body"]) == case.ours.code


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_over_stdio_the_answers_are_those_of_the_sdk(era: str, home: Home) -> None:
    cases = [case for case in CASES if case.era == era and case.stdio]
    assert len(cases) > 40
    wrong: dict[str, Any] = {}
    with_us, with_sdk = our_stdio(home), reference_stdio()
    try:
        for peer in (with_us, with_sdk):
            _open(peer, era)
        for case in cases:
            got, expected = _answers(with_us, case), _answers(with_sdk, case)
            if not _as_intended(case, got, expected):
                wrong[case.name] = {"ours": got, "the SDK's": expected}
    finally:
        codes = [with_us.close(), with_sdk.close()]
    assert wrong == {}
    assert codes == [0, 0], "both end quietly when their input does"


def test_a_row_names_a_documented_difference_and_every_difference_has_a_row() -> None:
    named = Counter(differs.why for case in CASES for differs in _differences(case))
    assert set(named) == set(DIFFERENCES)


def test_no_two_rows_have_one_name() -> None:
    assert [name for name, times in Counter(map(str, CASES)).items() if times > 1] == []


def _differences(case: Case) -> Iterator[Ours]:
    yield from (differs for differs in (case.ours, case.on_stdio) if differs is not None)


def _open(peer: StdioPeer, era: str) -> None:
    """The SDK serves a pipe in the era of its first request."""
    if era == "handshake":
        peer.exchange(json.dumps(request("initialize", GREETING, ident=0)).encode(), SYNC[era], answered=True)
        peer.send(json.dumps(note("notifications/initialized")).encode())
    else:
        peer.exchange(json.dumps(enveloped("server/discover", ident=0)).encode(), SYNC[era], answered=True)


def _answers(peer: StdioPeer, case: Case) -> list[Any]:
    waits = case.ours is None and case.on_stdio is None and _wants_answer(case.body)
    return [compare.message(each) for each in peer.exchange(case.body, SYNC[case.era], answered=waits)]


def _wants_answer(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except ValueError:
        return False
    return isinstance(message, dict) and "id" in message and "method" in message


def _as_intended(case: Case, got: list[Any], expected: list[Any]) -> bool:
    differs = case.on_stdio or case.ours
    if differs is None:
        return got == expected
    return got != expected and [_code(each) for each in got] == [differs.code]


def _code(body: Any) -> int | None:
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None
