"""Segments that nobody of ours wrote, or that broke: read within bounds, and named."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from tests.ledger import world
from toolgate.cli.main import main
from toolgate.ledger import LOG_PATH, lines, recovery
from toolgate.ledger.files import runs_in
from toolgate.ledger.lines import MAX_LINE_BYTES, SegmentDamaged
from toolgate.ledger.reading import proofs, query

FOREIGN = "20200101T000000Z.aaaaaaaaaaaaaaaa.001.jsonl.gz"
ENDLESS = 5 * MAX_LINE_BYTES


def endless(directory: Path) -> Path:
    """A small file that unpacks to one line without end."""
    path = directory / FOREIGN
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for _ in range(ENDLESS // (1 << 20)):
            packed.write(b"a" * (1 << 20))
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLGATE_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "workspace").mkdir()
    world.written(tmp_path / "runs" / LOG_PATH, 3, key_file=tmp_path / "secrets" / "audit.key")
    return tmp_path


COMMANDS = (
    ["audit", "tail"],
    ["audit", "export"],
    ["audit", "show", "nobody"],
    ["audit", "prove", "nobody"],
    ["explain", "nobody"],
    ["audit", "diff", f"runs/{LOG_PATH}/{FOREIGN}", f"runs/{LOG_PATH}/{FOREIGN}"],
)


def test_an_endless_line_is_named_by_every_reader_and_held_by_none(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    endless(home / "runs" / LOG_PATH)
    tracemalloc.start()
    try:
        for command in COMMANDS:
            assert main(command) == 1
            assert f"{FOREIGN} is damaged: it holds a line longer than" in capsys.readouterr().err, command
        assert main(["audit", "verify"]) == 1
        assert f"{FOREIGN}:1: run aaaaaaaaaaaaaaaa: it holds a line longer than" in capsys.readouterr().out
        assert tracemalloc.get_traced_memory()[1] < ENDLESS - MAX_LINE_BYTES
    finally:
        tracemalloc.stop()


def test_an_endless_line_does_not_stop_a_start(home: Path) -> None:
    log = home / "runs" / LOG_PATH
    endless(log).rename(log / FOREIGN.replace("2020", "2099"))
    (log / f"{FOREIGN.replace('2020', '2099').removesuffix('.001.jsonl.gz')}.lock").touch()
    tracemalloc.start()
    try:
        ledger = world.written(log, 1, key_file=home / "secrets" / "audit.key")
        assert tracemalloc.get_traced_memory()[1] < ENDLESS - MAX_LINE_BYTES
    finally:
        tracemalloc.stop()
    report = world.check(log, ledger)
    assert [fault.run for fault in report.faults] == ["aaaaaaaaaaaaaaaa"]


def test_a_follower_reads_what_is_new_within_the_same_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10_000)
    with world.opened(tmp_path / "log") as ledger:
        follower = query.Follower(tmp_path / "log")
        ledger.append(world.numbered(world.OUTCOME, 1))
        assert [one["requestId"] for one in follower._new(query.Filter())] == ["request-1"]
        assert list(follower._new(query.Filter())) == []
        with world.segments(tmp_path / "log")[0].open("ab") as stream:
            stream.write(b"x" * 20_000)
        with pytest.raises(SegmentDamaged):
            list(follower._new(query.Filter()))


@pytest.mark.parametrize("cut", ["tail", "middle", "head"])
def test_a_compressed_segment_that_broke_is_named(tmp_path: Path, cut: str) -> None:
    ledger = world.written(tmp_path / "log", 40)
    segment = world.segments(tmp_path / "log")[0]
    packed = bytearray(gzip.compress(segment.read_bytes()))
    match cut:
        case "tail":
            del packed[-20:]
        case "middle":
            packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
        case _:
            packed[:2] = b"no"
    segment.with_name(f"{segment.name}.gz").write_bytes(packed)
    segment.unlink()
    assert "cannot be unpacked" in world.check(tmp_path / "log", ledger).faults[0].text
    with pytest.raises(SegmentDamaged, match="cannot be unpacked"):
        proofs.prove(tmp_path / "log", "request-1")
    assert recovery.last_checkpoint(runs_in(tmp_path / "log")) is None or cut != "head"


def test_the_longest_line_of_our_own_is_within_the_bound() -> None:
    """What a killed run left open, at the highest number of concurrent calls that the settings allow."""
    from toolgate.ledger import record
    from toolgate.settings import SPECS

    most = next(one.high for one in SPECS if one.key == "limits.concurrency_total")
    open_intents = {f"{number:032x}".encode(): 10**9 for number in range(int(most or 0))}
    body = record.recovered_body(0.0, {"unfinished": record.unfinished(open_intents)})
    assert len(body) < MAX_LINE_BYTES


def test_what_a_made_up_run_claims_to_have_left_open_does_not_make_our_own_record_endless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MAX_UNFINISHED", 5)
    world.written(tmp_path / "log", 1)
    made_up = tmp_path / "log" / "20200101T000000Z.made-up.001.jsonl"
    made_up.write_bytes(b"".join(b'{"event":"intent","requestId":"%d%b"}\n' % (n, b"x" * 1000) for n in range(50)))
    (tmp_path / "log" / "20200101T000000Z.made-up.lock").touch()
    world.written(tmp_path / "log", 1, run_id="next")
    found = next(one["recovered"] for one in world.records(tmp_path / "log") if one.get("event") == "recovered")
    assert (found["records"], len(found["unfinished"])) == (50, 5)
    assert max(len(one["requestId"]) for one in found["unfinished"]) == 64
