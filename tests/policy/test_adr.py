"""A directory of decision records: known by number and bytes, and refused when they cannot be told apart or read."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from toolgate.errors import StartRefused
from toolgate.kit.adr import MAX_BYTES, STATUSES
from toolgate.policy.adr import load_directory, parse

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_is_known_by_its_number_title_and_bytes() -> None:
    data = b"# ADR-0042: The answer\n\n**Status:** Accepted\n"
    adr = parse("ADR-0042-the-answer.md", data)
    assert (adr.id, adr.title, adr.file) == ("ADR-0042", "The answer", "ADR-0042-the-answer.md")
    assert adr.sha256 == sha256(data).hexdigest()


@pytest.mark.parametrize("status", [*STATUSES, "draft"])
def test_only_an_accepted_record_is_accepted(status: str) -> None:
    adr = parse("ADR-0001-t.md", f"# T\n\n**Status:** {status}\n".encode())
    assert (adr.status, adr.accepted) == (status if status in STATUSES else "unknown", status == "accepted")


def test_a_directory_is_read_by_number_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Not a record\n\n**Status:** Accepted\n")
    (tmp_path / "ADR-0001-a.md").write_text("# ADR-0001: A\n\n**Status:** Accepted\n")
    assert list(load_directory(tmp_path)) == ["ADR-0001"]
    assert load_directory(None) == {}
    assert load_directory(tmp_path / "missing") == {}


BAD_FILES = {
    "number used twice": ({"ADR-0001-a.md": b"", "ADR-0001-b.md": b""}, "ADR-0001 is used by"),
    "no number": ({"ADR-0xy-a.md": b""}, "not the name of a decision record"),
    "not text": ({"ADR-0001-a.md": b"\xff\xfe"}, "not UTF-8"),
    "too large": ({"ADR-0001-a.md": b"x" * (MAX_BYTES + 1)}, "larger than"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_records_that_cannot_be_told_apart_or_read_are_refused(tmp_path: Path, name: str) -> None:
    files, fault = BAD_FILES[name]
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    with pytest.raises(StartRefused, match=fault):
        load_directory(tmp_path)


def test_a_record_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ADR-0001-a.md").mkdir()
    with pytest.raises(StartRefused, match="cannot be read"):
        load_directory(tmp_path)


def test_records_that_nobody_asks_for_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "ADR-0001-wanted.md").write_text("# ADR-0001: Wanted\n\n**Status:** Accepted\n")
    (tmp_path / "ADR-0002-damaged.md").write_bytes(b"\xff")
    assert list(load_directory(tmp_path, {"ADR-0001"})) == ["ADR-0001"]
    with pytest.raises(StartRefused):
        load_directory(tmp_path, {"ADR-0001", "ADR-0002"})
    with pytest.raises(StartRefused):
        load_directory(tmp_path)
