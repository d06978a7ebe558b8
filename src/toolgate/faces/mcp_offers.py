"""The MCP words for all that is no tool: prompts, resources, completion, subscriptions, what tools log. For `faces/mcp.py`.

Each of them is a call on the road; here it gets its name there, and its answer gets the shape that the protocol wants. There is
no `isError` for these, so a call that ends badly is a JSON-RPC error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from toolgate.errors import VERDICTS, Ending
from toolgate.model import strictjson
from toolgate.model.mcpwire import INTERNAL_ERROR, INVALID_PARAMS, META_SUBSCRIPTION, RESERVED_META
from toolgate.model.tool import ASKING, LEVELS

if TYPE_CHECKING:
    from toolgate.faces.face import Visible
    from toolgate.gate.admit import Grant
    from toolgate.model.call import Call
    from toolgate.model.envelope import Answer
    from toolgate.model.tool import Level

ResourceAt = Callable[[str], "tuple[str, dict[str, str]] | None"]

MAX_NAME: Final = 128
LOGGER: Final = "toolgate"
FILTERS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
"""What a client may ask to be told of -> the list of ours."""
_FAULTS_OF_THE_ASKER: Final = frozenset(
    {
        Ending.UNKNOWN_TOOL,
        Ending.BAD_ARGUMENTS,
        Ending.NOT_THERE,
        Ending.TOOL_SAID_NO,
        Ending.STATE_REFUSED,
    }
)
_WITH_THEIR_STATUS: Final = frozenset(
    {
        Ending.INSUFFICIENT_ROLE,
        Ending.TOO_MANY,
        Ending.TOO_FAST,
        Ending.UNAVAILABLE,
        Ending.RULE_DENIED,
        Ending.APPROVAL_REQUIRED,
        Ending.STOPPED,
    }
)
"""Their code is the number of their status, which is outside of the range that JSON-RPC keeps for itself."""


class WrongParams(Exception):
    """The parameters are not those of this method; the text says what is wrong."""


# From a message to a call ------------------------------------------------------------------------------------------------


def call_of(method: str, params: Mapping[str, Any], at: ResourceAt) -> tuple[str, dict[str, Any]]:
    """What a request for a prompt, a resource or a completion is on the road. Raises: WrongParams."""
    if method == "prompts/get":
        return f"prompt:{_text(params, 'name')[:MAX_NAME]}", _texts(params.get("arguments"))
    if method in ("resources/read", "resources/subscribe"):
        tool, variables = _resource(_text(params, "uri"), at)
        return (tool if method == "resources/read" else f"subscribe:{tool}"), dict(variables)
    return _completion(params, at)


def _resource(uri: str, at: ResourceAt) -> tuple[str, dict[str, str]]:
    """An address that nothing is at has a name that nothing has: the road will not know it either."""
    return at(uri) or (f"resource:{uri[:MAX_NAME]}", {})


def _completion(params: Mapping[str, Any], at: ResourceAt) -> tuple[str, dict[str, Any]]:
    ref, argument = _object(params, "ref"), _object(params, "argument")
    if ref.get("type") == "ref/prompt":
        owner = f"prompt:{_text(ref, 'name')[:MAX_NAME]}"
    elif ref.get("type") == "ref/resource":
        owner = _template(_text(ref, "uri"), at)
    else:
        raise WrongParams("ref.type is ref/prompt or ref/resource")
    typed: dict[str, Any] = {"name": _text(argument, "name"), "value": _text(argument, "value")}
    others = _texts(_object(params, "context").get("arguments")) if params.get("context") is not None else {}
    return f"complete:{owner}", typed | ({"others": others} if others else {})


def _template(uri: str, at: ResourceAt) -> str:
    """A template as it was listed; or, with something in place of its variables, an address like any other."""
    found = at(uri) or at(uri.replace("{+", "").replace("{", "").replace("}", ""))
    return found[0] if found is not None else f"resource:{uri[:MAX_NAME]}"


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise WrongParams(f"{name} must be a string")
    return value


def _texts(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise WrongParams("arguments must be an object of strings")
    return value


def _object(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = params.get(name)
    if not isinstance(value, dict):
        raise WrongParams(f"{name} must be an object")
    return value


def with_answers(call: Call, params: Mapping[str, Any], can: frozenset[str]) -> Call:
    """What the client can be asked, and what it answers to an earlier question. Raises: WrongParams."""
    answers, state = answers_of(params)
    return replace(call, answers=answers, state=state, capabilities=can)


def level_of(params: Mapping[str, Any]) -> Level:
    """Raises: WrongParams."""
    level = params.get("level")
    if level not in LEVELS:
        raise WrongParams(f"level is one of {', '.join(LEVELS)}")
    return level  # type: ignore[no-any-return]  # one of these


def uri_of(params: Mapping[str, Any]) -> str:
    """Raises: WrongParams."""
    return _text(params, "uri")


def wanted_of(params: Mapping[str, Any]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The lists and addresses that a stream should tell of. Raises: WrongParams."""
    wanted = _object(params, "notifications")
    uris = wanted.get("resourceSubscriptions") or []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise WrongParams("notifications.resourceSubscriptions must be a list of strings")
    return frozenset(own for name, own in FILTERS.items() if wanted.get(name) is True), tuple(dict.fromkeys(uris))


def answers_of(params: Mapping[str, Any]) -> tuple[Any, str | None]:
    """`inputResponses` and `requestState` of a call that goes on. Raises: WrongParams."""
    answers, state = params.get("inputResponses"), params.get("requestState")
    if not (answers is None or isinstance(answers, dict)) or not (state is None or isinstance(state, str)):
        raise WrongParams("inputResponses must be an object and requestState a string")
    return answers, state


def askable(capabilities: Any) -> frozenset[str]:
    """What a client says it can be asked."""
    return frozenset(name for name in ASKING if isinstance(capabilities.get(name), dict))


# Lists -------------------------------------------------------------------------------------------------------------------


def capabilities(visible: Visible) -> dict[str, Any]:
    """What this caller finds here; what it holds nothing of is not announced."""
    found: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
    if visible("prompt"):
        found["prompts"] = {"listChanged": True}
    if visible("resource"):
        found["resources"] = {"subscribe": True, "listChanged": True}
    if visible("completion"):
        found["completions"] = {}
    return found


def prompts(visible: Visible) -> list[dict[str, Any]]:
    return [_prompt(grant) for grant in visible("prompt")]


def _prompt(grant: Grant) -> dict[str, Any]:
    if grant.is_adopted:
        return as_approved(grant, _about(grant), name=grant.tool.offer.name)
    schema = grant.tool.input_schema
    listed = {"name": grant.tool.offer.name, "title": grant.tool.title, "description": grant.tool.summary}
    arguments = [
        {"name": name, "description": about.get("description", ""), "required": name in schema.get("required", ())}
        for name, about in schema.get("properties", {}).items()
    ]
    return listed | {"arguments": arguments, "_meta": _about(grant)}


def resources(visible: Visible, found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those with an address of their own, and what templates say there is."""
    plain = [
        _resource_listed(grant, uri=grant.tool.offer.uri)
        for grant in visible("resource")
        if not grant.tool.offer.is_template
    ]
    return [*plain, *map(dict, found)]


def templates(visible: Visible) -> list[dict[str, Any]]:
    return [
        _resource_listed(grant, uriTemplate=grant.tool.offer.uri)
        for grant in visible("resource")
        if grant.tool.offer.is_template
    ]


def _resource_listed(grant: Grant, **address: str) -> dict[str, Any]:
    if grant.is_adopted:
        return as_approved(grant, _about(grant), **address)
    offer = grant.tool.offer
    return {
        **address,
        "name": offer.name,
        "title": grant.tool.title,
        "description": grant.tool.summary,
        "mimeType": offer.mime_type,
        "_meta": _about(grant),
    }


def _about(grant: Grant) -> dict[str, Any]:
    return {"toolgate/tier": grant.tier, "toolgate/id": grant.tool_id, "toolgate/hint": grant.hint}


def as_approved(grant: Grant, about: Mapping[str, Any], **here: str) -> dict[str, Any]:
    """What an upstream offers: the text that a person approved, never what the upstream says today. `here`: what it is called
    here."""
    foreign = grant.tool.foreign
    assert foreign is not None
    meta = {**own_meta(foreign.definition.get("_meta")), **about, "toolgate/upstream": foreign.upstream}
    return {**foreign.definition, **here, "_meta": meta}


def own_meta(meta: Any) -> dict[str, Any]:
    """An upstream's `_meta` without what belongs to the protocol or to us."""
    kept = meta if isinstance(meta, dict) else {}
    return {
        key: value
        for key, value in kept.items()
        if not RESERVED_META.fullmatch(key) and not key.startswith("toolgate/")
    }


# From an answer to a message ---------------------------------------------------------------------------------------------


_RELAYED: Final[Mapping[str, Sequence[str]]] = {
    "prompts/get": ("description", "messages"),
    "resources/read": ("contents",),
}
"""What of an upstream's own result is sent on. Whether and how long an answer may be kept is ours to say."""


def result_of(method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """Of a call that went well."""
    assert answer.envelope is not None
    data = answer.envelope.data
    if answer.adopted and method in _RELAYED:
        kept = {key: data[key] for key in _RELAYED[method] if key in data}
        return kept | ({"_meta": own_meta(data["_meta"])} if "_meta" in data else {})
    if method == "prompts/get":
        return {"messages": data["messages"]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], **data}]}
    if method == "completion/complete":
        return {"completion": data}
    return {}


def error_of(method: str, params: Mapping[str, Any], answer: Answer) -> tuple[int, str, dict[str, Any]]:
    """Of one that did not: code, message, data."""
    verdict = VERDICTS[answer.ending]
    code = INVALID_PARAMS if answer.ending in _FAULTS_OF_THE_ASKER else INTERNAL_ERROR
    if answer.ending in _WITH_THEIR_STATUS:
        code = verdict.mcp_status
    data: dict[str, Any] = {"canonical_code": verdict.canonical, **(answer.details or {})}
    if answer.retry_after_s is not None:
        data["retry_after_s"] = answer.retry_after_s
    message = answer.text or verdict.mrt_message
    if method.startswith("resources/"):
        data["uri"] = params["uri"]
        if answer.ending is Ending.UNKNOWN_TOOL:
            message = "Resource not found"
    elif answer.ending is Ending.UNKNOWN_TOOL:
        message = "Unknown prompt" if method == "prompts/get" else "There is no such prompt or resource template"
    if answer.envelope is not None and answer.envelope.code is not None:
        data["code"] = answer.envelope.code
    return code, message, data


def told(subscription: str | int | None, change: str) -> bytes:
    """A change on a stream: the name of a list, or an address."""
    if change in FILTERS.values():
        method, params = f"notifications/{change}/list_changed", {}
    else:
        method, params = "notifications/resources/updated", {"uri": change}
    return notification(method, params, subscription)


def acknowledged(subscription: str | int, lists: frozenset[str], uris: Sequence[str]) -> bytes:
    honoured: dict[str, Any] = {name: True for name, own in FILTERS.items() if own in lists}
    if uris:
        honoured["resourceSubscriptions"] = list(uris)
    return notification("notifications/subscriptions/acknowledged", {"notifications": honoured}, subscription)


def stepped(token: str | int, done: int, total: int | None, message: str) -> bytes:
    params: dict[str, Any] = {"progressToken": token, "progress": done}
    if total is not None:
        params["total"] = total
    if message:
        params["message"] = message
    return strictjson.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def logged(level: Level, data: Any) -> bytes:
    return notification("notifications/message", {"level": level, "logger": LOGGER, "data": data}, None)


def requested(number: str, request: Mapping[str, Any]) -> bytes:
    """A request to the client."""
    return strictjson.dumps({"jsonrpc": "2.0", "id": number, **request})


def notification(method: str, params: dict[str, Any], subscription: str | int | None) -> bytes:
    if subscription is not None:
        params = {**params, "_meta": {META_SUBSCRIPTION: subscription}}
    return strictjson.dumps({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})
