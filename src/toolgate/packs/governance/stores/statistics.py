"""False-positive rates from reviewed events: counted, with an interval, and silent when there is too little to say."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

Z_95: Final = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
MIN_REVIEWED: Final = 10
"""Below this a rate is noise: the interval of 0 out of 9 still reaches 0.30."""
TREND_FLAT: Final = 0.001
"""Change of the rate per week below which the trend is called stable."""

Confidence = Literal["unavailable", "insufficient_data", "low", "medium", "high"]


class Counts(Struct, frozen=True):
    total: int
    false_positives: int
    true_positives: int

    @property
    def reviewed(self) -> int:
        return self.false_positives + self.true_positives

    @property
    def enough(self) -> bool:
        return self.reviewed >= MIN_REVIEWED

    @property
    def rate(self) -> float | None:
        return self.false_positives / self.reviewed if self.enough else None

    @property
    def confidence(self) -> Confidence:
        if not self.enough:
            return "insufficient_data"
        return "high" if self.reviewed >= 100 else "medium" if self.reviewed >= 30 else "low"

    def as_json(self) -> dict[str, Any]:
        low, high = wilson(self.false_positives, self.reviewed) if self.enough else (None, None)
        return {
            "total": self.total,
            "reviewed": self.reviewed,
            "pending": self.total - self.reviewed,
            "falsePositives": self.false_positives,
            "truePositives": self.true_positives,
            "fpr": self.rate,
            "interval": {"level": 0.95, "low": low, "high": high},
            "confidence": self.confidence,
        }


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The Wilson score interval at 95 %: stays inside [0, 1] and is honest for few events and extreme rates."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = hits / n, Z_95 * Z_95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the ends the exact bounds are 0 and 1; rounding must not step over them or leave 1e-18 behind.
    return (0.0 if hits == 0 else max(0.0, centre - half)), (1.0 if hits == n else min(1.0, centre + half))


def slope(values: Sequence[float | None]) -> float | None:
    """Least squares over the positions that have a value; None with fewer than two."""
    points = [(x, y) for x, y in enumerate(values) if y is not None]
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def direction(change: float | None) -> str:
    if change is None:
        return "insufficient_data"
    return "increasing" if change > TREND_FLAT else "decreasing" if change < -TREND_FLAT else "stable"


def told(counts: Counts) -> str:
    """In one line, for people: `14 reviewed, 1 false positive, rate 0.07 (95 %: 0.01 to 0.31)`."""
    line = f"{counts.reviewed} reviewed, {counts.false_positives} false positives"
    if counts.rate is None:
        return f"{line}, no rate below {MIN_REVIEWED} reviews"
    low, high = wilson(counts.false_positives, counts.reviewed)
    return f"{line}, rate {counts.rate:.2f} (95 %: {low:.2f} to {high:.2f})"


def recommendation(counts: Counts) -> str:
    rate = counts.rate
    if rate is None:
        return f"Review more findings: {counts.reviewed} are reviewed, {MIN_REVIEWED} are needed before a rate means anything."
    if rate < 0.05:
        return "The rule is precise; keep it."
    if rate < 0.10:
        return "The rule is good; look at its false positives now and then."
    if rate < 0.20:
        return "The rule is noisy; calibrate it."
    return "The rule is too noisy to block on; calibrate it or lower its severity."
