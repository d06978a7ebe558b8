"""The program itself: which one is taken, what an old one is told, and the bounds it runs in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.packs.lra.build.sources import pandoc, paper
from toolgate.errors import ToolError
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.cli.making import pandoc as programs


def program(directory: Path, text: str, name: str = "pandoc") -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with nothing on it but what a test puts there, and no extra installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "find_spec", lambda _: None)
    return tmp_path


def test_an_older_pandoc_is_refused_by_its_version_with_the_line_that_helps(alone: Path) -> None:
    program(alone, "echo 'pandoc 2.17.1.1'")
    with pytest.raises(ToolError) as caught:
        programs.find()
    assert caught.value.code == "UNAVAILABLE"
    assert "is 2.17.1.1; this needs Pandoc 3.1 or newer: pip install 'toolgate[papers]'" in caught.value.text


def test_no_pandoc_at_all_is_told_with_the_same_line(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone / "paper.md").write_text(paper("Text.\n"))
    assert main(["build", str(alone / "paper.md")]) == 1
    assert "pip install 'toolgate[papers]'" in capsys.readouterr().err


def test_a_new_enough_program_on_the_path_comes_first(alone: Path) -> None:
    found = program(alone, "echo 'pandoc 3.1'")
    assert programs.find().program == str(found)


def test_an_old_program_on_the_path_gives_way_to_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    brought = pandoc().program
    program(tmp_path, "echo 'pandoc 3.0.9'")
    monkeypatch.setenv("PATH", str(tmp_path))
    if "pypandoc" not in brought:
        pytest.skip("the extra `papers` is not installed")
    assert programs.find().program == brought


def test_it_runs_in_its_sandbox_with_a_bound_of_memory_and_nothing_of_the_persons(tmp_path: Path) -> None:
    fake = program(tmp_path, 'printf "%s\\n" "$@" "HOME=$HOME" "SECRET=$SECRET"')
    os.environ["SECRET"] = "s3cret"
    try:
        said = programs.Pandoc(str(fake)).start(["--from=markdown"], b"x").result().data.decode()
    finally:
        del os.environ["SECRET"]
    assert "--sandbox" in said
    assert f"-M{programs.MEMORY_LIMIT}" in said
    assert "SECRET=\n" in said
    assert f"HOME={Path.home()}\n" not in said


def test_a_run_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "TIME_LIMIT_S", 0.2)
    endless = program(tmp_path, "while :; do :; done")
    with pytest.raises(ToolError, match="Pandoc was stopped"):
        programs.Pandoc(str(endless)).start([], b"").result()


def test_output_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "OUTPUT_LIMIT", 1000)
    endless = program(tmp_path, "while :; do echo 0123456789; done")
    with pytest.raises(ToolError, match="Pandoc was stopped"):
        programs.Pandoc(str(endless)).start([], b"").result()


def test_a_source_that_needs_too_much_memory_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MEMORY_LIMIT", "64m")
    with pytest.raises(ToolError, match="of memory"):
        pandoc().start(["--from=markdown", "--to=json"], b"a " * 3_000_000).result()


def test_the_sandbox_keeps_the_reader_from_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.tex"
    secret.write_text("hidden words")
    done = pandoc().start(["--from=latex", "--to=plain"], f"\\input{{{secret}}} seen".encode()).result()
    assert b"hidden words" not in done.data
