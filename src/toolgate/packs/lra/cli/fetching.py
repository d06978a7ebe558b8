"""A deployed paper, fetched and examined for a person: what `lra verify` and `lra registry add` share.

Apart from the commands: it loads the network and every check, which their help does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.cli.output import progress
from toolgate.errors import ToolError
from toolgate.model.tool import Hosts
from toolgate.packs.lra.cli.border import note
from toolgate.packs.lra.cli.shared import now, read_if_there
from toolgate.packs.lra.deployed import drafts
from toolgate.packs.lra.deployed.registry import Registry, parse
from toolgate.packs.lra.deployed.verify import text
from toolgate.packs.lra.deployed.visit import address_of, verify_deployed
from toolgate.powers.compute import ComputePool
from toolgate.powers.net import PackEgress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from toolgate.packs.lra.deployed.visit import Verified

COMPUTE_SECONDS: Final = 20.0


def read_registry(path: Path) -> Registry:
    data = read_if_there(path)
    return parse(data) if data is not None else Registry()


def as_text(target: str, seen: Verified) -> str:
    return text(target, [step.as_json() for step in seen.steps])


async def verify_target(
    target: str, registry: Registry, allow: Sequence[str], ca_file: Path | None, *, run: bool
) -> Verified:
    own = drafts.loopback_pair(address_of(target, registry))
    if own and own not in allow:
        note(f"note: {own} is this machine, so it is fetched; the receipt says so (explicitly_allowed)")
    try:
        net = PackEgress(Hosts(private=drafts.with_twins([*allow, *([own] if own else [])]), any_public=True))
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None
    pool = ComputePool(1)

    async def compute(function: Callable[[Any], Any], data: Any, *, timeout_s: float | None = None) -> Any:
        return await pool.run(function, data, seconds=timeout_s or COMPUTE_SECONDS)

    try:
        certificates = str(ca_file.resolve()) if ca_file else ""
        return await verify_deployed(
            net, compute, target, registry, now(), run=run, progress=_progress, ca_file=certificates
        )
    except ToolError as fault:
        raise drafts.advised(fault, target, "allow it with --allow {pair}", "name its file with --ca-file") from None
    finally:
        progress("")
        pool.close()


def _progress(done: int, total: int | None, message: str) -> None:
    progress(f"[{done}/{total}] {message}" if done != total else "")
