"""What document 000 demands of the author's half of living papers, as rows."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "000-D-CHECKS": "document 000: 23 checks run, 16 for Bronze, 3 for Silver, 4 for Gold, each reported as pass or fail",
    "000-D-TIERS": "document 000: a tier needs its own checks and all below it; failing Bronze is None",
    "000-D-REPORT": "document 000: stdout of lra_validate has the printed form, down to the tier line with its count",
}
