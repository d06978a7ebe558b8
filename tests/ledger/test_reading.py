"""Proofs, filters, export, comparison and explanation, over files as a server writes them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from deepdiff import DeepDiff
from msgspec.structs import replace

from tests.ledger import world
from tests.ledger.world import ANONYMOUS, INTENT, OUTCOME, StillClock, at, numbered, opened
from toolgate.errors import Ending
from toolgate.kit import note
from toolgate.ledger import Rules, lines
from toolgate.ledger.reading import export, parity, proofs, query
from toolgate.ledger.reading.explain import explain
from toolgate.model.call import Caller, Wire
from toolgate.model.envelope import Clamp

FAILED = replace(
    OUTCOME, status="error", error={"happening": "bad_arguments", "code": "INVALID_INPUT", "reason": "missing_path"}
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two runs that overlap in time, several callers, tools and outcomes."""
    directory = tmp_path / "log"
    with opened(directory, run_id="http") as http, opened(directory, run_id="stdio") as stdio:
        for number in range(10):
            http.append(at(numbered(OUTCOME, f"h{number}"), number))
            entry = replace(at(numbered(FAILED, f"s{number}"), number + 0.5), caller=Caller("k2", "admin"))
            stdio.append(replace(entry, tool_id="mcp.tool:governance.analyze_dissonance"))
        http.append(at(numbered(INTENT, "effect"), 20))
        http.append(replace(at(numbered(INTENT, "effect"), 21), event="outcome"))
    return directory


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (query.Filter(), 22 + 4),
        (query.Filter(caller="k1"), 12),
        (query.Filter(tool="lra_validate"), 10),
        (query.Filter(tool="mcp.tool:lra.validate"), 10),
        (query.Filter(tool="analyze_dissonance"), 10),
        (query.Filter(tool="dissonance"), 0),
        (query.Filter(status="error"), 10),
        (query.Filter(event="intent"), 1),
        (query.Filter(run="stdio"), 12),
        (query.Filter(since="2025-11-15T20:53:25", event="outcome"), 5 + 6 + 1),
        (query.Filter(caller="k2", status="ok"), 0),
    ],
)
def test_filters_choose_records(log: Path, wanted: query.Filter, count: int) -> None:
    assert len(list(query.records(log, wanted))) == count


def test_records_of_several_runs_come_in_the_order_of_time(log: Path) -> None:
    found = [one["ts"] for one in query.records(log, query.Filter(event="outcome"))]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", "2025-11-15T20:51:50.000Z"),
        ("2h", "2025-11-15T18:53:20.000Z"),
        ("2025-11-15", "2025-11-15"),
        ("2025-11-15T20:00:00Z", "2025-11-15T20:00:00"),
        ("2025-02-30", None),
        ("yesterday", None),
        ("-5m", None),
        ("5", None),
        ("٥m", None),
    ],
)
def test_a_time_is_a_moment_or_a_span_back_from_now(text: str, moment: str | None) -> None:
    assert query.parse_since(text, StillClock().now) == moment


def test_a_follower_gives_whole_lines_as_they_come(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        ledger.append(numbered(OUTCOME, "before"))
        follower = query.Follower(tmp_path / "log")
        ledger.append(numbered(OUTCOME, "after"))
        assert [one["requestId"] for one in follower._new(query.Filter())] == ["request-after"]
        assert list(follower._new(query.Filter())) == []
        with world.segments(tmp_path / "log")[0].open("ab") as torn:
            torn.write(b'{"half')
        assert list(follower._new(query.Filter())) == []


def test_a_record_is_proved_with_the_public_key_alone(tmp_path: Path) -> None:
    ledger = world.written(tmp_path / "log", 100, rules=Rules(checkpoint_seconds=3600.0, checkpoint_records=7))
    for number in (0, 1, 6, 50, 99):
        proof = json.loads(json.dumps(proofs.prove(tmp_path / "log", f"request-{number}")))
        assert proofs.check(proof, [ledger.verifier])["requestId"] == f"request-{number}"


def forged(proof: dict[str, Any]) -> list[dict[str, Any]]:
    other = note.sign_checkpoint(
        note.Checkpoint("toolgate/audit", 5, bytes(32)), note.NoteSigner("toolgate/audit", bytes(32))
    )
    return [
        {**proof, "record": proof["record"].replace('"ok"', '"error"')},
        {**proof, "seq": proof["seq"] + 1},
        {**proof, "seq": True},
        {**proof, "proof": proof["proof"][:-1]},
        {**proof, "proof": [*proof["proof"], "00" * 32]},
        {**proof, "proof": ["zz"]},
        {**proof, "proof": 5},
        {**proof, "checkpoint": other},
        {**proof, "checkpoint": proof["checkpoint"].replace("run ", "run x")},
        {**proof, "format": "other"},
        {name: value for name, value in proof.items() if name != "record"},
    ]


def test_a_forged_proof_does_not_hold(tmp_path: Path) -> None:
    ledger = world.written(tmp_path / "log", 100, rules=Rules(checkpoint_seconds=3600.0, checkpoint_records=7))
    proof = proofs.prove(tmp_path / "log", "request-50")
    for one in [*forged(proof), [], None, "x"]:
        with pytest.raises(proofs.ProofError):
            proofs.check(one, [ledger.verifier])


def test_there_is_no_proof_of_what_is_not_there_or_not_yet_covered(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        ledger.append(numbered(OUTCOME, 1))
        with pytest.raises(proofs.ProofError, match="no checkpoint covers"):
            proofs.prove(tmp_path / "log", "request-1")
        with pytest.raises(proofs.ProofError, match="no outcome record"):
            proofs.prove(tmp_path / "log", "request-2")
        with pytest.raises(proofs.ProofError, match="no intent record"):
            proofs.prove(tmp_path / "log", "request-1", "intent")


def test_an_export_is_json_lines_or_a_table(log: Path) -> None:
    lines = list(export.FORMS["jsonl"](query.records(log, query.Filter(status="error"))))
    assert {json.loads(line)["error"]["reason"] for line in lines} == {"missing_path"}
    text = "".join(export.FORMS["csv"](query.records(log, query.Filter(status="error"))))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 10
    assert (rows[0]["toolId"], rows[0]["callerRole"]) == ("mcp.tool:governance.analyze_dissonance", "admin")


def test_a_table_holds_no_formula() -> None:
    text = "".join(export.FORMS["csv"]([{"requestId": "=cmd()", "caller": {"id": "+1", "role": "@x"}}]))
    assert "'=cmd()" in text
    assert "'+1,'@x" in text


def test_a_log_of_many_runs_is_read_in_order_with_few_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "log", run_id="long") as long:
        for number in range(12):
            long.append(at(numbered(OUTCOME, f"long-{number}"), 10 * number))
            with opened(tmp_path / "log", world.later(10 * number), run_id=f"short-{number}") as short:
                short.append(at(numbered(OUTCOME, f"short-{number}"), 10 * number + 1))
    streams: list[Any] = []
    real = lines._opened
    monkeypatch.setattr(lines, "_opened", lambda path: streams.append(real(path)) or streams[-1])
    found, most = [], 0
    for one in query.records(tmp_path / "log", query.Filter(event="outcome")):
        found.append(one["requestId"])
        most = max(most, sum(not stream.closed for stream in streams))
    assert found == [f"request-{run}-{number}" for number in range(12) for run in ("long", "short")]
    assert most <= 3


def over_stdio(entry: world.Entry, number: int) -> world.Entry:
    return replace(at(numbered(entry, f"other-{number}"), 100), wire=Wire("mcp", "stdio", "stdio"), duration_ms=9)


def two_logs(tmp_path: Path, entries: list[world.Entry], others: list[world.Entry]) -> tuple[Path, Path]:
    with opened(tmp_path / "a") as one:
        for number, entry in enumerate(entries):
            one.append(numbered(entry, number))
    with opened(tmp_path / "b", rules=Rules(checkpoint_seconds=3600.0, checkpoint_records=2)) as other:
        for number, entry in enumerate(others):
            other.append(over_stdio(entry, number))
    return world.segments(tmp_path / "a")[0], world.segments(tmp_path / "b")[0]


@pytest.mark.req("002-L5")
def test_the_comparison_drops_the_volatile_fields_and_nothing_else(tmp_path: Path) -> None:
    entries = [OUTCOME, FAILED, INTENT]
    first, second = two_logs(tmp_path, entries, entries)
    assert parity.differences(parity.calls_in(first), parity.calls_in(second)) == []
    paths = [f"root['{name}']" for name in parity.VOLATILE]
    for one, other in zip(parity.calls_in(first), parity.calls_in(second), strict=True):
        assert not DeepDiff(one, other, exclude_paths=paths)
        kept = {name for name in one if name not in parity.VOLATILE}
        for name in kept:
            assert parity.differences(iter([one]), iter([{**one, name: "changed"}])), name
    assert {
        "ts", "traceId", "spanId", "requestId", "durationMs", "transport", "route", "seq", "prev", "run",
        "clientAddress", "clientRequestId", "traceparent", "tracestate"
    } == parity.VOLATILE  # fmt: skip


def test_a_difference_is_named_with_record_and_field(tmp_path: Path) -> None:
    first, second = two_logs(
        tmp_path, [OUTCOME, OUTCOME], [OUTCOME, replace(OUTCOME, tool_id="mcp.tool:x.y", input_bytes=41), INTENT]
    )
    assert parity.differences(parity.calls_in(first), parity.calls_in(second)) == [
        "record 2: inputBytes: 40 | 41",
        'record 2: metadata.toolId: "mcp.tool:lra.validate" | "mcp.tool:x.y"',
        "record 3: only in the second",
    ]


def test_a_golden_keeps_what_can_be_repeated(tmp_path: Path) -> None:
    first, _ = two_logs(tmp_path, [OUTCOME], [])
    golden = [json.loads(line) for line in parity.golden_lines(parity.calls_in(first))]
    assert golden[0]["requestId"] == "request-0"
    assert not parity.UNREPEATABLE & golden[0].keys()


@pytest.mark.parametrize("ending", [one for one in Ending if one is not Ending.OK])
def test_every_way_to_end_is_explained(tmp_path: Path, ending: Ending) -> None:
    with opened(tmp_path / "log") as ledger:
        ledger.append(
            replace(
                numbered(OUTCOME, 1), status="error", error={"happening": ending.value, "code": None, "reason": "r"}
            )
        )
    text = explain([json.loads(one.line) for one in query.find_request(tmp_path / "log", "request-1")])
    assert "Decided:  " in text
    assert "Change:   " in text
    assert "unknown rule" not in text
    assert "reason r" in text


def test_an_explanation_names_rule_decision_and_clamps(tmp_path: Path) -> None:
    clamp = Clamp("experimental-never-blocks", "decision", "block", "warn")
    with opened(tmp_path / "log") as ledger:
        ledger.append(replace(numbered(OUTCOME, 1), decision="warn", clamps=(clamp,)))
        ledger.append(numbered(ANONYMOUS, 2))
        ledger.append(numbered(INTENT, 3))
    found = {number: query.find_request(tmp_path / "log", f"request-{number}") for number in (1, 2, 3)}
    texts = {number: explain([json.loads(one.line) for one in lines]) for number, lines in found.items()}
    assert "Clamped:  decision from block to warn, by experimental-never-blocks" in texts[1]
    assert "steps 1 to 9 passed" in texts[1]
    assert "Caller:   not authenticated" in texts[2]
    assert "no outcome" in texts[3]


def test_an_explanation_of_a_newer_versions_rule_says_so() -> None:
    assert "unknown rule: later" in explain([{"event": "outcome", "error": {"happening": "later"}}])
