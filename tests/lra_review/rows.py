"""What document 000 demands of serving, signing and verifying papers."""

from __future__ import annotations

ROWS: dict[str, str] = {
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
