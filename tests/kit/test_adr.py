"""Heads of decision records: the status is read in four forms, and doubt never counts as acceptance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit.adr import MAX_BYTES, STATUSES, UNKNOWN, read

STATUS_OF = {
    "# ADR-0001: T\n\n**Status:** Accepted\n": "accepted",
    "# ADR-0001: T\n\n**Status**: accepted\n": "accepted",
    "# ADR-0001: T\r\n\r\n**Status:** Accepted\r\n": "accepted",
    "# T\n\n## Status\n\nAccepted\n": "accepted",
    "# T\n\n* Status: accepted\n": "accepted",
    "# T\n\n* Status: proposed\n* Deciders: us\n": "proposed",
    "---\nstatus: accepted\ndate: 2026-01-01\n---\n# T\n": "accepted",
    '---\nstatus: "accepted"\n---\n# T\n': "accepted",
    "---\r\nstatus: accepted # by all\r\n---\r\n# T\r\n": "accepted",
    "\ufeff---\nstatus: accepted\n---\n# T\n": "accepted",
    "---\nstatus: superseded by ADR-0009\n---\n# T\n": "superseded",
    "# T\n\n**Status:** Superseded by ADR-0009\n": "superseded",
    "# T\n\n## Status\n\nSuperseded by ADR-0009\n": "superseded",
    "# T\n\n**Status:** Deprecated\n": "deprecated",
    "# T\n\n**Status:** Rejected\n": "rejected",
    "# T\n\n**Status:** Draft\n": "unknown",
    "# T\n\n**Status:** Approved\n": "unknown",
    "# T\n\n**Status:** Not accepted\n": "unknown",
    "# T\n\n**Status:** Acceptedish\n": "unknown",
    "---\nstatus: accepted-ish\n---\n# T\n": "unknown",
    "# T\n\nThe status is accepted.\n": "unknown",
    "# T\n": "unknown",
    "": "unknown",
    "# T\n\n**Status:** Accepted\n\n## Status\n\nProposed\n": "unknown",
    "---\nstatus: rejected\n---\n# T\n\n**Status:** Accepted\n": "unknown",
    "---\nstatus:\n---\n# T\n\n**Status:** Accepted\n": "unknown",
    "---\nstatus: rejected\nbroken: [\n---\n# T\n\n**Status:** Accepted\n": "unknown",
    "---\nstatus: rejected\nstatus: accepted\n---\n# T\n": "unknown",
    "---\n- accepted\n---\n# T\n\n**Status:** Accepted\n": "unknown",
    "# T\n\nstatus: accepted\n": "unknown",
}


@pytest.mark.parametrize("text", STATUS_OF)
def test_the_status_is_read_in_four_forms_and_doubt_is_unknown(text: str) -> None:
    assert read(text.encode()).status == STATUS_OF[text]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Use X\n", "Use X"),
        ("# ADR-0007: Use X  \n\ntext\n", "Use X"),
        ("# ADR-0007 Use X\r\n", "Use X"),
        ("# 7. Use X\n", "Use X"),
        ("---\nstatus: accepted\n---\n\n# Use X\n", "Use X"),
        ("## Status\n", ""),
        ("", ""),
    ],
)
def test_the_title_is_the_first_heading_without_its_number(text: str, title: str) -> None:
    assert read(text.encode()).title == title


def test_front_matter_is_handed_on_and_a_fault_in_it_has_its_line() -> None:
    head = read(b"---\nstatus: accepted\nrules: []\n---\n# T\n")
    assert (head.fault, head.matter and list(head.matter.entries)) == (None, ["status", "rules"])
    broken = read(b"---\nstatus: accepted\nstatus: accepted\n---\n# T\n")
    assert (broken.matter, broken.fault and broken.fault.line) == (None, 2)


def test_text_that_is_not_utf_8_is_the_callers_to_refuse() -> None:
    with pytest.raises(UnicodeDecodeError):
        read(b"# T\xff")


HOSTILE = {
    "a title of spaces": "# x" + " " * MAX_BYTES + "y",
    "a number without end": "# " + "7" * MAX_BYTES,
    "many empty status headings": "## Status\n\n" * (MAX_BYTES // 11),
    "a status heading over nothing": "## Status" + "\n" * MAX_BYTES,
    "fences that never close": "---\n" + "-- \n" * (MAX_BYTES // 4),
    "deep front matter": "---\n" + "[" * (MAX_BYTES - 20) + "\n---\n",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(30)
def test_hostile_records_cost_no_more_than_their_length(name: str) -> None:
    assert read(HOSTILE[name].encode()).status == UNKNOWN


@given(st.text(max_size=200))
def test_any_text_has_a_known_status_or_none(text: str) -> None:
    assert read(text.encode("utf-8", "replace")).status in (*STATUSES, UNKNOWN)
