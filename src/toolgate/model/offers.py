"""What a pack offers beside tools: prompts, resources, and completion of their arguments. Each is a tool of the road.

A prompt is a text for a model, made when somebody asks for it. A resource is something to read at an address; an address with
variables (`note:///{+path}`) is a template. Whoever gets the one or reads the other makes a call like any other: roles, limits,
validation both ways, floor and record. So each becomes a `Tool` here, under a name that no tool can have (`prompt:guide`,
`resource:note`), and its row in the manifest carries that name.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct, field

from toolgate.model.threads import in_thread
from toolgate.model.tool import Context, Result, Tool

if TYPE_CHECKING:
    from toolgate.model.tool import Effect, Pack, Run

MAX_COMPLETIONS: Final = 100
"""Values of one answer, as the protocol has it."""
MAX_TYPED: Final = 1024
"""Characters of an argument that somebody is typing."""
MAX_MESSAGES: Final = 64
"""Of one prompt."""
MAX_LISTED: Final = 1000
"""Addresses of one template that `resources/list` shows; the others are found by completion."""
MAX_URI: Final = 2048
MAX_STAMP: Final = 128

_TEXT: Final = {"type": "string", "maxLength": 1 << 20}
_BASE64: Final = {**_TEXT, "pattern": r"^[A-Za-z0-9+/]*={0,2}$"}
_MIME: Final = {"type": "string", "maxLength": 128, "pattern": r"^[A-Za-z0-9.+/;= -]+$"}
URI: Final = {"type": "string", "maxLength": MAX_URI}


def closed(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": dict(properties),
    }


_ABOUT: Final = {"uri": URI, "mimeType": _MIME}
BLOCK: Final = {
    "oneOf": [
        closed({"type": {"const": "text"}, "text": _TEXT}, "type", "text"),
        *(
            closed({"type": {"const": kind}, "data": _BASE64, "mimeType": _MIME}, "type", "data", "mimeType")
            for kind in ("image", "audio")
        ),
        closed(
            {
                "type": {"const": "resource"},
                "resource": {
                    "oneOf": [
                        closed({**_ABOUT, "text": _TEXT}, "uri", "text"),
                        closed({**_ABOUT, "blob": _BASE64}, "uri", "blob"),
                    ]
                },
            },
            "type",
            "resource",
        ),
    ]
}
"""JSON Schema of one piece of content: what `text`, `image`, `audio` and `embedded` make."""
CONTENT: Final = {"type": "array", "maxItems": MAX_MESSAGES, "items": BLOCK}
MESSAGES: Final = closed(
    {
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_MESSAGES,
            "items": closed({"role": {"enum": ["user", "assistant"]}, "content": BLOCK}, "role", "content"),
        }
    },
    "messages",
)
"""What a prompt answers."""
CONTENTS: Final = {**closed({"text": _TEXT, "blob": _BASE64, "mimeType": _MIME}), "x-needs-one": ["text", "blob"]}
"""What a resource answers."""
TYPED: Final = {
    "name": {"type": "string", "minLength": 1, "maxLength": 64},
    "value": {"type": "string", "maxLength": MAX_TYPED},
    "others": {
        "type": "object",
        "maxProperties": 32,
        "propertyNames": {"maxLength": 64},
        "additionalProperties": {"type": "string", "maxLength": MAX_TYPED},
    },
}
COMPLETED: Final = closed(
    {
        "values": {"type": "array", "maxItems": MAX_COMPLETIONS, "items": {"type": "string", "maxLength": MAX_TYPED}},
        "total": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        "hasMore": {"type": "boolean"},
    },
    "values",
)
_LISTED: Final = closed(
    {
        "items": {
            "type": "array",
            "maxItems": MAX_LISTED,
            "items": closed(
                {
                    "uri": URI,
                    "name": {"type": "string", "maxLength": 256},
                    "title": {"type": "string", "maxLength": 256},
                },
                "uri",
                "name",
            ),
        }
    },
    "items",
)
STAMPED: Final = closed({"stamp": {"type": "string", "maxLength": MAX_STAMP}}, "stamp")

Completer = Callable[[Context, Mapping[str, str]], "Sequence[str] | Awaitable[Sequence[str]]"]
"""(context, the arguments that are filled in) -> every value that the argument may have. What is typed so far selects. `def` runs
in a thread, `async def` on the event loop."""


class Prompt(Struct, frozen=True):
    name: str
    """`weekly_report`: what people choose by."""
    id: str
    """`notes.weekly`: the part after `mcp.prompt:` in logs."""
    summary: str
    run: Run
    """(ctx, args) -> Result whose data is `{"messages": [...]}`; `says` makes one."""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: closed({}))
    """Arguments of a prompt are texts."""
    completes: Mapping[str, Completer] = {}
    title: str = ""
    deadline_s: float = 10.0
    effect: Effect = "read"
    error_codes: Sequence[str] = ()
    asks: Sequence[str] = ()
    """As of a tool."""
    guides: bool = False
    """It takes no arguments and says how to work behind this server: `mcp-config --instructions` prints it. Of the context it
    uses `holdings` and `environment` alone; without a server the latter is empty."""


class Listed(Struct, frozen=True):
    """One address of a template, as `resources/list` shows it."""

    uri: str
    name: str
    title: str = ""


class Resource(Struct, frozen=True):
    name: str
    id: str
    """`notes.page`: the part after `mcp.resource:` in logs."""
    uri: str
    """An address, or a template: `{name}` stands for a part without a slash, `{+name}` for one with slashes."""
    summary: str
    run: Run
    """(ctx, variables of the address) -> Result whose data is `{"text": ...}` or `{"blob": base64}`, and may say `mimeType`."""
    mime_type: str = "text/plain"
    input_schema: Mapping[str, Any] = field(default_factory=lambda: closed({}))
    """Of the variables, which are texts."""
    listed: Callable[[Context], Sequence[Listed]] | None = None
    """The addresses of a template that are worth a place in a list; called in a thread. None: only the template is listed."""
    stamp: Callable[[Context, Mapping[str, Any]], str | Awaitable[str]] | None = None
    """A short text that changes when the resource does; asked again and again while somebody is subscribed. `def` runs in a
    thread, `async def` on the event loop. None: subscribers hear only of what `ctx.changed` tells."""
    completes: Mapping[str, Completer] = {}
    title: str = ""
    deadline_s: float = 10.0
    effect: Effect = "read"
    error_codes: Sequence[str] = ()

    @property
    def is_template(self) -> bool:
        return "{" in self.uri


def says(text: str) -> Result:
    """The answer of a prompt that is one text."""
    return Result(data={"messages": [{"role": "user", "content": text_block(text)}]})


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image(data: bytes, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def audio(data: bytes, mime_type: str) -> dict[str, Any]:
    return {"type": "audio", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}}


def offered(pack: Pack) -> list[Tool]:
    """Everything of a pack that has a row of its own in the manifest."""
    return [
        *pack.tools,
        *(prompt_tool(each) for each in pack.prompts),
        *(resource_tool(each) for each in pack.resources),
    ]


def helpers(pack: Pack) -> list[Tool]:
    """What goes by the row of the prompt or resource it helps with (`Tool.row`): completion, lists and subscriptions."""
    made = [_completion(each, f"prompt:{each.name}") for each in pack.prompts]
    made += [_completion(each, f"resource:{each.name}") for each in pack.resources if each.is_template]
    made += [_listing(each) for each in pack.resources if each.listed is not None]
    return made + [_subscription(each) for each in pack.resources]


def prompt_tool(prompt: Prompt) -> Tool:
    return Tool(
        name=f"prompt:{prompt.name}",
        id=prompt.id,
        summary=prompt.summary,
        input_schema=prompt.input_schema,
        output_schema=MESSAGES,
        effect=prompt.effect,
        deadline_s=prompt.deadline_s,
        run=prompt.run,
        error_codes=prompt.error_codes,
        title=prompt.title or _words(prompt.name),
        kind="prompt",
        asks=prompt.asks,
        offer=prompt,
    )


def resource_tool(resource: Resource) -> Tool:
    return Tool(
        name=f"resource:{resource.name}",
        id=resource.id,
        summary=resource.summary,
        input_schema=resource.input_schema,
        output_schema=CONTENTS,
        effect=resource.effect,
        deadline_s=resource.deadline_s,
        run=resource.run,
        error_codes=resource.error_codes,
        title=resource.title or _words(resource.name),
        kind="resource",
        offer=resource,
    )


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _completion(owner: Prompt | Resource, row: str) -> Tool:
    """Every prompt and template has one: for an argument of which nothing is known it answers that there is nothing."""

    async def run(ctx: Context, args: dict[str, Any]) -> Result:
        completer = owner.completes.get(args["name"])
        if completer is None:
            return Result(data={"values": []})
        others = args.get("others", {})
        is_async = inspect.iscoroutinefunction(completer)
        found: Any = completer(ctx, others) if is_async else in_thread(completer, ctx, others)
        values: Sequence[str] = await found
        typed = args["value"].casefold()
        fitting = [value for value in values if value.casefold().startswith(typed)]
        fitting += [value for value in values if typed in value.casefold() and not value.casefold().startswith(typed)]
        shown = fitting[:MAX_COMPLETIONS]
        return Result(data={"values": shown, "total": len(fitting), "hasMore": len(fitting) > len(shown)})

    return Tool(
        name=f"complete:{row}",
        id=owner.id,
        summary=f"Completes the arguments of {owner.name}.",
        input_schema=closed(TYPED, "name", "value"),
        output_schema=COMPLETED,
        effect="read",
        deadline_s=5.0,
        run=run,
        error_codes=owner.error_codes,
        kind="completion",
        row=row,
        offer=owner,
    )


def listed_in(owner: Resource, ctx: Context) -> list[dict[str, str]]:
    """The addresses of a template, as a list shows them."""
    assert owner.listed is not None
    found = list(owner.listed(ctx))[:MAX_LISTED]
    return [{"uri": each.uri, "name": each.name} | ({"title": each.title} if each.title else {}) for each in found]


def _listing(owner: Resource) -> Tool:
    def run(ctx: Context, args: dict[str, Any]) -> Result:  # noqa: ARG001 (the shape of a handler)
        return Result(data={"items": listed_in(owner, ctx)})

    return Tool(
        name=f"list:resource:{owner.name}",
        id=owner.id,
        summary=f"Lists the addresses of {owner.name}.",
        input_schema=closed({}),
        output_schema=_LISTED,
        effect="read",
        deadline_s=5.0,
        run=run,
        error_codes=owner.error_codes,
        kind="listing",
        row=f"resource:{owner.name}",
        offer=owner,
    )


async def stamp_of(owner: Resource, ctx: Context, args: Mapping[str, Any]) -> str:
    assert owner.stamp is not None
    if inspect.iscoroutinefunction(owner.stamp):
        return str(await owner.stamp(ctx, args))[:MAX_STAMP]
    return str(await in_thread(owner.stamp, ctx, args))[:MAX_STAMP]


def _subscription(owner: Resource) -> Tool:
    """Its answer is the stamp that later ones are compared with."""

    async def run(ctx: Context, args: dict[str, Any]) -> Result:
        return Result(data={"stamp": await stamp_of(owner, ctx, args) if owner.stamp is not None else ""})

    return Tool(
        name=f"subscribe:resource:{owner.name}",
        id=owner.id,
        summary=f"Hears of changes of {owner.name}.",
        input_schema=owner.input_schema,
        output_schema=STAMPED,
        effect="read",
        deadline_s=5.0,
        run=run,
        error_codes=owner.error_codes,
        kind="subscription",
        row=f"resource:{owner.name}",
        offer=owner,
    )


# Addresses ----------------------------------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"\{(\+?)([a-z][a-z0-9_]{0,31})\}")
_PLAIN: Final = r"[^/?#{}\s]+"
_REACHING: Final = r"[^?#{}\s]+"


def variables(template: str) -> list[str]:
    return [name for _, name in _VARIABLE.findall(template)]


def template_faults(template: str) -> Iterator[str]:
    """Why this is no address that a pack may serve."""
    if not re.fullmatch(r"[a-z][a-z0-9+.-]{1,31}://?[^\s\"<>\\^`|]*", template) or len(template) > MAX_URI:
        yield f"the address {template[:80]!a} is not scheme://path"
    if re.search(r"[{}]", _VARIABLE.sub("", template)):
        yield f"the address {template[:80]!a} has braces that are no {{name}} or {{+name}}"
    if len(set(variables(template))) != len(variables(template)):
        yield f"the address {template[:80]!a} names a variable twice"


def matcher(template: str) -> re.Pattern[str]:
    """Of addresses that the template makes. No alternation, no nesting: nothing to backtrack on but slashes."""
    parts, at = [], 0
    for found in _VARIABLE.finditer(template):
        parts += [re.escape(template[at : found.start()]), f"(?P<{found[2]}>{_REACHING if found[1] else _PLAIN})"]
        at = found.end()
    return re.compile("".join([*parts, re.escape(template[at:])]))


def matched(pattern: re.Pattern[str], uri: str) -> dict[str, str] | None:
    """The variables of an address, decoded; None: it is none of the template's."""
    found = pattern.fullmatch(uri)
    if found is None:
        return None
    try:
        return {name: unquote(value, errors="strict") for name, value in found.groupdict().items()}
    except UnicodeDecodeError:
        return None


def expand(template: str, values: Mapping[str, str]) -> str:
    """The address that a template makes of these variables."""
    return _VARIABLE.sub(lambda found: quote(values[found[2]], safe="/" if found[1] else ""), template)


class ForeignOffer(Struct, frozen=True):
    """A prompt or a resource of an upstream, in the place of a `Prompt` or `Resource`. Its definition is in `Tool.foreign`."""

    name: str
    """Here, with the upstream's prefix."""
    uri: str = ""
    """Here, too: an address or a template."""
    fits: Callable[[str], bool] | None = None
    """Of a template: whether an address is one of its."""
    stamp: Callable[[Context, Mapping[str, Any]], Awaitable[str]] | None = None
    """As of a `Resource`."""

    @property
    def is_template(self) -> bool:
        return self.fits is not None


class Addresses:
    """Which resource an address is of: exact ones first, then templates in their order."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        resources = [(tool.name, tool.offer) for tool in tools if tool.kind == "resource"]
        self._exact = {each.uri: name for name, each in resources if not each.is_template}
        self._templates = [(name, _reader(each)) for name, each in resources if each.is_template]
        self._texts = {each.uri: name for name, each in resources if each.is_template}

    def at(self, uri: str) -> tuple[str, dict[str, str]] | None:
        """The resource's name on the road and its variables; None: no such address."""
        if len(uri) > MAX_URI:
            return None
        if uri in self._exact:
            return self._exact[uri], {}
        if uri in self._texts:
            return self._texts[uri], {}  # the template itself, as a completion names it
        for name, read in self._templates:
            values = read(uri)
            if values is not None:
                return name, values
        return None


def _reader(offer: Resource | ForeignOffer) -> Callable[[str], dict[str, str] | None]:
    """An address -> what a call of the resource is given; None: it is none of its addresses."""
    if isinstance(offer, Resource):
        return partial(matched, matcher(offer.uri))
    fits = offer.fits
    assert fits is not None
    return lambda uri: {"uri": uri} if fits(uri) else None
