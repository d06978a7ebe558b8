"""The commands of a clone, a newcomer's and the one that a change must pass: they find what they need or name what is missing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.support import process
from tests.console.visiting import Visitor
from tests.homes import PATIENCE_S, first_line

ROOT = Path(__file__).parents[2]
FIND = ROOT / "scripts" / "find_python.sh"
NEEDED = ("bwrap", "nginx", "caddy", "chromium", "node", "npm", "openssl", "ssh-keygen")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def find(wanted: str, bin_: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", FIND, wanted],
        env={"PATH": str(bin_), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_p2_an_interpreter_behind_a_shim_that_does_not_run_is_found_in_its_folder(tmp_path: Path) -> None:
    shim = program(tmp_path / "bin" / "python3.12", "exit 127")
    real = program(tmp_path / ".pyenv" / "versions" / "3.12.9" / "bin" / "python3.12", "exit 0")
    assert find("3.12", tmp_path / "bin", tmp_path).stdout == f"{real}\n"
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert find("3.12", tmp_path / "bin", tmp_path).stdout == f"{shim}\n"


def test_p2_an_interpreter_that_is_missing_is_named(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.13", "exit 1")
    done = find("3.13", tmp_path / "bin", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Python 3.13 is missing")


def test_p2_a_real_interpreter_of_another_version_is_not_taken(tmp_path: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    program(tmp_path / "bin" / f"python{version}", f'exec {sys.executable} "$@"')
    program(tmp_path / "bin" / "python3.99", f'exec {sys.executable} "$@"')
    assert find(version, tmp_path / "bin", tmp_path).returncode == 0
    assert find("3.99", tmp_path / "bin", tmp_path).returncode == 1


def test_p2_each_interpreter_has_an_environment_of_its_own() -> None:
    for given, expected in (("3.12", ".venv-3.12"), ("/opt/python3.13", ".venv-3.13"), ("", ".venv")):
        shown = subprocess.run(
            ["make", "--dry-run", "test", f"PYTHON={given}"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},  # nothing of the `make` that may have started us
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert shown.splitlines()[-1].startswith(f"{expected}/bin/python -m pytest")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH on which `make` only says what it was asked for and what it was given."""
    for name in NEEDED:
        program(tmp_path / "bin" / name, "exit 0")
    program(tmp_path / "bin" / "apt-get", "exit 100")  # whatever is missing, a test installs nothing
    program(tmp_path / "bin" / "make", f'echo "make $*" >> {tmp_path}/asked; env > {tmp_path}/given')
    return tmp_path


def test_the_machine_of_these_tests_has_every_program_that_a_change_must_pass_asks_for() -> None:
    asked = re.search(r"^for pair in (.+); do$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert asked is not None
    assert sorted(pair.partition(":")[0] for pair in asked[1].split()) == sorted(NEEDED)


def test_p2_what_a_change_must_pass_sees_no_variable_of_the_machine(machine: Path) -> None:
    hidden = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "/x", "FORCE_COLOR": "1"}
    path = f"{machine / 'bin'}{os.pathsep}{os.defpath}"
    subprocess.run(
        [ROOT / ".ci" / "run"],
        env=hidden | {"PATH": path, "HOME": str(machine), "CI": "true", "PIP_INDEX_URL": "file:///index"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    given = dict(line.split("=", 1) for line in (machine / "given").read_text().splitlines())
    assert given.keys().isdisjoint(hidden)
    assert (given["PATH"], given["LANG"], given["PIP_INDEX_URL"]) == (path, "C.UTF-8", "file:///index")
    asked = (machine / "asked").read_text().splitlines()
    asked.remove("make environments VERSIONS=3.12 3.13")  # beside the first two
    assert [re.sub(r" PYTHON=\S+", "", line) for line in asked] == [
        "make check",
        "make notice",
        "make test-all REPEAT=3",
        "make guard REPEAT=3",
        "make bench-quick",
    ]


@contextmanager
def made_to_run(
    home: Path, port: int, *, within: Sequence[str] = (), venv: str = sys.prefix, json: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """`make run` in this clone, with the environment under test and nothing else of ours; no home, and no package index."""
    running = subprocess.Popen(
        [
            *within,
            "make",
            "--old-file",
            f"{sys.prefix}/.run",
            "run",
            f"VENV={venv}",
            f"ARGS=--home {home} --port {port}{' --json' if json else ''}",
        ],
        cwd=ROOT,
        env={"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8", "PIP_NO_INDEX": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        running.communicate(timeout=PATIENCE_S)


def test_p2_make_run_twice_shares_its_home_and_says_what_to_do_about_a_taken_port(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with made_to_run(home, 0) as first:
        url = first_line(first)["url"]
        keys = (home / "keys.env").read_bytes()
        with made_to_run(home, int(url.rpartition(":")[2])) as second:
            _, said = second.communicate(timeout=PATIENCE_S)
            assert second.returncode != 0
            assert b"Address already in use.\n       Use --port 0" in said
            assert b"make run ARGS='--port 0" in said
        with made_to_run(home, 0) as third:
            assert first_line(third)["url"] != url
    assert (home / "keys.env").read_bytes() == keys


def test_make_run_prints_the_way_to_the_console_and_a_key_of_it_opens_the_page(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with made_to_run(home, 0, json=False) as running:
        told = b""
        assert running.stdout is not None
        overdue = threading.Timer(PATIENCE_S, os.killpg, (running.pid, signal.SIGKILL))
        overdue.start()
        for line in running.stdout:
            told += line
            if b"Ctrl+C" in line:
                break
        overdue.cancel()
        found = re.search(r"console\s+http://127\.0\.0\.1:([0-9]+)/console/ ", told.decode())
        assert found is not None, told.decode()
        key = re.search(r"AUDITOR_KEY=(\S+)", (home / "keys.env").read_text())
        assert key is not None
        assert Visitor(int(found[1])).sign_in(key[1]).get().status == 200


NOBODY = 65534
READS_ALL = "+dac_read_search"
"""Where the interpreter lies in a directory that is closed to others: they may read it, and write nothing more than without."""
AS_NOBODY = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *(f"--inh-caps={READS_ALL}", f"--ambient-caps={READS_ALL}"),
)


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory of a user who owns nothing of this clone."""
    try:
        able = subprocess.run([*AS_NOBODY, sys.executable, "-c", ""], capture_output=True, timeout=60, check=False)
        becomes_nobody = able.returncode == 0
    except OSError:
        becomes_nobody = False
    if not becomes_nobody:
        pytest.skip("who runs these tests cannot become another user (root can, with setpriv)")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def test_p2_make_run_as_another_user_serves_from_a_home_of_their_own(theirs: Path) -> None:
    with made_to_run(theirs / "home", 0, within=AS_NOBODY) as running:
        assert first_line(running)["ready"]
    assert (theirs / "home" / "keys.env").stat().st_uid == NOBODY


def test_p2_make_run_as_another_user_says_what_to_do_where_the_home_is_not_theirs(theirs: Path) -> None:
    os.chown(theirs, os.geteuid(), -1)
    theirs.chmod(0o755)
    with made_to_run(theirs / "home", 0, within=AS_NOBODY) as running:
        out, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode != 0, out) == (True, b"")
    assert b"Permission denied.\n       Use a home of your own: --home DIR." in said
    assert b"make run ARGS='--port 0 --home DIR'" in said
    assert b"Traceback" not in said
    assert list(theirs.iterdir()) == []


def test_p2_make_run_as_another_user_says_what_to_do_where_the_clone_is_not_theirs(theirs: Path) -> None:
    venv = ROOT / ".venv-of-nobody"
    with made_to_run(theirs / "home", 0, within=AS_NOBODY, venv=str(venv)) as running:
        out, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode != 0, out) == (True, b"")
    assert b"this clone is not yours to write; put environment and home elsewhere: make run VENV=$HOME/" in said
    assert not venv.exists()


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a directory that not even root can write")
def test_p2_a_development_home_that_is_not_ours_to_make_names_the_flag_that_chooses_another() -> None:
    done = process("serve", "--dev", "--port", "0", cwd=Path("/sys/kernel"))
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("Use a home of your own: --home DIR. It is made if it is not there.\n")


def test_p2_every_supported_python_is_tested_and_claimed() -> None:
    versions = re.search(r"^VERSIONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert versions is not None
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert versions[1].split() == claimed
    assert f'VERSIONS="{" ".join(claimed[1:])}"' in (ROOT / ".ci" / "run").read_text()
