"""The green window of the contract check: from recorded checks and from a CI provider's runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from toolgate.cli.main import main
from toolgate.cli.policy import checks
from toolgate.config import load_settings
from toolgate.errors import StartRefused
from toolgate.policy.health import ContractRun, badge, health_of, read_checks

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def check(days_ago: float, green: bool = True, commit: str = "c") -> ContractRun:
    return ContractRun(NOW - timedelta(days=days_ago), green, commit)


def test_a_window_without_a_red_check_is_green() -> None:
    found = health_of([check(2), check(1), check(0)], NOW, 4)
    assert found.strip == ".+++"
    assert found.is_green
    assert found.longest_red == timedelta(0)
    assert found.first_red is None


def test_one_red_check_makes_its_day_red_and_is_named() -> None:
    checks = [check(3), check(2.2, green=False, commit="bad"), check(2.1), check(0, commit="good")]
    found = health_of(checks, NOW, 4)
    assert found.strip == "+x.+"
    assert not found.is_green
    assert found.now == "green"
    assert found.first_red is not None
    assert found.first_red.commit == "bad"
    assert found.longest_red == pytest.approx(timedelta(days=0.1), abs=timedelta(seconds=1))
    assert list(found.red_runs) == checks[1:3], "the red one, and the green one that ended it"


def test_a_red_time_that_has_not_ended_lasts_until_now() -> None:
    found = health_of([check(2), check(1, green=False), check(0.5, green=False)], NOW, 3)
    assert found.longest_red == timedelta(days=1)
    assert [run.is_green for run in found.red_runs] == [False, False]
    assert found.now == "red"


def test_what_lies_before_the_window_does_not_count() -> None:
    assert health_of([check(31, green=False), check(0)], NOW, 30).is_green


def test_no_check_is_not_green() -> None:
    found = health_of([], NOW, 30)
    assert found.strip == "." * 30
    assert not found.is_green


def test_runs_of_a_ci_provider_are_read_and_those_that_tell_nothing_are_left_out() -> None:
    runs = [
        {"conclusion": "success", "createdAt": "2026-11-18T10:00:00Z", "headSha": "a" * 40},
        {"conclusion": "failure", "createdAt": "2026-11-17T10:00:00Z", "headSha": "b" * 40},
        {"conclusion": "cancelled", "createdAt": "2026-11-16T10:00:00Z", "headSha": "c" * 40},
        {"conclusion": "", "createdAt": "2026-11-18T11:00:00Z", "headSha": "d" * 40},
    ]
    found = read_checks(json.dumps(runs).encode(), "runs.json")
    assert [(one.is_green, one.commit[0]) for one in found] == [(True, "a"), (False, "b")]


@pytest.mark.parametrize("text", ['{"ts": 1}', "[1]", "nonsense", '{"ts": "2026-11-18", "ok": "yes"}', '{"ok": true}'])
def test_another_file_is_refused_by_name(text: str) -> None:
    with pytest.raises(StartRefused, match=r"x\.json is not a file of contract checks"):
        read_checks(text.encode(), "x.json")


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        ([check(number) for number in range(30)], "green for 30 days"),
        ([check(0)], "green, 1 of 30 days checked"),
        ([check(0, green=False)], "red now"),
        ([check(1, green=False), check(0)], "green now, red within 30 days"),
        ([], "no checks"),
    ],
)
def test_a_badge_is_a_drawing_that_says_it_in_words(checks: list[ContractRun], words: str) -> None:
    drawn = ET.fromstring(badge(health_of(checks, NOW, 30)))
    assert drawn.get("aria-label") == f"contract: {words}"
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ["contract", words]


def test_checks_are_recorded_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, drawn = tmp_path / "checks.jsonl", tmp_path / "badge.svg"
    for _ in range(2):
        assert main(["contract", "check", "--record", str(file), "--commit", "abc123"]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["ok"], line["commit"]) for line in lines] == [(True, "abc123")] * 2
    capsys.readouterr()
    assert main(["contract", "health", str(file), "--window", "7d", "--badge", str(drawn), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["green"]
    assert told["checks"] == 2
    assert "green" in [day["state"] for day in told["days"]][-2:]  # midnight may pass between the two commands
    assert "of 7 days checked" in drawn.read_text()
    assert main(["contract", "health", str(file), "--window", "7d"]) == 0
    assert capsys.readouterr().out.partition("\n")[0].rstrip(".").endswith("+")


def test_checks_are_kept_in_the_store_that_is_configured_and_read_from_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_STORES_CONTRACT_CHECKS", f"sqlite:///{tmp_path / 'checks.db'}")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "checks.jsonl"
    assert main(["contract", "check", "--commit", "aaa"]) == 0
    assert main(["contract", "check", "--commit", "bbb", "--record", str(file)]) == 0
    capsys.readouterr()
    assert main(["contract", "health", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["checks"], told["now"], told["firstRed"]) == (2, "green", None)
    assert len(file.read_text().splitlines()) == 1


def test_the_store_tells_the_first_red_commit(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"TOOLGATE_STORES_CONTRACT_CHECKS": f"sqlite:///{tmp_path / 'checks.db'}"})
    now = datetime.now(UTC)
    checks.keep(settings, now - timedelta(days=2000), is_green=False, digest="d", commit="old")
    checks.keep(settings, now - timedelta(hours=2), is_green=False, digest="d", commit="red" * 100)
    checks.keep(settings, now, is_green=True, digest="d", commit="good")
    everything = checks.kept(settings, now - timedelta(days=3000))
    assert [run.commit for run in everything] == ["good", ("red" * 100)[:64]], "what no window shows is forgotten"
    found = health_of(everything, now, 30)
    assert (found.now, found.first_red is not None and found.first_red.commit[:3]) == ("green", "red")


def test_without_a_file_and_without_a_store_both_ways_out_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["contract", "health"]) == 1
    told = capsys.readouterr().err
    assert "--record FILE" in told
    assert "stores.contract_checks" in told
