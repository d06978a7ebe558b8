"""`make clients` itself: what it calls readable, what it keeps of a run that stopped, and how it tells what cannot be had."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.clients import candidates, install, limited
from scripts.clients.judge import READABLE, judged
from scripts.clients.run import Result, confirmed, keep, kept, page, tree, tried
from tests.homes import Home, Server

GOOD: dict[str, Any] = {step: {"ok": True, "text": f"so: {text}"} for step, text in READABLE.items()}
GOOD |= {"burst": {"ok": True, "text": "2 answered, 4 refused"}}
RESULT = Result("a (Python)", "1.0", "ok", "ok", "2026-11-18", "tree")


def test_a_client_that_shows_every_answer_is_ok() -> None:
    assert judged(GOOD) == "ok"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"crashed": {"ok": False, "text": "connection closed"}}, "unreadable: crashed"),
        (
            {"bad_arguments": {"ok": False, "text": "no"}, "null": {"ok": False, "text": ""}},
            "unreadable: bad_arguments, null",
        ),
        ({"bad_arguments": {"ok": False, "text": "Field required: text"}}, "ok; checks arguments itself"),
        ({"burst": {"ok": False, "text": "1 answered | lost"}}, "unreadable: burst (1 answered lost)"),
        ({"session": {"ok": False, "text": "TimeoutError: \n"}}, "lost: TimeoutError:"),
    ],
    ids=str,
)
def test_what_a_reader_does_not_see_is_named(change: dict[str, Any], verdict: str) -> None:
    assert judged(GOOD | change) == verdict


def test_a_client_that_says_it_checks_arguments_is_believed_only_if_the_log_has_none_that_were_wrong() -> None:
    itself = judged(GOOD | {"bad_arguments": {"ok": False, "text": "Field required: text"}})
    assert confirmed(itself, 0) == "ok; checks arguments itself"
    assert confirmed(itself, 1).startswith("unreadable: bad_arguments")
    assert confirmed("ok", 1) == "ok"


def test_a_client_that_drops_a_tool_is_told_so() -> None:
    listed = GOOD | {"list": {"ok": True, "text": "16 tools"}}
    assert judged(listed, 16) == "ok"
    assert judged(listed, 17) == "unreadable: list (16 tools of 17)"
    assert judged(GOOD, 17) == "unreadable: list (not tried of 17)"


def test_an_sdk_behind_a_bridge_is_held_to_progress_and_cancelling() -> None:
    good = {step: told for step, told in GOOD.items() if step != "burst"}
    good |= {step: {"ok": True, "text": ""} for step in ("others_go_on", "cancel", "progress")}
    good |= {"too_many": {"ok": False, "text": "2 calls of this key are running; wait for one to end."}}
    assert judged(good) == "ok"
    assert judged(good | {"cancel": {"ok": False, "text": "hangs"}}) == "unreadable: cancel"


@pytest.mark.parametrize("step", [*READABLE, "burst"])
def test_a_step_that_was_not_taken_is_not_ok(step: str) -> None:
    assert step.replace("burst", "too_many") in judged({name: told for name, told in GOOD.items() if name != step})


def test_a_good_result_of_the_same_tree_is_kept_and_no_other(tmp_path: Path) -> None:
    for name, result in {
        "good": RESULT,
        "bad": replace(RESULT, stdio="lost: x"),
        "old": replace(RESULT, tree="y"),
    }.items():
        keep(name, result, tmp_path)
    (tmp_path / "torn.json").write_text('{"client": "a"')
    (tmp_path / "other.json").write_text(json.dumps({"client": "a"}))
    found = {name: kept(name, "tree", tmp_path) for name in ("good", "bad", "old", "torn", "other", "never")}
    assert found == dict.fromkeys(found) | {"good": RESULT}


def test_the_tree_is_what_is_tried_and_nothing_else(tmp_path: Path) -> None:
    for place in ("src/toolgate", "tests/site_packages", "scripts/clients", "docs"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "a").write_text("1")
    first = tree(tmp_path)
    (tmp_path / "docs" / "a").write_text("2")
    assert tree(tmp_path) == first
    (tmp_path / "scripts" / "clients" / "a").write_text("2")
    assert tree(tmp_path) != first


def test_a_client_that_cannot_be_had_is_told_by_name_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    class Missing:
        name = "missing"

        def install(self) -> tuple[str, str]:
            raise install.CannotInstall("missing cannot be installed:\nno such package")

        def tried(self, place: candidates.Place, transport: str) -> str:
            raise AssertionError("never asked")

    place = candidates.Place(Home(Path(), {}), Server(None, {}), "", Path(), 0)  # type: ignore[arg-type]  # never used
    result = tried(Missing(), place, "tree")
    assert result.http == result.stdio == "not installed: missing cannot be installed: no such package"
    assert not result.is_good()
    assert "no such package" in capsys.readouterr().err


def test_an_installer_that_fails_is_named_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho nobody has this package >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(install.CannotInstall, match=r"odd cannot be installed:\nnobody has this package"):
        install.npm("odd", {"odd": "1.0.0"}, tmp_path / "cache")
    assert not (tmp_path / "cache" / "odd" / "installed.json").exists(), "the next run tries again"
    monkeypatch.setenv("PATH", "")
    with pytest.raises(install.CannotInstall, match="npm is not on this machine"):
        install.npm("odd", {"odd": "1.0.0"}, tmp_path / "cache")


def test_a_time_limit_ends_a_client_with_all_that_it_started() -> None:
    child = "import time; time.sleep(600)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    done = limited.run([sys.executable, "-c", code], 0.2)
    assert (done.code, done.err) == (None, ""), "its pipes are closed, so nobody is left"


def test_every_client_has_a_name_of_its_own_and_a_pinned_version() -> None:
    everyone = candidates.everyone()
    assert len(everyone) >= 20
    assert all("==" in requirements[0] for requirements in install.AGENTS.values())
    versions = [version for packages in install.NPM.values() for version in packages.values()]
    assert all(version[0].isdigit() for version in versions)
    assert install.AGENTS.keys() | install.NPM.keys() == everyone.keys() - {"fastmcp-proxy"}


def test_the_page_has_a_row_for_each_result_and_the_days() -> None:
    written = page([RESULT, replace(RESULT, client="b", day="2026-11-19")])
    assert "| a (Python) | 1.0 | ok | ok |" in written
    assert "On 2026-11-18 to 2026-11-19," in written
