"""The room as a whole: one list of tools, tiers from the manifest, settings that refuse what they do not know."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, make_home
from toolgate.errors import SettingsError, StartRefused
from toolgate.packs.governance import PACK
from toolgate.policy import contract
from toolgate.policy.bundle import load_decisions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.powers.sql.postgres import Postgres

AUTHORITATIVE = {
    "analyze_dissonance": "ADR-0008",
    "check_adr_compliance": "ADR-0009",
    "check_consent_requirements": "ADR-0010",
    "validate_l0_invariants": "ADR-0007",
}
EXPERIMENTAL = {"dummy_experimental", "query_fp_store"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("governed") / "home", packs=("governance", "unruly"))


@pytest.fixture(scope="module")
def server(home: Home) -> Iterator[Server]:
    with home.serving() as serving:
        yield serving


def listed(home: Home, server: Server) -> list[dict[str, Any]]:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", **speak.key_header(home.keys["admin"])}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": speak.META}}
    _, _, body = speak.send(server.port, "/mcp", message, headers)
    return list(body["result"]["tools"])


@pytest.mark.req("001-T1")
def test_every_authoritative_tool_has_an_accepted_record_of_its_own() -> None:
    manifest, adrs = load_decisions(None)
    rows = {tool.name: manifest.rows[tool.name] for tool in PACK.tools}
    assert {name: row.adr for name, row in rows.items() if row.tier == "authoritative"} == AUTHORITATIVE
    assert {name for name, row in rows.items() if row.tier == "experimental"} == EXPERIMENTAL
    assert all(adrs[adr].accepted for adr in AUTHORITATIVE.values())
    for tool in PACK.tools:
        if tool.name in EXPERIMENTAL:
            assert "block" not in tool.decisions
            assert not {"INVARIANT_VIOLATION", "CONSENT_REQUIRED"} & set(tool.error_codes)


def test_w05_w06_what_is_listed_is_what_the_manifest_holds_and_nothing_else_answers(home: Home, server: Server) -> None:
    names = {tool["name"] for tool in listed(home, server) if not tool["name"].startswith("unruly_")}
    assert names == {tool.name for tool in PACK.tools} == AUTHORITATIVE.keys() | EXPERIMENTAL
    key = home.keys["admin"]
    assert speak.mcp_modern(server.port, "get_server_info", {}, key).code == -32602


def test_w01_a_decision_of_another_spelling_is_no_answer_and_claims_in_the_payload_are_not_authority(
    home: Home, server: Server
) -> None:
    key = home.keys["admin"]
    for spelling in ("BLOCK", "Block", "block ", "deny"):
        heard = speak.mcp_modern(server.port, "unruly_claim", {"decision": spelling}, key)
        assert heard.code in ("INVALID_OUTPUT", "INVALID_INPUT")
        assert heard.envelope is not None
        assert "decision" not in heard.envelope
    nested = speak.mcp_modern(server.port, "unruly_echo", {"text": "decision: block"}, key)
    assert nested.envelope is not None
    assert "decision" not in nested.envelope


def test_w03_an_answer_that_is_no_answer_is_an_error_envelope_with_its_tier(home: Home, server: Server) -> None:
    heard = speak.mcp_modern(server.port, "unruly_claim", {"decision": "BLOCK"}, home.keys["admin"])
    assert heard.envelope is not None
    assert (heard.envelope["success"], heard.envelope["isError"], heard.envelope["tier"]) == (
        False,
        True,
        "experimental",
    )


def test_w27_the_contract_is_the_same_bytes_each_time_and_holds_no_time() -> None:
    manifest, adrs = load_decisions(None)
    first, second = (contract.render(contract.build([PACK], manifest, adrs)) for _ in range(2))
    assert first == second
    assert b"generatedAt" not in first


def test_w30_a_setting_of_another_name_refuses_the_start(tmp_path: Path) -> None:
    made = make_home(tmp_path / "home", settings="[packs.governance]\nblock_counter_table = 1\n")
    with pytest.raises(SettingsError, match="block_counter_table"):
        made.app()


@pytest.mark.parametrize(
    ("key", "value"), [("blocks_per_hour", "-1"), ("blocks_per_hour", '"many"'), ("write_scopes_allowed", '"contents"')]
)
def test_a_setting_of_the_wrong_kind_refuses_the_start(tmp_path: Path, key: str, value: str) -> None:
    made = make_home(tmp_path / "home", settings=f"[packs.governance]\n{key} = {value}\n")
    with pytest.raises(SettingsError, match=r"packs\.governance"):
        made.app()


def test_a_store_that_a_newer_toolgate_migrated_refuses_the_start_by_name(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    stores = f'[stores]\nfalse_positives = "{url}"\nconsent = "{url}"\n'
    made = make_home(tmp_path / "home", settings=stores)
    asyncio.run(made.app().close())
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE toolgate_schema SET version = 99 WHERE store = 'consent'")
    engine.dispose()
    with pytest.raises(StartRefused, match="store consent has schema version 99"):
        made.app()


def test_every_schema_is_closed_and_bounded() -> None:
    def walk(shape: Any, place: str) -> None:
        if isinstance(shape, list):
            for index, item in enumerate(shape):
                walk(item, f"{place}/{index}")
        if not isinstance(shape, dict):
            return
        kind = shape.get("type")
        if kind == "object":
            assert shape.get("additionalProperties") is False, place
        if kind == "string":
            assert "maxLength" in shape, place
        if kind in ("integer", "number"):
            assert {"minimum", "maximum"} <= shape.keys(), place
        if kind == "array":
            assert "maxItems" in shape, place
        for name, inner in shape.items():
            walk(inner, f"{place}/{name}")

    for tool in PACK.tools:
        walk(dict(tool.input_schema), f"{tool.name} in")
        walk(dict(tool.output_schema), f"{tool.name} out")
        assert tool.summary.endswith(".")


def test_progress_of_a_large_analysis_reaches_a_caller_that_asked(home: Home, server: Server) -> None:
    place = home.workspace / ".github" / "workflows"
    place.mkdir(parents=True)
    for number in range(120):
        (place / f"w{number}.yml").write_text("on: push\npermissions: {}\njobs: {a: {steps: [{run: x}]}}\n")
    import http.client
    import json

    message = speak.mcp_message("analyze_dissonance", {"files": [".github/workflows/w1.yml"]}, modern=True)
    message["params"]["_meta"] = {**speak.META, "progressToken": "p"}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "analyze_dissonance",
        **speak.key_header(home.keys["admin"]),
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request("POST", "/mcp", json.dumps(message), headers)
    text = connection.getresponse().read().decode()
    connection.close()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    told = [one["params"]["progress"] for one in events if one.get("method") == "notifications/progress"]
    assert told == sorted(told)
    assert told[-1] == 120
    assert events[-1]["result"]["structuredContent"]["data"]["analysis"]["filesAnalyzed"] == 120


def test_a_committed_contract_is_compared_with_the_one_the_server_runs_under(home: Home, server: Server) -> None:
    lock = (home.path / "policy" / "mcp-contract.json").read_bytes()

    def contract_findings(committed: bytes) -> list[tuple[str, str]]:
        (home.workspace / "mcp-contract.json").write_bytes(committed)
        heard = speak.mcp_modern(
            server.port, "analyze_dissonance", {"files": ["mcp-contract.json"]}, home.keys["admin"]
        )
        assert heard.envelope is not None
        found = heard.envelope["data"]["analysis"]["findings"]
        return [(one["severity"], one["title"]) for one in found if one["ruleId"] == "MD-003"]

    assert contract_findings(lock) == []
    changed = lock.replace(b"Deliberately wrong:", b"Perfectly good tool")
    assert changed != lock
    assert contract_findings(changed) == [
        ("critical", "Tool 'dummy_experimental' differs from the running server in description.")
    ]
    (home.workspace / "mcp-contract.json").unlink()
