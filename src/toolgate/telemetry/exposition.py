"""Numbers as Prometheus reads them: text format 0.0.4, written by Prometheus's own library when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from toolgate.telemetry.families import FAMILIES, total
from toolgate.telemetry.tally import BOUNDS_S

if TYPE_CHECKING:
    from prometheus_client import Metric

    from toolgate.telemetry.families import Family, Numbers, Samples, Value

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_BOUNDS: Final = (*map(str, BOUNDS_S), "+Inf")


def render(processes: Sequence[Numbers]) -> bytes:
    """One page for the sum of these processes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Read(processes))
    return generate_latest(registry)


class _Read(Collector):
    def __init__(self, processes: Sequence[Numbers]) -> None:
        self._processes = processes

    def describe(self) -> list[Metric]:
        """Nothing is read to be registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        numbers = total(self._processes)
        for family in FAMILIES:
            if family.name in numbers:
                yield _metric(family, numbers[family.name])


def _metric(family: Family, samples: Samples) -> Metric:
    if family.kind == "histogram":
        found = HistogramMetricFamily(family.name, family.about, labels=family.labels)
        for labels, value in samples:
            seconds, buckets = _cumulated(value)
            found.add_metric(labels, buckets, seconds)
        return found
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    plain = kind(family.name, family.about, labels=family.labels)
    for labels, value in samples:
        assert not isinstance(value, list)
        plain.add_metric(labels, value)
    return plain


def _cumulated(value: Value) -> tuple[float, list[tuple[str, float]]]:
    assert isinstance(value, list)
    seconds, *counts = value
    so_far, buckets = 0.0, []
    for bound, count in zip(_BOUNDS, counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return seconds, buckets
