"""Decision records: whose status is read, and that doubt never counts as acceptance."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import StartRefused
from toolgate.packs.governance.adr import read_adr
from toolgate.policy.adr import MAX_BYTES, STATUSES, load_directory, parse

if TYPE_CHECKING:
    from pathlib import Path

STATUS_OF = {
    "# ADR-0001: T\n\n**Status:** Accepted\n": "accepted",
    "# ADR-0001: T\n\n**Status**: accepted\n": "accepted",
    "# ADR-0001: T\r\n\r\n**Status:** Accepted\r\n": "accepted",
    "# T\n\n## Status\n\nAccepted\n": "accepted",
    "# T\n\n* Status: accepted\n": "accepted",
    "---\nstatus: accepted\ndate: 2026-01-01\n---\n# T\n": "accepted",
    '---\nstatus: "accepted"\n---\n# T\n': "accepted",
    "# T\n\n**Status:** Superseded by ADR-0009\n": "superseded",
    "# T\n\n**Status:** Rejected\n": "rejected",
    "# T\n\n**Status:** Draft\n": "unknown",
    "# T\n\n**Status:** Approved\n": "unknown",
    "# T\n\n**Status:** Not accepted\n": "unknown",
    "# T\n\n**Status:** Acceptedish\n": "unknown",
    "# T\n\nThe status is accepted.\n": "unknown",
    "# T\n": "unknown",
    "": "unknown",
    "# T\n\n**Status:** Accepted\n\n## Status\n\nProposed\n": "unknown",
    "---\nstatus: rejected\n---\n# T\n\n**Status:** Accepted\n": "unknown",
    "# T\n\nstatus: accepted\n": "unknown",
}


@pytest.mark.parametrize("text", STATUS_OF)
def test_the_status_is_read_in_four_forms_and_doubt_is_unknown(text: str) -> None:
    adr = parse("ADR-0001-t.md", text.encode())
    assert adr.status == STATUS_OF[text]
    assert adr.accepted is (STATUS_OF[text] == "accepted")


@pytest.mark.parametrize("text", STATUS_OF)
def test_the_tool_that_checks_compliance_reads_the_same_status(text: str) -> None:
    assert read_adr("docs/adr/ADR-0001-t.md", text.encode()).status == STATUS_OF[text]


def test_a_record_is_known_by_its_number_title_and_bytes() -> None:
    data = b"# ADR-0042: The answer\n\n**Status:** Accepted\n"
    adr = parse("ADR-0042-the-answer.md", data)
    assert (adr.id, adr.title, adr.file) == ("ADR-0042", "The answer", "ADR-0042-the-answer.md")
    assert adr.sha256 == sha256(data).hexdigest()


@given(st.text(max_size=200))
def test_any_text_has_a_known_status_or_none(text: str) -> None:
    assert parse("ADR-1.md", text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()).status in (
        *STATUSES,
        "unknown",
    )


def test_a_directory_is_read_by_number_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Not a record\n\n**Status:** Accepted\n")
    (tmp_path / "ADR-0001-a.md").write_text("# ADR-0001: A\n\n**Status:** Accepted\n")
    assert list(load_directory(tmp_path)) == ["ADR-0001"]
    assert load_directory(None) == {}
    assert load_directory(tmp_path / "missing") == {}


BAD_FILES = {
    "number used twice": ({"ADR-0001-a.md": b"", "ADR-0001-b.md": b""}, "ADR-0001 is used by"),
    "no number": ({"ADR-0xy-a.md": b""}, "no name of a decision record"),
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
