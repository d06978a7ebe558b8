"""What it means that two servers answer alike.

Compared: the status, the headers a client acts on, and the body. Some things are taken off our own answers first, because
they are what Toolgate adds on purpose: the governance envelope around a tool's data, what `tools/list` tells beyond the
definition of a tool, the words of an error (its code is compared, and its data where the specification gives it a shape), the
session of a greeting and what it announces beside tools; the reference serves tools only, and no sessions.
"""

from __future__ import annotations

from typing import Any

from tests.faces.speak import check_text
from tests.wire.world import Reply
from toolgate.model import advertised

DEFINITION = ("name", "description", "inputSchema", "outputSchema")
UNSUPPORTED_VERSION = -32022


def http(reply: Reply) -> dict[str, Any]:
    """An HTTP answer as far as it is compared."""
    return {
        "status": reply.status,
        "content-type": reply.media_type,
        "allow": reply.headers.get("allow"),
        "body": message(reply.json) if reply.media_type == "application/json" else bool(reply.body),
    }


def message(body: Any) -> Any:
    """A JSON-RPC message as far as it is compared."""
    if not isinstance(body, dict) or "jsonrpc" not in body:
        return body
    if "error" in body:
        return body | {"error": _error(body["error"])}
    return body | {"result": _result(body["result"])}


def _error(error: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(error["message"], str)
    assert error["message"], "an error without words"
    data = error.get("data") if error["code"] == UNSUPPORTED_VERSION else None
    return {"code": error["code"], "data": data}


def _result(result: dict[str, Any]) -> dict[str, Any]:
    if "tools" in result:
        return result | {"tools": [_tool(tool) for tool in result["tools"]]}
    if "content" in result:
        return _called(result)
    if "capabilities" in result:
        assert "tools" in result["capabilities"]
        return result | {"capabilities": None}
    return result


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    kept = {name: tool[name] for name in DEFINITION}
    wrapped = kept["outputSchema"].get("properties", {})
    if "environment" in wrapped:
        return kept | {"outputSchema": wrapped["data"]}
    # The reference lists what is enforced; ours lists what is advertised of it.
    light = advertised.output_schema(kept["outputSchema"])["properties"]["data"]
    return kept | {"inputSchema": advertised.input_schema(kept["inputSchema"]), "outputSchema": light}


def _called(result: dict[str, Any]) -> dict[str, Any]:
    """A failed call is compared by its flag alone."""
    structured = result.get("structuredContent")
    if isinstance(structured, dict) and "success" in structured:
        check_text(result["content"][0]["text"], structured)
    kinds = [block["type"] for block in result["content"]]
    data = structured.get("data") if isinstance(structured, dict) and "environment" in structured else structured
    return result | {"content": kinds, "structuredContent": None if result["isError"] else data}
