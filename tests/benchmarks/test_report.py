"""Statistics, pictures and the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import goals, plots, report
from benchmarks.stats import Spread, quantile, ratios, spread

NUMBERS = st.floats(min_value=0.001, max_value=1e9)


@given(st.lists(NUMBERS, min_size=1, max_size=200))
def test_a_spread_holds_its_median_between_its_ends(rounds: list[float]) -> None:
    found = spread(rounds)
    assert found.low <= found.median <= found.high
    assert (found.low, found.high, found.rounds) == (min(rounds), max(rounds), len(rounds))


@given(st.lists(NUMBERS, min_size=1, max_size=200), st.floats(min_value=0.01, max_value=1.0))
def test_a_quantile_is_a_value_that_enough_others_do_not_exceed(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9
    assert sum(value < found for value in ordered) < share * len(ordered) + 1e-9


def test_quantiles_of_a_hundred_values_are_the_ranks_one_expects() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert (quantile(ordered, 0.5), quantile(ordered, 0.99), quantile(ordered, 1.0)) == (50.0, 99.0, 100.0)


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([10.0, 40.0, 90.0], [10.0, 20.0, 30.0]) == Spread(2.0, 1.0, 3.0, 3)


@pytest.mark.parametrize("call", [lambda: spread([]), lambda: quantile([], 0.5), lambda: ratios([1.0], [])])
def test_nothing_measured_is_an_error_and_not_a_zero(call: Any) -> None:
    with pytest.raises(ValueError, match=r"no |pairs"):
        call()


@given(st.dictionaries(st.text("ab<&\"'>é", min_size=1, max_size=8), NUMBERS, min_size=1, max_size=6))
def test_bars_are_well_formed_and_no_longer_than_the_picture(rows: dict[str, float]) -> None:
    picture = ET.fromstring(plots.bars('a < b & "c"', "s", {name: spread([value]) for name, value in rows.items()}))
    lengths = [float(each.attrib["width"]) for each in picture.iter() if each.tag.endswith("rect")]
    assert len(lengths) == len(rows) + 1
    assert max(lengths) <= plots.WIDTH


@given(st.lists(NUMBERS, min_size=2, max_size=6), st.booleans())
def test_a_curve_stays_inside_its_picture(values: list[float], linear: bool) -> None:
    points = [(10.0**power, spread([value, value * 1.1])) for power, value in enumerate(values)]
    picture = ET.fromstring(plots.curve("t", "x", "y", points, linear=linear))
    height = float(picture.attrib["viewBox"].split()[3])
    dots = [each for each in picture.iter() if each.tag.endswith("circle")]
    assert len(dots) == len(values)
    assert all(0 <= float(dot.attrib["cx"]) <= plots.WIDTH and 0 <= float(dot.attrib["cy"]) <= height for dot in dots)


def test_what_is_in_proportion_is_drawn_as_a_straight_line() -> None:
    points = [(10.0**power, spread([10.0**power])) for power in range(4)]
    picture = ET.fromstring(plots.curve("t", "x", "y", points, linear=True))
    downs = [float(dot.attrib["cy"]) for dot in picture.iter() if dot.tag.endswith("circle")]
    steps = {round(one - other) for one, other in pairwise(downs)}
    assert len(steps) == 1


@pytest.mark.parametrize(
    ("better", "must", "aim", "reached", "verdict"),
    [
        ("more", 10, 15, 15, "aim"),
        ("more", 10, 15, 12, "must"),
        ("more", 10, 15, 9, "missed"),
        ("less", 4, 3, 3, "aim"),
        ("less", 4, 3, 3.5, "must"),
        ("less", 4, 3, 4.1, "missed"),
    ],
)
def test_a_goal_is_judged_by_its_median(better: Any, must: float, aim: float, reached: float, verdict: str) -> None:
    rounds = spread([reached / 10, reached, reached * 10])
    assert goals.Goal("g", must, aim, better, "x", rounds).verdict() == verdict


def test_a_goal_that_was_not_measured_says_so() -> None:
    assert {goal.verdict() for goal in goals.goals({})} == {"not measured"}


def test_the_page_and_its_pictures_are_made_from_the_committed_results() -> None:
    comparison, growth, scale = map(report.read, (report.COMPARISON, report.GROWTH, report.SCALE))
    others = map(report.read, (report.UPSTREAMS, report.PAPERS, report.TOOLS))
    assert report.PAGE.read_text() == report.page(comparison, growth, *others, scale, report.read(report.AUTHORITY))
    made = report.pictures(comparison, growth, scale)
    assert {path.name: path.read_text() for path in report.PICTURES.glob("*.svg")} == made


def test_the_page_names_no_picture_that_is_not_there() -> None:
    comparison, growth, scale = map(report.read, (report.COMPARISON, report.GROWTH, report.SCALE))
    page = report.page(comparison, growth, {}, {}, {}, scale, {})
    named = {part.partition(")")[0] for part in page.split("](benchmarks/")[1:]}
    assert named == set(report.pictures(comparison, growth, scale))
