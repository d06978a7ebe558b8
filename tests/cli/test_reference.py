"""The reference pages say what the code does, or the build fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.reference import FOLDER, pages
from tests.cli.support import clean_environment
from toolgate.cli.main import COMMANDS
from toolgate.errors import ExitCode
from toolgate.settings import SPECS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "quickstart.md"


@pytest.mark.parametrize("name", ["settings.md", "cli.md", "exit-codes.md"])
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == pages()[name], "stale: run python scripts/reference.py"


def test_the_pages_hold_every_setting_command_and_exit_code() -> None:
    text = pages()
    for spec in SPECS:
        assert f"`{spec.variable}`" in text["settings.md"]
        assert f"`{spec.flag}`" in text["settings.md"]
    for name in COMMANDS:
        assert f"## toolgate {name}\n" in text["cli.md"]
    numbers = {value for name, value in vars(ExitCode).items() if name.isupper()}
    assert {
        int(number) for number in re.findall(r"^\| ([0-9]+) \| `[A-Z_]+`", text["exit-codes.md"], re.MULTILINE)
    } == numbers


def blocks() -> list[str]:
    """What the quickstart asks its reader to type; `console` blocks are servers, and not among them."""
    return re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.guard
def test_the_quickstart_can_be_followed_word_for_word(tmp_path: Path) -> None:
    """Every block, in order, in one shell that stops at the first failure."""
    program = tmp_path / "bin" / "toolgate"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom toolgate.cli.main import run\nrun()\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-eux"],
        input="\n".join(blocks()),
        cwd=tmp_path,
        env=clean_environment(PATH=f"{program.parent}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("+ toolgate") >= 11


def test_every_command_of_the_quickstart_exists() -> None:
    commands = re.findall(r"toolgate ([a-z-]+)", "".join(blocks()))
    assert len(commands) >= 11
    assert set(commands) <= COMMANDS.keys()
