"""Rounds at addresses: `round:///12` is what `consensus_finality` answers about round 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.model import strictjson
from toolgate.model.offers import MAX_COMPLETIONS, Resource
from toolgate.model.tool import Result
from toolgate.packs.consensus.arbiter.node import network_for_reading
from toolgate.packs.consensus.arbiter.store import newest_rounds
from toolgate.packs.consensus.tables import STORE
from toolgate.packs.consensus.tools.rounds import FINALITY, run_finality

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from toolgate.model.tool import Context


async def read(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={"text": await _standing(ctx, args), "mimeType": "application/json"})


async def stamp(ctx: Context, args: Mapping[str, Any]) -> str:
    return sha256((await _standing(ctx, args)).encode()).hexdigest()


async def _standing(ctx: Context, args: Mapping[str, Any]) -> str:
    return strictjson.dumps_pretty((await run_finality(ctx, dict(args))).data).decode()


async def rounds(ctx: Context, others: Mapping[str, str]) -> Sequence[str]:  # noqa: ARG001 (one argument)
    """The newest of them."""

    def look(connection: Connection) -> list[int]:
        network = network_for_reading(connection, ctx.settings)
        return [] if network is None else newest_rounds(connection, network, 10 * MAX_COMPLETIONS)

    return [str(each) for each in await ctx.stores.get(STORE).run(look)]


RESOURCES: Final = (
    Resource(
        name="round",
        id="consensus.round",
        uri="round:///{round_id}",
        summary="How final a round is, with evidence that anybody can check offline.",
        run=read,
        mime_type="application/json",
        input_schema=FINALITY.input_schema,
        stamp=stamp,
        completes={"round_id": rounds},
        error_codes=FINALITY.error_codes,
    ),
)
