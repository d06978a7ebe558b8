"""Was everything that is gone since the last release announced in that release, two weeks ago? (docs/reference/stability.md)

Tools are judged by `toolgate contract diff`: their announcements are `deprecations` in the contract. Commands, flags and
settings are compared by the generated references; theirs are rows of the table in docs/reference/stability.md.
The last release is the newest tag `v...` behind this commit. Before the first one there is nobody to warn.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from toolgate.cli.main import main as toolgate
from toolgate.policy.diff import NOTICE

LOCK: Final = "src/toolgate/policy/default/mcp-contract.json"
COMMANDS: Final = "docs/reference/cli.md"
SETTINGS: Final = "docs/reference/settings.md"
PROMISES: Final = "docs/reference/stability.md"
_HEADING: Final = re.compile(r"##+ (toolgate\b[a-z0-9 -]*)$")
_FLAG: Final = re.compile(r"\| `(--[a-z0-9-]+)")
_ANNOUNCED: Final = re.compile(r"\| `([^`]+)` \| (\d{4}-\d\d-\d\d) \|")


def offered(commands: str, settings: str) -> set[str]:
    """Every command, flag of a command, and setting (by its variable) that the references list."""
    return {*_commands(commands), *re.findall(r"`(TOOLGATE_[A-Z0-9_]+)`", settings)}


def _commands(page: str) -> Iterator[str]:
    command = ""
    for line in page.splitlines():
        if heading := _HEADING.match(line):
            yield (command := heading[1])
        elif command and (flag := _FLAG.match(line)):
            yield f"{command} {flag[1]}"


def announced(promises: str, today: date) -> set[str]:
    """What has stood in the table of announcements for long enough."""
    return {name for name, day in _ANNOUNCED.findall(promises) if date.fromisoformat(day) + NOTICE <= today}


def too_early(gone: set[str], ripe: set[str]) -> list[str]:
    """An announced command covers its subcommands and flags."""
    return sorted(name for name in gone if not any(f"{name} ".startswith(f"{each} ") for each in ripe))


def main(root: Path, today: date) -> int:
    if _git(root, "rev-parse", "--is-shallow-repository").strip() != "false":
        sys.stdout.write("this is not a whole clone, so its releases are not known: fetch the history with its tags\n")
        return 1
    release = _git(root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*").strip()
    if not release:
        sys.stdout.write("nothing is released yet: nobody to warn\n")
        return 0
    before, after = (
        offered(show(COMMANDS), show(SETTINGS))
        for show in (lambda path: _git(root, "show", f"{release}:{path}"), lambda path: (root / path).read_text())
    )
    ripe = announced(_git(root, "show", f"{release}:{PROMISES}"), today)
    early = too_early(before - after, ripe)
    for name in early:
        sys.stdout.write(f"{name} is gone, and {release} did not announce it {NOTICE.days} days ago\n")
    with TemporaryDirectory() as folder:
        old = Path(folder, "mcp-contract.json")
        old.write_text(_git(root, "show", f"{release}:{LOCK}"))
        broken = toolgate(["contract", "diff", str(old), str(root / LOCK)])
    return 1 if early or broken else 0


def _git(root: Path, *arguments: str) -> str:
    """What git says; nothing when it knows no such tag or file."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1], datetime.now(UTC).date()))
