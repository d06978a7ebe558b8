"""Refusals beyond a rate are counted instead of written: per key, told soon, and nobody's at the cost of another's."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cases import cases
from tests.faces import speak
from tests.homes import make_home
from tests.ledger import world
from tests.ledger.world import ANONYMOUS, OUTCOME, QUIET, StillClock, no_space, numbered, opened
from toolgate.errors import LedgerUnavailable
from toolgate.ledger import LOG_PATH, LocalLedger, flood
from toolgate.ledger.flood import OTHERS, PER_SECOND
from toolgate.model.call import Caller
from toolgate.model.record import LedgerEntry

MANY = 1000


def refusal(key: str | None, number: object = 0) -> LedgerEntry:
    error = {"happening": "too_fast", "code": None, "reason": None}
    caller = Caller(key, "builder") if key else None
    return replace(numbered(ANONYMOUS, number), caller=caller, error=error)


def refuse(ledger: LocalLedger, key: str | None, count: int, *, is_held: bool = False) -> int:
    """So many refusals of one caller; how many of them were written."""
    entries = [refusal(key, f"{key}-{number}") for number in range(count)]
    return sum(ledger.append_refusal(entry, is_held=is_held) is not None for entry in entries)


def refusals(directory: Path) -> Counter[str | None]:
    """Written ones by caller."""
    found = [one for one in world.records(directory) if one["event"] == "outcome" and one["status"] == "error"]
    return Counter((one["caller"] or {}).get("id") for one in found)


def told(directory: Path) -> Counter[str | None]:
    """Suppressed ones by caller, from every record that tells a count."""
    counts: Counter[str | None] = Counter()
    for one in world.records(directory):
        if one["event"] == "outcome":
            counts[(one["caller"] or {}).get("id")] += one.get("suppressed", 0)
        elif "suppressed" in one:
            counts.update(one.get("suppressedOf", {}))
            counts[None] += one["suppressed"] - sum(one.get("suppressedOf", {}).values())
    return +counts


@pytest.mark.parametrize("key", [None, "k1"], ids=["strangers", "a known key"])
def test_f12_a_flood_of_one_caller_is_counted_and_told_with_its_next_record(tmp_path: Path, key: str | None) -> None:
    clock = StillClock()
    with opened(tmp_path / "log", clock) as ledger:
        assert refuse(ledger, key, MANY) == PER_SECOND
        clock.now += 1
        assert refuse(ledger, key, 1) == 1
        last = world.records(tmp_path / "log")[-1]
        assert last["suppressed"] == MANY - PER_SECOND
        assert (last["caller"] or {}).get("id") == key
    assert "suppressed" not in world.records(tmp_path / "log")[-1], "told once"
    assert world.check(tmp_path / "log", ledger).good


def test_f12_a_flood_of_one_key_hides_nobody_elses_refusals(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        refuse(ledger, "loud", MANY)
        for other in ("quiet", None, "third"):
            assert refuse(ledger, other, PER_SECOND) == PER_SECOND
        for number in range(50):
            ledger.append(numbered(OUTCOME, number))
    assert refusals(tmp_path / "log") == {
        "loud": PER_SECOND,
        "quiet": PER_SECOND,
        None: PER_SECOND,
        "third": PER_SECOND,
    }
    assert told(tmp_path / "log") == {"loud": MANY - PER_SECOND}
    assert sum(one.get("status") == "ok" for one in world.records(tmp_path / "log")) == 50, "calls are never counted"


def test_f12_the_end_of_a_run_tells_every_count_with_whose_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        refuse(ledger, "k1", 50)
        refuse(ledger, "k2", 30)
        refuse(ledger, None, 25)
    last = world.records(tmp_path / "log")[-1]
    assert (last["final"], last["suppressed"], last["suppressedOf"]) == (True, 45, {"k1": 30, "k2": 10})


def test_f12_a_count_alone_is_reason_for_a_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        refuse(ledger, "k1", PER_SECOND)
        ledger.checkpoint()
        assert ledger.until_checkpoint() is None
        refuse(ledger, "k1", 1)
        assert ledger.until_checkpoint() is not None


@pytest.mark.parametrize("limits", [{"checkpoint_records": 1}, {"segment_bytes": 1}], ids=["checkpoint", "rotation"])
def test_f12_a_count_is_told_once_also_where_a_checkpoint_stands_beside_it(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    clock = StillClock()
    with opened(tmp_path / "log", clock, rules=replace(QUIET, **limits)) as ledger:
        for key in ("k1", None):
            refuse(ledger, key, PER_SECOND + 3)
            clock.now += 1
            refuse(ledger, key, 1)
    assert told(tmp_path / "log") == {"k1": 3, None: 3}


def test_f12_memory_is_bounded_whatever_the_number_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "MAX_CALLERS", 8)
    with opened(tmp_path / "log", StillClock()) as ledger:
        for number in range(500):
            refuse(ledger, f"key-{number}", PER_SECOND + 2)
        assert refuse(ledger, None, 1) == 1, "strangers have a place of their own"
        assert len(ledger._flood._written) <= 9
        assert len(ledger._flood._suppressed) <= 9
    assert sum(told(tmp_path / "log").values()) + sum(refusals(tmp_path / "log").values()) == 500 * (PER_SECOND + 2) + 1
    assert told(tmp_path / "log")[OTHERS] > 0


def test_f12_a_count_survives_a_write_that_fails(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path / "log", clock) as ledger:
        refuse(ledger, "k1", 50)
        clock.now += 1
        with patch.object(os, "write", no_space):
            for number in range(3):
                with pytest.raises(LedgerUnavailable):
                    ledger.append_refusal(refusal("k1", number))
        refuse(ledger, "k1", 1)
    assert told(tmp_path / "log") == {"k1": 30}


def test_f12_a_count_is_not_forgotten_with_what_was_gathered(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path / "log", clock) as ledger:
        refuse(ledger, "k1", 50)
        clock.now += 1
        refuse(ledger, "k1", 3, is_held=True)
        with patch.object(os, "write", no_space), pytest.raises(LedgerUnavailable):
            ledger.flush()
    assert told(tmp_path / "log") == {"k1": 30}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["refuse"]), st.sampled_from([None, "a", "b", "c"]), st.integers(1, 60)),
        st.tuples(st.sampled_from(["second", "sign", "call"]), st.none(), st.just(1)),
    ),
    max_size=25,
)


@cases(25, 100)
@given(STEPS)
def test_f12_every_refusal_is_written_or_counted_for_its_own_caller(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str | None, int]]
) -> None:
    directory = tmp_path_factory.mktemp("flood") / "log"
    clock = StillClock()
    made: Counter[str | None] = Counter()
    with opened(directory, clock) as ledger:
        for step, key, count in steps:
            match step:
                case "refuse":
                    refuse(ledger, key, count)
                    made[key] += count
                case "second":
                    clock.now += 1
                case "sign":
                    ledger.checkpoint()
                case _:
                    ledger.append(OUTCOME)
    assert refusals(directory) + told(directory) == made
    assert world.check(directory, ledger).good


# Over every face ----------------------------------------------------------------------------------------------------

FLOODS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "an unknown tool": ("unruly_nothing", {}, ()),
    "bad arguments": ("unruly_write", {"more": 1}, ()),
    "a role that does not hold it": ("unruly_guarded", {"receipt": "x"}, ()),
    "over the rate": ("unruly_echo", {}, ("--limits-rate-per-minute", "1")),
}
BURST = 60
"""Of each face: twelve seconds' worth of what is written, so that even a slow machine has some to count."""


@pytest.mark.parametrize("flood_of", FLOODS)
def test_f12_a_refusal_that_was_only_counted_is_answered_like_the_others_without_a_place(
    tmp_path: Path, flood_of: str
) -> None:
    tool, arguments, flags = FLOODS[flood_of]
    home = make_home(tmp_path / "home", packs=("unruly",))
    places = 0
    with home.serving(*flags) as server:
        if flags:
            speak.mrt(server.port, tool, arguments, home.keys["builder"])
        for ask in speak.HTTP_FACES.values():
            heard = [ask(server.port, tool, arguments, home.keys["builder"]) for _ in range(BURST)]
            assert len({(one.status, shape(without_audit(one.body))) for one in heard}) == 1
            places += sum("audit" in words(one.body) for one in heard)
    log = home.path / "runs" / LOG_PATH
    made = BURST * len(speak.HTTP_FACES)
    assert sum(refusals(log).values()) + sum(told(log).values()) == made
    assert sum(told(log).values()) > 0
    assert places == sum(refusals(log).values()), "who was told a place has a record, and the other way round"


def shape(body: Any) -> str:
    """The keys of an answer, nested."""
    if isinstance(body, dict):
        return "{" + ",".join(f"{name}:{shape(value)}" for name, value in sorted(body.items())) + "}"
    return "[" + ",".join(map(shape, body)) + "]" if isinstance(body, list) else ""


def without_audit(body: Any) -> Any:
    if isinstance(body, dict):
        return {name: without_audit(value) for name, value in body.items() if name != "audit"}
    return body


def test_f25_someone_without_a_key_learns_nothing_of_the_log(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    wrong = "tg_000000000000_" + "0" * 64
    with home.serving() as server:
        for ask in speak.HTTP_FACES.values():
            for key in (None, wrong, ""):
                heard = ask(server.port, "unruly_echo", {}, key)
                assert heard.status in (401, 403)
                assert not {"audit", "run", "seq", "leaf"} & words(heard.body)
    assert len(home.calls()) == 3 * len(speak.HTTP_FACES), "each is in the log all the same"


def test_f25_whose_key_was_revoked_learns_nothing_of_the_log_over_a_pipe(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with speak.stdio(home, "builder") as peer:
        assert "audit" in words(peer.rpc("unruly_echo", {}).body)
        home.ring().revoke(home.keys["builder"].split("_")[1])
        for heard in (
            peer.rpc("unruly_echo", {}),
            peer.mcp("unruly_echo", {}),
            peer.mcp("unruly_echo", {}, modern=False),
        ):
            assert not {"audit", "run", "seq", "leaf"} & words(heard.body)
    assert len(home.calls()) == 4


def words(body: Any) -> set[str]:
    if isinstance(body, dict):
        return set(body).union(*(words(value) for value in body.values()))
    return set().union(*map(words, body)) if isinstance(body, list) else set()
