"""A secret put wherever a caller can write is found nowhere: not in the log, not on standard error, not in an answer.

Answers may repeat what is not a secret and the protocol wants repeated: a message's id, the name of an unknown tool. The log
holds two things that a caller writes, because an investigator asks for them: that name, and the sender's own request id.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, make_home

RECORDED = {"unknown tool", "header X-Request-Id"}
"""Places whose text is meant to be in the log."""
SEED = "c0ffee" * 10 + "7e57"
"""A private key: 64 hex digits."""


def canary(name: str) -> str:
    """Printable, with characters that every encoding spells differently; one for each place, so that a hit names it."""
    return f'{name}<canary>"+/&={name}'


def forms(secret: str) -> Iterator[bytes]:
    """Plain, hex, base64 in its three alignments and both alphabets, URL and JSON spellings."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield quote(secret, safe="").encode()
    yield quote(secret).encode()
    yield quote_plus(secret).encode()
    yield json.dumps(secret)[1:-1].encode()
    yield "".join(f"\\u{ord(one):04x}" for one in secret).encode()
    for shift in range(3):
        padded = base64.b64encode(b"\0" * shift + raw)
        inner = padded[4 if shift else 0 : -4]  # what does not depend on the neighbours
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")


def found_in(data: bytes, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if any(form in data for form in forms(secret))]


@pytest.mark.parametrize("secret", [canary("x"), SEED])
def test_the_search_finds_each_form(secret: str) -> None:
    spelt = [
        secret,
        secret.encode().hex(),
        json.dumps({"a": secret}),
        quote(f"a={secret}"),
        base64.b64encode(b"key:" + secret.encode() + b"!").decode(),
        base64.urlsafe_b64encode(b"k:" + secret.encode() + b"!").decode(),
    ]
    for text in spelt:
        assert found_in(text.encode(), [secret]) == [secret], text
    assert found_in(b"nothing of it", [secret]) == []


@dataclass(frozen=True)
class Sent:
    """One message with a secret in it."""

    place: str
    path: str
    body: bytes
    headers: dict[str, str]
    secret: str
    may_be_repeated: bool = False


def http_messages(key: str) -> Iterator[Sent]:
    good = {"X-MCP-API-Key": key, "Content-Type": "application/json"}
    header_safe = "Canary+/=header"
    for name in (
        "X-MCP-API-Key",
        "Authorization",
        "Cookie",
        "User-Agent",
        "X-Request-Id",
        "Mcp-Name",
        "Origin",
        "traceparent",
    ):
        value = f"Bearer {header_safe}{name}" if name == "Authorization" else f"{header_safe}{name}"
        headers = (
            {"Content-Type": "application/json", name: value}
            if name in ("X-MCP-API-Key", "Authorization")
            else good | {name: value}
        )
        for path, body in everyday_bodies():
            yield Sent(f"header {name}", path, body, headers, f"{header_safe}{name}")
    for path, body in everyday_bodies():
        yield Sent("query", f"{path}?key={quote('Canary+/=query', safe='')}", body, good, "Canary+/=query")
        yield Sent("path", f"{path}/{quote('Canary+/=path', safe='')}", body, good, "Canary+/=path")
    for path, place, body, may_be_repeated in bodies():
        yield Sent(place, path, body, good, canary(place) if place != "private key" else SEED, may_be_repeated)


def everyday_bodies() -> Iterator[tuple[str, bytes]]:
    yield "/mrt_dispatch", json.dumps({"tool": "unruly_echo", "args": {}}).encode()
    yield "/rpc", json.dumps(speak.rpc_message("unruly_echo", {})).encode()
    yield "/mcp", json.dumps(speak.mcp_message("unruly_echo", {}, modern=False)).encode()


def bodies() -> Iterator[tuple[str, str, bytes, bool]]:
    """(path, place, body, may the answer repeat it) for each face."""
    for place, tool, arguments in (
        ("secret argument of a wrong kind", "unruly_secret", {"password": [canary("secret argument of a wrong kind")]}),
        ("secret argument too long", "unruly_secret", {"password": canary("secret argument too long") * 9}),
        ("misspelt secret", "unruly_secret", {"pasword": canary("misspelt secret")}),
        ("argument that is refused", "unruly_write", {"name": {"x": canary("argument that is refused")}}),
        ("private key", "vrf_eval", {"seed_hex": "", "input_hex": "61", "priv_key_hex": SEED}),
    ):
        yield "/mrt_dispatch", place, json.dumps({"tool": tool, "args": arguments}).encode(), False
        yield "/rpc", place, json.dumps(speak.rpc_message(tool, arguments) | _rpc_tool(tool, arguments)).encode(), False
        yield "/mcp", place, json.dumps(speak.mcp_message(tool, arguments, modern=False)).encode(), False
    for path in ("/mrt_dispatch", "/rpc", "/mcp"):
        yield path, "malformed body", b'{"tool": ' + json.dumps(canary("malformed body")).encode(), False
        yield path, "another shape", json.dumps({canary("another shape"): canary("another shape")}).encode(), True
    unknown = canary("unknown tool")
    yield "/mrt_dispatch", "unknown tool", json.dumps({"tool": unknown, "args": {}}).encode(), True
    yield "/mcp", "unknown tool", json.dumps(speak.mcp_message(unknown, {}, modern=False)).encode(), True
    message = speak.rpc_message("unruly_echo", {})
    yield (
        "/rpc",
        "context",
        json.dumps(message | {"params": message["params"] | {"context": {"x": canary("context")}}}).encode(),
        False,
    )
    yield "/rpc", "id", json.dumps(message | {"id": canary("id")}).encode(), True
    yield "/rpc", "method", json.dumps(message | {"method": canary("method")}).encode(), True


def _rpc_tool(tool: str, arguments: Any) -> dict[str, Any]:
    known = {"vrf_eval": "mcp.tool:consensus.vrf_eval"}
    return {"params": {"tool": known.get(tool, speak.tool_id(tool)), "input": arguments}}


def everything_in(home: Home) -> bytes:
    """The whole home, but for what the settings and tools themselves keep: log, link, locks, stores."""
    kept = [path for path in home.path.rglob("*") if path.is_file() and not path.is_relative_to(home.workspace)]
    return b"\n".join(path.read_bytes() for path in kept)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly", "consensus"))


def test_over_http_no_secret_reaches_log_standard_error_or_answer(home: Home, tmp_path: Path) -> None:
    messages = list(http_messages(home.keys["admin"]))
    with home.serving() as server:
        for sent in messages:
            with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)) as connection:
                connection.request("POST", sent.path, sent.body, sent.headers)
                answer = connection.getresponse()
                seen = answer.read() + repr(answer.getheaders()).encode()
            assert sent.may_be_repeated or not found_in(seen, [sent.secret]), (sent.place, sent.path, seen)
            assert not found_in(seen, list(home.keys.values()))
        server.process.terminate()
        _, standard_error = server.process.communicate(timeout=PATIENCE_S)
    secrets = [*{sent.secret for sent in messages}, *home.keys.values()]
    assert found_in(standard_error, secrets) == []
    meant = {sent.secret for sent in messages if sent.place in RECORDED}
    assert set(found_in(everything_in(home), secrets)) == meant
    assert len(home.calls()) > len(messages) / 2, "the calls are there, without their secrets"


def test_over_a_pipe_no_secret_reaches_log_standard_error_or_answer(home: Home) -> None:
    lines = [(place, body, again) for path, place, body, again in bodies() if path != "/mrt_dispatch"]
    secrets = [*{canary(place) for place, _, _ in lines}, SEED, *home.keys.values()]
    peer = speak.Stdio(home, home.keys["admin"])
    try:
        for place, body, may_be_repeated in lines:
            answer = json.dumps(peer.ask(body)).encode()
            assert may_be_repeated or not found_in(answer, [canary(place), SEED]), (place, answer)
        code, standard_error = peer.end()
    finally:
        peer.close()
    assert code == 0
    assert found_in(standard_error, secrets) == []
    assert found_in(everything_in(home), secrets) == [canary("unknown tool")]
