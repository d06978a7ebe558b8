"""The few statistics the benchmarks need. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the lowest and highest round, because a median alone hides how much rounds differ."""

    median: float
    low: float
    high: float
    rounds: int


def spread(rounds: Sequence[float]) -> Spread:
    if not rounds:
        raise ValueError("no rounds")
    return Spread(statistics.median(rounds), min(rounds), max(rounds), len(rounds))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank). `ordered` is sorted."""
    if not ordered:
        raise ValueError("no values")
    if not 0 < share <= 1:
        raise ValueError("a share is above 0 and at most 1")
    return ordered[math.ceil(share * len(ordered)) - 1]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours divided by theirs, round by round: a round's two values were measured seconds apart, so noise cancels."""
    if len(ours) != len(theirs):
        raise ValueError("rounds must come in pairs")
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])
