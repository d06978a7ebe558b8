"""What is wrong with a pack: every rule of the door, judged before anything of the pack is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from msgspec.structs import replace

from toolgate.later import is_later
from toolgate.model.call import CALLING_ROLES
from toolgate.model.offers import Prompt, Resource, prompt_tool, resource_tool, template_faults, variables
from toolgate.model.tool import ASKING, CODE_FORM, USE_FORM, Decision, Effect, Hosts, Pack, Panel, Tool
from toolgate.packs.schemas import COMBINATORS, faults_of, unbounded

MAX_DEADLINE_S: Final = 600.0
"""Seconds: nobody waits longer for an answer, and a slot is held for as long."""
MAX_SUMMARY: Final = 2000
"""Characters: agents read every summary before every call."""
SECRET_FORM: Final = re.compile(r"(env|file):[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
"""How a secret is referred to: a variable, or a file in the secrets directory."""
LOG_USE: Final = "log"
"""The use of the audit log's own key."""

_TOOL_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TOOL_ID: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_PINNED_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PINNED_ID: Final = re.compile(r"upstream\.[a-z][a-z0-9-]*\.[A-Za-z0-9_-]+")
"""Others chose the names of their tools; what of them is served is made of these letters."""
_PINNED_KINDS: Final[Mapping[str, str]] = {
    "tool": "",
    "prompt": "prompt:",
    "resource": "resource:",
    "completion": "complete:",
    "subscription": "subscribe:",
}
"""What stands before the name, by kind; what goes by another's row has that row's name after it."""
_MAX_ID: Final = 128
_STORE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,47}(?<!_file)")
"""Also a variable, `TOOLGATE_STORES_NAME`, whose `_FILE` form names a file."""
_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PAIR: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}")
_HOST: Final = re.compile(r"(?=.{3,253}(:|$))[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]{1,5})?")
"""A host that is named has a dot in its name, or it would be one of the local network."""
_COMING: Final = ("metrics",)


def faults(pack: Pack, *, pinned: bool = False) -> Iterator[str]:
    """Each as it follows the pack's name in a message. `pinned`: the pack was made of a pin."""
    judge = _pinned_faults if pinned else _tool_faults
    for tool in pack.tools:
        for fault in judge(tool):
            yield f", tool {tool.name}: {fault}"
    for kind, offers in (("prompt", pack.prompts), ("resource", pack.resources)):
        offer: Any
        for offer in offers:
            for fault in _offer_faults(offer):
                yield f", {kind} {getattr(offer, 'name', '?')}: {fault}"
    yield from (f": settings schema: {fault}" for fault in faults_of(pack.settings_schema))
    yield from (f": {fault}" for fault in setting_faults(pack, defaults_of(pack)))
    for each in (_store_faults, _command_faults, _running_faults, _panel_faults, _coming_faults):
        yield from (f": {fault}" for fault in each(pack))


def defaults_of(pack: Pack) -> dict[str, Any]:
    properties: Mapping[str, Any] = pack.settings_schema.get("properties", {})
    return {name: about["default"] for name, about in properties.items() if "default" in about}


def setting_faults(pack: Pack, settings: Mapping[str, Any]) -> Iterator[str]:
    """What its functions of the settings make of these: keys, secrets, hosts."""
    for what, function, check in (
        ("keys is not a function of the settings that gives names and uses", pack.keys, _key_faults),
        ("secrets is not a function of the settings that gives references", pack.secrets, _secret_faults),
        ("hosts is not a function of the settings that gives Hosts", pack.hosts, _host_faults),
    ):
        try:
            found = list(check(_called(function, settings)))
        except Exception as fault:  # noqa: BLE001 (border: a stranger's function may raise anything)
            found = [f"{what} ({type(fault).__name__})"]
        yield from found
    yield from (f"the use {use!a} is not one word in small letters" for use in pack.key_uses if not _is_use(use))
    if LOG_USE in uses_of(pack, settings):
        yield f"the use {LOG_USE} belongs to the audit log's key"


def _called(function: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
    return function(settings)


def _key_faults(keys: Any) -> Iterator[str]:
    for name, use in dict(keys).items():
        if not _is_use(use):
            yield f"the use {use!a} of the key {name!a} is not one word in small letters"


def _is_use(use: Any) -> bool:
    return isinstance(use, str) and USE_FORM.fullmatch(use) is not None


def _secret_faults(references: Any) -> Iterator[str]:
    if isinstance(references, str):
        raise TypeError("a text, whose letters would each be a reference")
    for reference in references:
        if not isinstance(reference, str) or not SECRET_FORM.fullmatch(reference):
            # The value is not repeated: somebody may have written the secret itself.
            yield "a secret is named by env:NAME or file:NAME, and one of its settings does neither"


def _host_faults(hosts: Any) -> Iterator[str]:
    if not isinstance(hosts, Hosts):
        raise TypeError(type(hosts).__name__)
    yield from (f"the host {pair!a} is not host:port" for pair in hosts.private if not _PAIR.fullmatch(pair))
    for name in hosts.named:
        if not _HOST.fullmatch(name):
            yield f"the host {name!a} is not a name like api.example.com, or one with its port"


def _store_faults(pack: Pack) -> Iterator[str]:
    names = [store.name for store in pack.stores]
    for name in names:
        if not _STORE_NAME.fullmatch(name):
            yield f"the store {name!a} is not lower-case letters, digits and _, at most 48, not ending in _file"
        steps = sorted(step.version for step in pack.migrations if step.store == name)
        if steps != list(range(1, len(steps) + 1)) or not steps:
            yield f"the store {name!a} needs migrations numbered from 1 without a gap"
    yield from (f"the store {name!a} is declared twice" for name in _repeated(names))
    for name in sorted({step.store for step in pack.migrations} - set(names)):
        yield f"a migration is for the store {name!a}, which stores does not declare"


def _command_faults(pack: Pack) -> Iterator[str]:
    for command in pack.commands:
        if not _WORD.fullmatch(command.name):
            yield f"the command {command.name!a} is not lower-case letters, digits and -, at most 32"
        if not _TARGET.fullmatch(command.target):
            yield f"the command {command.name!a} is not at module:name"


def _running_faults(pack: Pack) -> Iterator[str]:
    for what, names in (
        ("service", [service.name for service in pack.services]),
        ("kind of job", [job.kind for job in pack.jobs]),
        ("command", [command.name for command in pack.commands]),
    ):
        yield from (f"the {what} {name!a} is declared twice" for name in _repeated(names))


def _panel_faults(pack: Pack) -> Iterator[str]:
    # Those that are named with `later` are looked at when a console shows them: no start waits for them.
    panels: Sequence[Any] = () if is_later(pack.panels) else pack.panels
    for panel in panels:
        if not isinstance(panel, Panel):
            yield "a panel is not a Panel"
        elif not _WORD.fullmatch(panel.name):
            yield f"the panel {panel.name!a} is not named by a word like `rounds`"
    names = [panel.name for panel in panels if isinstance(panel, Panel)]
    yield from (f"the panel {name!a} is declared twice" for name in _repeated(names))


def _coming_faults(pack: Pack) -> Iterator[str]:
    for name in _COMING:
        if len(getattr(pack, name)):
            yield f"{name} are not served by this Toolgate yet; leave them out"


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def clashes(packs: Sequence[Pack]) -> Iterator[str]:
    """What is claimed more than once."""
    owners: dict[str, str] = {}
    for pack in packs:
        for what in (f"the pack name {pack.name}", *_claims(pack)):
            if what in owners:
                yield f"{what} is used twice, in pack {owners[what]} and in pack {pack.name}"
            owners.setdefault(what, pack.name)


def _claims(pack: Pack) -> Iterator[str]:
    prompts = [each for each in pack.prompts if isinstance(each, Prompt)]
    resources = [each for each in pack.resources if isinstance(each, Resource)]
    for tool in pack.tools:
        if not tool.row:
            yield f"{tool.kind} name {tool.name.removeprefix(f'{tool.kind}:')}"
            yield f"{tool.kind} id {tool.id}"
    for kind, offers in (("prompt", prompts), ("resource", resources)):
        offer: Any
        for offer in offers:
            yield f"{kind} name {offer.name}"
            yield f"{kind} id {offer.id}"
    yield from (f"the address {resource.uri}" for resource in resources)
    yield from sorted({f"the store {store.name}" for store in pack.stores})
    yield from sorted({f"the command {command.name}" for command in pack.commands})
    yield from (f"the key use {use}" for use in sorted(uses_of(pack, defaults_of(pack))))


def uses_of(pack: Pack, settings: Mapping[str, Any]) -> set[str]:
    """What the pack may sign for. A function that fails has been told of by then."""
    try:
        named = set(dict(pack.keys(settings)).values())
    except Exception:  # noqa: BLE001 (border: as above)
        named = set()
    return {use for use in named | set(pack.key_uses) if isinstance(use, str)}


def _tool_faults(tool: Tool) -> Iterator[str]:
    if not _TOOL_NAME.fullmatch(tool.name):
        yield "a name is [a-z][a-z0-9_]*, at most 64 characters"
    if not _TOOL_ID.fullmatch(tool.id) or len(tool.id) > _MAX_ID:
        yield f"the id {tool.id[:_MAX_ID]!r} is not lower-case words joined by dots"
    if tool.foreign is not None:
        yield "only a tool that was made of a pin is foreign"  # it is exempt from the contract, because its pin locks it
    yield from _common_faults(tool)
    yield from _schema_faults(tool)


def _pinned_faults(tool: Tool) -> Iterator[str]:
    """Its schemas are a stranger's: they were judged when it was adopted, and the registry compiles them."""
    name = tool.name.removeprefix(_PINNED_KINDS[tool.kind]) if not tool.row else tool.row.partition(":")[2]
    if not _PINNED_NAME.fullmatch(name):
        yield "a name is [A-Za-z0-9_-]*, at most 64 characters"
    if not _PINNED_ID.fullmatch(tool.id) or len(tool.id) > _MAX_ID:
        yield f"the id {tool.id[:_MAX_ID]!r} is not upstream.NAME.TOOL"
    if tool.foreign is None:
        yield "a pack that is made of a pin has tools of its upstream alone"
    yield from _common_faults(tool)


def _common_faults(tool: Tool) -> Iterator[str]:
    if not 0 < len(tool.summary) <= MAX_SUMMARY:
        yield f"a summary has 1 to {MAX_SUMMARY} characters"
    if tool.effect not in get_args(Effect):
        yield f"effect is one of {', '.join(get_args(Effect))}"
    if not 0 < tool.deadline_s <= MAX_DEADLINE_S:
        yield f"deadline_s is more than 0 and at most {MAX_DEADLINE_S:g} seconds"
    yield from _code_faults(tool.error_codes)
    yield from (f"{each!r} is not a decision" for each in tool.decisions if each not in get_args(Decision))
    yield from (
        f"argument {name} names an unknown role"
        for name, roles in tool.argument_roles.items()
        if roles - set(CALLING_ROLES)
    )
    yield from (f"{each!r} is nothing that a client can be asked for" for each in tool.asks if each not in ASKING)


def _offer_faults(offer: Any) -> Iterator[str]:
    """Of a prompt or a resource: the rules of a tool, and those of its kind."""
    if not isinstance(offer, Prompt | Resource):
        yield "it is no Prompt and no Resource"
        return
    tool = prompt_tool(offer) if isinstance(offer, Prompt) else resource_tool(offer)
    yield from _tool_faults(replace(tool, name=offer.name))
    properties = offer.input_schema.get("properties", {})
    kinds = {name: about.get("type", "string") for name, about in properties.items() if isinstance(about, Mapping)}
    yield from (
        f"argument {name} is no text; clients send nothing else" for name, kind in kinds.items() if kind != "string"
    )
    yield from (f"it completes {name}, which is no argument" for name in offer.completes if name not in properties)
    if offer.effect != "read":
        yield "its effect is read: a client gets it without asking a person"
    if isinstance(offer, Resource):
        yield from template_faults(offer.uri)
        if set(variables(offer.uri)) != set(properties) or set(properties) != set(
            offer.input_schema.get("required", ())
        ):
            yield "its input schema requires the variables of its address, all of them and nothing else"
        if offer.listed is not None and not offer.is_template:
            yield "an address without variables lists itself"


def _code_faults(codes: Any) -> Iterator[str]:
    if not isinstance(codes, list | tuple):
        # ("GONE") is a text, and each of its letters would pass for a code.
        yield "error_codes is a tuple of codes"
        return
    for code in codes:
        if not isinstance(code, str) or not CODE_FORM.fullmatch(code):
            yield f"error code {code!a} is not UPPER_CASE (A-Z, 0-9 and _, at most 64)"


def _schema_faults(tool: Tool) -> Iterator[str]:
    for kind, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        broken = list(faults_of(schema))
        yield from (f"{kind} schema: {fault}" for fault in broken)
        if "x-mcp-header" in str(schema):
            # Revision 2026-07-28 then wants `Mcp-Param-*` headers compared with the body; we serve none, so we promise none.
            yield f"{kind} schema: x-mcp-header is not served"
        if kind == "input" and not broken:
            if schema.get("type") != "object":
                yield 'input schema: the root has "type": "object"'
            yield from (
                f"input schema: {each} at the top is refused by model providers; move it into a property, or use x-needs-one"
                for each in COMBINATORS
                if each in schema
            )
            if not set(schema.get("x-needs-one", ())) <= set(schema.get("properties", ())):
                yield "input schema: x-needs-one names what is not a property"
            yield from (f"input schema: {fault}" for fault in unbounded(schema))
