"""What the official conformance suite asks of a server, under the names it asks for: a pack like any other, through the door."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from toolgate.errors import ToolError
from toolgate.model.offers import Prompt, Resource, audio, embedded, image, says, text_block
from toolgate.model.tool import Ask, Context, Effect, Pack, Result, Tool

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
TEXT = {"type": "string", "maxLength": 1000}
WATCHED = "test://watched-resource"


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


NOTHING = closed()
SAID = closed(said=TEXT) | {"required": []}


def said(text: str) -> Result:
    return Result(data={"said": text})


def tool(name: str, run: Any, effect: Effect = "read", takes: Any = NOTHING, **more: Any) -> Tool:
    return Tool(
        name=name,
        id=f"everything.{name}",
        summary=f"For the conformance suite: {name}.",
        input_schema=takes,
        output_schema=SAID,
        effect=effect,
        deadline_s=10,
        run=run,
        text=lambda data: data.get("said", ""),
        **more,
    )


# Content ------------------------------------------------------------------------------------------------------------------


def simple_text(ctx: Context, args: dict[str, Any]) -> Result:
    return said("This is a simple text response for testing.")


def image_content(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={}, content=[image(PIXEL, "image/png")])


def audio_content(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={}, content=[audio(SOUND, "audio/wav")])


def embedded_resource(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={}, content=[embedded("test://embedded-resource", "This is an embedded resource content.")])


def multiple_content(ctx: Context, args: dict[str, Any]) -> Result:
    more = embedded("test://mixed-content-resource", '{"test": "data", "value": 123}', "application/json")
    return Result(data={}, content=[text_block("Multiple content types test:"), image(PIXEL, "image/png"), more])


def error_handling(ctx: Context, args: dict[str, Any]) -> Result:
    raise ToolError("INTENDED", "This tool intentionally returns an error for testing")


# Notes along the way ------------------------------------------------------------------------------------------------------


async def with_logging(ctx: Context, args: dict[str, Any]) -> Result:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", text)
        await asyncio.sleep(0)
    return said("Tool with logging executed successfully")


async def logging_tool(ctx: Context, args: dict[str, Any]) -> Result:
    ctx.log("info", "test_logging_tool ran")
    return said("logged")


async def with_progress(ctx: Context, args: dict[str, Any]) -> Result:
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0)
    return said("done")


def trigger(what: str) -> Any:
    def run(ctx: Context, args: dict[str, Any]) -> Result:
        assert ctx.changed is not None
        ctx.changed(what)
        return said(f"{what} changed")

    return run


# Questions to the client --------------------------------------------------------------------------------------------------


def form(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def name_form(message: str = "What is your name?") -> dict[str, Any]:
    return form(message, name={"type": "string"})


def sample(text: str) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


ROOTS = {"method": "roots/list", "params": {}}
CONFIRM = form("Please confirm", ok={"type": "boolean"})


def asking(requests: dict[str, Any], answered: Any, state: Any = None) -> Any:
    def run(ctx: Context, args: dict[str, Any]) -> Result:
        if requests.keys() <= ctx.answers.keys():
            return said(answered(ctx))
        return Result(ask=Ask(requests, state))

    return run


def multi_round(ctx: Context, args: dict[str, Any]) -> Result:
    state = ctx.state or {}
    if "step2" in ctx.answers:
        return said(f"{state.get('name')} likes {ctx.answers['step2'].get('content', {}).get('color')}.")
    if "step1" in ctx.answers:
        name = ctx.answers["step1"].get("content", {}).get("name")
        color = form("Step 2: What is your favorite color?", color={"type": "string"})
        return Result(ask=Ask({"step2": color}, {"round": 2, "name": name}))
    return Result(ask=Ask({"step1": name_form("Step 1: What is your name?")}, {"round": 1}))


def what_it_can(ctx: Context, args: dict[str, Any]) -> Result:
    known = {"sampling": sample("Say hello"), "elicitation": name_form()}
    return Result(ask=Ask({name: ask for name, ask in known.items() if name in ctx.capabilities}, "capability-gated"))


def missing_capability(ctx: Context, args: dict[str, Any]) -> Result:
    if "sampling" in ctx.capabilities:
        return said("Client declared sampling capability; proceeding.")
    return Result(ask=Ask({"sample": sample("Say hello")}))


def text_argument(name: str) -> dict[str, Any]:
    text = {"type": "string", "maxLength": 1000}
    return {"type": "object", "additionalProperties": False, "required": [name], "properties": {name: text}}


def ask_the_model(ctx: Context, args: dict[str, Any]) -> Result:
    if "model" in ctx.answers:
        return said(f"LLM response: {ctx.answers['model']['content'].get('text')}")
    return Result(ask=Ask({"model": sample(args["prompt"])}))


def ask_the_user(ctx: Context, args: dict[str, Any]) -> Result:
    if "user" in ctx.answers:
        return said(f"User response: action={ctx.answers['user']['action']}")
    return Result(ask=Ask({"user": form(args["message"], username={"type": "string"}, email={"type": "string"})}))


DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
    },
}


def chosen(properties: dict[str, Any]) -> Any:
    schema = {"type": "object", "properties": properties}
    asked = {"method": "elicitation/create", "params": {"message": "Please choose", "requestedSchema": schema}}
    return asking({"form": asked}, lambda ctx: f"Elicitation completed: action={ctx.answers['form']['action']}")


ELICITS, SAMPLES = ("elicitation",), ("sampling",)
ALL_INPUTS = {"user_name": name_form(), "greeting": sample("Generate a greeting"), "client_roots": ROOTS}
GREETED = asking({"user_name": name_form()}, lambda ctx: f"Hello, {ctx.answers['user_name']['content']['name']}!")
SAMPLED = asking({"capital_question": sample("What is the capital of France?")}, lambda ctx: "Model answered.")
ROOTED = asking({"client_roots": ROOTS}, lambda ctx: f"{len(ctx.answers['client_roots']['roots'])} root(s).")
CONFIRMED = asking({"confirm": CONFIRM}, lambda ctx: f"state-ok: {ctx.state}", "request-state-nonce")

TOOLS = (
    tool("test_simple_text", simple_text),
    tool("test_image_content", image_content),
    tool("test_audio_content", audio_content),
    tool("test_embedded_resource", embedded_resource),
    tool("test_multiple_content_types", multiple_content),
    tool("test_error_handling", error_handling, error_codes=("INTENDED",)),
    tool("test_tool_with_logging", with_logging, logs=True),
    tool("test_logging_tool", logging_tool, logs=True),
    tool("test_tool_with_progress", with_progress),
    tool("test_trigger_tool_change", trigger("tools"), "write"),
    tool("test_trigger_prompt_change", trigger("prompts"), "write"),
    tool("test_trigger_resource_change", trigger(WATCHED), "write"),
    tool("test_sampling", ask_the_model, takes=text_argument("prompt"), asks=SAMPLES),
    tool("test_elicitation", ask_the_user, takes=text_argument("message"), asks=ELICITS),
    tool("test_elicitation_sep1034_defaults", chosen(DEFAULTS), asks=ELICITS),
    tool("test_elicitation_sep1330_enums", chosen(ENUMS), asks=ELICITS),
    tool("test_missing_capability", missing_capability, asks=SAMPLES),
    tool("test_streaming_elicitation", GREETED, asks=ELICITS),
    tool("test_input_required_result_elicitation", GREETED, asks=ELICITS),
    tool("test_input_required_result_sampling", SAMPLED, asks=SAMPLES),
    tool("test_input_required_result_list_roots", ROOTED, asks=("roots",)),
    tool("test_input_required_result_request_state", CONFIRMED, asks=ELICITS),
    tool("test_input_required_result_tampered_state", CONFIRMED, asks=ELICITS),
    tool(
        "test_input_required_result_multiple_inputs",
        asking(ALL_INPUTS, lambda ctx: "All inputs received.", "multiple-inputs"),
        asks=("elicitation", "sampling", "roots"),
    ),
    tool("test_input_required_result_multi_round", multi_round, asks=ELICITS),
    tool("test_input_required_result_capabilities", what_it_can, asks=("elicitation", "sampling")),
)


# Prompts and resources ----------------------------------------------------------------------------------------------------


def messages(*blocks: dict[str, Any]) -> Result:
    return Result(data={"messages": [{"role": "user", "content": block} for block in blocks]})


def context_prompt(ctx: Context, args: dict[str, Any]) -> Result:
    if "user_context" in ctx.answers:
        return says(f"Use the following context: {ctx.answers['user_context'].get('content', {}).get('context')}")
    return Result(ask=Ask({"user_context": form("What context should the prompt use?", context={"type": "string"})}))


def prompt(name: str, run: Any, takes: Any = NOTHING, **more: Any) -> Prompt:
    summary = f"For the conformance suite: {name}."
    return Prompt(name, f"everything.{name}", summary, run, input_schema=takes, **more)


PROMPTS = (
    prompt("test_simple_prompt", lambda ctx, args: says("This is a simple prompt for testing.")),
    prompt(
        "test_prompt_with_arguments",
        lambda ctx, args: says(f"Prompt with arguments: arg1='{args['arg1']}', arg2='{args['arg2']}'"),
        closed(arg1=TEXT, arg2=TEXT),
        completes={"arg1": lambda ctx, others: ["test value", "testing", "other"]},
    ),
    prompt(
        "test_prompt_with_embedded_resource",
        lambda ctx, args: messages(
            embedded(args["resourceUri"], "Embedded resource content for testing."),
            text_block("Please process the embedded resource above."),
        ),
        closed(resourceUri=TEXT),
    ),
    prompt(
        "test_prompt_with_image",
        lambda ctx, args: messages(image(PIXEL, "image/png"), text_block("Please analyze the image above.")),
    ),
    prompt("test_input_required_result_prompt", context_prompt, asks=ELICITS),
)


class Memory:
    watched = "0"


def watched_text(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={"text": f"Watched resource content {ctx.memory.watched}"})


def resource(name: str, uri: str, run: Any, mime_type: str = "text/plain", **more: Any) -> Resource:
    return Resource(name, f"everything.{name}", uri, f"For the conformance suite: {name}.", run, mime_type, **more)


RESOURCES = (
    resource(
        "static_text",
        "test://static-text",
        lambda ctx, args: Result(
            data={"text": "This is the content of the static text resource.", "mimeType": "text/plain"}
        ),
    ),
    resource(
        "static_binary",
        "test://static-binary",
        lambda ctx, args: Result(data={"blob": base64.b64encode(PIXEL).decode(), "mimeType": "image/png"}),
        "image/png",
    ),
    resource(
        "template",
        "test://template/{id}/data",
        lambda ctx, args: Result(
            data={"text": f'{{"id": "{args["id"]}", "templateTest": true}}', "mimeType": "application/json"}
        ),
        "application/json",
        input_schema=closed(id={**TEXT, "pattern": "^[A-Za-z0-9-]+$"}),
    ),
    resource("watched", WATCHED, watched_text, stamp=lambda ctx, args: ctx.memory.watched),
)

PACK = Pack(name="everything", tools=TOOLS, prompts=PROMPTS, resources=RESOURCES, memory=Memory)
