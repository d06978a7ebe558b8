"""Reports that are found again by content: bounded, and never another paper's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolgate.packs.lra.checks.known import MAX_REPORT_BYTES, MAX_REPORTS, Reports, digest_of
from toolgate.packs.lra.paper.artifact import Artifact

NAMES = st.sampled_from(["a", "b", "a:1", "1", ""])
ARTIFACTS = st.builds(
    Artifact,
    page=NAMES,
    html=st.binary(max_size=3),
    files=st.dictionaries(NAMES, st.binary(max_size=3), max_size=3),
    sizes=st.dictionaries(NAMES, st.integers(0, 3), max_size=3),
    shown=NAMES,
)


@given(ARTIFACTS, ARTIFACTS)
def test_only_equal_artifacts_have_one_digest(one: Artifact, other: Artifact) -> None:
    assert (digest_of(one) == digest_of(other)) is (one == other)


def test_the_reports_used_last_are_kept() -> None:
    reports = Reports()
    for number in range(MAX_REPORTS):
        reports.put(b"%d" % number, {"number": number})
    assert reports.get(b"0") == {"number": 0}
    reports.put(b"one more", {})
    assert reports.get(b"0") is not None, "asked for a moment ago"
    assert reports.get(b"1") is None


def test_a_report_that_is_too_long_is_not_kept() -> None:
    reports = Reports()
    reports.put(b"long", {"text": "x" * MAX_REPORT_BYTES})
    assert reports.get(b"long") is None
