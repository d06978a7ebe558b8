"""The contract: what every tool promises and what policy says about it, as one sorted JSON file that is committed.

The committed file is the lock (`mcp-contract.json`). It holds no time and nothing that depends on the machine, so that
`built == committed` can be true; each tool, each pack and the whole carry a digest, so that a difference has a place.
A digest is SHA-256 over the canonical JSON (RFC 8785) of the object without its own `digest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, get_args

import jsonschema_rs

from toolgate.errors import StartRefused
from toolgate.kit import canonical
from toolgate.model import advertised, strictjson
from toolgate.model.call import Tier
from toolgate.model.offers import offered
from toolgate.model.tool import Effect
from toolgate.policy.adr import Adr
from toolgate.policy.manifest import LOCK_FILE, default_file, read_json

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.model.tool import Pack, Tool
    from toolgate.policy.manifest import Manifest, ManifestRow

SCHEMA_VERSION: Final = "1.1.0"
MAX_LOCK_BYTES: Final = 16 * 1024 * 1024
"""A tool takes some 5 KB; this is room for thousands."""

Contract = dict[str, Any]

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_FLAG: Final = {"type": "boolean"}
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_SCHEMA: Final = {"type": "object", "$ref": "https://json-schema.org/draft/2020-12/schema"}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": dict(properties)}


def _list(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(properties)}


_SHAPE: Final = _object(
    {
        "schemaVersion": {"const": SCHEMA_VERSION},
        "digest": _TEXT,
        "packs": _list({"name": _TEXT, "digest": _TEXT, "tools": _TEXTS}),
        "adrs": _list({"id": _TEXT, "status": _TEXT, "sha256": _TEXT}),
        "deprecations": _list({"tool": _TEXT, "what": _TEXT, "announced": _TEXT, "text": _TEXT}),
        "tools": _list(
            {
                "name": _TEXT,
                "id": _TEXT,
                "pack": _TEXT,
                "description": _TEXT,
                "annotations": _object({"title": _TEXT, **dict.fromkeys(_HINTS, _FLAG)}),
                "inputSchema": _SCHEMA,
                "outputSchema": _SCHEMA,
                "x-tier": {"enum": get_args(Tier)},
                "x-adr": {"type": ["string", "null"]},
                "x-visibilityHint": _TEXT,
                "roles": _TEXTS,
                "argumentRoles": {"type": "object", "additionalProperties": _TEXTS},
                "effect": {"enum": get_args(Effect)},
                "deadlineSeconds": {"type": "number"},
                "errorCodes": _TEXTS,
                "decisions": _TEXTS,
                "digest": _TEXT,
            }
        ),
    }
)
"""What every reader of a lock may rely on. Whether it says the truth is found by building it again."""


@cache
def _validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(_SHAPE)


def build(packs: Iterable[Pack], manifest: Manifest, adrs: Mapping[str, Adr]) -> Contract:
    """The contract of these packs under this manifest. Tools without a row are left out: judge them before (`rules`)."""
    tools = tool_entries(packs, manifest)
    return assemble(
        tools=tools,
        adrs=adr_entries(tools, adrs),
        deprecations=[each.as_json() for each in manifest.deprecations],
    )


def tool_entries(packs: Iterable[Pack], manifest: Manifest) -> list[dict[str, Any]]:
    """What the contract says about each tool that has a row, before anything is digested."""
    return [
        _tool_entry(pack.name, tool, manifest.rows[tool.name], manifest)
        for pack in packs
        for tool in offered(pack)
        if tool.name in manifest.rows and tool.foreign is None  # an adopted tool is locked by its pin
    ]


def adr_entries(tools: Iterable[Mapping[str, Any]], adrs: Mapping[str, Adr]) -> list[dict[str, str]]:
    """The records that these tools rest on, as far as they exist."""
    bound = sorted({tool["x-adr"] for tool in tools} & adrs.keys())
    return [{"id": each, "status": adrs[each].status, "sha256": adrs[each].sha256} for each in bound]


def assemble(
    *,
    tools: Sequence[Mapping[str, Any]],
    adrs: Sequence[Mapping[str, Any]],
    deprecations: Sequence[Mapping[str, Any]],
) -> Contract:
    """Put entries into their one order and digest them."""
    tools = [{**tool, "digest": digest(tool)} for tool in sorted(tools, key=lambda tool: str(tool["name"]))]
    packs = [_pack_entry(name, tools) for name in sorted({tool["pack"] for tool in tools})]
    contract = {
        "schemaVersion": SCHEMA_VERSION,
        "adrs": sorted(adrs, key=lambda adr: adr["id"]),
        "deprecations": sorted(deprecations, key=lambda each: (each["tool"], each["what"], each["announced"])),
        "packs": packs,
        "tools": tools,
    }
    return contract | {"digest": digest(contract)}


def _tool_entry(pack: str, tool: Tool, row: ManifestRow, manifest: Manifest) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if tool.asks:
        more["asks"] = sorted(row.asks & set(tool.asks))
    if row.rules:
        more["rules"] = [rule.as_json() for rule in row.rules]
    if bases := manifest.bases(row):
        more["roleBases"] = bases
    if tool.kind == "resource":
        more["uri"] = tool.offer.uri
    return more | {
        "name": tool.name,
        "id": tool.canonical_id,
        "pack": pack,
        "description": tool.summary,
        "annotations": advertised.hints(tool, row.tier),
        "inputSchema": _plain(tool.input_schema),
        "outputSchema": _plain(tool.output_schema),
        "x-tier": row.tier,
        "x-adr": row.adr,
        "x-visibilityHint": row.hint,
        "roles": sorted(row.roles),
        "argumentRoles": {name: sorted(roles) for name, roles in sorted(tool.argument_roles.items())},
        "effect": tool.effect,
        "deadlineSeconds": _plain(tool.deadline_s),
        "errorCodes": sorted(tool.error_codes),
        "decisions": sorted(tool.decisions),
    }


def _pack_entry(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    entry = {"name": name, "tools": {tool["name"]: tool["digest"] for tool in tools if tool["pack"] == name}}
    return {"name": name, "tools": list(entry["tools"]), "digest": digest(entry)}


def _plain(value: Any) -> Any:
    """A copy as the lock will hold it: lists for tuples, and 1 for 1.0, which no reader must tell apart."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    whole = isinstance(value, float) and value.is_integer() and abs(value) <= strictjson.MAX_SAFE_INTEGER
    return int(value) if whole else value


def digest(value: Mapping[str, Any]) -> str:
    return sha256(canonical.dumps({key: item for key, item in value.items() if key != "digest"})).hexdigest()


def render(contract: Contract) -> bytes:
    """The bytes of the lock: sorted keys, two spaces, a newline at the end."""
    return strictjson.dumps_pretty(
        strictjson.loads(strictjson.dumps_sorted(contract), max_bytes=MAX_LOCK_BYTES, max_values=None)
    )


def read_lock(path: Path | None) -> Contract:
    """Read a committed contract; None reads the packaged one. Raises: StartRefused."""
    try:
        lock: Contract = read_json(path or default_file(LOCK_FILE), max_bytes=MAX_LOCK_BYTES)
    except StartRefused as fault:
        raise StartRefused(f"{fault.args[0].partition(chr(10))[0]}\nMake it with `toolgate contract build`.") from None
    if not _validator().is_valid(lock):
        raise StartRefused(
            f"{path or LOCK_FILE} is not a contract of version {SCHEMA_VERSION}.\nMake it with `toolgate contract build`."
        )
    return lock


def adrs_of(contract: Contract) -> dict[str, Adr]:
    """The decision records a contract was built with: their files are not in a wheel."""
    return {adr["id"]: Adr(adr["id"], adr["status"], adr["sha256"]) for adr in contract["adrs"]}


def part(contract: Contract, packs: Iterable[str]) -> Contract:
    """What a contract says about some packs only, to be compared; digests of the whole do not go with a part."""
    names = frozenset(packs)
    tools = [tool for tool in contract["tools"] if tool["pack"] in names]
    bound = {tool.get("x-adr") for tool in tools}
    known = {tool["name"] for tool in tools}
    return {
        "adrs": [adr for adr in contract["adrs"] if adr["id"] in bound],
        "deprecations": [each for each in contract["deprecations"] if each["tool"] in known],
        "packs": [pack for pack in contract["packs"] if pack["name"] in names],
        "tools": tools,
    }
