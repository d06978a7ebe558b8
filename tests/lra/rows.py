"""What document 000 demands of the author's half of living papers, as rows."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "000-D-CHECKS": "document 000: 23 checks run, 16 for Bronze, 3 for Silver, 4 for Gold, each reported as pass or fail",
    "000-D-TIERS": "document 000: a tier needs its own checks and all below it; failing Bronze is None",
    "000-D-REPORT": "document 000: stdout of lra_validate has the printed form, down to the tier line with its count",
    "000-D-INIT-FILES": "document 000: lra_init makes a directory with the six standard files",
    "000-D-INIT-NAME": "document 000: a project name has 1 to 255 characters and no path separator or ..",
    "000-D-INIT-FAILS": "document 000: lra_init fails when the directory exists or cannot be written",
    "000-D-VALIDATE-PATH": "document 000: lra_validate takes a page or a project directory; a missing file is told as not found",
    "000-D-VALIDATE-NONE": "document 000: lra_validate succeeds with exit code 0 even if the tier is None",
    "000-D-CHECK-ALIAS": "document 000: lra_check answers exactly what lra_validate answers",
}
