"""Numbers of a process that has something to say in every family."""

from __future__ import annotations

from toolgate.telemetry.families import FAMILIES, Numbers
from toolgate.telemetry.tally import BOUNDS_S


def every_family() -> Numbers:
    return {
        family.name: [
            (
                family.labels,
                [1.0, *([1.0] * (len(BOUNDS_S) + 1))] if family.kind == "histogram" else 1.0,
            )
        ]
        for family in FAMILIES
    }
