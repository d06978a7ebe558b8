"""A terminal obeys what it is sent: what strangers wrote reaches people spelt out, and programs byte for byte."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import PROGRAM, clean_environment, process
from tests.gate.conftest import Gate
from tests.homes import PATIENCE_S, Home, make_home
from toolgate.cli.output import Terminal
from toolgate.kit.reports.printable import printable_lines
from toolgate.model import strictjson

TITLE = "\x1b]0;owned\x07"
HOSTILE = (
    f"{TITLE} \x1b[2J\x1b[H\x1b[31mAll checks passed\x1b[0m \x9b31m \x9d0;x\x9c"
    " \u202etxt.exe\u202c \u2066x \u200b\u200d\ufeff \r over \x08\x7f"
)
"""Title, clear, colour, C1 forms of both, direction, invisible, back to the start of the line, backspace, delete."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PROGRAMS = {"toolgate": "toolgate.cli.main", "lra": "toolgate.packs.lra.cli"}


def seen(*command: str, cwd: Path, **environment: str) -> str:
    """What a terminal is sent by this command, on both streams."""
    program, *arguments = command
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", f"from {PROGRAMS[program]} import run; run()", *arguments],
        cwd=cwd,
        env=clean_environment(TERM="xterm", **environment),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    got = b""
    until = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until and select.select([ours], [], [], until - time.monotonic())[0]:
            piece = os.read(ours, 65536)
            if not piece:
                break
            got += piece
    except OSError:  # Linux's way to say that the other side is closed
        pass
    finally:
        os.close(ours)
        running.wait(PATIENCE_S)
    return got.decode()


def obeyed(text: str) -> list[str]:
    """Characters that a terminal would act on, or not show. Ours are line ends (the driver makes CR LF) and progress."""
    text = text.replace("\r\n", "\n").replace("\r\x1b[K", "")
    return [one for one in text if not one.isprintable() and one not in "\n\t" and unicodedata.category(one) != "Zs"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = make_home(tmp_path_factory.mktemp("terminal") / "home", packs=("governance", "library", "lra"))
    (made.workspace / "evil.md").write_text(f"# Title {HOSTILE}\n\ntext\n", newline="")
    (made.path / "page").mkdir()
    (made.path / "page" / "index.html").write_text(f"<title>{HOSTILE}</title><p>{HOSTILE}")
    entry: dict[str, Any] = dict.fromkeys(("title", "capability", "license", "version", "registered"), HOSTILE)
    entry |= {"url": "https://example.org/", "hash": "sha256:" + "0" * 64, "authors": [HOSTILE]}
    entry |= {"keywords": [], "depends": []}
    (made.path / "registry.json").write_text(json.dumps({"version": 1, "updated": "", "entries": [entry]}))
    workflows = made.path / "repo" / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "a.yml").write_text("on: push\njobs:\n  a:\n    permissions: write-all\n    steps: [{run: 'x'}]\n")
    (workflows / f"{HOSTILE}.yml").write_text((workflows / "a.yml").read_text())
    (made.path / "receipt.json").write_text(json.dumps({"target_url": HOSTILE, "anything": HOSTILE}))
    gate = Gate(made, made.app())
    gate.call("library_fetch", {"path": "none.md"})
    gate.run(gate.app.close())
    gate.loop.close()
    record = made.calls()[-1] | {"requestId": "evil", "caller": {"id": HOSTILE, "role": HOSTILE}}
    record |= {"metadata": {"toolId": HOSTILE}, "error": record["error"] | {"code": HOSTILE, "reason": HOSTILE}}
    folder = made.path / "runs" / "mcp_server" / "envelope_validation"
    log = next(path for path in folder.glob("*.jsonl") if not path.is_symlink())
    with log.open("a") as file:
        file.write(json.dumps(record, separators=(",", ":")) + "\n")
    return made


SHOWN: dict[str, tuple[str, ...]] = {
    "call": ("toolgate", "call", "library_fetch", "path=evil.md"),
    "call, as JSON": ("toolgate", "call", "library_fetch", "path=evil.md", "--json"),
    "audit tail": ("toolgate", "audit", "tail"),
    "audit show": ("toolgate", "audit", "show", "evil"),
    "explain": ("toolgate", "explain", "evil"),
    "analyze": ("toolgate", "analyze", "repo", "--zizmor", "off"),
    "a home that is not there": ("toolgate", "config", "print", "--home", f"{HOSTILE}"),
    "a command that is none": ("toolgate", f"{HOSTILE}"),
    "lra validate of nothing": ("lra", "validate", f"{HOSTILE}"),
    "lra verify": ("lra", "verify", f"https://127.0.0.1/{HOSTILE}"),
    "lra registry search": ("lra", "registry", "search", "owned", "--registry", "registry.json"),
    "lra receipt show": ("lra", "receipt", "show", "receipt.json"),
}


FAST = ("call", "audit tail", "lra registry search")
"""What a person sees most: these are tried with every Python, the others with one, for each is a process of its own."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.guard) for name in SHOWN]
)
def test_f19_nothing_of_a_strangers_text_is_obeyed_by_a_terminal(home: Home, name: str) -> None:
    shown = seen(*SHOWN[name], cwd=home.path, TOOLGATE_API_KEY=home.keys["builder"])
    assert "\\u001b" in shown or name in ("a command that is none", "lra verify")
    assert "Traceback" not in shown
    # The library that draws usage errors writes bold even without colours.
    assert obeyed(COLOUR.sub("", shown) if name.endswith("that is none") else shown) == []


@pytest.mark.parametrize(
    "name",
    [
        "call",
        *(pytest.param(name, marks=pytest.mark.guard) for name in ("audit tail", "analyze", "lra registry search")),
    ],
)
def test_f19_colours_are_ours_alone(home: Home, name: str) -> None:
    shown = seen(*SHOWN[name], cwd=home.path, TOOLGATE_API_KEY=home.keys["builder"], NO_COLOR="", FORCE_COLOR="1")
    assert obeyed(COLOUR.sub("", shown)) == []
    assert "\x1b[31mAll" not in shown
    assert "\\u001b[31mAll" in shown


def test_f19_programs_get_every_byte(home: Home) -> None:
    done = process("call", "library_fetch", "path=evil.md", cwd=home.path, TOOLGATE_API_KEY=home.keys["builder"])
    assert TITLE in done.out
    assert "\u202e" in done.out


def test_f19_what_a_person_sees_of_json_is_still_that_json(home: Home) -> None:
    shown = seen(*SHOWN["call, as JSON"], cwd=home.path, TOOLGATE_API_KEY=home.keys["builder"])
    assert TITLE in json.loads(shown)["stdout"]


VALUES: Any = st.recursive(
    st.text() | st.integers(-9, 9), lambda below: st.lists(below) | st.dictionaries(st.text(), below)
)


@given(VALUES)
def test_f19_spelling_out_changes_no_json_value(value: Any) -> None:
    text = printable_lines(strictjson.dumps_pretty(value).decode())
    assert obeyed(text) == []
    assert json.loads(text) == value


@given(st.lists(st.text() | st.sampled_from([HOSTILE, "\x1b[31m", "\x1b[0m", "\x1b[", "31m", "\x1b", "\x1b]8;;x\x07"])))
def test_f19_a_guarded_terminal_is_told_text_and_colours_only(pieces: list[str]) -> None:
    raw = io.StringIO(newline="")
    terminal = Terminal(raw)
    for piece in pieces:
        assert terminal.write(piece) == len(piece)
    assert obeyed(COLOUR.sub("", raw.getvalue())) == []


BADGES = {
    "authoritative": "\x1b[1;34m",
    "experimental": "\x1b[1;33m",
    "local": "\x1b[1;35m",
}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("tools", "list"), ("authoritative", "experimental", "local")),
        pytest.param(("call", "dummy_experimental"), ("experimental", "local"), marks=pytest.mark.guard),
        pytest.param(("tools", "show", "dummy_experimental"), ("experimental",), marks=pytest.mark.guard),
        pytest.param(("doctor",), ("local",), marks=pytest.mark.guard),
    ],
)
def test_tier_and_environment_are_told_in_words_and_colour(
    home: Home, command: tuple[str, ...], words: tuple[str, ...]
) -> None:
    given = {"TOOLGATE_API_KEY": home.keys["builder"], "TOOLGATE_HOME": str(home.path)}
    told = seen("toolgate", *command, cwd=home.path, **given, NO_COLOR="", FORCE_COLOR="1")
    plain = seen("toolgate", *command, cwd=home.path, **given, NO_COLOR="1", FORCE_COLOR="")
    for word in words:
        assert f"{BADGES[word]}{word}" in told
        assert word in plain
    assert "\x1b" not in plain


def banner(home: Home, **environment: str) -> str:
    """What a terminal is sent by a server until it is ready and has stopped again."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", "--home", str(home.path)],
        env=clean_environment(TERM="xterm", **environment),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    got, due = b"", time.monotonic() + PATIENCE_S
    try:
        while (
            not re.search(rb"tools  .*\n", got) and select.select([ours], [], [], max(0.0, due - time.monotonic()))[0]
        ):
            got += os.read(ours, 65536)
    finally:
        running.terminate()
        running.wait(PATIENCE_S)
        os.close(ours)
    return got.decode()


def test_the_banner_of_a_server_that_is_ready_has_its_badges_in_words_and_colour(home: Home) -> None:
    told = banner(home, NO_COLOR="", FORCE_COLOR="1")
    plain = banner(home, NO_COLOR="1", FORCE_COLOR="")
    for word in ("authoritative", "experimental", "local"):
        assert f"{BADGES[word]}{word}" in told
    words = re.sub(r"\s+", " ", plain)
    assert re.search(r"environment local .*tools [0-9]+ authoritative [0-9]+ experimental", words), plain
    assert "\x1b" not in plain


def test_a_program_that_reads_an_answer_is_told_no_badge(home: Home) -> None:
    done = process("call", "dummy_experimental", cwd=home.path, TOOLGATE_API_KEY=home.keys["builder"])
    assert (done.code, done.err) == (0, "")
