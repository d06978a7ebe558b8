"""Reads the configuration of MCP clients: `mcpServers` of Claude Desktop, Claude Code and Cursor, `servers` of VS Code.

What comes out is the table of each server as toolgate.toml has it, and the secrets that were found on the way, to be written into
the secrets directory. A server that cannot be taken over safely is left out, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from toolgate.kit.secretlike import is_named_secret, looks_secret
from toolgate.model import strictjson

MAX_SERVERS: Final = 100
_INPUT: Final = re.compile(r"\$\{input:[^}]*\}")
_FROM_ENVIRONMENT: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""A text, a comment, or a comma before a closing bracket: editors write JSON with the last two."""


class ImportFault(ValueError):
    """The file is not a client's configuration. The text says why."""


class Imported(Struct, frozen=True):
    """One server, ready for `[upstreams.NAME]`."""

    name: str
    table: Mapping[str, Any]
    secrets: Mapping[str, str] = field(default_factory=dict)
    """File name in the secrets directory -> value. The table refers to them."""
    notes: tuple[str, ...] = ()


class SkippedServer(Struct, frozen=True):
    name: str
    reason: str


def read_configuration(data: bytes) -> tuple[list[Imported], list[SkippedServer]]:
    """Raises: ImportFault."""
    servers = _servers(_plain_json(data))
    if len(servers) > MAX_SERVERS:
        raise ImportFault(f"it names more than {MAX_SERVERS} servers")
    taken: set[str] = set()
    imported: list[Imported] = []
    skipped: list[SkippedServer] = []
    for label, given in servers.items():
        name = upstream_name(label, taken)
        try:
            imported.append(_server(name, given))
            taken.add(name)
        except ImportFault as fault:
            skipped.append(SkippedServer(label[:80], str(fault)))
    return imported, skipped


def upstream_name(label: str, taken: set[str]) -> str:
    """`Brave Search` -> `brave-search`; a name that is taken gets a number."""
    plain = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-").lstrip("0123456789-")[:28] or "server"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    return name


def _plain_json(data: bytes) -> Any:
    """Raises: ImportFault."""
    try:
        text = data.decode("utf-8-sig")
        without = _TOKEN.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
        return strictjson.loads(without.encode(), max_values=None)
    except UnicodeDecodeError:
        raise ImportFault("it is not text in UTF-8") from None
    except strictjson.JsonFault as fault:
        raise ImportFault(f"it is {fault}") from None


def _servers(content: Any) -> Mapping[str, Any]:
    if isinstance(content, dict):
        nested = content.get("mcp")
        places = (
            content.get("mcpServers"),
            content.get("servers"),
            nested.get("servers") if isinstance(nested, dict) else None,
        )
        for found in places:
            if isinstance(found, dict):
                return found
    raise ImportFault('it has neither "mcpServers" nor "servers"')


def _server(name: str, given: Any) -> Imported:
    """Raises: ImportFault."""
    if not isinstance(given, dict):
        raise ImportFault("it is not an object")
    if given.get("disabled") is True:
        raise ImportFault("it is disabled there")
    if given.get("type") == "sse":
        raise ImportFault(
            "it uses the HTTP+SSE transport of 2024, which is deprecated; ask for its streamable HTTP address"
        )
    secrets: dict[str, str] = {}
    notes: list[str] = []
    if isinstance(given.get("url"), str):
        table: dict[str, Any] = {"url": _safe(given["url"], "its address")}
        _take_over(name, "headers", given.get("headers"), table, secrets, notes)
    elif isinstance(given.get("command"), str):
        table = {"command": [given["command"], *_arguments(given.get("args", []))]}
        _take_over(name, "env", given.get("env"), table, secrets, notes)
        if isinstance(given.get("cwd"), str) and given["cwd"].startswith("/"):
            table["directory"] = given["cwd"]
    else:
        raise ImportFault("it has neither a command nor a url")
    return Imported(name, table, secrets, tuple(notes))


def _arguments(given: Any) -> Iterator[str]:
    if not isinstance(given, list) or not all(isinstance(server, str) for server in given):
        raise ImportFault("its args are not a list of texts")
    named = False
    for server in given:
        if named and not server.startswith("-"):
            raise ImportFault(
                "it takes a secret as an argument, which every user of this machine could read; use a variable"
            )
        named = server.startswith("-") and "=" not in server and is_named_secret(server.lstrip("-").replace("-", "_"))
        yield _safe(server, "an argument")


def _safe(text: str, what: str) -> str:
    """Raises: ImportFault: it holds a secret, or something that only the client could fill in."""
    flag, _, value = text.rpartition("=")
    if looks_secret(value) or (value and flag and is_named_secret(flag.lstrip("-").replace("-", "_"))):
        raise ImportFault(
            f"{what} seems to carry a secret, which every user of this machine could read; use a variable"
        )
    if "${" in text:
        raise ImportFault(f"{what} holds a variable of the client's own; write the value")
    return text


def _take_over(
    name: str, key: str, given: Any, table: dict[str, Any], secrets: dict[str, str], notes: list[str]
) -> None:
    """Variables or headers: secrets become references. Raises: ImportFault."""
    if given is None:
        return
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ImportFault(f"its {key} is not an object of texts")
    found = {}
    for variable, value in given.items():
        before, blank, last = value.rpartition(" ")
        if _INPUT.search(value):
            found[variable] = before + blank + _reference(name, variable)
            notes.append(
                f"{variable} is asked for by the client: write it into secrets/{_file(name, variable)} (chmod 600)"
            )
        elif whole := _FROM_ENVIRONMENT.fullmatch(last):
            found[variable] = f"{before}{blank}env:{whole[1]}"
        elif last and (looks_secret(last) or is_named_secret(variable)):
            found[variable] = before + blank + _reference(name, variable)
            secrets[_file(name, variable)] = last
        else:
            found[variable] = value
    if found:
        table[key] = found


def _file(name: str, variable: str) -> str:
    return f"upstream-{name}-{re.sub(r'[^a-z0-9]+', '-', variable.lower()).strip('-')}"


def _reference(name: str, variable: str) -> str:
    return f"file:{_file(name, variable)}"
