"""What `toolgate contract` and `toolgate policy` share: settings -> packs, policy, lock, and how findings are printed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.errors import ExitCode, StartRefused

if TYPE_CHECKING:
    from toolgate.model.tool import Pack
    from toolgate.policy.adr import Adr
    from toolgate.policy.contract import Contract
    from toolgate.policy.manifest import Manifest
    from toolgate.policy.rules import Breach

HomeOption = Annotated[
    Path | None, typer.Option("--home", help="The directory of toolgate.toml. Default: the current one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a judgement needs: packs as installed, policy as written, where the lock is."""

    packs: tuple[Pack, ...]
    manifest: Manifest
    adrs: Mapping[str, Adr]
    lock_path: Path

    def judge(self, lock: Contract | None) -> list[Breach]:
        from toolgate.policy import rules

        return rules.judge(self.packs, self.manifest, self.adrs, lock)

    def live(self) -> Contract:
        """The contract as code and policy say it now."""
        from toolgate.policy import contract

        return contract.build(self.packs, self.manifest, self.adrs)

    def lock(self) -> Contract:
        """The contract as committed. Raises: StartRefused."""
        from toolgate.policy import contract

        return contract.read_lock(self.lock_path)

    def locked_part(self) -> Contract:
        """What the lock says about the packs that are here."""
        from toolgate.policy import contract

        return contract.part(self.lock(), [pack.name for pack in self.packs])


def look(home: Path | None) -> Scene:
    """Every pack that ships with Toolgate, and those the settings enable. Raises: StartRefused."""
    from toolgate.config import load_settings
    from toolgate.packs.loader import built_in, load_packs
    from toolgate.policy import bundle

    settings = load_settings(home, {}, os.environ)
    packs = load_packs(list(dict.fromkeys([*built_in(), *settings.packs.enabled])))
    manifest, adrs = bundle.load_decisions(settings.paths.policy)
    return Scene(packs, manifest, adrs, bundle.lock_path(settings.paths.policy))


@contextmanager
def stop_on_refusal() -> Iterator[None]:
    """What cannot be read or loaded is told on stderr, without a stack trace."""
    try:
        yield
    except StartRefused as refusal:
        typer.echo(str(refusal), err=True)
        raise typer.Exit(ExitCode.FAILED) from None


def show(what: Sequence[Breach] | Mapping[str, Any]) -> None:
    if isinstance(what, Mapping):
        from toolgate.model import strictjson

        typer.echo(strictjson.dumps_pretty(dict(what)).decode(), nl=False)
        return
    for breach in what:
        typer.echo(f"{breach.severity:<9}{breach.rule:<21}{breach.text}")
