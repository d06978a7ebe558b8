"""The floor's truth table through real servers: every face, local and cloud, cloud with a real PostgreSQL and a DynamoDB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import waiting
from tests.cli.support import process
from tests.faces import speak
from tests.homes import Home, Server, make_home
from tests.powers.sql.dynamodb import REGION, DynamoDb, shared_dynamodb
from tests.powers.sql.postgres import Postgres, shared_postgres

L0 = "validate_l0_invariants"
ANALYZE = "analyze_dissonance"


def drift(current: float, threshold: float = 0.2) -> dict[str, Any]:
    metrics = {"currentMetric": {"name": "score", "value": current}, "baselineMetric": {"name": "score", "value": 100}}
    return {"checks": ["drift-magnitude"], "driftCheck": {**metrics, "threshold": threshold}}


class World:
    """One server and every way to speak to it."""

    def __init__(self, home: Home, server: Server) -> None:
        self.home = home
        self.server = server

    def ask(self, face: str, tool: str, arguments: Any, role: str = "admin") -> speak.Heard:
        key, port = self.home.keys[role], self.server.port
        if face == "cli":
            return speak.command_line(self.home, tool, arguments, key, self.server)
        if face == "rpc":
            message = speak.rpc_message(tool, arguments)
            owner = "" if tool.startswith("unruly_") else "governance."
            message["params"]["tool"] = "mcp.tool:" + (owner + tool if owner else tool.replace("_", ".", 1))
            return speak.heard_rpc(*speak.send(port, "/rpc", message, speak.key_header(key)))
        return speak.HTTP_FACES[face](port, tool, arguments, key)

    def envelope(self, face: str, tool: str, arguments: Any, role: str = "admin") -> dict[str, Any]:
        found = self.ask(face, tool, arguments, role).envelope
        assert found is not None
        return found


FACES = ("mrt", "rpc", "mcp modern", "mcp handshake")
AND_COMMAND_LINE = [*FACES, pytest.param("cli", marks=pytest.mark.guard)]
"""A process for each call: seconds for the table."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = make_home(tmp_path_factory.mktemp("local") / "home", packs=("governance", "unruly"))
    with home.serving() as server:
        yield World(home, server)


class Cloud(World):
    def __init__(self, home: Home, server: Server, engine: Postgres | DynamoDb) -> None:
        super().__init__(home, server)
        self.engine = engine


@pytest.fixture(scope="module", params=["postgresql", pytest.param("dynamodb", marks=pytest.mark.guard)])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    engine: Postgres | DynamoDb
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "postgresql":
            engine = shared_postgres()
            stores = f'[stores]\nfalse_positives = "{engine.new_database()}"\nconsent = "{engine.new_database()}"\n'
        else:
            engine = shared_dynamodb()
            tables = f'fpTableName = "{engine.new_table()}"\nconsentTableName = "{engine.new_table()}"\n'
            stores = f'{tables}awsRegion = "{REGION}"\n'
            for name, value in engine.environment.items():
                patch.setenv(name, value)
        home = make_home(tmp_path_factory.mktemp("cloud") / "home", packs=("governance", "unruly"), settings=stores)
        with home.serving() as server:
            world = Cloud(home, server, engine)
            until(lambda: world.envelope("mrt", L0, drift(90)), "cloud")
            yield world


def floor(envelope: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    return tuple(envelope.get(key) for key in ("decision", "code", "isError", "degradedMode"))  # type: ignore[return-value]


CLAIM = "unruly_claim"
EXPERIMENTAL = [
    ({"decision": "block", "code": "INVARIANT_VIOLATION"}, ("warn", None, False, None)),
    ({"decision": "pass", "code": "CONSENT_REQUIRED"}, ("pass", None, False, None)),
    ({"decision": "warn"}, ("warn", None, None, None)),
    ({"code": "CONSENT_REQUIRED", "isError": True}, (None, None, True, None)),
    ({"code": "INVALID_INPUT"}, (None, "INVALID_INPUT", None, None)),
    ({"code": "EXECUTION_FAILED", "decision": "pass"}, ("pass", "EXECUTION_FAILED", None, None)),
]
AUTHORITATIVE = [
    (drift(50), "block", "INVARIANT_VIOLATION"),
    (drift(90), "pass", None),
]


@pytest.mark.req("001-T1", "001-T2", "001-L0-13", "001-E1")
@pytest.mark.parametrize("face", AND_COMMAND_LINE)
def test_the_truth_table_in_the_local_environment(local: World, face: str) -> None:
    for claimed, wanted in EXPERIMENTAL:
        envelope = local.envelope(face, CLAIM, claimed)
        assert (envelope["tier"], envelope["environment"], floor(envelope)) == ("experimental", "local", wanted)
    for arguments, decision, code in AUTHORITATIVE:
        envelope = local.envelope(face, L0, arguments)
        softened = "warn" if decision == "block" else decision
        assert (envelope["tier"], envelope["environment"]) == ("authoritative", "local")
        assert floor(envelope) == (softened, code, False, True)
        assert envelope["success"] is True
        if decision == "block":
            assert envelope["clamps"] == [
                {"rule": "local-never-blocks", "field": "decision", "from": "block", "to": "warn"}
            ]


@pytest.mark.req("001-T2", "001-E1")
@pytest.mark.parametrize("face", AND_COMMAND_LINE)
def test_the_truth_table_in_the_cloud_environment(cloud: World, face: str) -> None:
    for claimed, wanted in EXPERIMENTAL:
        envelope = cloud.envelope(face, CLAIM, claimed)
        assert (envelope["tier"], envelope["environment"], floor(envelope)) == ("experimental", "cloud", wanted)
    for arguments, decision, code in AUTHORITATIVE:
        envelope = cloud.envelope(face, L0, arguments)
        assert (envelope["tier"], envelope["environment"]) == ("authoritative", "cloud")
        assert floor(envelope) == (decision, code, None, None)


@pytest.mark.parametrize("face", ["mcp modern", "mcp handshake"])
def test_w04_an_error_keeps_its_code_and_its_one_is_error(local: World, cloud: World, face: str) -> None:
    assert floor(local.envelope(face, L0, {})) == (None, "INVALID_INPUT", True, True)
    assert floor(cloud.envelope(face, L0, {})) == (None, "INVALID_INPUT", True, None)
    denied = {"queryType": "fp_rate", "orgId": "nobody", "ruleId": "MD-001"}
    for world in (local, cloud):
        envelope = world.envelope(face, "query_fp_store", denied)
        assert (envelope["success"], floor(envelope)) == (False, (None, "ACCESS_DENIED", True, None))


def test_w02_the_payload_arrives_as_the_tool_gave_it(local: World) -> None:
    for face in FACES:
        assert local.envelope(face, "dummy_experimental", {})["data"] == {"some": "payload"}


def test_w11_errors_hold_no_stack_no_path_and_no_nonce(local: World) -> None:
    secret = "nonce-0123456789"
    arguments = {"nonceValidation": {"nonce": secret, "timestamp": "2025-02-30T00:00:00Z"}}
    for face in FACES:
        text = str(local.ask(face, L0, arguments).body)
        assert "invalid_timestamp" in text
        assert "Traceback" not in text
        assert str(local.home.path) not in text
        assert secret not in text
    assert secret not in str(local.home.records())


def test_consent_required_binds_in_the_cloud_and_advises_locally(local: World, cloud: World) -> None:
    ask = {"orgId": "acme", "checkType": "required_for_operation", "tool": "query_fp_store", "operation": "fp_rate"}
    for face in FACES:
        assert floor(cloud.envelope(face, "check_consent_requirements", ask)) == (
            "block",
            "CONSENT_REQUIRED",
            None,
            None,
        )
        assert floor(local.envelope(face, "check_consent_requirements", ask)) == (
            "warn",
            "CONSENT_REQUIRED",
            False,
            True,
        )


def workflow(world: World, text: str) -> None:
    place = world.home.workspace / ".github" / "workflows"
    place.mkdir(parents=True, exist_ok=True)
    (place / "x.yml").write_text(text)


def test_an_analysis_blocks_in_the_cloud_with_file_and_line(cloud: World) -> None:
    workflow(cloud, "on: push\npermissions: write-all\njobs: {a: {steps: [{run: x}]}}\n")
    for face in FACES:
        envelope = cloud.envelope(face, ANALYZE, {"files": [".github/workflows/x.yml"]})
        assert envelope["decision"] == "block"
        assert envelope["data"]["analysis"]["findings"][0]["evidence"][0] == {
            "path": ".github/workflows/x.yml",
            "line": 2,
            "snippet": "permissions: write-all",
        }


def test_a_baseline_is_for_committers_and_admins(local: World) -> None:
    workflow(local, "on: push\npermissions: {}\njobs: {a: {steps: [{run: x}]}}\n")
    arguments = {"files": [".github/workflows/x.yml"], "mode": "calibration", "context": "acme/shop"}
    assert local.ask("mrt", ANALYZE, arguments, "builder").code == "auth_insufficient_role"
    assert local.envelope("mrt", ANALYZE, arguments, "committer")["decision"] == "pass"


def test_a_baseline_of_nobody_is_refused(local: World) -> None:
    workflow(local, "on: push\npermissions: {}\njobs: {a: {steps: [{run: x}]}}\n")
    asked = local.ask("mrt", ANALYZE, {"files": [".github/workflows/x.yml"], "mode": "calibration"}, "committer")
    assert asked.code == "validation_failed"


def test_a_nonce_is_good_once_over_all_faces_together(cloud: World) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    arguments = {"nonceValidation": {"nonce": "only-once", "timestamp": stamp}}
    assert [cloud.envelope(face, L0, arguments)["decision"] for face in FACES] == ["pass", "block", "block", "block"]


def until(say: Callable[[], dict[str, Any]], environment: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        envelope = say()
        return envelope if envelope["environment"] == environment else None

    found = waiting.until(look, f"the environment is {environment}")
    assert found is not None
    return found


BINDING = "Validate L0 invariants (authoritative, cloud)"


def titles(world: World) -> dict[str, str]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"authorization": f"Bearer {world.home.keys['admin']}"}
    tools = speak.send(world.server.port, "/mcp", message, headers)[2]["result"]["tools"]
    assert {tool["name"]: tool["annotations"]["title"] for tool in tools} == {
        each["name"]: each["title"] for each in tools
    }
    return {tool["name"]: tool["title"] for tool in tools}


def test_the_titles_of_our_tools_say_tier_and_environment(local: World, cloud: World) -> None:
    here, there = titles(local), titles(cloud)
    assert (here[L0], there[L0]) == (BINDING.replace("cloud", "local"), BINDING)
    assert here["dummy_experimental"].endswith("(experimental, local)")
    assert {title.rpartition(", ")[2] for title in there.values()} == {"cloud)"}


def test_w08_stopping_the_engine_makes_answers_local_and_starting_it_makes_them_binding_again(cloud: Cloud) -> None:
    def say() -> dict[str, Any]:
        return cloud.envelope("mrt", L0, drift(50))

    assert floor(say()) == ("block", "INVARIANT_VIOLATION", None, None)
    cloud.engine.stop()
    try:
        envelope = until(say, "local")
        assert floor(envelope) == ("warn", "INVARIANT_VIOLATION", False, True)
        assert any("does not answer" in note for note in envelope["notes"])
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        fresh = {"nonceValidation": {"nonce": "while-down", "timestamp": stamp}}
        closed = cloud.envelope("mrt", L0, fresh)["data"]["validation"]["results"][0]
        assert (closed["passed"], closed["evidence"]["singleUse"]) == (False, "store_unavailable")
        ask = {"orgId": "acme", "checkType": "validate", "resources": ["fp_metrics"]}
        assert (
            cloud.envelope("mrt", "check_consent_requirements", ask)["data"]["resources"][0]["state"] == "unavailable"
        )
        assert titles(cloud)[L0] == BINDING, "what clients were shown of a tool does not change with an outage"
        open_ = cloud.envelope("mrt", ANALYZE, {"files": ["x"], "context": "acme/shop"})["data"]["analysis"]
        assert open_["confidence"] == "unavailable"
    finally:
        cloud.engine.start()
    assert floor(until(say, "cloud")) == ("block", "INVARIANT_VIOLATION", None, None)


def test_the_same_call_over_stdio_gets_the_same_verdict(local: World) -> None:
    with speak.stdio(local.home) as pipe:
        assert floor(pipe.mcp(L0, drift(50)).envelope or {}) == ("warn", "INVARIANT_VIOLATION", False, True)
        assert floor(pipe.mcp("dummy_experimental", {}).envelope or {}) == ("warn", None, False, None)


HIDDEN = {
    ".github/workflows/.release.yml": "on: push\npermissions: write-all\njobs: {a: {steps: [{run: x}]}}\n",
    ".github/actions/build/action.yml": "runs:\n  using: composite\n  steps:\n    - uses: a/b@v1\n",
    ".github/reusables/hook/action.yml": "runs:\n  using: composite\n  steps:\n    - uses: c/d@v1\n",
    "node_modules/x/action.yml": "runs:\n  using: composite\n  steps:\n    - uses: e/f@v1\n",
}


def test_the_command_and_the_tool_judge_the_same_files(local: World) -> None:
    """Names that begin with a dot, and folders that are called like others' or generated ones."""
    place = local.home.workspace / "same"
    for name, text in HIDDEN.items():
        for root in (place, local.home.workspace):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    (place / ".github" / "workflows" / "link.yml").symlink_to("/etc/hostname")
    (local.home.workspace / ".github" / "workflows" / "link.yml").symlink_to("/etc/hostname")
    try:
        told = local.envelope("mrt", ANALYZE, {"files": [".github/workflows/.release.yml"]})["data"]["analysis"]
    finally:
        for name in (*HIDDEN, ".github/workflows/link.yml"):
            (local.home.workspace / name).unlink()
    by_command = process("analyze", str(place), "--zizmor", "off", "--json", cwd=place).json["analysis"]

    def judged(analysis: dict[str, Any]) -> set[tuple[str, str]]:
        return {(one["ruleId"], one["evidence"][0]["path"]) for one in analysis["findings"]}

    assert (
        judged(told)
        == judged(by_command)
        == {
            ("L0-002", ".github/workflows/.release.yml"),
            ("MD-002", ".github/actions/build/action.yml"),
            ("MD-002", ".github/reusables/hook/action.yml"),
        }
    )
    assert told["skipped"] == by_command["skipped"] == [{"path": ".github/workflows/link.yml", "reason": "is_a_link"}]
