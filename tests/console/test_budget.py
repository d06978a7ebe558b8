"""The script that measures pages on a long log still does so, and no page is larger than its budget."""

from __future__ import annotations

import re

import pytest

from scripts import console_budget

BUDGET_KB = 100.0


def test_every_measured_page_is_within_its_budget_of_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    console_budget.main(2000)
    told = capsys.readouterr().out
    sizes = [float(size) for size in re.findall(r"([0-9.]+) KB", told)]
    assert len(sizes) == 11
    assert re.search(r"served, index made in [0-9.]+ s", told), "longer than a page waits for, so a worker read it"
    assert max(sizes) <= BUDGET_KB
