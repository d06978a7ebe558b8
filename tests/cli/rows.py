"""Requirements that the command line answers for."""

ROWS: dict[str, str] = {
    "000-C-default-deny-cli": "document 000, section C: a tool outside the allowlist is refused, also on the command line",
    "001-pack-needs-policy": "document 001: a tool cannot ship without a manifest row; code without policy is fatal",
    "001-tier-from-policy": "document 001: policy leads code; a tool cannot give itself a tier",
    "002-deterministic-ids-flag": "document 002: the flag --deterministic-ids makes ids reproducible",
}
