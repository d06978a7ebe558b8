"""The page that Prometheus reads: every family, and the sum of several processes."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.telemetry.filled import every_family
from toolgate.telemetry.exposition import render
from toolgate.telemetry.families import FAMILIES, Numbers, total
from toolgate.telemetry.tally import BOUNDS_S


def read(page: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_every_family_is_on_the_page_with_its_labels() -> None:
    page = read(render([every_family()]))
    for family in FAMILIES:
        name = {"counter": f"{family.name}_total", "gauge": family.name, "histogram": f"{family.name}_count"}[
            family.kind
        ]
        (labels,) = page[name]
        assert [label for label, _ in labels] == sorted(family.labels), family.name


def test_a_histogram_is_cumulated_and_ends_with_its_count() -> None:
    counts = [1.0] * (len(BOUNDS_S) + 1)
    page = read(render([{"toolgate_call_duration_seconds": [(("a", "ok"), [2.5, *counts])]}]))
    buckets = page["toolgate_call_duration_seconds_bucket"]
    assert sorted(buckets.values()) == [float(number) for number in range(1, len(counts) + 1)]
    assert list(page["toolgate_call_duration_seconds_count"].values()) == [len(counts)]
    assert list(page["toolgate_call_duration_seconds_sum"].values()) == [2.5]


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        ("toolgate_slots_held", (2.0, 3.0), 5.0),
        ("toolgate_loop_lag_seconds", (0.2, 0.1), 0.2),
        ("toolgate_ledger_writable", (1.0, 0.0), 0.0),
    ],
)
def test_numbers_of_several_processes_become_one(family: str, values: tuple[float, float], expected: float) -> None:
    assert total([{family: [((), value)]} for value in values]) == {family: [((), expected)]}


def test_series_that_only_one_process_has_are_kept() -> None:
    one: Numbers = {"toolgate_calls": [(("a", "ok"), 1)]}
    other: Numbers = {"toolgate_calls": [(("a", "ok"), 2), (("b", "ok"), 4)]}
    assert total([one, other, {}])["toolgate_calls"] == [(("a", "ok"), 3), (("b", "ok"), 4)]


def test_numbers_may_come_from_another_process_as_json() -> None:
    here = every_family()
    assert render([here, json.loads(json.dumps(here))]) == render([here, here])


def test_a_label_cannot_break_its_line() -> None:
    name = 'a"b\\\n# HELP x'
    page = read(render([{"toolgate_upstream_state": [((name, "up"), 1.0)]}]))
    assert page == {"toolgate_upstream_state": {(("state", "up"), ("upstream", name)): 1.0}}
