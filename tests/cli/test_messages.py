"""P: mistakes that a first day brings, and what the command line says to each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Commands, serving
from toolgate.errors import ExitCode


@pytest.fixture
def key(toolgate: Commands, home: Path) -> str:
    return str(toolgate("keys", "create", "--role", "admin", "--home", str(home), "--json").json["key"])


@pytest.mark.parametrize("given", [[], ["--key", ""]], ids=["none", "empty"])
def test_p_a_missing_key_names_the_variable(toolgate: Commands, home: Path, given: list[str]) -> None:
    done = toolgate("call", "dummy_experimental", "--home", str(home), *given)
    assert done.code == ExitCode.DENIED
    assert "TOOLGATE_API_KEY" in done.err
    assert "toolgate keys create" in done.err


def test_p_an_unknown_tool_is_named_with_the_nearest_here_and_over_http(
    toolgate: Commands, home: Path, key: str, tmp_path: Path
) -> None:
    with serving("--home", str(home), cwd=tmp_path) as (_, told):
        for where in (["--home", str(home)], ["--url", told["url"]]):
            done = toolgate("call", "lra_validat", "--key", key, *where)
            assert done.code == ExitCode.UNKNOWN_TOOL
            assert "Unknown tool: lra_validat. Did you mean lra_validate?" in done.err


def test_p_a_wrong_argument_is_told_where_the_arguments_are(toolgate: Commands, home: Path, key: str) -> None:
    done = toolgate("call", "consensus_vote", "round_id=1", "vote:={}", "--key", key, "--home", str(home))
    assert done.code == ExitCode.BAD_ARGUMENTS
    assert "toolgate tools show consensus_vote" in done.err


@pytest.mark.parametrize("words", [["a.json"], ["a.json", "b.json"]], ids=" ".join)
def test_p_a_contract_that_is_not_there_is_told_what_to_give(toolgate: Commands, home: Path, words: list[str]) -> None:
    done = toolgate("contract", "diff", *words, "--home", str(home))
    assert done.code == ExitCode.FAILED
    assert "There is no file a.json." in done.err
    assert "Make it" not in done.err


def test_p_a_key_file_that_is_not_there_is_told_as_that(toolgate: Commands, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text("{}")
    done = toolgate("audit", "check-proof", "proof.json", "--key", "audit-log.pub")
    assert done.code == ExitCode.FAILED
    assert "There is no key file audit-log.pub." in done.err
    assert "runs/mcp_server/envelope_validation/audit-log.pub" in done.err


def test_p_a_tail_without_records_says_so_and_names_the_nearest_tool(toolgate: Commands, home: Path, key: str) -> None:
    assert toolgate("call", "dummy_experimental", "--key", key, "--home", str(home)).code == 0
    done = toolgate("audit", "tail", "--tool", "dumy_experimental", "--home", str(home))
    assert (done.code, done.out) == (0, "")
    assert "no record matches. Did you mean dummy_experimental?" in done.err
    assert toolgate("audit", "tail", "--tool", "dummy_experimental", "--home", str(home)).err == ""
