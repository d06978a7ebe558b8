"""What a shell script in a workflow fetches and runs without saying which version (for MD-002).

Not a shell: comments and quoted text are blanked by a small scanner, and a few well-known commands are looked for in
what is left. So a comment or an `echo` that mentions `curl | sh` is not an alarm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unpinned(Struct, frozen=True):
    offset: int
    """Lines below the script's first."""
    text: str
    what: str
    to_shell: bool = False


_MENTIONED: Final = re.compile(r"(?i)curl|wget|install|npm|npx|iwr|irm|invoke-")
"""A line without any of these cannot be a finding: most lines are not looked at twice."""
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "iex", "invoke-expression"})
_FETCHERS: Final = frozenset({"curl", "wget", "iwr", "irm", "invoke-webrequest", "invoke-restmethod"})
_BEFORE: Final = frozenset(
    {"sudo", "env", "exec", "command", "nohup", "time", "if", "then", "else", "do", "while", "until", "!", "{", "("}
)
"""Words that may stand before the command they run."""
_SUBSTITUTED: Final = re.compile(
    r"(?:\b(?:ba|z|da|k|fi)?sh\s+(?:-\S+\s+)*|\bsource\s+|(?:^|[;&]\s*)\.\s+|\beval\s+)[\"']?[<$]\(\s*(?:curl|wget)\b"
)
_PIP: Final = re.compile(r"\b(?:pip[0-9.]*|pipx|uv\s+pip|uv\s+tool)\s+install\s+([^;&|]*)")
_NPM: Final = re.compile(
    r"\b(?:npm\s+(?:install|i|add)\s+(?:-g|--global)|npm\s+(?:-g|--global)\s+(?:install|i)|npx\s+(?:-y|--yes))\s+([^;&|]*)"
)
_GO: Final = re.compile(r"\bgo\s+install\s+\S+@(?:latest|main|master)\b")
_CARGO: Final = re.compile(r"\bcargo\s+install\s+([^;&|]*)")
_GEM: Final = re.compile(r"\bgem\s+install\s+([^;&|]*)")
_PIP_VALUE_FLAGS: Final = frozenset(
    {
        "-r",
        "--requirement",
        "-c",
        "--constraint",
        "-i",
        "--index-url",
        "--extra-index-url",
        "-t",
        "--target",
        "--python",
        "-f",
        "--find-links",
    }
)


def unpinned(script: str) -> Iterator[Unpinned]:
    """Each command of the script that installs or runs whatever is current, with its line."""
    for offset, line in _logical_lines(script):
        if not _MENTIONED.search(line):
            continue
        bare = _blanked(line)
        if _pipes_into_shell(bare) or _SUBSTITUTED.search(_uncommented(line, bare)):
            yield Unpinned(offset, line, "a download is piped into a shell", to_shell=True)
        elif what := _installer(bare):
            yield Unpinned(offset, line, what)


def _pipes_into_shell(line: str) -> bool:
    for pipeline in re.split(r"[;&]+|\|\|", line.replace(">&", "> ").replace("&>", "> ")):
        commands = [_command(segment) for segment in pipeline.split("|")]
        fetched = next((i for i, command in enumerate(commands) if command in _FETCHERS), len(commands))
        if any(command in _SHELLS for command in commands[fetched + 1 :]):
            return True
    return False


def _command(segment: str) -> str:
    """The program that a simple command runs, without its path."""
    words = iter(segment.lstrip("({ ").split())
    for word in words:
        if word == "-u":  # sudo's user
            next(words, None)
        elif word not in _BEFORE and not word.startswith("-") and "=" not in word:
            return word.rstrip(")}").rpartition("/")[2].lower()
    return ""


def _installer(line: str) -> str | None:
    if (found := _PIP.search(line)) and _pip_is_open(found[1]):
        return "pip installs a package without a version"
    if (found := _NPM.search(line)) and any("@" not in word[1:] for word in _packages(found[1])):
        return "npm installs a package without a version"
    if _GO.search(line):
        return "go installs whatever is current"
    if (
        (found := _CARGO.search(line))
        and not re.search(r"--(?:version|vers|path|rev)\b|@[0-9=]", found[1])
        and _packages(found[1])
    ):
        return "cargo installs a package without a version"
    if (
        (found := _GEM.search(line))
        and not re.search(r"(?:^|\s)(?:-v|--version)\b|:[0-9]", found[1])
        and _packages(found[1])
    ):
        return "gem installs a package without a version"
    return None


def _pip_is_open(arguments: str) -> bool:
    words = arguments.split()
    for index, word in enumerate(words):
        if word.startswith("-") or (index and words[index - 1] in _PIP_VALUE_FLAGS):
            continue
        local = word.startswith((".", "/", "~")) or word.endswith((".whl", ".tar.gz"))
        # A blank is what is left of quoted text: `pip install "x==1"` is judged by nothing, so it is no alarm.
        if not local and not any(mark in word for mark in ("==", "@", "$", "{", '"', "'")):
            return True
    return False


def _packages(arguments: str) -> list[str]:
    return [word for word in arguments.split() if not word.startswith(("-", ".", "/", "$")) and word[0] not in "\"'"]


def _logical_lines(script: str) -> Iterator[tuple[int, str]]:
    """Lines joined at a trailing backslash, with the offset of the first."""
    start, joined = 0, ""
    for offset, line in enumerate(script.split("\n")):
        if not joined:
            start = offset
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _blanked(line: str) -> str:
    """The line with quoted text replaced by blanks between its quotes, and without its comment."""
    out: list[str] = []
    quote = ""
    for index, character in enumerate(line):
        if quote:
            if character == quote:
                quote = ""
                out.append(character)
            else:
                out.append(" " if character.isspace() else "_")
        elif character == "#" and (index == 0 or line[index - 1].isspace()):
            break
        else:
            if character in "\"'" and not (index and line[index - 1] == "\\"):
                quote = character
            out.append(character)
    return "".join(out)


def _uncommented(line: str, blanked: str) -> str:
    """The line with its quoted text, as long as the blanked one: `sh -c "$(curl ...)"` hides in quotes."""
    return line[: len(blanked)]
