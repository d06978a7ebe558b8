"""Which package a command installs or runs, and whether it says which version: pip, npm and their relatives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Found = tuple[str, str]
"""What happens, and why it is so here."""

_PYTHON: Final = re.compile(r"python[0-9.]*|py|pypy[0-9.]*")
_PIP: Final = re.compile(r"pip[0-9.]*")
_LOCAL_FILE: Final = (".whl", ".tar.gz", ".zip", ".tgz", ".txt", ".toml", ".py")
_EXACT: Final = re.compile(r"={2,3}\s*[^*,;\s]+")
_COMMIT: Final = re.compile(r"@[0-9a-f]{40}\b")
_OPEN_TAG: Final = re.compile(r"latest|next|canary|beta|alpha|nightly|main|master|\*|[\^~><].*|x")
# fmt: off
_PIP_VALUES: Final = frozenset((
    "-i", "--index-url", "--extra-index-url", "-t", "--target", "--python", "-f", "--find-links", "--prefix",
    "--root", "--proxy", "--cert", "--python-version", "-r", "--requirement", "--requirements", "--platform",
    "--progress-bar", "--cache-dir", "--log", "-b", "--build", "--no-binary", "--only-binary", "--with", "--index",
    "--default-index", "--color", "--upgrade-strategy", "--trusted-host", "--timeout", "--retries", "--src",
    "--report", "--suffix", "--pip-args", "--config-settings", "-C", "--abi", "--implementation", "--torch-backend",
    "--resolution", "--prerelease", "--group", "--extra", "--project", "--directory", "--with-editable",
    "--with-requirements", "--overrides", "--exclude-newer",
))
# fmt: on
"""Flags of pip, pipx and uv that take the next word."""
_PINNING_FLAGS: Final = frozenset(
    ["--no-index", "--require-hashes", "-c", "--constraint", "--constraints", "--dry-run", "--help", "--only-deps"]
)
"""With these the version comes from elsewhere in the repository, from a directory beside it, or nothing is installed."""


def installs_locked_packages(program: str, words: list[str]) -> bool:
    """`npm ci` and its like: afterwards `npx NAME` runs what the lock file names."""
    first = next((word for word in words if not word.startswith("-")), "")
    if program == "yarn":
        return first in ("", "install")
    installs = first in ("ci", "install", "i", "clean-install") and program in ("npm", "pnpm", "bun")
    return installs and not any(flag in words for flag in ("-g", "--global")) and not _named(words)


def _named(words: list[str]) -> list[str]:
    return [word for word in words[1:] if not word.startswith("-")]


def open_version(program: str, words: list[str], *, has_node_modules: bool) -> Found | None:
    """What the command fetches without an exact version; None when there is nothing of the kind."""
    if _PYTHON.fullmatch(program) and words[:2] == ["-m", "pip"]:
        program, words = "pip", words[2:]
    elif _PYTHON.fullmatch(program) and words[:2] == ["-m", "pipx"]:
        program, words = "pipx", words[2:]
    if program == "npx" and has_node_modules:
        return None
    if program == "bunx" and has_node_modules:
        return None
    judge = _JUDGES.get("pip" if _PIP.fullmatch(program) else program)
    return judge(words) if judge else None


def _pip(words: list[str]) -> Found | None:
    if not words or words[0] != "install":
        return None
    return _first_open("pip installs", _python_packages(words[1:]), _is_open_requirement)


def _pipx(words: list[str]) -> Found | None:
    if words[:1] == ["install"]:
        return _first_open("pipx installs", _python_packages(words[1:]), _is_open_requirement)
    if words[:1] == ["run"]:
        return _first_open("pipx runs", _tool_of(words[1:], "--spec"), _is_open_tool)
    return None


def _uv(words: list[str]) -> Found | None:
    if words[:2] == ["pip", "install"]:
        return _first_open("uv installs", _python_packages(words[2:]), _is_open_requirement)
    if words[:2] == ["tool", "install"]:
        return _first_open("uv installs", _tool_of(words[2:], "--from"), _is_open_tool)
    if words[:2] == ["tool", "run"]:
        return _uvx(words[2:])
    return None


def _uvx(words: list[str]) -> Found | None:
    return _first_open("uvx runs", _tool_of(words, "--from"), _is_open_tool)


def _python_packages(words: list[str]) -> Iterator[str]:
    """What pip is asked to install, requirement files and options left out."""
    if any(word.partition("=")[0] in _PINNING_FLAGS for word in words):
        return
    waiting = False
    for word in words:
        if waiting:
            waiting = False
        elif word.startswith("-"):
            waiting = word in _PIP_VALUES and "=" not in word
        else:
            yield word


def _tool_of(words: list[str], spec_flag: str) -> Iterator[str]:
    """The one package that a runner (`uvx`, `pipx run`) fetches: what its flag says, else the first word."""
    if any(word.partition("=")[0] in _PINNING_FLAGS for word in words):
        return
    waiting = False
    for index, word in enumerate(words):
        if waiting:
            waiting = False
        elif word == spec_flag:
            yield from words[index + 1 : index + 2]
            return
        elif word.startswith(f"{spec_flag}="):
            yield word.partition("=")[2]
            return
        elif word in ("-p", "--python", *_PIP_VALUES):
            waiting = True
        elif not word.startswith("-"):
            yield word
            return


def _is_unknown(word: str) -> bool:
    """A variable or an expression: what it holds is not in the script."""
    return "$" in word or word.startswith(("@", "%", "<"))


def _is_local(word: str) -> bool:
    bare = word.partition("[")[0]
    if "://" in word or "@" in word:
        return False
    return bare.startswith((".", "/", "~")) or bare.endswith(_LOCAL_FILE) or "/" in bare or "*" in bare


def _is_open_requirement(word: str) -> str | None:
    """Why a requirement of pip's does not fix a version; None when it does, or when that cannot be told."""
    if _is_unknown(word) or _is_local(word) or _EXACT.search(word):
        return None
    if "://" in word or " @ " in word:
        if _COMMIT.search(word) or not word.startswith("git+"):
            return None
        return f"{_shown(word)} follows a branch or tag of a repository"
    if re.search(r"[<>~!]=?", word):
        return f"{_shown(word)} is a range, so the newest version in it is taken"
    return f"{_shown(word)} names no version, so the newest is taken"


def _is_open_tool(word: str) -> str | None:
    name, at, version = word.partition("@")
    if at and name and "://" not in word:
        return f"{_shown(word)} is not one version" if _OPEN_TAG.fullmatch(version) else None
    return _is_open_requirement(word)


def _npm(words: list[str]) -> Found | None:
    first = words[0] if words else ""
    if first in ("exec", "x"):
        return None
    rest = (
        words[1:]
        if first in _NPM_INSTALL
        else words[2:]
        if words[1:2] and words[1] in _NPM_INSTALL and first.startswith("-")
        else []
    )
    return _first_open("npm installs", _node_packages(rest), _is_open_node)


def _yarn(words: list[str]) -> Found | None:
    if words[:2] == ["global", "add"]:
        return _first_open("yarn installs", _node_packages(words[2:]), _is_open_node)
    if words[:1] == ["dlx"]:
        return _first_open("yarn runs", _node_runner(words[1:]), _is_open_node)
    return None


def _pnpm(words: list[str]) -> Found | None:
    if words[:1] == ["dlx"]:
        return _first_open("pnpm runs", _node_runner(words[1:]), _is_open_node)
    if words[:1] and words[0] in ("add", "install", "i") and any(flag in words for flag in ("-g", "--global")):
        return _first_open("pnpm installs", _node_packages(words[1:]), _is_open_node)
    return None


def _bun(words: list[str]) -> Found | None:
    if words[:1] == ["x"]:
        return _first_open("bun runs", _node_runner(words[1:]), _is_open_node)
    if words[:1] and words[0] in ("add", "install", "i") and any(flag in words for flag in ("-g", "--global")):
        return _first_open("bun installs", _node_packages(words[1:]), _is_open_node)
    return None


def _npx(words: list[str]) -> Found | None:
    if any(flag in words for flag in ("--no-install", "--no", "--offline")):
        return None
    return _first_open("npx runs", _node_runner(words), _is_open_node)


_NPM_INSTALL: Final = ("install", "i", "add")
_NODE_VALUES: Final = frozenset(
    [
        "--registry",
        "--prefix",
        "-C",
        "--dir",
        "--cache",
        "--loglevel",
        "--tag",
        "-w",
        "--workspace",
        "--filter",
        "--cwd",
    ]
)


def _node_packages(words: list[str]) -> Iterator[str]:
    waiting = False
    for word in words:
        if waiting:
            waiting = False
        elif word.startswith("-"):
            waiting = word in _NODE_VALUES
        else:
            yield word


def _node_runner(words: list[str]) -> Iterator[str]:
    waiting = False
    for index, word in enumerate(words):
        if waiting:
            waiting = False
        elif word in ("-p", "--package"):
            yield from words[index + 1 : index + 2]
            return
        elif word.startswith("--package="):
            yield word.partition("=")[2]
            return
        elif word.startswith("-"):
            waiting = word in _NODE_VALUES
        else:
            yield word
            return


def _is_open_node(word: str) -> str | None:
    if "$" in word or word.startswith((".", "/", "~", "file:")) or word.endswith((".tgz", ".tar.gz")):
        return None
    name, at, version = word[1:].partition("@")
    if not at:
        if word.startswith(("git+", "github:", "http")) or (not word.startswith("@") and "/" in name):
            return None if re.search(r"#[0-9a-f]{40}$", word) else f"{_shown(word)} follows a branch of a repository"
        return f"{_shown(word)} names no version, so the newest is taken"
    return f"{_shown(word)} is not one version" if _OPEN_TAG.fullmatch(version) else None


def _go(words: list[str]) -> Found | None:
    if words[:1] not in (["install"], ["run"]):
        return None
    for word in words[1:]:
        if not word.startswith("-"):
            path, at, version = word.partition("@")
            if at and _OPEN_TAG.fullmatch(version):
                return f"go {words[0]}s whatever is current", f"{_shown(path)} is taken at `{version}`"
            if words[0] == "run":
                return None
    return None


_CARGO_PINS: Final = frozenset(["--version", "--vers", "--path", "--rev", "--tag", "--list", "--help"])


# fmt: off
_CARGO_VALUES: Final = frozenset((
    "--git", "--branch", "--root", "--features", "-F", "--bin", "--target", "--profile", "-j",
    "--jobs", "--index", "--registry", "--strategies",
))
# fmt: on


def _cargo(words: list[str]) -> Found | None:
    if words[:1] not in (["install"], ["binstall"]) or any(word.partition("=")[0] in _CARGO_PINS for word in words):
        return None
    what = "cargo installs a package without a version"
    if "--git" in words:
        return what, "`--git` without `--rev` follows a branch of a repository"
    waiting = False
    for word in words[1:]:
        if waiting:
            waiting = False
        elif word.startswith("-"):
            waiting = word in _CARGO_VALUES
        elif not _is_unknown(word) and "@" not in word:
            return what, f"{_shown(word)} names no version, so the newest is taken"
    return None


def _gem(words: list[str]) -> Found | None:
    if words[:1] != ["install"] or any(word.partition("=")[0] in ("-v", "--version", "-g", "--file") for word in words):
        return None
    for word in words[1:]:
        if not word.startswith("-") and not _is_unknown(word) and not _is_local(word) and ":" not in word:
            return (
                "gem installs a package without a version",
                f"{_shown(word)} names no version, so the newest is taken",
            )
    return None


def _first_open(what: str, packages: Iterable[str], why: Callable[[str], str | None]) -> Found | None:
    for package in packages:
        because = why(package)
        if because is not None:
            return f"{what} a package without a version", because
    return None


def _shown(word: str) -> str:
    return f"`{word if len(word) <= 60 else word[:59] + '…'}`"


_JUDGES: Final[Mapping[str, Callable[[list[str]], Found | None]]] = {
    "pip": _pip,
    "pipx": _pipx,
    "uv": _uv,
    "uvx": _uvx,
    "npm": _npm,
    "npx": _npx,
    "pnpm": _pnpm,
    "yarn": _yarn,
    "bun": _bun,
    "bunx": _npx,
    "go": _go,
    "cargo": _cargo,
    "gem": _gem,
}
