"""An MCP server with every feature of the protocol, of one era or of `both`: `python whole.py ERA` prints its port,
`python whole.py ERA stdio` speaks over its pipes.

Plain Python, one thread a request. In the handshake era it asks its client in the middle of the call; in the modern one its
answer is `input_required`. Both need what the client has declared.
"""

from __future__ import annotations

import json
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
WAIT_S = 20.0
LOOK_S = 0.05
"""Between two looks whether a connection was closed."""
OPEN = {"type": "object"}
ASKS = {
    "sample": ("sampling", "sampling/createMessage", {"maxTokens": 5, "messages": []}),
    "elicit": (
        "elicitation",
        "elicitation/create",
        {
            "mode": "form",
            "message": "Your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    ),
    "pry": (
        "elicitation",
        "elicitation/create",
        {
            "mode": "form",
            "message": "Your password?",
            "requestedSchema": {"type": "object", "properties": {"password": {"type": "string"}}},
        },
    ),
    "roots": ("roots", "roots/list", {}),
    "visit": (
        "elicitation",
        "elicitation/create",
        {"mode": "url", "message": "Log in there.", "url": "https://example.org/login", "elicitationId": "1"},
    ),
}
ASKS["press"] = ASKS["elicit"]
"""Knows the way of the handshake era only."""
OVERREACHES = "overreach"
"""Asks for sampling, whatever was declared."""
TWICE = "twice"
"""Asks two things at once."""
STALLS = "stall"
"""Does not answer until it is cancelled; `stalled` tells how many calls did not, and how many of them were cancelled."""
ASIDE = "aside"
"""Asks on a stream apart from the call's, as some servers do."""
CONSULTS = "consult"
"""A prompt that asks for a name first."""
PLAIN = ("echo", "link", "logs", "steps", "touch", "alter", "sessions", "stalled", OVERREACHES, TWICE, STALLS, ASIDE)
NOTE, PANEL, TEMPLATE = "note://one", "ui://panel", "note://{+path}"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}


class State:
    """What a server of either era knows between requests."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.clients: dict[str, dict[str, Any]] = {}
        """What the client of each session has declared."""
        self.answers: dict[str, queue.Queue[Any]] = {}
        self.streams: list[tuple[queue.Queue[Any], set[str], Any]] = []
        """Each with the addresses that it wants and the id of its request."""
        self.apart: dict[str, queue.Queue[Any]] = {}
        """Of the handshake era, by session."""
        self.subscribed: set[str] = set()
        self.stalled: list[bool] = []
        """Of each call that was not answered, whether it was cancelled."""
        self.cancelled: set[Any] = set()
        """Ids of requests."""
        self.noted = threading.Condition()
        self.number = 0
        self.lock = threading.Lock()

    def next_id(self) -> str:
        with self.lock:
            self.number += 1
            return f"s{self.number}"

    def touch(self, uri: str) -> None:
        for stream, uris, number in list(self.streams):
            if uri in (self.subscribed if number is None else uris):
                meta = {} if number is None else {"_meta": {f"{META}subscriptionId": number}}
                stream.put({"method": "notifications/resources/updated", "params": {"uri": uri, **meta}})

    def note(self, message: dict[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            with self.noted:
                self.cancelled.add(message["params"]["requestId"])
                self.noted.notify_all()

    def alter(self) -> None:
        """Tell of each list that it changed; what is in it stays."""
        for stream, _, number in list(self.streams):
            meta = {} if number is None else {"_meta": {f"{META}subscriptionId": number}}
            for name in ("tools", "prompts", "resources"):
                stream.put({"method": f"notifications/{name}/list_changed", "params": meta})


class HttpHandler(BaseHTTPRequestHandler):
    """How messages come and go over HTTP."""

    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name it overrides)
        """Nothing of it."""

    def do_GET(self) -> None:
        if self.state.era == MODERN:
            self.plain(405, {})
            return
        self.answering().follow(set(), None)

    def do_DELETE(self) -> None:
        self.state.clients.pop(self.headers["mcp-session-id"], None)
        self.plain(204, None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        message = json.loads(body)
        self.streaming = False
        if "method" not in message:
            self.state.answers.pop(message["id"]).put(message)
            self.plain(202, None)
        elif "id" not in message:
            self.state.note(message)
            self.plain(202, None)
        else:
            self.answering().handle(message)

    def is_closed(self) -> bool:
        """In the modern era that cancels a call."""
        readable = select.select([self.connection], [], [], 0)[0]
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def answering(self) -> Answering:
        self.streaming = False
        return Answering(self.state, self, self.headers.get("mcp-session-id", ""))

    def greeted(self, answer: dict[str, Any], session: str) -> None:
        self.plain(200, answer, {"mcp-session-id": session})

    def plain(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def event(self, message: dict[str, Any]) -> None:
        if not self.streaming:
            self.streaming = True
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
        data = b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def last(self, answer: dict[str, Any], status: int) -> None:
        if self.streaming:
            self.event(answer)
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.plain(status, answer)


class Pipe:
    """And over pipes: a line each."""

    lock = threading.Lock()

    def is_closed(self) -> bool:
        return False

    def event(self, message: dict[str, Any]) -> None:
        with self.lock:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def last(self, answer: dict[str, Any], status: int) -> None:
        self.event(answer)

    def greeted(self, answer: dict[str, Any], session: str) -> None:
        self.event(answer)


class Answering:
    """One request, and what is answered to it."""

    def __init__(self, state: State, way: HttpHandler | Pipe, session: str) -> None:
        self.state, self.way, self.session = state, way, session

    def handle(self, message: dict[str, Any]) -> None:
        self.message, self.params = message, message.get("params", {})
        self.meta = self.params.get("_meta", {})
        self.modern = f"{META}protocolVersion" in self.meta
        self.handle_method(message["method"])

    def event(self, message: dict[str, Any]) -> None:
        self.way.event(message)

    def done(self, status: int = 200, **members: Any) -> None:
        self.way.last({"jsonrpc": "2.0", "id": self.message["id"], **members}, status)

    def result(self, value: dict[str, Any]) -> None:
        self.done(result={"resultType": "complete", **value} if self.modern else value)

    def error(self, code: int, text: str, **data: Any) -> None:
        self.done(error={"code": code, "message": text, **({"data": data} if data else {})})

    def text(self, text: str, **more: Any) -> None:
        said = {"type": "text", "text": text}
        if self.message["method"] == "prompts/get":
            self.result({"messages": [{"role": "user", "content": said}]})
        else:
            self.result({"content": [said], **more})

    def follow(self, uris: set[str], number: Any) -> None:
        stream: queue.Queue[Any] = queue.Queue()
        if number is None:
            stream.put({"method": "notifications/message", "params": {"level": "debug", "data": "open"}})
        else:
            lists = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
            honoured = {"notifications": {**lists, "resourceSubscriptions": sorted(uris)}}
            honoured["_meta"] = {f"{META}subscriptionId": number}
            stream.put({"method": "notifications/subscriptions/acknowledged", "params": honoured})
        if number is None:
            self.state.apart[self.session] = stream
        entry = (stream, uris, number)
        self.state.streams.append(entry)
        try:
            while True:
                self.event(stream.get())
        except OSError:
            self.state.streams.remove(entry)

    # Answering

    def handle_method(self, method: str) -> None:
        other = HANDSHAKE if self.modern else MODERN
        handler = getattr(self, "on_" + method.replace("/", "_"), None)
        if handler is None or self.state.era == other or (method == "server/discover") > self.modern:
            status = 404 if self.state.era == MODERN else 200
            self.done(status, error={"code": -32601, "message": "Method not found"})
        else:
            handler()

    def on_server_discover(self) -> None:
        self.result({"supportedVersions": [MODERN], "capabilities": CAPABILITIES})

    def on_initialize(self) -> None:
        session = self.state.next_id() if isinstance(self.way, HttpHandler) else ""
        self.state.clients[session] = self.params["capabilities"]
        hello = {"protocolVersion": HANDSHAKE, "capabilities": CAPABILITIES}
        hello["serverInfo"] = {"name": "whole", "version": "1"}
        self.way.greeted({"jsonrpc": "2.0", "id": self.message["id"], "result": hello}, session)
        if isinstance(self.way, Pipe):
            threading.Thread(target=self.follow, args=(set(), None), daemon=True).start()

    def on_tools_list(self) -> None:
        tools = [{"name": name, "description": f"Does {name}.", "inputSchema": OPEN} for name in (*PLAIN, *ASKS)]
        tools[0]["_meta"] = {"ui": {"resourceUri": PANEL}}
        self.result({"tools": tools})

    def on_prompts_list(self) -> None:
        argument = {"name": "name", "description": "Whom.", "required": True}
        greets = {"name": "greet", "description": "Greets.", "arguments": [argument]}
        self.result({"prompts": [greets, {"name": CONSULTS, "description": "Asks first."}]})

    def on_resources_list(self) -> None:
        resources = [
            {"uri": uri, "name": name, "mimeType": "text/plain"} for uri, name in ((NOTE, "one"), (PANEL, "panel"))
        ]
        self.result({"resources": resources})

    def on_resources_templates_list(self) -> None:
        self.result({"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "note"}]})

    def on_prompts_get(self) -> None:
        if self.params["name"] == CONSULTS:
            self.ask(*ASKS["elicit"])
            return
        resource = {"uri": NOTE, "text": f"For {self.params['arguments']['name']}.", "mimeType": "text/plain"}
        content = {"type": "resource", "resource": resource}
        self.result({"description": "A greeting.", "messages": [{"role": "user", "content": content}]})

    def on_resources_read(self) -> None:
        uri = self.params["uri"]
        if uri == "note://missing":
            self.error(-32602 if self.modern else -32002, "Resource not found")
        else:
            self.result({"contents": [{"uri": uri, "text": f"At {uri}."}], "ttlMs": 5000, "cacheScope": "public"})

    def on_completion_complete(self) -> None:
        ref = self.params["ref"]
        values = [f"{ref.get('name') or ref.get('uri')}:{self.params['argument']['value']}"]
        values += self.params.get("context", {}).get("arguments", {}).values()
        self.result({"completion": {"values": values, "total": len(values), "hasMore": False}})

    def on_resources_subscribe(self) -> None:
        self.state.subscribed.add(self.params["uri"])
        self.result({})

    def on_resources_unsubscribe(self) -> None:
        self.state.subscribed.discard(self.params["uri"])
        self.result({})

    def on_logging_setLevel(self) -> None:  # noqa: N802 (the method's own name)
        self.result({})

    def on_subscriptions_listen(self) -> None:
        self.follow(set(self.params["notifications"].get("resourceSubscriptions", ())), self.message["id"])

    def on_tools_call(self) -> None:
        name, arguments = self.params["name"], self.params.get("arguments", {})
        if name in ASKS and not (name == "press" and self.modern):
            self.ask(*ASKS[name])
        elif name in ("sessions", "stalled"):
            self.text(json.dumps(len(self.state.clients) if name == "sessions" else self.state.stalled))
        elif name in ("press", OVERREACHES, TWICE, STALLS, ASIDE):
            self.misbehave(name)
        elif name == "link":
            links = [{"type": "resource_link", "uri": uri, "name": "n"} for uri in (NOTE, "https://example.com/page")]
            self.result({"content": [*links, {"type": "resource", "resource": {"uri": NOTE, "text": NOTE}}]})
        elif name == "logs":
            if not self.modern or f"{META}logLevel" in self.meta:
                for level in ("debug", "info", "error"):
                    self.event({"method": "notifications/message", "params": {"level": level, "data": f"said {level}"}})
            self.text("logged")
        elif name == "steps":
            token = self.meta.get("progressToken")
            for step in (1, 2) if token is not None else ():
                params = {"progressToken": token, "progress": step, "total": 2}
                self.event({"method": "notifications/progress", "params": params})
            self.text("stepped")
        elif name == "touch":
            self.state.touch(arguments["uri"])
            self.text("touched")
        elif name == "alter":
            self.state.alter()
            self.text("altered")
        else:
            self.text(str(arguments.get("text", "")))

    def misbehave(self, name: str) -> None:
        if name == STALLS:
            self.stall()
        elif self.modern:
            self.text("there is no back-channel", isError=True)
        elif name == OVERREACHES:
            self.told(self.put(*ASKS["sample"][1:]))
        elif name == ASIDE:
            send = self.event if isinstance(self.way, Pipe) else self.state.apart[self.session].put
            self.told(self.put(*ASKS["elicit"][1:], send))
        else:
            both = self.put(*ASKS["elicit"][1:]), self.put(*ASKS["roots"][1:])
            self.text(json.dumps([each.get(timeout=WAIT_S).get("result") for each in both]))

    def stall(self) -> None:
        number, due = len(self.state.stalled), time.monotonic() + WAIT_S
        self.state.stalled.append(False)
        while not self.state.stalled[number] and time.monotonic() < due:
            with self.state.noted:
                self.state.noted.wait(LOOK_S)
            self.state.stalled[number] = self.message["id"] in self.state.cancelled or self.way.is_closed()

    def ask(self, capability: str, method: str, params: dict[str, Any]) -> None:
        """In the words of its era."""
        if self.modern:
            declared = self.meta[f"{META}clientCapabilities"]
            if "inputResponses" in self.params:
                if self.params.get("requestState") != "kept":
                    self.error(-32602, "another state")
                else:
                    self.text(json.dumps(self.params["inputResponses"]["it"]))
            elif capability not in declared:
                self.error(-32021, f"needs {capability}", requiredCapabilities={capability: {}})
            else:
                asked = {"it": {"method": method, "params": params}}
                self.done(result={"resultType": "input_required", "inputRequests": asked, "requestState": "kept"})
            return
        if capability not in self.state.clients[self.session]:
            self.text(f"the client cannot do {capability}", isError=True)
            return
        self.told(self.put(method, params))

    def put(
        self, method: str, params: dict[str, Any], send: Callable[[dict[str, Any]], None] | None = None
    ) -> queue.Queue[Any]:
        """A question, and where its answer will be."""
        number = self.state.next_id()
        waiting = self.state.answers[number] = queue.Queue()
        (send or self.event)({"id": number, "method": method, "params": params})
        return waiting

    def told(self, waiting: queue.Queue[Any]) -> None:
        said = waiting.get(timeout=WAIT_S)
        if "error" in said:
            self.text(f"refused: {said['error']['message']}", isError=True)
        else:
            self.text(json.dumps(said["result"]))


class Server(ThreadingHTTPServer):
    daemon_threads = True


def serve_pipes(state: State) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            state.answers.pop(message["id"]).put(message)
        elif "id" not in message:
            state.note(message)
        else:
            threading.Thread(target=Answering(state, Pipe(), "").handle, args=(message,), daemon=True).start()


if __name__ == "__main__":
    if "stdio" in sys.argv:
        serve_pipes(State(sys.argv[1]))
        sys.exit()
    HttpHandler.state = State(sys.argv[1])
    server = Server(("127.0.0.1", 0), HttpHandler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
