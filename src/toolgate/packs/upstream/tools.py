"""A pack made of a pin: each approved tool, as it was approved, with a handler that relays the call.

The upstream is not asked anything here: a pinned tool is listed, permitted and refused while its upstream has never been started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolgate.kit.paramheaders import Path, mirrored, param_headers, without_param_headers
from toolgate.kit.pins import Pin
from toolgate.model import strictjson
from toolgate.model.call import no_log, no_progress
from toolgate.model.mcpwire import NOTHING, RelayedCall
from toolgate.model.tool import Context, Effect, Pack, Result, Tool
from toolgate.packs.upstream.addresses import Rewriting, serves
from toolgate.packs.upstream.asking import ASKS, begun, judged, mirrored_capabilities, question, refuse_missing, resumed
from toolgate.packs.upstream.making import ERROR_CODES, Making, Relay, Relayed, printable, said_no
from toolgate.packs.upstream.names import canonical_id, served_names
from toolgate.packs.upstream.offers import offer_tools

MAKER: Final = "upstream"
"""The pack that makes those of upstreams."""
PACK_PREFIX: Final = f"{MAKER}-"


def pack_name(upstream: str) -> str:
    return PACK_PREFIX + upstream


def pack_of(
    pin: Pin,
    relay: Relay,
    *,
    prefix: str,
    deadline_s: float,
    taken: frozenset[str] = frozenset(),
    contested: frozenset[str] = frozenset(),
    effects: Mapping[str, Effect] | None = None,
) -> tuple[Pack, dict[str, str]]:
    """(the pack, place -> why it is not served). `taken`, `contested`: names of others, and those that several upstreams want.
    `effects`: by served name, where a person narrowed it in the policy."""
    definitions = {place: item.definition for place, item in pin.places().items()}
    names, refused = served_names(pin.upstream, prefix, definitions, taken, contested)
    rewriting = Rewriting(pin.upstream, not prefix, serves(pin.resources, pin.templates))
    made = Making(pin, relay, rewriting, deadline_s)
    tools: list[Tool] = []
    for place, name in sorted(names.items(), key=lambda pair: pair[1]):
        if name.startswith(("prompt:", "resource:")):
            tools += offer_tools(made, place, name)
        else:
            tools.append(_tool(made, place, name, (effects or {}).get(name, "network")))
    return Pack(pack_name(pin.upstream), tools), refused


def _tool(made: Making, place: str, name: str, effect: Effect) -> Tool:
    definition = made.definition(place)
    own = str(definition["name"])
    output = definition.get("outputSchema")
    repeated = param_headers(definition["inputSchema"])
    schema = without_param_headers(definition["inputSchema"], repeated)
    return Tool(
        name=name,
        id=canonical_id(made.pin.upstream, own),
        summary=made.summary(place),
        input_schema=schema,
        output_schema=output if isinstance(output, Mapping) else {},
        effect=effect,
        deadline_s=made.deadline_s,
        run=_handler(made, place, repeated, reads=effect == "read"),
        error_codes=ERROR_CODES,
        foreign=made.foreign(place, inputSchema=schema),
        asks=ASKS,
        logs=made.pin.logs,
    )


def _handler(made: Making, place: str, repeated: Mapping[Path, str], *, reads: bool) -> Any:
    """`repeated`: arguments that an HTTP header repeats."""
    own = str(made.definition(place)["name"])

    async def run(ctx: Context, arguments: dict[str, Any]) -> Result:
        step = None
        if ctx.progress is not no_progress:

            def step(progress: Any) -> None:
                ctx.progress(progress.done, progress.total, progress.message)

        call = RelayedCall(
            place,
            "tools/call",
            resumed(ctx, {"name": own, "arguments": arguments}),
            reads=reads,
            meta=ctx.trace,
            mirrored=mirrored(repeated, arguments) if repeated else NOTHING,
            step=step,
            capabilities=mirrored_capabilities(ctx) if ctx.capabilities else NOTHING,
            caller=ctx.caller.key_id,
            era=ctx.era,
            log=None if ctx.log is no_log else ctx.log,
        )
        answered = await begun(made.relay, ctx, call)
        if answered.question is not None:
            answered = await judged(made.relay, ctx, call, answered)
        if answered.error is not None:
            refuse_missing(answered.error, own, made.pin.upstream)
            raise said_no(answered.error)
        return question(answered, made.pin.upstream) or _result(answered, made.rewriting)

    return run


def _result(answered: Relayed, rewriting: Rewriting) -> Result:
    result, raw = answered.result, answered.raw
    if not rewriting.is_plain and b'ri":' in raw:  # "uri", "resourceUri": else it goes as it came
        result = rewriting.rewritten(result)
        raw = strictjson.dumps(result)
    if result.get("isError") is not True:
        return Result(data=result, raw=raw)
    return Result(
        data=result,
        raw=raw,
        success=False,
        is_error=True,
        code="UPSTREAM_ERROR",
        message=_said(result),
        exit_code=1,
    )


def _said(result: Mapping[str, Any]) -> str:
    """The first text of a failed call's answer."""
    content = result.get("content")
    for item in content if isinstance(content, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("text"), str):
            return printable(item["text"]) or "the upstream's tool failed"
    return "the upstream's tool failed"
