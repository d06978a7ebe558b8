"""What a record holds, where it lies, and that each is written once and whole."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.ledger import world
from tests.ledger.world import INTENT, OUTCOME, StillClock, numbered, opened
from toolgate.errors import LedgerUnavailable, StartRefused
from toolgate.kit.merkle import leaf_hash
from toolgate.ledger import LOG_PATH, Rules
from toolgate.ledger.files import LATEST
from toolgate.ledger.local import call_line
from toolgate.model.call import Caller
from toolgate.model.envelope import Clamp


def test_a_record_has_the_fields_of_document_002_and_ours(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        clamp = Clamp("experimental-never-blocks", "decision", "block", "warn")
        ledger.append(replace(OUTCOME, decision="warn", clamps=(clamp,)))
    found = world.records(tmp_path / "log")[1]
    assert found | {"prev": ""} == {
        "ts": "2025-11-15T20:53:20.500Z",
        "agentId": "mcp_server",
        "taskId": "envelope_validation",
        "stepId": 1,
        "event": "outcome",
        "transport": "http",
        "face": "mcp",
        "route": "/mcp",
        "method": "mcp.tool.invoke",
        "requestId": "r",
        "traceId": "t",
        "spanId": "s",
        "status": "ok",
        "durationMs": 1.25,
        "attempt": 0,
        "inputBytes": 40,
        "outputBytes": 300,
        "metadata": {
            "schemaVersion": "0.1.0",
            "deterministic": False,
            "toolId": "mcp.tool:lra.validate",
            "promptId": None,
        },
        "error": None,
        "caller": {"id": "k1", "role": "builder"},
        "tier": "experimental",
        "environment": "local",
        "decision": "warn",
        "clamps": [{"rule": "experimental-never-blocks", "field": "decision", "from": "block", "to": "warn"}],
        "argumentsDigest": "ab" * 32,
        "run": ledger.run,
        "seq": 1,
        "prev": "",
    }


def test_the_place_told_to_the_caller_is_where_the_line_is(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        places = [ledger.append(numbered(OUTCOME, number)) for number in range(5)]
    lines = world.lines(tmp_path / "log")
    for place in places:
        assert place.run == ledger.run
        assert leaf_hash(lines[place.seq]).hex() == place.leaf
        assert json.loads(lines[place.seq + 1])["prev"] == place.leaf


@pytest.mark.req("002-L1", "002-L2")
def test_segments_and_the_latest_link_lie_where_document_002_says(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / LOG_PATH
    with opened(directory) as ledger:
        ledger.append(OUTCOME)
        link = tmp_path / "runs/mcp_server/envelope_validation" / LATEST
        assert link.name.endswith(".latest.jsonl")
        target = link.readlink()
        assert not target.is_absolute()
        assert target.name == f"20251115T205320Z.{ledger.run}.001.jsonl"
        assert len(link.read_bytes().splitlines()) == 2
    with opened(directory) as second:
        assert second.run in link.readlink().name


def test_the_log_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with opened(tmp_path / "log"):
        for path in [tmp_path / "audit.key", *(tmp_path / "log").iterdir()]:
            assert path.is_symlink() or stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
        assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700


def test_every_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "log") as ledger:
        sizes: list[int] = []
        real = os.write

        def counted(descriptor: int, data: bytes) -> int:
            sizes.append(len(data))
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", counted)
        for number in range(10):
            ledger.append(numbered(OUTCOME, number))
        monkeypatch.undo()
    assert sizes == [len(line) + 1 for line in world.lines(tmp_path / "log")[1:11]]


def test_threads_that_write_at_once_leave_whole_lines_in_one_chain(tmp_path: Path) -> None:
    def work(ledger: world.LocalLedger, mine: int) -> None:
        for number in range(200):
            ledger.append(numbered(OUTCOME, f"{mine}-{number}"))

    with opened(tmp_path / "log") as ledger:
        threads = [threading.Thread(target=work, args=(ledger, mine)) for mine in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = world.records(tmp_path / "log")
    requests = [one["requestId"] for one in found if one["event"] == "outcome"]
    assert (len(requests), len(set(requests))) == (800, 800)
    assert [one["seq"] for one in found] == list(range(len(found)))
    assert world.check(tmp_path / "log", ledger).good


def test_steps_count_calls_and_not_checkpoints(tmp_path: Path) -> None:
    world.written(tmp_path / "log", 10, rules=Rules(checkpoint_seconds=3600.0, checkpoint_records=3))
    found = world.records(tmp_path / "log")
    assert [one["stepId"] for one in found if one["event"] == "outcome"] == list(range(1, 11))
    assert [one["event"] for one in found].count("checkpoint") == 1 + 3 + 1


def test_a_checkpoint_comes_after_so_many_records_and_after_so_long(tmp_path: Path) -> None:
    with opened(tmp_path / "log", rules=Rules(checkpoint_seconds=0.05)) as ledger:
        ledger.append(OUTCOME)
        clock = threading.Event()
        for _ in range(100):
            ledger._clock.now += 1.0  # type: ignore[attr-defined]  # StillClock
            ledger.append(OUTCOME)
            if clock.wait(0.05) or sum(one["event"] == "checkpoint" for one in world.records(tmp_path / "log")) > 1:
                break
        else:
            pytest.fail("no checkpoint by time")


def test_an_idle_log_does_not_grow(tmp_path: Path) -> None:
    with opened(tmp_path / "log", rules=Rules(checkpoint_seconds=0.01)) as ledger:
        ledger.append(OUTCOME)
        ledger.checkpoint()
        size = len(world.lines(tmp_path / "log"))
        threading.Event().wait(0.1)
        assert len(world.lines(tmp_path / "log")) == size


def test_a_run_ends_with_a_final_checkpoint_and_takes_no_more(tmp_path: Path) -> None:
    ledger = world.written(tmp_path / "log", 3)
    last = world.records(tmp_path / "log")[-1]
    assert (last["event"], last["final"], last["size"]) == ("checkpoint", True, 4)
    with pytest.raises(LedgerUnavailable):
        ledger.append(OUTCOME)
    ledger.close()
    assert not ledger.probe()
    assert not list((tmp_path / "log").glob("*.lock"))


def test_rotation_under_load_loses_nothing_and_moves_the_link(tmp_path: Path) -> None:
    ledger = world.written(tmp_path / "log", 400, rules=Rules(segment_bytes=65_536, checkpoint_seconds=3600.0))
    names = [path.name for path in world.segments(tmp_path / "log")]
    assert [name.split(".")[2] for name in names] == [f"{number:03d}" for number in range(1, len(names) + 1)]
    assert len(names) >= 4
    assert (tmp_path / "log" / LATEST).readlink().name == names[-1]
    report = world.check(tmp_path / "log", ledger)
    assert report.good
    assert sum(one["event"] == "outcome" for one in world.records(tmp_path / "log")) == 400


def test_a_segment_ends_with_a_checkpoint_over_all_before_it(tmp_path: Path) -> None:
    world.written(tmp_path / "log", 200, rules=Rules(segment_bytes=65_536, checkpoint_seconds=3600.0))
    first = world.segments(tmp_path / "log")[0]
    last = json.loads(first.read_bytes().splitlines()[-1])
    assert (last["event"], last["size"]) == ("checkpoint", last["seq"])


def test_the_first_record_holds_the_last_checkpoint_of_the_run_before(tmp_path: Path) -> None:
    first = world.written(tmp_path / "log", 5)
    clock = StillClock()
    clock.now += 10
    second = world.written(tmp_path / "log", 1, clock=clock)
    by_run = {one["run"]: one for one in reversed(world.records(tmp_path / "log"))}
    last = [one for one in world.records(tmp_path / "log") if one["run"] == first.run][-1]
    assert by_run[first.run]["previous"] is None
    assert by_run[second.run]["previous"] == {"run": first.run, "size": last["size"], "root": last["root"]}


def test_two_servers_share_a_directory_each_with_its_own_run(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as one, opened(tmp_path / "log") as other:
        for number in range(50):
            one.append(numbered(OUTCOME, f"one-{number}"))
            other.append(numbered(OUTCOME, f"other-{number}"))
        assert world.check(tmp_path / "log", one).good
    report = world.check(tmp_path / "log", one)
    assert report.good
    assert {run.name.id: run.records for run in report.runs} == {one.run: 52, other.run: 52}
    assert not any(found["event"] == "recovered" for found in world.records(tmp_path / "log"))


def test_a_run_id_that_is_taken_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "log", run_id="mine"), pytest.raises(StartRefused, match="cannot be written"):
        world.start(tmp_path / "log", run_id="mine")


@pytest.mark.parametrize("run_id", ["../x", "a/b", "a.b", "", " ", "x" * 65])
def test_a_run_id_that_is_no_file_name_is_refused(tmp_path: Path, run_id: str) -> None:
    if run_id:
        with pytest.raises(StartRefused, match="run id"):
            world.start(tmp_path / "log", run_id=run_id)


def test_an_intent_that_got_its_outcome_leaves_nothing_to_recover(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as ledger:
        ledger.append(INTENT)
        ledger.append(replace(INTENT, event="outcome"))
    with opened(tmp_path / "log"):
        assert not any(found["event"] == "recovered" for found in world.records(tmp_path / "log"))


def test_a_key_that_others_can_read_or_that_is_none_refuses_to_start(tmp_path: Path) -> None:
    with opened(tmp_path / "log"):
        pass
    key = tmp_path / "audit.key"
    key.chmod(0o640)
    with pytest.raises(StartRefused, match="chmod 600"):
        world.start(tmp_path / "log")
    key.chmod(0o600)
    key.write_text("PRIVATE+KEY+nonsense")
    with pytest.raises(StartRefused, match="not an audit log key"):
        world.start(tmp_path / "log")


def test_the_key_stays_the_same_from_start_to_start(tmp_path: Path) -> None:
    assert world.written(tmp_path / "log", 0).verifier == world.written(tmp_path / "log", 0).verifier


@pytest.mark.parametrize("caller", [world.CALLER, Caller("0123456789ab", "auditor"), None])
@pytest.mark.parametrize("tool_id", ["mcp.tool:lra.validate", "mcp.resource:file:///[caller]", None])
def test_a_line_names_its_caller_and_its_tool_whatever_the_tool_is_called(
    caller: Caller | None, tool_id: str | None
) -> None:
    entry = replace(OUTCOME, caller=caller, tool_id=tool_id)
    found = json.loads(call_line(entry, 1, "run", 1, None, deterministic=False))
    assert found["metadata"]["toolId"] == tool_id
    assert found["caller"] == (None if caller is None else {"id": caller.key_id, "role": caller.role})
