"""Token scopes that well-known actions and programs cannot do without (for MD-004 and L0-002).

A job that has exactly what its steps need is not over-privileged, whoever watches it. Only scopes are here that give no
power over the repository's code: what code scanning writes, and identities that others must still choose to trust.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.packs.governance.workflows.workflow import WorkflowStep

_CODE_SCANNING: Final = (
    "github/codeql-action",
    "ossf/scorecard-action",
    "zizmorcore/workflow",
    "zizmorcore/zizmor-action",
)
_IDENTITY: Final = (
    "actions/attest",
    "actions/attest-build-provenance",
    "actions/attest-sbom",
    "actions/deploy-pages",
    "aws-actions/configure-aws-credentials",
    "azure/login",
    "chainguard-dev/actions",
    "crate-ci/crates-io-auth-action",
    "rust-lang/crates-io-auth-action",
    "google-github-actions/auth",
    "hashicorp/vault-action",
    "octo-sts/action",
    "ossf/scorecard-action",
    "pypa/gh-action-pypi-publish",
    "sigstore/cosign-installer",
    "sigstore/gh-action-sigstore-python",
    "slsa-framework/slsa-github-generator",
)
_BY_ACTION: Final[dict[str, tuple[str, ...]]] = {
    "security-events": _CODE_SCANNING,
    "id-token": _IDENTITY,
    "attestations": ("actions/attest", "actions/attest-build-provenance", "actions/attest-sbom"),
    "pages": ("actions/deploy-pages", "actions/configure-pages"),
}
_BY_PROGRAM: Final[dict[str, re.Pattern[str]]] = {
    "id-token": re.compile(
        r"\bcosign\s{1,8}(?:sign|attest)|\bgitsign\b|--provenance\b|\buv\s{1,8}publish\b|\bACTIONS_ID_TOKEN_REQUEST"
    ),
    "security-events": re.compile(r"code-scanning/sarifs"),
}


def needed(steps: Iterable[WorkflowStep]) -> frozenset[str]:
    """The scopes that at least one of the steps is known to need."""
    found: set[str] = set()
    for step in steps:
        name = (step.uses or "").partition("@")[0].lower()
        for scope, actions in _BY_ACTION.items():
            if name and any(name == action or name.startswith(f"{action}/") for action in actions):
                found.add(scope)
        for scope, program in _BY_PROGRAM.items():
            if step.run and program.search(step.run):
                found.add(scope)
    return frozenset(found)
