"""A script's lines as commands: words without their quotes, what pipes into what, where output goes. Linear in the text.

What is not a shell's (PowerShell's syntax, a Python script) comes out as words too; nobody depends on it being right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNERS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "pwsh", "powershell", "su", "ssh"})
"""Programs that run what a here-document or standard input gives them."""
_BEFORE: Final = frozenset(
    {"sudo", "env", "exec", "command", "nohup", "time", "if", "then", "else", "do", "while", "until", "!", "{", "elif"}
)
"""Words that may stand before the command they run."""
_WITH_VALUE: Final = frozenset({"-u", "-g", "-n"})
"""Flags of those words that take the next one: sudo's user and group, nice's level."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_HERE_DOCUMENT: Final = re.compile(r"<<-?\s*\\?([\"']?)([A-Za-z_][A-Za-z0-9_]*)\1")


class ShellCommand(Struct):
    word: str
    """As written: `./install.sh`, `/usr/bin/curl`."""
    arguments: list[str]
    piped: bool = False
    """It reads what the command before it wrote."""
    output: str = ""
    """The file that its output goes to."""

    @property
    def program(self) -> str:
        return self.word.rpartition("/")[2].lower()


def logical_lines(script: str) -> Iterator[tuple[int, str]]:
    """Lines joined at a trailing backslash, with the offset of the first; here-documents left out, unless a shell reads them."""
    start, joined, waiting = 0, list[str](), list[str]()
    for offset, line in enumerate(script.split("\n")):
        if waiting and not joined:
            if line.strip() == waiting[0]:
                waiting.pop(0)
            continue
        if not joined:
            start = offset
        if line.endswith("\\"):
            joined.append(line[:-1] + " ")
            continue
        whole = "".join([*joined, line])
        joined = []
        waiting = [found[2] for found in _HERE_DOCUMENT.finditer(whole)][:4] if "<<" in whole else []
        if waiting and any(command.program in RUNNERS for command in commands_of(whole)):
            waiting = []
        yield start, whole
    if joined:
        yield start, "".join(joined)


def commands_of(line: str) -> list[ShellCommand]:
    made: list[ShellCommand] = []
    words: list[str] = []
    piped = False
    for kind, text in _tokens(line):
        if kind == "word":
            words.append(text)
            continue
        command = _command(words, piped=piped)
        if command is not None:
            made.append(command)
        # `a | (b` and `a | { b`: the pipe goes into what follows the bracket.
        piped = text in ("|", "|&") or (piped and command is None and text == "(")
        words = []
    last = _command(words, piped=piped)
    return made if last is None else [*made, last]


def _command(words: list[str], *, piped: bool) -> ShellCommand | None:
    rest, output = _without_redirections(words)
    index = 0
    while index < len(rest):
        word = rest[index]
        if index and word in _WITH_VALUE:
            index += 2
        elif word in _BEFORE or _ASSIGNMENT.match(word) or (index and word.startswith("-")):
            index += 1
        else:
            return ShellCommand(word, rest[index + 1 :], piped=piped, output=output)
    return None


def _without_redirections(words: list[str]) -> tuple[list[str], str]:
    kept: list[str] = []
    output = ""
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word in _REDIRECTIONS:
            output = words[index + 1] if word in (">", ">>") and index + 1 < len(words) else output
            skip = True
        else:
            kept.append(word)
    return kept, output


_REDIRECTIONS: Final = frozenset({">", ">>", "<", "<<", "<<<", ">&", "&>", "&>>", ">|"})


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
      | (?P<expression>\$\{\{(?:[^}]|\}(?!\}))*\}\}|\$\{\{.*)
      | (?P<single>'[^']*(?:'|$))
      | (?P<double>"(?:[^"\\]|\\.)*(?:"|$))
      | (?P<escape>\\.)
      | (?P<operator>\|\||\|&|\||&&|&>>|&>|&|>>|>&|>\||>|<<<|<<|<|[;()`])
      | (?P<plain>[^\s'"\\|&<>;()`$\#]+|.)""",
    re.VERBOSE | re.DOTALL,
)


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    """("word", text) and ("operator", text). Quotes are taken off; an expression `${{ ... }}` is one piece of a word."""
    word: list[str] = []
    for found in _TOKEN.finditer(line):
        kind, text = found.lastgroup, found[0]
        if kind in ("space", "operator"):
            # `2>` names a stream, not a word.
            if word and not (text[0] == ">" and all(piece.isdecimal() for piece in word)):
                yield "word", "".join(word)
            word = []
            if kind == "operator":
                yield ("word" if text in _REDIRECTIONS else "operator"), text
        elif text[0] == "#" and not word:
            break
        elif kind in ("single", "double"):
            closed = len(text) > 1 and text[-1] == text[0]
            word.append(text[1:-1] if closed else text[1:])
        else:
            word.append(text[1:] if kind == "escape" else text)
    if word:
        yield "word", "".join(word)


_PIECE: Final = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|(?<!\S)#|.", re.DOTALL)


def uncommented(line: str) -> str:
    """The line without its comment; quotations stay."""
    if "#" not in line:
        return line
    places = ((piece.span()[0], piece[0]) for piece in _PIECE.finditer(line))
    end = next((at for at, text in places if text == "#" and _begins_word(line, at)), len(line))
    return line[:end]


def _begins_word(line: str, index: int) -> bool:
    return index == 0 or line[index - 1].isspace()
