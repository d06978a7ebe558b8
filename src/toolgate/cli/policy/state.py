"""What `toolgate contract` and `toolgate policy` share: the packs as installed, the policy as written, the lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from toolgate.cli.options import settings_at
from toolgate.enabled import enabled_packs
from toolgate.packs.loader import built_in
from toolgate.policy import bundle, contract, rules

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.model.tool import Pack
    from toolgate.policy.adr import Adr
    from toolgate.policy.contract import Contract
    from toolgate.policy.manifest import Manifest
    from toolgate.policy.rules import Breach


class PolicyState(Struct, frozen=True):
    """Everything a judgement needs."""

    packs: tuple[Pack, ...]
    manifest: Manifest
    adrs: Mapping[str, Adr]
    lock_path: Path

    def judge(self, lock: Contract | None) -> list[Breach]:
        return rules.judge(self.packs, self.manifest, self.adrs, lock)

    def live(self) -> Contract:
        """The contract as code and policy say it now."""
        return contract.build(self.packs, self.manifest, self.adrs)

    def lock(self) -> Contract:
        """The contract as committed. Raises: StartRefused."""
        return contract.read_lock(self.lock_path)

    def locked_part(self) -> Contract:
        """What the lock says about the packs that are here. Raises: StartRefused."""
        return contract.part(self.lock(), [pack.name for pack in self.packs])


def read_policy_state(home: Path | None) -> PolicyState:
    """Every pack that ships with Toolgate, and those the settings enable. Raises: StartRefused."""
    settings = settings_at(home)
    enabled = enabled_packs(settings, also=built_in())
    manifest, adrs = bundle.load_decisions(settings.paths.policy)
    if settings.upstreams:
        from toolgate.ruleset import open_upstreams, with_upstreams

        enabled = with_upstreams(settings, enabled, open_upstreams(settings), manifest)
    return PolicyState(enabled.packs, manifest, adrs, bundle.lock_path(settings.paths.policy))


def breach_lines(breaches: Iterable[Breach]) -> str:
    """One line for each, a form that people can grep."""
    return "".join(f"{breach.severity:<9}{breach.rule:<21}{breach.text} {breach.fix}\n" for breach in breaches)
