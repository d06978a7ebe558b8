"""What tools may write into the workspace: so much a call, so much a key in an hour, and never the last of the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolgate.errors import WorkFailed
from toolgate.powers.files import BLOCK_BYTES, SHARE_S, CallWriter, Workspace, WriteShares

MOST = 10 * BLOCK_BYTES


class Hour:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Hour()
        self.shares = WriteShares(MOST, 0, self.clock)
        self.workspace = Workspace(root)

    def call(self, key: str = "one") -> CallWriter:
        return CallWriter(self.workspace, self.shares, key)

    def names(self) -> set[str]:
        return {path.name for path in self.root.iterdir()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def reason(writer: CallWriter, name: str, size: int) -> str:
    with pytest.raises(WorkFailed) as refused:
        writer.write_bytes(name, bytes(size))
    return refused.value.reason


def test_one_call_writes_so_much_and_no_byte_more(desk: Desk) -> None:
    call = desk.call()
    call.write_bytes("a", bytes(MOST - BLOCK_BYTES))
    assert reason(call, "b", BLOCK_BYTES + 1) == "too_much_written"
    call.write_bytes("c", bytes(BLOCK_BYTES))
    assert reason(call, "d", 0) == "too_much_written"
    assert desk.names() == {"a", "c"}


def test_a_tree_is_counted_before_any_of_it_is_made(desk: Desk) -> None:
    with pytest.raises(WorkFailed) as refused:
        desk.call().create_tree("paper", {f"{number}": b"" for number in range(11)})
    assert refused.value.reason == "too_much_written"
    desk.call().create_tree("paper", {f"{number}": b"" for number in range(10)})
    assert desk.names() == {"paper"}


def test_a_key_s_share_is_used_up_by_all_its_calls_and_by_nobody_else_s(desk: Desk) -> None:
    for number in range(10):
        desk.call().write_bytes(f"empty-{number}", b"")
    assert reason(desk.call(), "one-more", 0) == "write_share_used"
    desk.call("two").write_bytes("theirs", b"")
    assert desk.names() == {"theirs", *(f"empty-{number}" for number in range(10))}


def test_a_share_comes_back_with_the_hour(desk: Desk) -> None:
    desk.call().write_bytes("a", bytes(MOST))
    assert reason(desk.call(), "b", 1) == "write_share_used"
    desk.clock.now = SHARE_S / 10
    desk.call().write_bytes("b", b"")
    assert reason(desk.call(), "c", 1) == "write_share_used"
    desk.clock.now = 3 * SHARE_S
    desk.call().write_bytes("c", bytes(MOST))
    assert reason(desk.call(), "d", 1) == "write_share_used", "what was not used in other hours is not saved up"


def test_a_call_that_has_begun_is_not_torn_by_what_its_key_writes_elsewhere(desk: Desk) -> None:
    call = desk.call()
    call.write_bytes("first", b"")
    desk.call().write_bytes("all-of-it", bytes(MOST))
    call.write_bytes("second", b"")
    assert reason(desk.call(), "third", 0) == "write_share_used"


def test_the_last_of_the_disk_is_not_for_tools(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert 0 < workspace.free_bytes() < 2**60
    call = CallWriter(workspace, WriteShares(MOST, 2**60, Hour()), "one")
    assert reason(call, "a", 0) == "disk_low"
    assert list(tmp_path.iterdir()) == []


def test_a_writer_reads_like_any_other(desk: Desk) -> None:
    call = desk.call()
    call.write_bytes("a", b"text")
    assert call.read_bytes("a", max_bytes=10) == b"text"
    assert [entry.path for entry in call.walk()] == ["a"]
