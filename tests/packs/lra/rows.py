"""What document 000 demands of living papers: writing, serving, signing and verifying them."""

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
    "000-D-SIGN-OUTPUT": "document 000: signing answers with the receipt, the signature, the public key and the time",
    "000-D-SIGN-404": "document 000: a receipt that is not there ends as `Receipt file not found`",
    "000-D-SIGN-ARGS": "document 000: a receipt path is present, at most 1024 characters, without `..`",
    "000-D-VERIFY-REPORT": "document 000: verification reports each step as pass or fail, with claims and tier",
    "000-D-VERIFY-REGISTRY": "document 000: content is compared with the registry; a malformed registry is an error",
    "000-D-VERIFY-HASH": "document 000: a hash instead of a URL is looked up in the registry",
    "000-D-VERIFY-ARGS": "document 000: a target is present, at most 1024 characters, without `..`",
    "000-D-VERIFY-ERRORS": "document 000: an unreachable target is 404, a time-out is 400",
    "000-D-SERVE-START": "document 000: serving answers with the address and keeps running, with live reload",
    "000-D-SERVE-BUSY": "document 000: a port in use ends as `Address already in use`",
    "000-D-SERVE-PORT": "document 000: a port is a number from 1024 to 65535",
    "000-D-WALKTHROUGH": "document 000: init, validate, verify with a receipt written, sign: the four steps run through",
}
