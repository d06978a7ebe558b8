"""A person with a browser's manners and no browser: cookies, the Origin of a form, its token."""

from __future__ import annotations

import html
import http.client
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPMessage
from pathlib import Path
from urllib.parse import urlencode

from tests.homes import PATIENCE_S, Home, Server, make_home

CONSOLE = '[console]\nenabled = true\n[server]\ntrusted_proxies = ["127.0.0.1"]\n'


@dataclass(frozen=True)
class Seen:
    status: int
    headers: HTTPMessage
    raw: bytes

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def shown(self) -> str:
        """Without markup, as it is read."""
        return html.unescape(re.sub(r"<[^>]*>", " ", self.text))

    @property
    def token(self) -> str:
        found = re.search(r'name="token" value="([^"]+)"', self.text)
        assert found is not None, self.text[:500]
        return found[1]


@dataclass
class Visitor:
    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    trust: ssl.SSLContext | None = None
    """Whom it trusts over TLS. None: it speaks plainly."""

    @property
    def origin(self) -> str:
        return f"{'http' if self.trust is None else 'https'}://127.0.0.1:{self.port}"

    def _connect(self) -> http.client.HTTPConnection:
        if self.trust is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=self.trust)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Seen:
        connection = self._connect()
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        connection.request(method, f"/console/{path}", body, {**sent, **(headers or {})})
        answer = connection.getresponse()
        seen = Seen(answer.status, answer.headers, answer.read())
        connection.close()
        for line in seen.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            if value:
                self.cookies[name] = value
            else:
                self.cookies.pop(name, None)
        return seen

    def get(self, path: str = "", **headers: str) -> Seen:
        return self.ask("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, form: Mapping[str, str], **changed: str | None) -> Seen:
        """`changed`: headers that a browser would send otherwise; None: not at all."""
        headers: dict[str, str | None] = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.origin,
            "Sec-Fetch-Site": "same-origin",
        }
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        sent = {name: value for name, value in headers.items() if value is not None}
        return self.ask("POST", path, urlencode(form).encode(), sent)

    def act(self, path: str, **form: str) -> Seen:
        """As a page of one's own would send it."""
        return self.post(path, {"token": self.get("keys").token, **form})

    def sign_in(self, key: str) -> Visitor:
        seen = self.post("sign-in", {"key": key, "next": "./"})
        assert seen.status == 303, seen.shown
        return self


def visitor(server: Server, key: str) -> Visitor:
    return Visitor(server.port).sign_in(key)


def call(port: int, key: str, tool: str, arguments: object = None, **headers: str) -> int:
    """One call over the dispatch face; its status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    body = json.dumps({"tool": tool, "args": arguments or {}}).encode()
    sent = {"X-MCP-API-Key": key, "Content-Type": "application/json"}
    connection.request(
        "POST", "/mrt_dispatch", body, sent | {name.replace("_", "-"): value for name, value in headers.items()}
    )
    status = connection.getresponse().status
    connection.close()
    return status


@contextmanager
def console(path: Path, *flags: str, settings: str = CONSOLE) -> Iterator[tuple[Home, Server]]:
    home = make_home(path, settings=settings)
    with home.serving(*flags) as server:
        yield home, server
