"""The proof that packs are plug-ins: a stranger's pack, built and installed elsewhere, for which nothing in Toolgate was changed.

It has three tools, a prompt, a resource, a secret, an API behind a company's proxy, a store on either engine, two commands, a
service and a signing key; and it uses nothing that the guide does not name.
"""

from __future__ import annotations

import ast
import base64
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.powers.sql.postgres import Postgres
from tests.stranger.conftest import PACK, ROOT, TOKEN, Deployment
from tests.stranger.corporate import CREDENTIALS, TICKETS, Company
from toolgate.errors import ExitCode
from toolgate.kit import ed25519

GUIDE = (ROOT / "docs" / "guides" / "adding-a-tool.md").read_text()
SOURCES = sorted((PACK / "src" / "toolgate_pack_tickets").glob("*.py"))


@pytest.fixture
def deployment(elsewhere: Path, tmp_path: Path, company: Company) -> Deployment:
    return Deployment(elsewhere, tmp_path, company)


@pytest.fixture(scope="module")
def spoiled(elsewhere: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Its settings are wrong, each time otherwise: nothing that is started there comes to do anything."""
    place = tmp_path_factory.mktemp("spoiled")
    company = Company(place)
    yield Deployment(elsewhere, place, company)
    company.close()


@pytest.mark.guard
def test_both_packages_are_installed_elsewhere_and_neither_comes_from_the_clone(elsewhere: Path) -> None:
    code = "import toolgate, toolgate_pack_tickets as t; print(toolgate.__file__, t.__file__)"
    done = subprocess.run([elsewhere / "python", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert all(place.startswith(str(elsewhere.parent)) for place in done.stdout.split())


@pytest.mark.guard
def test_a_secret_reaches_the_tool_under_serve_stdio_and_call_alike(deployment: Deployment, company: Company) -> None:
    by_call = deployment.call("tickets_find", "query=printer")
    assert by_call.code == 0, by_call.err
    (by_serve,) = deployment.over_http(("tickets_find", {"query": "printer"}))
    by_stdio = deployment.over_stdio("mcp.tool:tickets.find", {"query": "printer"})
    found = [by_call.json["envelope"]["data"], by_serve["envelope"]["data"], by_stdio["result"]["data"]]
    assert found == [{"tickets": TICKETS, "asked": 1}] * 3, "and what a pack remembers ends with its server"
    assert [seen.headers["authorization"] for seen in company.seen] == [f"Bearer {TOKEN}"] * 3


@pytest.mark.guard
def test_the_api_is_reached_through_the_company_s_proxy_and_nothing_else_is(
    deployment: Deployment, company: Company
) -> None:
    assert deployment.call("tickets_find", "query=printer").code == 0
    company.elsewhere = True
    refused = deployment.call("tickets_find", "query=printer")
    assert refused.code == ExitCode.FAILED
    assert refused.json["details"]["reason"] == "address_refused"
    assert "does not declare this host" in refused.json["details"]["text"]
    proof = f"Proxy-Authorization: Basic {base64.b64encode(CREDENTIALS.encode()).decode()}"
    assert [head.split(" ")[1] for head in company.asked] == ["tracker.example:443"] * 2
    assert all(proof in head for head in company.asked)


@pytest.mark.guard
def test_a_secret_that_is_gone_is_named_to_the_operator_and_not_to_the_caller(deployment: Deployment) -> None:
    refused = deployment.run("call", "tickets_find", "--json", "query=x", TRACKER_TOKEN="")
    assert refused.code == ExitCode.FAILED
    assert refused.json["details"] == {"reason": "secret_unavailable"}
    assert "TRACKER_TOKEN" not in refused.out
    told = deployment.run("doctor", "--port", "0", TRACKER_TOKEN="")
    assert told.code == ExitCode.FAILED
    assert "env:TRACKER_TOKEN is not there" in told.out


@pytest.mark.guard
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_its_table_key_service_and_commands_work_on_either_engine(
    engine: str, elsewhere: Path, tmp_path: Path, company: Company, postgres: Postgres
) -> None:
    database = postgres.new_database() if engine == "postgresql" else None
    deployment = Deployment(elsewhere, tmp_path, company, database)
    note = ("tickets_note", {"ticket": "OPS-1", "note": "out of paper"})
    made = deployment.run("ticket-key")
    assert made.code == 0, made.err
    first, second, stamped = deployment.over_http(note, note, ("tickets_stamp", {"ticket": "OPS-1"}))
    assert [each["envelope"]["data"]["notes"] for each in (first, second)] == [1, 2]
    stamp = {name: bytes.fromhex(text) for name, text in stamped["envelope"]["data"].items()}
    assert ed25519.verify(stamp["key"], stamp["digest"], stamp["signature"])
    assert made.out.strip() == stamp["key"].hex()
    assert (deployment.home / "secrets" / "tickets.key.use").read_text() == "ticket-stamps\n"
    assert deployment.call("tickets_note", "ticket=OPS-2", "note=by hand").code == 0
    told = deployment.run("ticket-notes")
    assert told.json == {
        "notes": [["OPS-1", "out of paper"], ["OPS-1", "out of paper"], ["OPS-2", "by hand"]],
        "starts": 1,  # the server's; a call starts no service
    }
    assert (deployment.home / "state" / "stores" / "tickets.sqlite3").exists() is (engine == "sqlite")
    assert '"act":"tickets.key"' in deployment.run("audit", "tail", "--json").out


@pytest.mark.guard
def test_its_prompt_and_its_resource_are_calls_of_mcp_clients_like_ours(deployment: Deployment) -> None:
    assert deployment.call("tickets_note", "ticket=OPS-1", "note=drum is worn").code == 0
    ref = {"type": "ref/resource", "uri": "ticket:///{ticket}"}
    got, read, missing, completed = deployment.asked(
        ("prompts/get", {"name": "tickets_triage", "arguments": {"ticket": "OPS-1"}}),
        ("resources/read", {"uri": "ticket:///OPS-1"}),
        ("resources/read", {"uri": "ticket:///OPS-2"}),
        ("completion/complete", {"ref": ref, "argument": {"name": "ticket", "value": "ops"}}),
    )
    assert "tickets_note" in got["result"]["messages"][0]["content"]["text"]
    assert read["result"]["contents"][0]["text"] == "drum is worn"
    assert (missing["error"]["code"], missing["error"]["data"]["code"]) == (-32602, "NO_NOTES")
    assert completed["result"]["completion"]["values"] == ["OPS-1"]
    recorded = "".join(path.read_text() for path in (deployment.home / "runs").rglob("*.jsonl"))
    assert all(f"mcp.{kind}:tickets." in recorded for kind in ("prompt", "resource", "completion"))


@pytest.mark.guard
def test_its_commands_are_there_where_it_is_enabled_and_nowhere_else(spoiled: Deployment) -> None:
    spoiled.configure("")
    told = spoiled.run("--help", at_home=False)
    assert "Print the notes on tickets." in told.out
    (spoiled.home / "toolgate.toml").write_text("")
    assert "ticket-notes" not in spoiled.run("--help", at_home=False).out
    refused = spoiled.run("ticket-notes")
    assert refused.code == ExitCode.USAGE
    assert "No such command" in refused.err


@pytest.mark.guard
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ('tokn = "env:X"', "Did you mean token?"),
        ("token = 7", "packs.tickets.token"),
        ('token = "tok-4711"', "env:NAME or file:NAME"),
        ('url = "http://tracker.example"', "packs.tickets.url"),
        ('url = "https://tracker"', "is not a name like api.example.com"),
    ],
    ids=["unknown", "of the wrong type", "the secret itself", "off its pattern", "no host"],
)
def test_a_wrong_setting_is_refused_by_server_call_and_command_alike(
    wrong: str, told: str, spoiled: Deployment
) -> None:
    table = f"[packs.tickets]\n{wrong}\n"
    (spoiled.home / "toolgate.toml").write_text(f'[packs]\nenabled = ["tickets"]\n{table}')
    for command in (
        ["serve", "--port", "0"],
        ["call", "tickets_find", "query=x"],
        ["ticket-notes"],
        ["doctor", "--port", "0"],
    ):
        done = spoiled.run(*command)
        assert done.code == ExitCode.FAILED, command
        assert told in done.out + done.err, command
        assert "tok-4711" not in done.out + done.err


@pytest.mark.guard
def test_a_misspelt_store_is_refused_with_the_name_that_was_meant(spoiled: Deployment) -> None:
    spoiled.configure('[stores]\ntickts = "postgresql://u:geheim@h/d"\n')
    for command in (["call", "tickets_find", "query=x"], ["ticket-notes"]):
        done = spoiled.run(*command)
        assert done.code == ExitCode.FAILED
        assert "Did you mean stores.tickets?" in done.err
        assert "geheim" not in done.err


# -- it uses nothing that the guide does not name ---------------------------------------------------------------


def test_it_imports_only_what_the_guide_names() -> None:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "toolgate":
                assert f"`{node.module}`" in GUIDE, node.module
                for name in node.names:
                    assert re.search(rf"\b{name.name}\b", GUIDE), name.name


def test_it_asks_its_context_only_for_what_the_guide_lists() -> None:
    used = {found for source in SOURCES for found in re.findall(r"\b(?:ctx|context)\.([a-z_]+)", source.read_text())}
    assert used >= {"secrets", "net", "stores", "keys", "memory", "compute", "settings"}
    assert {name for name in used if f"`ctx.{name}`" not in GUIDE} == set()
