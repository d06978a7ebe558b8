"""The reference pages say what the code does, or the build fails."""

from __future__ import annotations

import re

import pytest

from scripts.reference import FOLDER, pages
from toolgate.cli.commands import every_command
from toolgate.errors import ExitCode
from toolgate.settings import SPECS


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == pages()[name], "stale: run python scripts/reference.py"


def test_the_pages_hold_every_setting_command_and_exit_code() -> None:
    text = pages()
    for spec in SPECS:
        assert f"`{spec.variable}`" in text["settings.md"]
        assert (f"`{spec.flag}`" in text["settings.md"]) is not spec.secret
    for name in every_command():
        assert f"## toolgate {name}\n" in text["cli.md"]
    numbers = {value for name, value in vars(ExitCode).items() if name.isupper()}
    assert {
        int(number) for number in re.findall(r"^\| ([0-9]+) \| `[A-Z_]+`", text["exit-codes.md"], re.MULTILINE)
    } == numbers
