"""The guide says what the commands do: its commands exist, its exit codes and fields are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

from tests.packs.lra.receipts.samples import KEY
from toolgate.errors import ExitCode
from toolgate.packs.lra.cli import commands
from toolgate.packs.lra.receipts import trust as receipt_trust
from toolgate.packs.lra.receipts.judge import Validity

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "receipts.md").read_text()


def test_every_command_and_option_of_the_guide_exists() -> None:
    from typer.main import get_command

    group = get_command(commands.app)
    for line in re.findall(r"^\$ lra (.+)$", GUIDE, re.MULTILINE):
        words = line.split()
        command = group.resolve_command(None, [words[0]])[1]  # type: ignore[attr-defined,arg-type]
        if words[0] in ("receipt", "registry"):
            command = command.resolve_command(None, [words[1]])[1]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_the_words_and_exit_codes_are_the_real_ones() -> None:
    rows = dict(re.findall(r"^\| `([A-Z, ]+)` \|.*\| ([0-9]) \|$", GUIDE, re.MULTILINE))
    codes = {Validity.TRUSTED: ExitCode.OK, Validity.UNKNOWN: ExitCode.WARNED, Validity.INVALID: ExitCode.FAILED}
    assert rows == {word.value: str(code) for word, code in codes.items()}


def test_the_public_key_of_the_guide_is_a_real_one() -> None:
    assert KEY.public_key.hex() in GUIDE


def test_the_trust_file_of_the_guide_can_be_read_once_its_keys_are_whole() -> None:
    from tests.packs.lra.receipts.samples import trust_line

    whole = trust_line(KEY.public_key).split()[-1]
    (block,) = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
    trust = receipt_trust.parse(re.sub(r"AAAA\S+", whole, block))
    assert (trust.threshold, [one.identity for one in trust.signers]) == (2, ["jane@example.org", "joe@example.org"])
