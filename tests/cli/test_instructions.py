"""`toolgate mcp-config CLIENT --instructions`: the guide, printed, or between marks in the client's own file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.homes import Home, make_home, speaking
from toolgate.cli.calls.instructions import BEGIN, END, FILES
from toolgate.cli.main import main


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("instructions") / "home")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(home: Home, client: str, *more: str) -> int:
    return main(["mcp-config", client, "--instructions", *more, "--home", str(home.path)])


def test_it_says_which_tools_bind_which_advise_and_what_an_answer_obliges_to(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "claude-code") == 0
    text = capsys.readouterr().out
    binding, advising = text.index("Authoritative:"), text.index("Experimental:")
    assert binding < text.index("- analyze_dissonance") < advising < text.index("- dummy_experimental")
    assert all(word in text for word in ("degradedMode", "warn:", "clamps", "in_doubt", "block:"))
    assert "environment now" not in text


def test_it_is_the_text_of_the_prompt(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "cursor", "--json") == 0
    printed = json.loads(capsys.readouterr().out)["instructions"].strip().split("\n\n")
    with speaking(home, "builder") as ask:
        answer = ask("prompts/get", {"name": "governance_guide", "arguments": {}})
    told = answer["messages"][0]["content"]["text"].split("\n\n")
    assert printed == [part for part in told if not part.startswith("This server is in the")]


@pytest.mark.parametrize("client", sorted(FILES))
def test_a_new_file_is_made_and_written_again_without_a_change(home: Home, client: str, project: Path) -> None:
    assert run(home, client, "--write") == 0
    first = (project / FILES[client]).read_text()
    assert first.count(BEGIN) == first.count(END) == 1
    assert run(home, client, "--write") == 0
    assert (project / FILES[client]).read_text() == first


def test_the_rest_of_a_file_stays_as_it_is(home: Home, project: Path) -> None:
    file = project / "CLAUDE.md"
    file.write_text("# Mine\n\nno line at its end")
    assert run(home, "claude-code", "--write") == 0
    assert file.read_text().startswith("# Mine\n\nno line at its end\n\n" + BEGIN)
    file.write_text(file.read_text().replace("You work behind", "Somebody edited") + "after\n")
    assert run(home, "claude-code", "--write") == 0
    text = file.read_text()
    assert "Somebody edited" not in text
    assert text.endswith(END + "\nafter\n")


@pytest.mark.parametrize("text", [f"{END}\n{BEGIN}\n", f"{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"])
def test_marks_that_are_not_a_pair_are_left_alone(
    home: Home, project: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "CLAUDE.md").write_text(text)
    assert run(home, "claude-code", "--write") != 0
    assert "one mark of each kind" in capsys.readouterr().err
    assert (project / "CLAUDE.md").read_text() == text


def test_a_client_without_such_a_file_is_told_which_have_one(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "zed") == 2
    assert "claude-code" in capsys.readouterr().err
