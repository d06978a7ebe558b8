"""Precision and recall on the corpus: every expected finding is found at its line, and nothing else is."""

from __future__ import annotations

import pytest

from tests.packs.governance.corpus_reader import CORPUS, Construct, constructs, files_of, found_in

EVERY = list(constructs())


def test_the_corpus_is_large_and_every_file_has_its_expectations() -> None:
    workflows = [path for one in EVERY for path in one.files if path.endswith((".yml", ".yaml"))]
    assert len(workflows) >= 200
    assert {one.name: one.files for one in EVERY} == {one.name: files_of(one.root) for one in EVERY}
    assert all(len(one.seen) > 30 for one in EVERY), "each says where such things are seen"
    assert all((CORPUS / one.name).is_dir() for one in EVERY)


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_a_construct_gives_its_findings_and_no_other(one: Construct) -> None:
    found = found_in(one)
    assert sorted(found - one.expected) == [], "false alarms"
    assert sorted(one.expected - found) == [], "missed"
