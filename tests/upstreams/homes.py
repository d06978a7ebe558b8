"""Homes that have adopted the stub, each with a behaviour of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faces import speak
from tests.homes import Home, make_home
from tests.upstreams.support import STUB
from toolgate.config import load_settings
from toolgate.kit.pins import pin_of, read_pin
from toolgate.packs.upstream.names import served_names
from toolgate.policy.manifest import MANIFEST_FILE
from toolgate.upstreams import describe, pin_path, read_tables

ROLES = ("builder", "committer", "admin")


class NoSecrets:
    def read(self, source: str) -> str:
        raise AssertionError(source)


def toml_of(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"[upstreams.{name}]"]
    lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


class Swapping:
    """A stub whose behaviour is changed after it was adopted."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "behaviour"
        self.log = folder / "log"
        self.behave("good")

    def table(self, **more: Any) -> dict[str, Any]:
        return stub_table(f"@{self._file}", self.log, **more)

    def behave(self, behaviour: str) -> None:
        self._file.write_text(behaviour)


def stub_table(behaviour: str, log: Path, **more: Any) -> dict[str, Any]:
    return {"command": [sys.executable, str(STUB), behaviour], "env": {"STUB_LOG": str(log)}, **more}


def adopting_home(
    path: Path,
    tables: Mapping[str, Mapping[str, Any]],
    *,
    roles: Sequence[str] = ROLES,
    reads: Sequence[str] = (),
    packs: Sequence[str] = ("governance",),
    settings: str = "",
    asks: Mapping[str, Sequence[str]] | None = None,
    rows: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> Home:
    """A home with these upstreams, each pinned as it is now, everything given to `roles`. `rows`: more for rows of packs.
    `rules`: of adopted tools, by served name."""
    text = settings + "\n" + "".join(toml_of(name, table) for name, table in tables.items())
    home = make_home(path, packs=packs, settings=text, rows=rows)
    for name in tables:
        pin_now(home, name)
        give(home, name, roles, reads, asks, rules)
    return home


def pin_now(home: Home, name: str) -> None:
    settings = load_settings(home.path, {}, {})
    table = read_tables(settings)[name]
    offer, peer = asyncio.run(describe(table, NoSecrets()))
    path = pin_path(home.path / "policy", name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pin_of(name, peer, offer).as_bytes())


def give(
    home: Home,
    name: str,
    roles: Sequence[str],
    reads: Sequence[str] = (),
    asks: Mapping[str, Sequence[str]] | None = None,
    rules: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> None:
    """A row for each pinned tool, prompt and resource. `asks`: by served name, what it may ask of a client."""
    pin = read_pin(pin_path(home.path / "policy", name).read_bytes())
    table = read_tables(load_settings(home.path, {}, {}))[name]
    file = home.path / "policy" / MANIFEST_FILE
    manifest = json.loads(file.read_bytes())
    definitions = {place: item.definition for place, item in pin.places().items()}
    for served in served_names(name, table.prefix, definitions, ())[0].values():
        row = {"name": served, "x-pack": f"upstream-{name}", "x-tier": "experimental", "x-roles": list(roles)}
        row["x-visibilityHint"] = "from an upstream"
        row |= {"x-effect": "read"} if served in reads else {}
        row |= {"x-rules": list(rules[served])} if rules and served in rules else {}
        manifest["tools"].append(row | ({"x-asks": list(asks[served])} if asks and served in asks else {}))
    file.write_text(json.dumps(manifest))


def ask(
    face: str, port: int, tool: tuple[str, str], arguments: Any, key: str | None, once: str | None = None
) -> tuple[int, dict[str, Any]]:
    """(status, body) of a call of (upstream, its tool) over one of the HTTP faces. `once`: an idempotency key."""
    upstream, own = tool
    name = f"{upstream}_{own}"
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    headers |= {} if once is None or face.startswith("mcp") else {"idempotency-key": once}
    if face == "mrt":
        status, _, body = speak.send(port, "/mrt_dispatch", {"tool": name, "args": arguments}, headers)
    elif face == "rpc":
        params = {"tool": f"mcp.tool:upstream.{upstream}.{own}", "input": arguments}
        message = {"id": "1", "jsonrpc": "2.0", "method": "mcp.tool.invoke", "params": params}
        status, _, body = speak.send(port, "/rpc", message, headers)
    else:
        modern = face == "mcp modern"
        version = "2026-07-28" if modern else "2025-11-25"
        headers |= {"mcp-protocol-version": version, "accept": "application/json, text/event-stream"}
        headers |= {"mcp-method": "tools/call", "mcp-name": name} if modern else {}
        message = speak.mcp_message(name, arguments, modern=modern)
        if once is not None:
            message["params"]["_meta"] = {**message["params"].get("_meta", {}), "toolgate/idempotency-key": once}
        status, _, body = speak.send(port, "/mcp", message, headers)
    return status, body


FACES = ("mrt", "rpc", "mcp modern", "mcp handshake")
