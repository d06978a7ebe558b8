"""What document 001 demands of manifest, contract, decision records and their enforcement."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "001-P1": "document 001: the manifest has a semantic version and, for each tool, name, tier, ADR pattern and hint",
    "001-P2": "document 001: a live tool without a manifest row is fatal, exit 1",
    "001-P3": "document 001: a manifest row without a live tool is a warning and does not stop anything",
    "001-P4": "document 001: a generated contract that differs from the committed one is fatal",
    "001-P5": "document 001: an authoritative tool without its ADR is fatal",
    "001-P6": "document 001: an experimental tool that claims blocking or L0 semantics is fatal",
    "001-P7": "document 001: the contract holds name, description, input schema, tier, ADR or null, and hint of each tool",
    "001-P8": "document 001: drift detection catches every mismatch between policy and code",
    "001-P9": "document 001: a job contract-check with read-only permissions runs the rules in CI",
    "001-P10": "document 001: an ADR states that MCP is the governance surface, another the tier policy with its tool table",
    "001-P11": "document 001: code owners guard the policy directory",
    "000-E-01": "document 000: removal or a breaking change is announced one release and at least two weeks ahead",
    "001-P12": "document 001: dummy_experimental is a live tool that violates the floor on purpose",
}
