"""A client made by hand, for one server over HTTP: both eras, plain answers and streams."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.homes import PATIENCE_S
from toolgate.model.mcpwire import META_CAPABILITIES, META_VERSION

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
GREETING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "by-hand", "version": "1"}}
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Client:
    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self.session: str | None = None

    def ask(self, method: str, params: dict[str, Any] | None = None, *, session: str | None = None) -> dict[str, Any]:
        """Of the handshake era. A session id that the answer carries is kept, as some clients do."""
        status, headers, body = self.post(method, params or {}, session=session or self.session)
        self.session = headers.get("mcp-session-id", self.session)
        return {"status": status, **body}

    def greet(self) -> Client:
        self.ask("initialize", GREETING)
        return self

    def post(
        self, method: str, params: dict[str, Any], *, session: str | None = None
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        more = {"mcp-session-id": session} if session is not None else {}
        return self._answered(self._sent("POST", method, params, more))

    def ask_plainly(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Of the handshake era, by a client that takes no stream of events."""
        more = {"accept": "application/json", "mcp-session-id": self.session or ""}
        return self._answered(self._sent("POST", method, params, more))[2]

    def ask_modern(self, method: str, params: dict[str, Any] | None = None, **capabilities: Any) -> dict[str, Any]:
        return self._answered(self._modern(method, params or {}, capabilities))[2]

    @contextmanager
    def listening(self, **wanted: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of `subscriptions/listen`, as they come."""
        answer = self._modern("subscriptions/listen", {"notifications": wanted}, {})
        assert answer.status == 200, answer.read()
        try:
            yield messages(answer)
        finally:
            answer.close()

    @contextmanager
    def stream(self, session: str | None = None) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of GET, the handshake era's stream."""
        answer = self._sent("GET", "", None, {"mcp-session-id": session or self.session or ""})
        assert answer.status == 200, answer.read()
        try:
            yield messages(answer)
        finally:
            answer.close()

    @contextmanager
    def calling(self, method: str, params: dict[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of one call of the handshake era, as they come."""
        answer = self._sent("POST", method, params, {"mcp-session-id": self.session or ""})
        assert answer.headers["content-type"] == "text/event-stream", answer.read()
        try:
            yield messages(answer)
        finally:
            answer.close()

    @contextmanager
    def giving_up(self, era: str, method: str, params: dict[str, Any]) -> Iterator[None]:
        """A call that the client does not wait for any longer when the block ends."""
        if era == HANDSHAKE:
            self.greet()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        headers = {"x-mcp-api-key": self._key, "accept": "application/json, text/event-stream"}
        headers |= {"content-type": "application/json", "mcp-protocol-version": era}
        if era == MODERN:
            headers |= {"mcp-method": method, "mcp-name": params["name"]}
            params = {**params, "_meta": {META_VERSION: MODERN, META_CAPABILITIES: {}}}
        else:
            headers["mcp-session-id"] = self.session or ""
        with closing(connection):
            message = {"jsonrpc": "2.0", "id": "given-up", "method": method, "params": params}
            connection.request("POST", "/mcp", json.dumps(message), headers)
            yield
            if era == HANDSHAKE:
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "given-up"}}
                with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)) as another:
                    another.request("POST", "/mcp", json.dumps(note), headers)
                    assert another.getresponse().status == 202

    def respond(self, request_id: Any, result: dict[str, Any] | None) -> None:
        """To a request of the server's; None: with an error."""
        said = {"error": {"code": -1, "message": "no"}} if result is None else {"result": result}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        headers = {"x-mcp-api-key": self._key, "content-type": "application/json", "accept": "application/json"}
        with closing(connection):
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": request_id, **said}), headers)
            assert connection.getresponse().status == 202

    def look(self, session: str | None) -> int:
        """The status of a GET."""
        answer = self._sent("GET", "", None, {} if session is None else {"mcp-session-id": session})
        answer.close()
        return answer.status

    def _modern(self, method: str, params: dict[str, Any], capabilities: dict[str, Any]) -> http.client.HTTPResponse:
        headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
        if method in _NAMES:
            headers["mcp-name"] = params[_NAMES[method]]
        meta = {META_VERSION: MODERN, META_CAPABILITIES: capabilities, **params.pop("_meta", {})}
        return self._sent("POST", method, {**params, "_meta": meta}, headers)

    def _sent(
        self, verb: str, method: str, params: dict[str, Any] | None, more: dict[str, str]
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        headers = {
            "accept": "application/json, text/event-stream",
            "x-mcp-api-key": self._key,
            "connection": "close",
            **more,
        }
        body = None
        if params is not None:
            headers["content-type"] = "application/json"
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection.request(verb, "/mcp", body, headers)
        return connection.getresponse()

    @staticmethod
    def _answered(answer: http.client.HTTPResponse) -> tuple[int, dict[str, str], dict[str, Any]]:
        headers = {name.lower(): value for name, value in answer.getheaders()}
        if headers.get("content-type") == "text/event-stream":
            *notes, last = messages(answer)
            return answer.status, headers, {**last, "notes": notes}
        raw = answer.read()
        return answer.status, headers, json.loads(raw) if raw else {}


def messages(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
