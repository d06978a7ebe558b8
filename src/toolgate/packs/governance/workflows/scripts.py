"""What a shell script in a workflow fetches and runs without saying which version (for MD-002).

Not a shell, but its words: quotations, comments, here-documents, pipes and redirections are read as a shell would, and a
few well-known programs are looked for among the commands. So a comment or an `echo` that mentions `curl | sh` is not an alarm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.packs.governance.workflows import installers
from toolgate.packs.governance.workflows.shell import RUNNERS, ShellCommand, commands_of, logical_lines, uncommented

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unpinned(Struct, frozen=True):
    offset: int
    """Lines below the script's first."""
    text: str
    what: str
    because: str
    to_shell: bool = False
    versioned: bool = False
    """The address of what is run names a version: it can still be changed, but not by publishing the next one."""


class Machine:
    """What the job's earlier commands left behind, as far as a later one depends on it. One for each job."""

    def __init__(self) -> None:
        self.has_node_modules = False
        """Locked packages are installed, so `npx NAME` runs the locked one."""
        self.downloads: dict[str, str] = {}
        """File -> address it came from, unless its digest or signature was checked since."""


_MENTIONED: Final = re.compile(
    r"(?i)curl|wget|install|npm|npx|pnpm|yarn|bun|uvx|pipx|uv\s+tool|go\s+run|iwr|irm|invoke-|downloadstring"
)
"""A script without any of these holds no finding: most are not looked at twice."""
SHELLS: Final = RUNNERS - {"su", "ssh"} | {"iex", "invoke-expression"}
INTERPRETERS: Final = frozenset({"python", "python3", "node", "perl", "ruby", "php"})
FETCHERS: Final = frozenset({"curl", "wget", "iwr", "irm", "invoke-webrequest", "invoke-restmethod"})
_CHECKERS: Final[dict[str, tuple[str, ...]]] = {
    "sha256sum": ("-c", "--check"),
    "sha512sum": ("-c", "--check"),
    "shasum": ("-c", "--check"),
    "gpg": ("--verify",),
    "cosign": ("verify-blob",),
    "minisign": ("-V", "-Vm"),
    "gh": ("attestation",),
    "slsa-verifier": ("verify-artifact",),
    "openssl": ("-verify",),
}
"""Programs that compare a file with a digest or a signature, and the argument that makes them do it."""
_SUBSTITUTION: Final = re.compile(r"[\"']?[<$]\(\s*+(?:curl|wget)\b")
_RUNS_IT: Final = re.compile(r"(?:.*\W)?(?:(?:ba|z|da|k|fi)?sh|source|eval)|(?:.*[;&])?\.")
"""The last word before a substitution, flags left out: a shell, or a builtin that runs what it is given."""
_EXPRESSION: Final = re.compile(r"(?i)\b(?:iex|invoke-expression)\b")
_COMMIT: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_VERSION: Final = re.compile(r"(?<![0-9])v?[0-9]+\.[0-9]+|\$\{?\{?[^}/]*(?i:version|ver|tag|release|sha|digest)")
MAX_ADDRESS: Final = 2_000
"""Characters of an address that are looked at for a version or a commit."""
_PIPED: Final = "a download is piped into a shell"
_SAVED: Final = "a download is run without a check of its digest"


def unpinned(script: str, machine: Machine | None = None) -> Iterator[Unpinned]:
    """Each command of the script that installs or runs whatever is current, with its line; at most one a line.

    Changes `machine` as the script would.
    """
    state = machine or Machine()
    if not state.downloads and not _MENTIONED.search(script):
        return
    for offset, line in logical_lines(script):
        found = _judge(uncommented(line), _unwrapped(commands_of(line)), state)
        if found is not None:
            what, because, to_shell, versioned = found
            yield Unpinned(offset, line, what, because, to_shell, versioned)


def _judge(line: str, commands: list[ShellCommand], state: Machine) -> tuple[str, str, bool, bool] | None:
    piped = _piped_address(commands)
    if piped is None and (_runs_a_download(line, commands) or _evaluates_a_download(line)):
        piped = line[:MAX_ADDRESS]
    if piped is not None:
        return None if _COMMIT.search(piped) else (*_about(_PIPED, piped), True, _names_version(piped))
    first = None
    for command in commands:
        found = _command(command, state)
        first = first or found
    return first


def _unwrapped(commands: list[ShellCommand]) -> list[ShellCommand]:
    """With the commands of `sh -c '...'` behind it, once: what a shell is given as text, it runs."""
    out: list[ShellCommand] = []
    for command in commands:
        out.append(command)
        if command.program in RUNNERS:
            flag = next(
                (i for i, word in enumerate(command.arguments) if word == "-c" or _bundle_ends_in(word, "c")), None
            )
            inner = command.arguments[flag + 1 : flag + 2] if flag is not None else []
            out += [command for text in inner for line in text.splitlines() for command in commands_of(line)]
    return out


def _evaluates_a_download(line: str) -> bool:
    """PowerShell's `iex ((New-Object Net.WebClient).DownloadString('...'))`."""
    found = _EXPRESSION.search(line)
    return found is not None and "downloadstring" in line[found.end() :].lower()


def _about(what: str, address: str) -> tuple[str, str]:
    if _names_version(address):
        return what, "its address names a version, and nothing compares what arrives with a known digest"
    return what, "whoever serves that address decides, at each run, what runs here"


def _names_version(address: str) -> bool:
    return _VERSION.search(address) is not None


def _command(command: ShellCommand, state: Machine) -> tuple[str, str, bool, bool] | None:
    program, words = command.program, command.arguments
    if program in FETCHERS:
        for path, address in _saved(command):
            state.downloads[path] = address
        return None
    if program in _CHECKERS and any(word in _CHECKERS[program] for word in words):
        state.downloads.clear()
        return None
    source = _run_download(command, state)
    if source is not None:
        state.downloads.clear()
        return None if _COMMIT.search(source) else (*_about(_SAVED, source), True, _names_version(source))
    if installers.installs_locked_packages(program, words):
        state.has_node_modules = True
        return None
    found = installers.open_version(program, words, has_node_modules=state.has_node_modules)
    return None if found is None else (*found, False, False)


def _piped_address(commands: list[ShellCommand]) -> str | None:
    """The address of a download that a later command of the same pipeline runs."""
    address: str | None = None
    for command in commands:
        if not command.piped:
            address = None
        if command.program in FETCHERS:
            address = _address(command.arguments)
        elif address is not None and (command.program in SHELLS or _reads_standard_input(command)):
            return address
    return None


def _address(words: list[str]) -> str:
    """What is fetched, without flags: a version in `--tlsv1.2` is none of what arrives."""
    urls = [word for word in words if "://" in word] or [word for word in words if word[:1] != "-"]
    return " ".join(urls)[:MAX_ADDRESS]


def _reads_standard_input(command: ShellCommand) -> bool:
    return command.program in INTERPRETERS and (not command.arguments or command.arguments[0] == "-")


def _runs_a_download(line: str, commands: list[ShellCommand]) -> bool:
    """`sh -x <(curl ...)`, `. $(wget ...)`. Between two substitutions each word is looked at once: a pattern for the whole
    would begin anew at every flag."""
    if not commands or commands[0].program in ("echo", "printf"):
        return False
    *before, _ = _SUBSTITUTION.split(line)
    return any(piece[-1:].isspace() and _ends_in_runner(piece.split()) for piece in before)


def _ends_in_runner(words: list[str]) -> bool:
    while words and words[-1].startswith("-"):
        words.pop()
    if not words or not _RUNS_IT.fullmatch(words[-1]):
        return False
    # A dot alone is the builtin only where a command begins; elsewhere it is a path.
    return words[-1] != "." or len(words) == 1 or words[-2].endswith((";", "&"))


_CURL_VALUES: Final = frozenset(
    {"-H", "--header", "-d", "--data", "-u", "--user", "-A", "-e", "-X", "--request", "--retry"}
)


def _saved(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """The files that a fetch writes, each with its address."""
    words, address, target, remote_name = command.arguments, "", command.output, False
    short = "o" if command.program == "curl" else "O"
    index = 0
    while index < len(words):
        word = words[index]
        if word in (f"-{short}", "--output", "--output-document", "-OutFile") or _bundle_ends_in(word, short):
            index += 1
            target = words[index] if index < len(words) else target
        elif word.startswith(("--output=", "--output-document=")):
            target = word.partition("=")[2]
        elif command.program == "curl" and (word in ("-O", "--remote-name") or _bundle_has(word, "O")):
            remote_name = True
        elif word in _CURL_VALUES:
            index += 1
        elif not word.startswith("-"):
            address = address or word[:MAX_ADDRESS]
        index += 1
    if target and target != "-":
        yield _plain(target), address
    elif address and (remote_name or command.program == "wget"):
        yield _plain(address.rpartition("/")[2]), address


def _bundle_ends_in(word: str, letter: str) -> bool:
    """`-sSLo`: short flags in one word, of which only the last can take a value."""
    return (
        len(word) > 2
        and word[0] == "-"
        and word[1] != "-"
        and word.isascii()
        and word[1:].isalpha()
        and word[-1] == letter
    )


def _bundle_has(word: str, letter: str) -> bool:
    return len(word) > 2 and word[0] == "-" and word[1] != "-" and word[1:].isalpha() and letter in word


_EXECUTABLE: Final = re.compile(r"[ugoa]*\+[rwst]*x|0?[0-7]*[1357][0-7]*")


def _run_download(command: ShellCommand, state: Machine) -> str | None:
    """The address of a file that was downloaded before, and that this command runs or makes ready to run."""
    if not state.downloads:
        return None
    words = command.arguments
    if command.program == "chmod" and words and _EXECUTABLE.fullmatch(words[0]):
        return next((state.downloads[_plain(word)] for word in words[1:] if _plain(word) in state.downloads), None)
    if command.program == "install":
        return next((state.downloads[_plain(word)] for word in words if _plain(word) in state.downloads), None)
    if command.program in SHELLS or command.program in INTERPRETERS or command.program in ("source", "."):
        target = next((word for word in command.arguments if not word.startswith("-")), "")
    else:
        target = command.word
        if "/" not in target:
            return None
    return state.downloads.get(_plain(target))


def _plain(path: str) -> str:
    return path.removeprefix("./")
