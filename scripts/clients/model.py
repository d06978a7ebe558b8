"""A model that is none: it speaks a provider's protocol on this machine and asks for every step's call, one after the other.

With it a program that people use is driven as it is: it offers our tools to its model in its own way, runs what the model asks
for, and hands back what a model would read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from typing import Protocol as Protocol_

from scripts.clients.drivers.steps import BURST, SINGLE, judged_burst

Asked = tuple[str, str, dict[str, Any]]
"""The id of a call, its tool, its arguments."""


@dataclass
class Script:
    """What is asked, and what came back. One conversation at a time."""

    names: set[str] = field(default_factory=set)
    """Our tools that were offered, by our names."""
    heard: dict[str, str] = field(default_factory=dict)
    """By the id of the call: what the model was shown."""
    _turn: int = 0

    def turns(self) -> list[list[Asked]]:
        single = [[(step, *asked)] for step, asked in SINGLE.items() if asked[0] in self.names]
        many = [(f"burst{number}", "wire_progress", {"text": f"hello {number}"}) for number in range(BURST)]
        return [*single, many, [("after", "wire_echo", {"text": "hello"})]]

    def next(self) -> list[Asked]:
        """Nothing: all has been asked."""
        turns = self.turns()
        self._turn += 1
        return turns[self._turn - 1] if self._turn <= len(turns) else []

    def told(self) -> dict[str, Any]:
        """As a driver tells it."""
        shown = {ident: {"ok": True, "text": text} for ident, text in self.heard.items()}
        if "after" not in shown:
            return {"session": {"text": f"the program asked its model no further after {list(shown)}"}}
        burst = [shown.get(f"burst{number}", {"text": "lost"}) for number in range(BURST)]
        told = {step: shown[step] for step in SINGLE if step in shown}
        return told | {
            "list": {"ok": True, "text": f"{len(self.names)} tools"},
            "burst": judged_burst(burst, shown["after"]),
        }


class Protocol(Protocol_):
    """How a provider's clients ask and are answered."""

    def answer(self, script: Script, path: str, request: Mapping[str, Any]) -> tuple[str, bytes]:
        """The type of the answer, and its bytes."""
        ...


class Anthropic:
    """The Messages API, as Claude Code uses it."""

    prefix = "mcp__toolgate__"

    def answer(self, script: Script, path: str, request: Mapping[str, Any]) -> tuple[str, bytes]:
        if "count_tokens" in path:
            return "application/json", b'{"input_tokens": 1}'
        offered = {str(tool.get("name", "")) for tool in request.get("tools") or ()}
        ours = {name.removeprefix(self.prefix) for name in offered if name.startswith(self.prefix)}
        calls: Sequence[Asked] = ()
        if ours:
            script.names |= ours
            script.heard |= dict(self._results(request["messages"]))
            calls = script.next()
        return "text/event-stream", b"".join(self._events(calls))

    def _results(self, messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        for message in messages:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block.get("type") == "tool_result":
                    yield block["tool_use_id"].removeprefix("toolu_"), json.dumps(block["content"], ensure_ascii=False)

    def _events(self, calls: Sequence[Asked]) -> Iterator[bytes]:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "none"}
        usage = {"input_tokens": 1, "output_tokens": 1}
        yield _event("message_start", message=message | {"stop_reason": None, "stop_sequence": None, "usage": usage})
        blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (
                {"type": "tool_use", "id": f"toolu_{ident}", "name": self.prefix + tool, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(arguments)},
            )
            for ident, tool, arguments in calls
        ]
        if not blocks:
            blocks = [({"type": "text", "text": ""}, {"type": "text_delta", "text": "done"})]
        for index, (block, delta) in enumerate(blocks):
            yield _event("content_block_start", index=index, content_block=block)
            yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        reason = "tool_use" if calls else "end_turn"
        yield _event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 1})
        yield _event("message_stop")


class Responses:
    """OpenAI's Responses API, as Codex uses it: the tools of a server are a namespace.

    Codex asks its model at once, whether or not a server has started: then the model lets some time pass.
    """

    namespace = "mcp__toolgate"
    patience = 30
    pause = ("pause", "exec_command", {"cmd": "sleep 1"})

    def answer(self, script: Script, path: str, request: Mapping[str, Any]) -> tuple[str, bytes]:  # noqa: ARG002
        spaces = [tool for tool in request.get("tools") or () if tool.get("name") == self.namespace]
        calls: Sequence[Asked] = ()
        if spaces:
            script.names |= {str(tool["name"]) for tool in spaces[0]["tools"]}
            script.heard |= {
                item["call_id"]: json.dumps(item["output"], ensure_ascii=False)
                for item in request["input"]
                if item.get("type") == "function_call_output"
            }
            calls = script.next()
        elif len(request["input"]) < self.patience:
            return "text/event-stream", b"".join(self._events([self.pause], {}))
        return "text/event-stream", b"".join(self._events(calls, {"namespace": self.namespace}))

    def _events(self, calls: Sequence[Asked], where: Mapping[str, str]) -> Iterator[bytes]:
        yield _event("response.created", response={"id": "r"})
        items: list[dict[str, Any]] = [
            {"type": "function_call", "call_id": ident, "name": tool, "arguments": json.dumps(given), **where}
            for ident, tool, given in calls
        ]
        if not items:
            items = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}]
        for index, item in enumerate(items):
            yield _event("response.output_item.done", output_index=index, item=item | {"id": f"item{index}"})
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield _event("response.completed", response={"id": "r", "status": "completed", "output": [], "usage": usage})


class Completions:
    """OpenAI's older API, chat completions, as opencode uses it for models of one's own."""

    prefix = "toolgate_"

    def answer(self, script: Script, path: str, request: Mapping[str, Any]) -> tuple[str, bytes]:  # noqa: ARG002
        offered = {str(tool["function"]["name"]) for tool in request.get("tools") or ()}
        ours = {name.removeprefix(self.prefix) for name in offered if name.startswith(self.prefix)}
        calls: Sequence[Asked] = ()
        if ours:
            script.names |= ours
            script.heard |= {
                message["tool_call_id"]: json.dumps(message["content"], ensure_ascii=False)
                for message in request["messages"]
                if message.get("role") == "tool"
            }
            calls = script.next()
        return "text/event-stream", b"".join(self._chunks(calls))

    def _chunks(self, calls: Sequence[Asked]) -> Iterator[bytes]:
        asked = [
            {
                "index": index,
                "id": ident,
                "type": "function",
                "function": {"name": self.prefix + tool, "arguments": json.dumps(arguments)},
            }
            for index, (ident, tool, arguments) in enumerate(calls)
        ]
        delta: dict[str, Any] = {"role": "assistant"} | ({"tool_calls": asked} if asked else {"content": "done"})
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        for choice in (
            {"delta": delta, "finish_reason": None},
            {"delta": {}, "finish_reason": "tool_calls" if asked else "stop"},
        ):
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "none", "usage": usage}
            yield f"data: {json.dumps(chunk | {'choices': [choice | {'index': 0}]})}\n\n".encode()
        yield b"data: [DONE]\n\n"


def _event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


@contextmanager
def serving(protocol: Protocol) -> Iterator[tuple[str, Script]]:
    """The address of a model, and what it hears."""
    script, lock = Script(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                kind, answer = protocol.answer(script, self.path, json.loads(body or b"{}"))
            self._send(200, kind, answer)

        def do_GET(self) -> None:
            self._send(404, "application/json", b"{}")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", script
        finally:
            server.shutdown()
