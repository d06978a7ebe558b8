"""The script that measures pages on a long log still does so, and no page is larger than its budget."""

from __future__ import annotations

import re

import pytest

from scripts import console_budget

BUDGET_KB = 100.0


def test_every_measured_page_is_within_its_budget_of_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    console_budget.main(500)
    sizes = [float(size) for size in re.findall(r"([0-9.]+) KB", capsys.readouterr().out)]
    assert len(sizes) == 6
    assert max(sizes) <= BUDGET_KB
