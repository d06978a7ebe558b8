"""The road: nine steps in order; every refusal before any handler; every outcome written down before it is told."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cases import cases
from tests.gate.conftest import WIRE, Gate
from tests.gate.test_floor import model
from tests.homes import PATIENCE_S
from tests.site_packages.unruly import ANSWERED, RAISED
from tests.waiting import soon, until
from toolgate.errors import Ending, LedgerUnavailable
from toolgate.gate import road as road_module
from toolgate.gate.admit import Permits, sayable_codes
from toolgate.gate.road import MAX_COUNTS, _told
from toolgate.model.call import Call, Caller
from toolgate.model.record import LedgerEntry, RecordPlace
from toolgate.model.tool import Result


class Watched:
    """A ledger that notes what is written, and can be told to fail."""

    def __init__(self, real: Any, fail_on: str = "") -> None:
        self._real = real
        self.entries: list[LedgerEntry] = []
        self.synced: list[int] = []
        self.fail_on = fail_on

    def append(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace:
        if entry.event == self.fail_on:
            raise LedgerUnavailable("disk full")
        self.entries.append(entry)
        return RecordPlace("run", len(self.entries), "leaf")

    append_refusal = append

    async def durable(self, place: RecordPlace) -> None:
        self.synced.append(place.seq)


def watched(gate: Gate, fail_on: str = "") -> Watched:
    ledger = Watched(gate.app.ledger, fail_on)
    gate.app.road = replace(gate.app.road, ledger=ledger)
    return ledger


def written(gate: Gate, name: str) -> bool:
    return (gate.home.workspace / name).exists()


REFUSED_BEFORE_ANYTHING_RUNS = {
    "no key": ({"key": None}, {"name": "r1"}, Ending.MISSING_KEY),
    "a wrong key": ({"key": "tg_000000000000_" + "0" * 64}, {"name": "r2"}, Ending.INVALID_KEY),
    "an empty key": ({"key": ""}, {"name": "r3"}, Ending.INVALID_KEY),
    "a key that is not ASCII": ({"key": "schlüssel"}, {"name": "r4"}, Ending.INVALID_KEY),
    "an argument too many": ({}, {"name": "r5", "more": 1}, Ending.BAD_ARGUMENTS),
    "a missing argument": ({}, {}, Ending.BAD_ARGUMENTS),
    "an argument too long": ({}, {"name": "r6" * 64}, Ending.BAD_ARGUMENTS),
    "arguments that are not an object": ({}, ["r7"], Ending.BAD_ARGUMENTS),
}


@pytest.mark.req("000-C-03", "000-C-05", "000-C-06")
@pytest.mark.parametrize("why", REFUSED_BEFORE_ANYTHING_RUNS)
def test_a_refusal_comes_before_the_handler(gate: Gate, why: str) -> None:
    options, arguments, ending = REFUSED_BEFORE_ANYTHING_RUNS[why]
    ledger = watched(gate)
    before = set(gate.home.workspace.iterdir())
    answer = gate.call("unruly_write", arguments, **options)
    assert answer.ending is ending
    assert set(gate.home.workspace.iterdir()) == before
    assert [entry.event for entry in ledger.entries] == ["outcome"], "no intent, exactly one outcome"
    assert gate.app.road.admission.slots.held() == 0


@pytest.mark.req("000-C-01", "000-C-02")
@pytest.mark.parametrize(
    "name", ["no_such_tool", "", "unruly_write ", "UNRULY_WRITE", "../unruly_write", "x" * 10_000, "é\n\u202e"]
)
def test_a_tool_that_is_not_in_the_manifest_does_not_exist(gate: Gate, name: str) -> None:
    answer = gate.call(name, {"name": "x"})
    assert answer.ending is Ending.UNKNOWN_TOOL
    assert answer.text is not None
    assert len(answer.text) < 200
    assert "\u202e" not in answer.text


def test_a_tool_of_another_role_is_refused_and_names_the_role(gate: Gate) -> None:
    answer = gate.call("unruly_admin", key="builder")
    assert (answer.ending, answer.details) == (Ending.INSUFFICIENT_ROLE, {"role": "builder"})
    assert gate.call("unruly_admin", key="admin").ending is Ending.OK


def test_list_and_call_are_decided_by_the_same_table(gate: Gate) -> None:
    for role in ("builder", "committer", "admin"):
        caller = gate.app.road.authenticate(gate.home.keys[role].encode())
        shown = {grant.tool.name for grant in gate.app.road.admission.permits.visible(caller)}
        for grant in gate.app.road.admission.permits.all():
            refused = gate.call(grant.tool.name, {"no such argument": 1}, key=role).ending is Ending.INSUFFICIENT_ROLE
            assert (grant.tool.name in shown) is not refused


@pytest.mark.parametrize(
    ("role", "arguments", "ending"),
    [
        ("builder", {"mode": "plain"}, Ending.OK),
        ("builder", {"mode": "special"}, Ending.INSUFFICIENT_ROLE),
        ("committer", {"mode": "special"}, Ending.OK),
        ("committer", {"receipt": "r.json"}, Ending.INSUFFICIENT_ROLE),
        ("admin", {"receipt": "r.json"}, Ending.OK),
    ],
)
def test_a_role_may_hold_a_tool_but_not_each_of_its_arguments(
    gate: Gate, role: str, arguments: Any, ending: Ending
) -> None:
    assert gate.call("unruly_guarded", arguments, key=role).ending is ending
    assert gate.app.road.admission.slots.held() == 0


@pytest.mark.req("000-C-09", "000-D-05")
def test_the_eleventh_call_at_once_is_refused_even_with_bad_arguments(gate: Gate) -> None:
    (gate.home.workspace / "release").unlink(missing_ok=True)

    async def scene() -> None:
        holding = [asyncio.ensure_future(gate.acall("unruly_hold")) for _ in range(10)]
        await asyncio.sleep(0)
        assert gate.app.road.admission.slots.held() == 10
        assert (await gate.acall("unruly_echo", {"bad": 1})).ending is Ending.TOO_MANY
        assert (await gate.acall("unruly_echo", key="builder")).ending is Ending.OK, "another caller is served"
        (gate.home.workspace / "release").touch()
        assert {answer.ending for answer in await asyncio.gather(*holding)} == {Ending.OK}

    gate.run(scene())
    assert gate.app.road.admission.slots.held() == 0


ODDLY_SAID = [kind for kind in RAISED if kind.startswith("odd_")]
"""A ToolError whose parts are not what they must be."""


@pytest.mark.parametrize("tool", ["unruly_raise", "unruly_raise_inline", "unruly_raise_later"])
@pytest.mark.parametrize("kind", [kind for kind in RAISED if kind not in ("no", "missing", "target", *ODDLY_SAID)])
def test_whatever_a_handler_raises_is_one_typed_outcome_without_its_words(gate: Gate, tool: str, kind: str) -> None:
    answer = gate.call(tool, {"kind": kind})
    assert answer.ending is Ending.TOOL_FAILED
    assert answer.details == {"reason": "crashed"}
    assert answer.envelope is not None
    assert (answer.envelope.success, answer.envelope.is_error, answer.envelope.code) == (
        False,
        True,
        "EXECUTION_FAILED",
    )
    assert b"secret" not in answer.envelope_json
    assert gate.app.road.admission.slots.held() == 0


@pytest.mark.parametrize("tool", ["unruly_raise", "unruly_raise_inline"])
@pytest.mark.parametrize("kind", ODDLY_SAID)
def test_f15_what_a_tool_error_carries_is_checked_like_a_result(gate: Gate, tool: str, kind: str) -> None:
    answer = gate.call(tool, {"kind": kind})
    assert answer.ending is Ending.BAD_OUTPUT
    assert b"secret" not in answer.envelope_json


def test_what_a_tool_says_keeps_its_code_and_its_words(gate: Gate) -> None:
    answer = gate.call("unruly_raise", {"kind": "no"})
    assert answer.ending is Ending.TOOL_SAID_NO
    assert answer.details == {"reason": "directory_exists", "text": "Directory already exists"}
    assert answer.envelope is not None
    assert answer.envelope.message == "DIRECTORY_EXISTS: Directory already exists"
    assert gate.call("unruly_raise", {"kind": "missing"}).ending is Ending.NOT_THERE
    assert gate.call("unruly_raise", {"kind": "target"}).ending is Ending.TARGET_FAILED


@pytest.mark.parametrize("kind", [kind for kind in ANSWERED if kind != "nested_claim"])
def test_nonsense_from_a_tool_never_leaves(gate: Gate, kind: str) -> None:
    answer = gate.call("unruly_answer", {"kind": kind})
    assert answer.ending is Ending.BAD_OUTPUT
    assert answer.envelope is not None
    assert answer.envelope.code == "INVALID_OUTPUT"
    assert answer.envelope.tier == "experimental"
    assert len(answer.envelope_json) < 1000


HIDDEN = ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e", "\u2066", "\u0301", " ", "\t", "\u00a0", "\u3000"]
"""Blanks, zero-width characters, bidirectional marks: what a reader does not see, or does not mind."""
TWINS = str.maketrans("ACEIMOTVU", "АСЕІМОТѴՍ")
"""Letters of other scripts that look like ours."""


@st.composite
def other_spellings(draw: st.DrawFn) -> str:
    """A binding code or a declared one, written so that a person would read the same."""
    code = draw(st.sampled_from(["INVARIANT_VIOLATION", "CONSENT_REQUIRED", "SOME_CODE"]))
    place, hidden = draw(st.integers(0, len(code))), draw(st.sampled_from(HIDDEN))
    return draw(
        st.sampled_from(
            [
                code.lower(),
                code.title(),
                code[0].lower() + code[1:],
                code.replace("_", "-"),
                code.replace("_", " "),
                code.replace("_", "\uff3f"),
                code[:place] + hidden + code[place:],
                "".join(chr(ord(letter) + 0xFEE0) for letter in code),
                code.translate(TWINS),
                "\u202e" + code[::-1],
                code + "\n",
            ]
        )
    )


@cases(50, 150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    code=other_spellings(),
    way=st.sampled_from([{}, {"success": False}, {"raise": "no"}, {"raise": "missing"}]),
    tier=st.sampled_from(["authoritative", "experimental"]),
)
def test_f15_a_code_in_another_spelling_never_leaves(gate: Gate, code: str, way: dict[str, Any], tier: Any) -> None:
    road = gate.app.road
    grants = [replace(grant, tier=tier) for grant in road.admission.permits.all()]
    admission = replace(road.admission, permits=Permits(grants))
    gate.app.road = replace(road, admission=admission, environment=lambda: ("cloud", ()))
    try:
        answer = gate.call("unruly_claim", {"code": code, **way})
    finally:
        gate.app.road = road
    assert answer.ending is Ending.BAD_OUTPUT
    assert answer.envelope is not None
    assert answer.envelope.code == "INVALID_OUTPUT"
    said = [answer.envelope.message, answer.text, *(answer.details or {}).values()]
    assert not any(code in str(text) or code.lower() in str(text) for text in said)


def test_f15_a_binding_code_is_sayable_only_where_it_is_declared_or_taken_away(gate: Gate) -> None:
    taken = gate.call("unruly_claim", {"code": "CONSENT_REQUIRED", "raise": "no"})
    assert taken.envelope is not None
    assert (taken.ending, taken.envelope.code, taken.details) == (
        Ending.TOOL_SAID_NO,
        None,
        {"reason": "failed", "text": "said by an exception"},
    )
    assert taken.envelope.message == "said by an exception"
    tool = next(grant.tool for grant in gate.app.road.admission.permits.all() if grant.tool.name == "unruly_claim")
    assert "CONSENT_REQUIRED" not in sayable_codes(tool, "authoritative")
    assert "CONSENT_REQUIRED" in sayable_codes(replace(tool, error_codes=("CONSENT_REQUIRED",)), "authoritative")


def test_claims_inside_data_are_data(gate: Gate) -> None:
    answer = gate.call("unruly_answer", {"kind": "nested_claim"})
    assert answer.envelope is not None
    assert (answer.envelope.tier, answer.envelope.decision, answer.envelope.code) == ("experimental", None, None)


@pytest.mark.parametrize("tool", ["unruly_spin", "unruly_doze", "unruly_sleep", "unruly_stubborn"])
def test_a_handler_past_its_deadline_is_answered_for_while_others_are_served(gate: Gate, tool: str) -> None:
    async def scene() -> list[str]:
        ended: list[str] = []
        slow = asyncio.ensure_future(gate.acall(tool))
        slow.add_done_callback(lambda _: ended.append("slow"))
        await asyncio.sleep(0)  # it begins
        for _ in range(3):
            assert (await gate.acall("unruly_echo", {"text": "me"}, key="builder")).ending is Ending.OK
            ended.append("other")
        answer = await slow
        await asyncio.sleep(0)
        assert (answer.ending, answer.details) == (Ending.TOOL_FAILED, {"reason": "deadline_exceeded"})
        await soon(lambda: not gate.app.road.admission.slots.held(), "the slot comes back")
        return ended

    # A machine that stands still for the time of the deadline spoils one attempt. A handler that blocks the loop spoils all.
    until(lambda: gate.run(scene()) == ["other", "other", "other", "slow"], "begun later, answered before")


def test_a_slot_is_held_until_the_handler_has_really_ended(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("unruly.time", SimpleNamespace(sleep=lambda _: release.wait(PATIENCE_S)))

    async def scene() -> None:
        await gate.acall("unruly_doze")
        assert gate.app.road.admission.slots.held() == 1, "the answer left at the deadline; the thread still runs"
        release.set()
        await soon(lambda: not gate.app.road.admission.slots.held(), "the slot comes back")

    gate.run(scene())


def handlers() -> list[Any]:
    """The tasks of `async def` handlers."""
    return [task for task in asyncio.all_tasks() if task.get_coro().__name__ == "_contained"]


def test_a_caller_that_goes_away_ends_a_waiting_handler(gate: Gate) -> None:
    ledger = watched(gate)

    async def scene() -> None:
        (gate.home.workspace / "release").unlink(missing_ok=True)
        road = gate.app.road
        from tests.gate.conftest import WIRE
        from toolgate.model.call import Call

        ticket = road.admission.enter(road.authenticate(gate.home.keys["admin"].encode()), Call(WIRE, "unruly_hold"))
        travelling = asyncio.ensure_future(road.travel(ticket))
        await soon(lambda: any(one.get_coro().cr_await for one in handlers()), "the handler waits")
        ticket.cancel()
        answer = await travelling
        assert answer.details == {"reason": "cancelled"}

    gate.run(scene())
    assert [entry.event for entry in ledger.entries] == ["outcome"]
    assert gate.app.road.admission.slots.held() == 0


def test_intent_is_on_disk_before_an_effect_and_outcome_before_the_answer(gate: Gate) -> None:
    ledger = watched(gate)
    seen: list[int] = []
    real = gate.app.road.context_for
    gate.app.road = replace(
        gate.app.road, context_for=lambda grant, ticket: (seen.append(len(ledger.synced)), real(grant, ticket))[1]
    )
    answer = gate.call("unruly_write", {"name": "ordered"})
    assert answer.ending is Ending.OK
    assert [entry.event for entry in ledger.entries] == ["intent", "outcome"]
    assert seen == [1], "when the handler got its powers, the intent was already synced"
    assert ledger.synced == [1, 2]
    assert ledger.entries[0].ids == ledger.entries[1].ids


def test_a_read_leaves_one_record_and_waits_for_no_sync(gate: Gate) -> None:
    ledger = watched(gate)
    gate.call("unruly_echo", {"text": "x"})
    assert [entry.event for entry in ledger.entries] == ["outcome"]
    assert ledger.synced == []


def test_what_is_answered_at_once_is_a_read_whatever_its_tool_may_do(gate: Gate) -> None:
    ledger = watched(gate, fail_on="intent")
    answer = gate.call("unruly_at_once", {"name": "quick"})
    assert (answer.ending, [entry.durable for entry in ledger.entries], ledger.synced) == (Ending.OK, [False], [])
    assert not written(gate, "quick")
    assert gate.app.road.admission.slots.held() == 0
    assert gate.call("unruly_at_once", {"name": "slow"}).ending is Ending.UNAVAILABLE, "its handler needs an intent"


def test_what_is_answered_at_once_passes_every_other_step(gate: Gate) -> None:
    assert gate.call("unruly_at_once", {"name": "quick", "more": 1}).ending is Ending.BAD_ARGUMENTS
    assert gate.call("unruly_at_once", {"name": "quick"}, key=None).ending is Ending.MISSING_KEY
    crashed = gate.call("unruly_at_once", {"name": "boom"})
    assert (crashed.ending, crashed.details) == (Ending.TOOL_FAILED, {"reason": "crashed"})
    assert not written(gate, "boom"), "a fault is an answer, no reason to run the handler"


def test_without_a_written_intent_nothing_runs(gate: Gate) -> None:
    watched(gate, fail_on="intent")
    answer = gate.call("unruly_write", {"name": "never"})
    assert answer.ending is Ending.UNAVAILABLE
    assert not written(gate, "never")
    assert gate.app.road.admission.slots.held() == 0


def test_an_answer_that_cannot_be_recorded_is_withheld_and_says_so(gate: Gate) -> None:
    watched(gate, fail_on="outcome")
    answer = gate.call("unruly_write", {"name": "unsure"})
    assert (answer.ending, answer.details, answer.envelope) == (Ending.UNAVAILABLE, {"effect": "unknown"}, None)
    assert gate.call("unruly_echo").details is None, "nothing was done, so nothing is unknown"
    assert gate.call("unruly_echo", key=None).ending is Ending.UNAVAILABLE


@pytest.mark.parametrize(
    ("effect", "held"),
    [
        ("read", {"writer": False, "keys": False, "net": False, "files_can_write": False}),
        ("write", {"writer": True, "keys": False, "net": False, "files_can_write": False}),
        ("crypto", {"writer": True, "keys": True, "net": False, "files_can_write": False}),
        ("network", {"writer": True, "keys": False, "net": True, "files_can_write": False}),
    ],
)
def test_the_effect_decides_which_powers_a_tool_is_handed(gate: Gate, effect: str, held: dict[str, bool]) -> None:
    answer = gate.call(f"unruly_powers_{effect}")
    assert answer.envelope is not None
    assert held.items() <= answer.envelope.data.items()


def test_a_text_form_that_fails_is_bad_output_not_a_crash(gate: Gate) -> None:
    assert gate.call("unruly_text", {"broken": True}).ending is Ending.BAD_OUTPUT
    assert gate.call("unruly_text", {"torn": True}).ending is Ending.BAD_OUTPUT
    assert gate.call("unruly_text", {"characters": 3}).stdout == "ééé"


decisions = st.sampled_from([None, "block", "warn", "pass"])
codes = st.sampled_from([None, "INVARIANT_VIOLATION", "CONSENT_REQUIRED", "SOME_CODE"])
flags = st.sampled_from([None, True, False])


@pytest.mark.req("001-F1", "001-F4")
@cases(50, 150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    role=st.sampled_from(["builder", "committer", "admin", None]),
    tool=st.sampled_from(["unruly_claim", "unruly_admin", "no_such"]),
    decision=decisions,
    code=codes,
    is_error=flags,
    success=st.booleans(),
    tier=st.sampled_from(["authoritative", "experimental"]),
    environment=st.sampled_from(["local", "cloud"]),
)
def test_the_gate_agrees_with_a_small_model_of_permit_and_floor(
    gate: Gate,
    role: Any,
    tool: str,
    decision: Any,
    code: Any,
    is_error: Any,
    success: bool,
    tier: Any,
    environment: Any,
) -> None:
    """Permit and floor together, in whatever tier and environment: a model that fits on one screen says the same."""
    road = gate.app.road
    grants = [replace(grant, tier=tier) for grant in road.admission.permits.all()]
    admission = replace(road.admission, permits=Permits(grants))
    gate.app.road = replace(road, admission=admission, environment=lambda: (environment, ()))
    said = {"decision": decision, "code": code, "isError": is_error, "success": success}
    arguments = {key: value for key, value in said.items() if value is not None} if tool == "unruly_claim" else {}
    try:
        answer = gate.call(tool, arguments, key=role)
    finally:
        gate.app.road = road
    if role is None:
        assert answer.ending is Ending.MISSING_KEY
    elif tool == "no_such":
        assert answer.ending is Ending.UNKNOWN_TOOL
    elif tool == "unruly_admin" and role != "admin":
        assert answer.ending is Ending.INSUFFICIENT_ROLE
    else:
        assert answer.envelope is not None
        raw = Result(decision=decision, code=code, is_error=is_error) if tool == "unruly_claim" else Result()
        left = answer.envelope
        assert (left.decision, left.code, left.is_error, left.degraded) == model(raw, tier, environment)
        assert left.success is (success if tool == "unruly_claim" else True)
        assert (left.tier, left.environment) == (tier, environment)
        assert left.request_id
        assert left.timestamp.endswith("Z")


def test_a_revoked_key_is_dead_at_once(gate: Gate) -> None:
    key, text = gate.home.ring().create("admin", label="short-lived")
    assert gate.call("unruly_echo", key=text).ending is Ending.OK
    gate.home.ring().revoke(key.id)
    assert gate.call("unruly_echo", key=text).ending is Ending.INVALID_KEY


def test_there_is_no_caller_without_a_key() -> None:
    with pytest.raises(TypeError):
        Caller()  # type: ignore[call-arg] # that it cannot be made is the point


def test_a_record_has_the_first_numbers_that_a_tool_gave_and_what_else_it_keeps() -> None:
    counts = {f"n{number}": number for number in range(MAX_COUNTS + 4)}
    ticket: Any = SimpleNamespace(repeats=None, kept={"arguments": {"a": "b"}})
    told = _told(ticket, Result(counts=counts))
    assert told == {"counts": dict(list(counts.items())[:MAX_COUNTS]), "arguments": {"a": "b"}}


@pytest.mark.parametrize("kept", [0, 1, 1024])
def test_a_handler_sees_its_own_caller_however_few_contexts_are_kept(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(road_module, "SHARED_CONTEXTS", kept)
    road, seen = gate.app.road, list[str]()
    for role in ("admin", "builder", "admin", "builder"):
        caller = road.authenticate(gate.home.keys[role].encode())
        seen.append(road._context(road.admission.enter(caller, Call(WIRE, "unruly_raise_inline", {}))).caller.role)
    assert seen == ["admin", "builder", "admin", "builder"]
    assert len(road._shared) <= kept
