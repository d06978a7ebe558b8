"""Precision and recall on the corpus: every expected finding is found at its line, and nothing else is."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.packs.governance.corpus_reader import CORPUS, Construct, constructs, files_of, found_in
from toolgate.packs.governance.cli.zizmor import Zizmor
from toolgate.packs.governance.rules.catalogue import RULES

EVERY = list(constructs())


def test_the_corpus_is_large_and_every_file_has_its_expectations() -> None:
    workflows = [path for one in EVERY for path in one.files if path.endswith((".yml", ".yaml"))]
    assert len(workflows) >= 200
    assert {one.name: one.files for one in EVERY} == {one.name: files_of(one.root) for one in EVERY}
    assert all(len(one.seen) > 30 for one in EVERY), "each says where such things are seen"
    assert all((CORPUS / one.name).is_dir() for one in EVERY)


def test_every_rule_has_several_places_to_be_right_or_wrong_at() -> None:
    counted = Counter(expected.rule.partition("/")[0] for one in EVERY for expected in one.expected)
    assert {rule.id: counted[rule.id] for rule in RULES if counted[rule.id] < 5} == {}


@pytest.mark.parametrize("one", [one for one in EVERY if one.foreign is not None], ids=lambda one: one.name)
def test_zizmor_finds_what_is_expected_of_it(one: Construct, tmp_path: Path) -> None:
    assert one.foreign is not None
    copy = tmp_path / "copy"  # outside our own checkout: zizmor names files from its top
    shutil.copytree(one.root, copy)
    with closing(Zizmor(copy)) as run:
        verdict = run.verdict()
    assert verdict.status == "evaluated", verdict.reason
    told = {
        (finding.file or "", f"{finding.line} {finding.rule.removeprefix('zizmor/')}") for finding in verdict.findings
    }
    assert told == {(file, mark) for file, marks in one.foreign.items() for mark in marks}


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_a_construct_gives_its_findings_and_no_other(one: Construct) -> None:
    found = found_in(one)
    assert sorted(found - one.expected) == [], "false alarms"
    assert sorted(one.expected - found) == [], "missed"
