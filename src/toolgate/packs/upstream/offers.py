"""Prompts, resources and templates of an upstream: each is a tool of the road with effect `read`, and so are completion of their
arguments and subscriptions, which go by its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolgate.kit.pins import PROMPT, RESOURCE, TEMPLATE
from toolgate.model.mcpwire import RelayedCall
from toolgate.model.offers import COMPLETED, MAX_COMPLETIONS, STAMPED, TYPED, URI, ForeignOffer, closed
from toolgate.model.tool import Context, Kind, Result, Tool
from toolgate.packs.upstream.asking import ASKS, mirrored_capabilities, question, refuse_missing, relayed, resumed
from toolgate.packs.upstream.making import ERROR_CODES, Making, Relayed, said_no, seconds_of
from toolgate.packs.upstream.names import canonical_id
from toolgate.packs.upstream.uritemplates import UriTemplate

MAX_ARGUMENT: Final = 65_536
"""Characters of one argument of a prompt."""
HELP_S: Final = 5.0
"""For a completion or a subscription."""
_BLOCK: Final = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
_MESSAGES: Final = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "messages": {
            "type": "array",
            "maxItems": 1000,
            "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {"role": {"enum": ["user", "assistant"]}, "content": _BLOCK},
            },
        }
    },
}
"""What the protocol says a prompt answers, as far as clients rely on it."""
_CONTENTS: Final = {
    "type": "object",
    "required": ["contents"],
    "properties": {
        "contents": {
            "type": "array",
            "maxItems": 1000,
            "items": {
                "type": "object",
                "required": ["uri"],
                "properties": {"uri": {"type": "string"}, "text": {"type": "string"}, "blob": {"type": "string"}},
                "anyOf": [{"required": ["text"]}, {"required": ["blob"]}],
            },
        }
    },
}
"""And a resource."""


def offer_tools(made: Making, place: str, name: str) -> list[Tool]:
    """What a place of the pin is on the road, under its name in the manifest."""
    if place.startswith(PROMPT):
        offer = ForeignOffer(name.partition(":")[2])
        return [_prompt(made, place, name, offer), _completion(made, place, name, offer)]
    is_template = place.startswith(TEMPLATE)
    uri = made.rewriting.here(place.partition(":")[2])
    fits = UriTemplate(uri).fits if is_template else None

    async def stamp(ctx: Context, args: Mapping[str, Any]) -> str:
        seconds = min(HELP_S, seconds_of(ctx))
        uri, caller = _address(made, place, args), ctx.caller.key_id
        return await made.relay.follow(place, uri, caller=caller, seconds=seconds)

    offer = ForeignOffer(name.partition(":")[2], uri, fits, stamp)
    tools = [_resource(made, place, name, offer), _subscription(made, place, name, offer)]
    return [*tools, _completion(made, place, name, offer)] if is_template else tools


def _address(made: Making, place: str, args: Mapping[str, Any]) -> str:
    """As the upstream knows it."""
    return made.rewriting.own(args["uri"]) if place.startswith(TEMPLATE) else place.removeprefix(RESOURCE)


def _made(made: Making, place: str, name: str, kind: Kind, offer: ForeignOffer, **more: Any) -> Tool:
    own = str(made.definition(place).get("name") or "unnamed")
    title = made.definition(place).get("title")
    return Tool(
        name=name,
        id=canonical_id(made.pin.upstream, own if place.startswith(PROMPT) else offer.name),
        summary=made.summary(place),
        effect="read",
        error_codes=ERROR_CODES,
        title=title if isinstance(title, str) else "",
        kind=kind,
        offer=offer,
        **{"foreign": made.foreign(place), "deadline_s": made.deadline_s, **more},
    )


async def _asked(made: Making, ctx: Context, place: str, method: str, params: dict[str, Any], needs: str) -> Relayed:
    """Raises: ToolError, UpstreamFailed."""
    call = RelayedCall(
        place,
        method,
        resumed(ctx, params),
        reads=True,
        needs=needs,
        meta=ctx.trace,
        capabilities=mirrored_capabilities(ctx),
        caller=ctx.caller.key_id,
    )
    answered = await relayed(made.relay, ctx, call)
    if answered.error is not None:
        refuse_missing(answered.error, place, made.pin.upstream)
        raise said_no(answered.error, missing=True)
    return answered


def _prompt(made: Making, place: str, name: str, offer: ForeignOffer) -> Tool:
    own = place.removeprefix(PROMPT)

    async def run(ctx: Context, args: dict[str, Any]) -> Result:
        params = {"name": own, "arguments": args}
        answered = await _asked(made, ctx, place, "prompts/get", params, "prompts")
        asked = question(answered, made.pin.upstream)
        return asked or Result(data=made.rewriting.rewritten(answered.result))

    schema = _arguments(made.definition(place).get("arguments"))
    return _made(made, place, name, "prompt", offer, run=run, input_schema=schema, output_schema=_MESSAGES, asks=ASKS)


def _arguments(declared: Any) -> dict[str, Any]:
    """Arguments of prompts are texts."""
    named = [each for each in declared if isinstance(each, Mapping)] if isinstance(declared, list) else []
    texts = {str(each.get("name")): {"type": "string", "maxLength": MAX_ARGUMENT} for each in named}
    return closed(texts, *sorted({str(each.get("name")) for each in named if each.get("required") is True}))


def _resource(made: Making, place: str, name: str, offer: ForeignOffer) -> Tool:
    async def run(ctx: Context, args: dict[str, Any]) -> Result:
        params = {"uri": _address(made, place, args)}
        answered = await _asked(made, ctx, place, "resources/read", params, "resources")
        return Result(data=made.rewriting.rewritten(answered.result))

    return _made(made, place, name, "resource", offer, run=run, input_schema=_variables(offer), output_schema=_CONTENTS)


def _variables(offer: ForeignOffer) -> dict[str, Any]:
    return closed({"uri": URI}, "uri") if offer.is_template else closed({})


def _subscription(made: Making, place: str, name: str, offer: ForeignOffer) -> Tool:
    async def run(ctx: Context, args: dict[str, Any]) -> Result:
        assert offer.stamp is not None
        return Result(data={"stamp": await offer.stamp(ctx, args)})

    return _made(
        made,
        place,
        f"subscribe:{name}",
        "subscription",
        offer,
        run=run,
        row=name,
        deadline_s=HELP_S,
        input_schema=_variables(offer),
        output_schema=STAMPED,
    )


def _completion(made: Making, place: str, name: str, offer: ForeignOffer) -> Tool:
    own = place.partition(":")[2]
    ref = {"type": "ref/prompt", "name": own} if place.startswith(PROMPT) else {"type": "ref/resource", "uri": own}

    async def run(ctx: Context, args: dict[str, Any]) -> Result:
        params: dict[str, Any] = {"ref": ref, "argument": {"name": args["name"], "value": args["value"]}}
        if args.get("others"):
            params["context"] = {"arguments": args["others"]}
        answered = await _asked(made, ctx, place, "completion/complete", params, "completions")
        return Result(data=_completed(answered.result.get("completion")))

    return _made(
        made,
        place,
        f"complete:{name}",
        "completion",
        offer,
        run=run,
        row=name,
        deadline_s=HELP_S,
        input_schema=closed(TYPED, "name", "value"),
        output_schema=COMPLETED,
    )


def _completed(said: Any) -> Any:
    """What it says, without what clients do not know. What is not in this form is refused at step 7."""
    found = said if isinstance(said, Mapping) else {}
    values = found.get("values")
    kept = {key: found[key] for key in ("total", "hasMore") if found.get(key) is not None}
    return {"values": values[:MAX_COMPLETIONS] if isinstance(values, list) else values, **kept}
