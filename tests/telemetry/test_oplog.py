"""The operator's log: what a line looks like, how many there may be, and what never stands in one."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.faces.speak import mrt
from tests.homes import PATIENCE_S, Home, make_home
from toolgate.gate.keys import without_keys
from toolgate.telemetry.oplog import MOST, MOST_ALIKE, MOST_CHARACTERS, WINDOW_S, Damper, Lines, RefusalSums, about

KEY = "tg_0123456789ab_" + "c" * 64


def record(message: str, *values: object, name: str = "toolgate.test", **facts: Any) -> logging.LogRecord:
    found = logging.LogRecord(name, logging.WARNING, __file__, 1, message, values, None)
    found.__dict__.update(about(**facts))
    found.created = 0.0
    return found


def test_a_line_of_text_has_moment_level_logger_and_message() -> None:
    line = Lines(without_keys, as_json=False).format(record("store %s does not answer", "consent"))
    assert line == "1970-01-01T00:00:00.000Z warning toolgate.test: store consent does not answer"


def test_a_line_of_json_has_its_facts_as_members() -> None:
    line = Lines(without_keys, as_json=True).format(record("stopped after %s s", 2, event="stopped", seconds=2))
    assert json.loads(line) == {
        "ts": "1970-01-01T00:00:00.000Z",
        "level": "warning",
        "logger": "toolgate.test",
        "message": "stopped after 2 s",
        "event": "stopped",
        "seconds": 2,
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_hostile_text_stays_one_line_of_bounded_length_without_keys(as_json: bool) -> None:
    hostile = f"a\nb\x1b[31m\u202e {KEY} " + "x" * 100_000
    line = Lines(without_keys, as_json=as_json).format(record("%s", hostile, name_of=hostile[:200]))
    assert "\n" not in line
    assert "\x1b" not in line
    assert KEY not in line
    assert len(line) < 2 * MOST_CHARACTERS


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_of_one_kind_are_bounded_and_the_next_says_how_many_are_missing() -> None:
    clock = Time()
    damper = Damper(clock)
    passed = sum(damper.filter(record("gossip waits: %s", number)) for number in range(25))
    assert passed == MOST_ALIKE
    assert damper.filter(record("something else"))
    clock.now = WINDOW_S
    late = record("gossip waits: %s", 26)
    assert damper.filter(late)
    assert "(15 more like it were left out)" in Lines(without_keys, as_json=False).format(late)


def test_lines_of_many_kinds_are_bounded_together() -> None:
    damper = Damper(Time())
    assert sum(damper.filter(record(f"kind {number}")) for number in range(2 * MOST)) == MOST


def test_refusals_are_told_as_sums_of_what_is_new(caplog: pytest.LogCaptureFixture) -> None:
    counts = {"too_many": 3, "unknown_tool": 1}
    sums = RefusalSums(lambda: counts)
    with caplog.at_level(logging.INFO, "toolgate.server"):
        sums.tell()
        sums.tell()
        counts["too_many"] = 5
        sums.stop()
    assert caplog.messages == ["calls refused: 4 (too_many 3, unknown_tool 1)", "calls refused: 2 (too_many 2)"]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, list[dict[str, Any]], str]:
    """A real server's life in its own words: started, asked badly, stopped."""
    home = make_home(tmp_path_factory.mktemp("oplog") / "home")
    with home.serving("--log-format", "json", "--log-level", "info") as server:
        for name in ("no_such", KEY):
            mrt(server.port, name, {}, home.keys["builder"])
        mrt(server.port, "dummy_experimental", {}, KEY)
        mrt(server.port, "dummy_experimental", {"secret": "canary-5519"}, home.keys["builder"])
        server.process.terminate()
        _, written = server.process.communicate(timeout=PATIENCE_S)
    text = written.decode()
    return home, [json.loads(line) for line in text.splitlines()], text


def test_a_server_tells_its_start_its_refusals_and_its_end(said: tuple[Home, list[dict[str, Any]], str]) -> None:
    _, lines, _ = said
    assert {line["logger"] for line in lines if "event" not in line} <= {"toolgate.start"}
    lines = [line for line in lines if "event" in line]
    assert [line["event"] for line in lines] == ["ready", "refused", "stopped"]
    assert lines[0]["where"].startswith("http://127.0.0.1:")
    assert lines[1]["unknown_tool"] == 2
    assert lines[1]["invalid_key"] == 1
    assert lines[1]["bad_arguments"] == 1
    assert lines[2]["run"] == lines[0]["run"]


def test_nothing_that_a_caller_sent_stands_in_it(said: tuple[Home, list[dict[str, Any]], str]) -> None:
    home, _, text = said
    for secret in (*home.keys.values(), KEY, "canary-5519", "no_such"):
        assert secret not in text


def test_without_the_setting_a_server_that_runs_well_says_nothing(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    with home.serving() as server:
        mrt(server.port, "no_such", {}, home.keys["builder"])
        server.process.terminate()
        _, written = server.process.communicate(timeout=PATIENCE_S)
    assert [line for line in written.decode().splitlines() if not line.startswith("note: ")] == []
