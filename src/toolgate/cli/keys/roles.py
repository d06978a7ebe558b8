"""Which roles a key can have: those that are built in, and those that the policy declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from toolgate.model.call import ROLES

if TYPE_CHECKING:
    from pathlib import Path


def check_role(role: str, policy: Path | None) -> None:
    """Raises: typer.BadParameter: no key can have this role. StartRefused: the policy cannot be read."""
    if role in ROLES:
        return
    from toolgate.policy.bundle import load_decisions

    known = [*ROLES, *sorted(load_decisions(policy)[0].roles)]
    if role not in known:
        named = ", ".join(repr(name) for name in known)
        raise typer.BadParameter(f"{role[:64]!r} is not one of {named}", param_hint="--role")
