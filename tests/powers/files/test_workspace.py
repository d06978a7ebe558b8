"""The confined workspace: what it reads, what it refuses, and that nothing half-written stays."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.homes import PATIENCE_S
from toolgate.errors import ToolError
from toolgate.powers import files
from toolgate.powers.files import MAX_DEPTH, Workspace

LIMIT = 10 * 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    return inside


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def code_of(action) -> str:
    with pytest.raises(ToolError) as caught:
        action()
    assert str(Path.cwd()) not in caught.value.text
    return caught.value.code


def test_reads_a_file_and_tells_files_from_directories(root: Path, workspace: Workspace) -> None:
    (root / "a").mkdir()
    (root / "a" / "b.txt").write_bytes(b"hello")
    assert workspace.read_bytes("a/b.txt", max_bytes=5) == b"hello"
    assert workspace.read_bytes("./a//b.txt", max_bytes=5) == b"hello"
    assert (workspace.is_file("a/b.txt"), workspace.is_dir("a/b.txt")) == (True, False)
    assert (workspace.is_file("a"), workspace.is_dir("a"), workspace.is_dir("a/"), workspace.is_dir(".")) == (
        False,
        True,
        True,
        True,
    )
    assert not workspace.is_file("a/b.txt/c")
    assert not workspace.is_file("nowhere/c")


BAD_PATHS = [
    "",
    "/etc/passwd",
    "..",
    "../outside.txt",
    "a/../../outside.txt",
    "a/..",
    "a\\b",
    "..\\outside.txt",
    "a\0b",
    "a\nb",
    "a\x1bb",
    "a\x7fb",
    "a\x85b",
    "\ud800",
    "x" * 1025,
    "y" * 300,
]


@pytest.mark.parametrize("path", BAD_PATHS, ids=repr)
@pytest.mark.req("000-D-PATH")
def test_a_path_that_could_mean_another_place_is_refused_everywhere(workspace: Workspace, path: str) -> None:
    assert code_of(lambda: workspace.read_bytes(path, max_bytes=1)) == "INVALID_PATH"
    assert code_of(lambda: workspace.is_file(path)) == "INVALID_PATH"
    assert code_of(lambda: list(workspace.walk(path))) == "INVALID_PATH"
    assert code_of(lambda: workspace.write_bytes(path, b"")) == "INVALID_PATH"
    assert code_of(lambda: workspace.create_tree(path, {})) == "INVALID_PATH"


def test_two_dots_inside_a_name_are_no_traversal(root: Path, workspace: Workspace) -> None:
    (root / "a..b").write_bytes(b"x")
    assert workspace.read_bytes("a..b", max_bytes=1) == b"x"


@pytest.mark.req("000-D-PATH")
def test_no_link_is_followed_wherever_it_stands(root: Path, workspace: Workspace) -> None:
    (root / "file").symlink_to(root.parent / "outside.txt")
    (root / "up").symlink_to(root.parent)
    (root / "loop").symlink_to("loop")
    for path in ("file", "up/outside.txt", "loop", "loop/x"):
        assert code_of(lambda path=path: workspace.read_bytes(path, max_bytes=9)) == "INVALID_PATH"
    assert code_of(lambda: workspace.write_bytes("file", b"x")) == "INVALID_PATH"
    assert code_of(lambda: workspace.write_bytes("up/new", b"x")) == "INVALID_PATH"
    assert code_of(lambda: workspace.create_tree("up/new", {"a": b""})) == "INVALID_PATH"
    assert (root.parent / "outside.txt").read_text() == "secret"
    assert not (root.parent / "new").exists()
    assert list(workspace.walk()) == []
    assert not workspace.is_file("file")


def test_pipes_sockets_devices_and_directories_are_refused_without_hanging(root: Path, workspace: Workspace) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s"))
        for path in ("pipe", "s", "folder"):
            assert code_of(lambda path=path: workspace.read_bytes(path, max_bytes=9)) == "INVALID_PATH"
            assert code_of(lambda path=path: workspace.write_bytes(path, b"x")) == "INVALID_PATH"
    devices = Workspace(Path("/dev"))
    assert code_of(lambda: devices.read_bytes("zero", max_bytes=9)) == "INVALID_PATH"


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(root: Path, workspace: Workspace) -> None:
    with (root / "big").open("wb") as big:
        big.truncate(LIMIT + 1)
    (root / "exact").write_bytes(b"12345")
    assert code_of(lambda: workspace.read_bytes("big", max_bytes=LIMIT)) == "FILE_TOO_LARGE"
    assert workspace.read_bytes("exact", max_bytes=5) == b"12345"
    assert code_of(lambda: workspace.read_bytes("exact", max_bytes=4)) == "FILE_TOO_LARGE"


def test_a_missing_file_is_told_apart_from_a_broken_one(workspace: Workspace) -> None:
    with pytest.raises(ToolError) as caught:
        workspace.read_bytes("x/y.html", max_bytes=1)
    assert (caught.value.code, caught.value.missing) == ("FILE_NOT_FOUND", True)
    assert caught.value.text == "Cannot read x/y.html: file not found"


def test_walk_is_sorted_and_leaves_out_dotfiles_and_links(root: Path, workspace: Workspace) -> None:
    for path in ("b/x", "a-b/x", "a/x", "a/.hidden", ".git/config", "z"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(b"12")
    (root / "link").symlink_to("z")
    assert [entry.path for entry in workspace.walk()] == ["a-b/x", "a/x", "b/x", "z"]
    assert [(entry.path, entry.size) for entry in workspace.walk("a")] == [("a/x", 2)]
    assert code_of(lambda: workspace.walk(max_files=3)) == "FILE_TOO_LARGE"
    assert code_of(lambda: workspace.walk("nowhere")) == "FILE_NOT_FOUND"


def test_walk_stops_at_a_named_depth_instead_of_descending_for_ever(root: Path, workspace: Workspace) -> None:
    (root / "/".join("d" * (MAX_DEPTH + 1))).mkdir(parents=True)
    assert code_of(workspace.walk) == "FILE_TOO_LARGE"


def test_write_replaces_whole_files_and_leaves_no_temporary(root: Path, workspace: Workspace) -> None:
    workspace.write_bytes("r.json", b"one", mode=0o600)
    workspace.write_bytes("r.json", b"two", mode=0o600)
    assert (root / "r.json").read_bytes() == b"two"
    assert stat.S_IMODE((root / "r.json").stat().st_mode) == 0o600
    assert code_of(lambda: workspace.write_bytes("r.json", b"x", exclusive=True)) == "FILE_EXISTS"
    workspace.write_bytes("fresh", b"x", exclusive=True)
    assert sorted(path.name for path in root.iterdir()) == ["fresh", "r.json"]
    assert (root / "fresh").stat().st_nlink == 1
    assert code_of(lambda: workspace.write_bytes("nowhere/r.json", b"x")) == "FILE_NOT_FOUND"


def test_of_many_exclusive_writers_exactly_one_wins(root: Path, workspace: Workspace) -> None:
    outcomes: list[str] = []

    def claim(number: int) -> None:
        try:
            workspace.write_bytes("one", str(number).encode(), exclusive=True)
            outcomes.append("won")
        except ToolError as fault:
            outcomes.append(fault.code)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(outcomes) == ["FILE_EXISTS"] * 7 + ["won"]


@pytest.mark.req("000-D-INIT-EXISTS")
def test_create_tree_makes_all_files_or_refuses_an_existing_directory(root: Path, workspace: Workspace) -> None:
    workspace.create_tree("p", {"index.html": b"<p>", "wasm/src/a.wat": b"(module)", "wasm/a.wasm": b"\0asm"})
    assert sorted(entry.path for entry in workspace.walk("p")) == ["p/index.html", "p/wasm/a.wasm", "p/wasm/src/a.wat"]
    (root / "empty").mkdir()
    for taken in ("p", "empty"):
        assert code_of(lambda taken=taken: workspace.create_tree(taken, {"x": b""})) == "DIRECTORY_EXISTS"
    assert list((root / "empty").iterdir()) == []


def test_f27_a_directory_that_others_write_into_while_it_is_made_is_theirs(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def late(*names: Any, **places: Any) -> None:
        (root / "paper" / "theirs").write_text("x")
        real(*names, **places)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(ToolError, match="DIRECTORY_EXISTS"):
        workspace.create_tree("paper", {"ours": b"y"})
    assert [path.name for path in root.rglob("*")] == ["paper", "theirs"]


def test_a_tree_with_a_bad_inner_name_is_refused_before_anything_is_made(root: Path, workspace: Workspace) -> None:
    for name in ("../x", "/x", ".", ""):
        assert code_of(lambda name=name: workspace.create_tree("p", {"ok": b"", name: b""})) == "INVALID_PATH"
    assert not (root / "p").exists()


FULL_DISK = """
import resource, sys
from pathlib import Path
from typing import Any
from toolgate.errors import ToolError
from toolgate.powers.files import Workspace
workspace = Workspace(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for action in (
    lambda: workspace.create_tree("p", {"a": b"x", "d/b": b"x", "d/e/c": b"x" * 9000, "z": b"never"}),
    lambda: workspace.write_bytes("f", b"x" * 9000),
):
    try:
        action()
    except ToolError as fault:
        print(fault.code)
"""


def test_a_write_the_system_cuts_short_leaves_nothing_behind(root: Path) -> None:
    """RLIMIT_FSIZE makes the kernel refuse mid-file, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(root)], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["IO_ERROR", "IO_ERROR"]
    assert list(root.iterdir()) == []


READ_ONLY = """
import os, sys
from pathlib import Path
from typing import Any
from toolgate.errors import ToolError
from toolgate.powers.files import Workspace
workspace = Workspace(Path("."))
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
for action in (lambda: workspace.create_tree("p", {"a": b"x"}), lambda: workspace.write_bytes("f", b"x")):
    try:
        action()
    except ToolError as fault:
        print(fault.code, fault.text)
"""


def test_a_directory_without_write_permission_is_an_io_error(root: Path) -> None:
    root.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY], cwd=root, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == [
        "IO_ERROR I/O error: p: Permission denied",
        "IO_ERROR I/O error: f: Permission denied",
    ]


def test_a_directory_swapped_for_a_link_between_two_steps_leads_nowhere(root: Path, workspace: Workspace) -> None:
    """The race of check and use: one thread keeps swapping `d` between a directory and a link out of the workspace."""
    (root / "d").mkdir()
    (root / "d" / "outside.txt").write_text("inside")
    (root / "link").symlink_to(root.parent)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "d").rename(root / "kept")
            (root / "link").rename(root / "d")
            (root / "d").rename(root / "link")
            (root / "kept").rename(root / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(300):
            try:
                seen.add(workspace.read_bytes("d/outside.txt", max_bytes=100))
            except ToolError as fault:
                seen.add(fault.code.encode())
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert seen <= {b"inside", b"FILE_NOT_FOUND", b"INVALID_PATH"}


def test_refusals_leak_no_descriptors(root: Path, workspace: Workspace) -> None:
    (root / "up").symlink_to("/")
    before = open_descriptors()
    for path in ("up/etc/passwd", "a/b/c", "..", "up"):
        code_of(lambda path=path: workspace.read_bytes(path, max_bytes=1))
        code_of(lambda path=path: workspace.create_tree(f"{path}/x", {"a": b""}))
    assert open_descriptors() == before


@cases(60, 300)
@given(st.text(max_size=40))
def test_no_path_at_all_reads_anything_from_an_empty_workspace(tmp_path_factory, path: str) -> None:
    base = tmp_path_factory.getbasetemp() / "fuzz"
    (base / "inside").mkdir(parents=True, exist_ok=True)
    (base / "secret").write_text("secret")
    workspace = Workspace(base / "inside")
    assert code_of(lambda: workspace.read_bytes(path, max_bytes=10)) in {"INVALID_PATH", "FILE_NOT_FOUND"}
    workspace.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from toolgate.powers import files
workspace, at = files.Workspace(Path(sys.argv[1])), sys.argv[2]
real = getattr(os, at.partition(":")[0])
count = int(at.partition(":")[2])
def killing(*args, **named):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **named)
setattr(os, at.partition(":")[0], killing)
workspace.create_tree("p", {"a": b"x" * 100, "d/b": b"y", "d/e/c": b"z"})
"""


@pytest.mark.parametrize("step", ["mkdir:1", "write:0", "write:2", "fsync:3", "mkdir:3", "rename:0"])
def test_f27_a_kill_at_any_step_leaves_no_part_of_a_tree(root: Path, workspace: Workspace, step: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(root), step], timeout=30, check=False)
    assert done.returncode == -9, "it was killed there"
    before = {path.name for path in root.iterdir() if not path.name.startswith(".")}
    assert "p" not in before or list((root / "p").iterdir()) == [], "nothing half-made is seen"
    assert [entry.path for entry in workspace.walk() if entry.path.startswith("p")] == []
    workspace.create_tree("p", {"a": b"new", "d/b": b"y"})
    assert (root / "p" / "a").read_bytes() == b"new"
    assert [path.name for path in root.iterdir() if path.name.endswith(".new")] == [], "and nothing is left behind"


def test_f27_what_another_process_is_making_is_not_swept_away(root: Path, workspace: Workspace) -> None:
    parent = os.open(root, os.O_RDONLY)
    with files._hidden(parent, "p") as (hidden, _):
        workspace.create_tree("p", {"a": b"1"})
        assert (root / hidden).is_dir()
    os.close(parent)
    assert not (root / hidden).exists()
    assert (root / "p" / "a").read_bytes() == b"1"


def test_f27_somebody_s_empty_directory_is_not_replaced(root: Path, workspace: Workspace) -> None:
    (root / "empty").mkdir()
    assert code_of(lambda: workspace.create_tree("empty", {"a": b""})) == "DIRECTORY_EXISTS"
    assert list((root / "empty").iterdir()) == []
