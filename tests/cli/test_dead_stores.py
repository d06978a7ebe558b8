"""A3: what a server says of its stores when it starts."""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.support import process, serving
from tests.homes import PATIENCE_S
from tests.powers.sql.dynamodb import REGION, shared_dynamodb
from tests.powers.sql.postgres import shared_postgres
from tests.waiting import until

DEAD = "postgresql://u:geheim@127.0.0.1:1/d"


def readiness(url: str) -> tuple[int, dict[str, bool]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    connection.request("GET", "/readyz")
    reply = connection.getresponse()
    found = json.loads(reply.read())["checks"]
    connection.close()
    return reply.status, found


@pytest.mark.parametrize(
    ("variables", "silent"),
    [
        (["FALSE_POSITIVES", "CONSENT"], ["store false_positives does not answer", "store consent does not answer"]),
        (["CONSENSUS"], ["store consensus does not answer"]),
    ],
    ids=["binding", "consensus"],
)
def test_a3_a_store_that_is_down_at_start_is_said_at_start(
    home: Path, tmp_path: Path, variables: list[str], silent: list[str]
) -> None:
    stores = {f"TOOLGATE_STORES_{name}": DEAD for name in variables}
    with serving("--home", str(home), cwd=tmp_path, **stores) as (server, told):
        assert (told["environment"], told["notes"]) == ("local", silent)
        checks = {"policy": True, "contract": True, "log": True, "stores": False, "limits": True}
        assert readiness(told["url"]) == (503, checks)
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE_S) == 0
        assert server.stderr
        said = server.stderr.read()
    assert [line for line in silent if f"note: {line}" not in said] == []
    assert "geheim" not in said


def test_a3_one_shared_and_one_local_store_is_local_and_ready(home: Path, tmp_path: Path) -> None:
    url = shared_postgres().new_database()
    with serving("--home", str(home), cwd=tmp_path, TOOLGATE_STORES_CONSENT=url) as (_, told):
        assert told["environment"] == "local"
        assert told["notes"] == ["store false_positives is not on a shared engine"]
        assert readiness(told["url"])[0] == 200


@pytest.mark.guard
def test_d8_tables_named_by_the_documents_variables_make_a_server_cloud_or_say_why_not(
    home: Path, tmp_path: Path
) -> None:
    dynamodb = shared_dynamodb()
    tables = {"FP_TABLE_NAME": dynamodb.new_table(), "CONSENT_TABLE_NAME": "not-there", "AWS_REGION": REGION}
    with serving("--home", str(home), cwd=tmp_path, **dynamodb.environment, **tables) as (_, told):
        missing = "store consent has no table of that name in its region. Create it, or correct the setting"
        assert (told["environment"], told["notes"]) == ("local", [missing])
        assert readiness(told["url"]) == (
            503,
            {"policy": True, "contract": True, "log": True, "stores": False, "limits": True},
        )
    tables["CONSENT_TABLE_NAME"] = tables["FP_TABLE_NAME"]
    with serving("--home", str(home), cwd=tmp_path, **dynamodb.environment, **tables) as (_, told):
        until(lambda: readiness(told["url"])[0] == 200 or None, "both tables answer")

    def answers() -> bool | None:
        done = process("doctor", "--home", str(home), "--port", "0", cwd=tmp_path, **dynamodb.environment, **tables)
        return "false_positives in DynamoDB, consent in DynamoDB answer" in done.out or None

    until(answers, "doctor finds both tables")
