"""Every rule, in the order in which they are looked at: the foundation first."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from toolgate.packs.governance.rules.base import Rule, RuleVerdict, evaluate
from toolgate.packs.governance.rules.contract import md_003
from toolgate.packs.governance.rules.pins import md_002
from toolgate.packs.governance.rules.readable import md_000
from toolgate.packs.governance.rules.required_checks import md_001, md_005
from toolgate.packs.governance.rules.tokens import l0_002, md_004

if TYPE_CHECKING:
    from toolgate.packs.governance.repository.model import Repository

ADR: Final = "ADR-0008"
"""Where these rules are documented."""
BASELINE: Final = "BASELINE"
SUPPRESSION: Final = "SUPPRESSION"
GATE: Final = "GATE"
ZIZMOR: Final = "zizmor"
"""The other names that findings are under: drift, ignores themselves, what the gate needs and cannot read, and another
program's (`zizmor/artipacked`)."""

# fmt: off
RULES: Final[tuple[Rule, ...]] = (
    Rule("L0-002", 3, "critical", "Token that can write everything, or nobody knows what",
         "A token that can do everything makes every step a way in.", l0_002),
    Rule("MD-000", 2, "high", "File cannot be understood",
         "A file that no rule can read may say anything.", md_000),
    Rule("MD-001", 2, "high", "Required check that no job reports",
         "A required check that never comes stops every merge, or gets switched off.", md_001),
    Rule("MD-002", 2, "medium", "Action, image or installer not pinned",
         "Code that is fetched by a movable name can be changed by others after review.", md_002),
    Rule("MD-003", 1, "critical", "Contract differs from what runs",
         "What was reviewed is not what is served.", md_003),
    Rule("MD-004", 3, "high", "Unattended workflow that can write",
         "A job nobody watches should not be able to change what it watches.", md_004),
    Rule("MD-005", 2, "high", "Required check that skips the merge queue",
         "A merge queue waits for every required check on its own branch.", md_005),
)
# fmt: on
BY_ID: Final = {rule.id: rule for rule in RULES} | {
    ZIZMOR: Rule(
        ZIZMOR,
        1,
        "high",
        "Findings of zizmor",
        "Another pair of eyes, for what these rules do not look at.",
        lambda _: (),
    )
}

RULES_DIGEST: Final = sha256(",".join(f"{rule.id}@{rule.version}" for rule in RULES).encode()).hexdigest()
"""Which rules made a report: two reports are comparable when this is equal."""


def judge(repository: Repository) -> list[RuleVerdict]:
    """Every rule over the repository, L0 first. Runs in a worker: scripts in workflows are strangers' text."""
    return [evaluate(rule, repository) for rule in RULES]
