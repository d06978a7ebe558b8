"""Pages of packs: what their tools did stands there as the log and the stores have it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from tests.console.filling import ANALYSED, EVENT, WORKFLOW
from tests.console.pages.seeded import keep_reviews
from tests.console.visiting import CONSOLE, Visitor, visitor
from tests.faces import speak
from tests.homes import Home, Server, environment, make_home
from toolgate.cli.policy import checks
from toolgate.config import load_settings
from toolgate.errors import ExitCode
from toolgate.model.tool import PanelCell, PanelTable
from toolgate.packs.consensus.domain.evidence import Equivocation
from toolgate.packs.consensus.domain.messages import Statement, Vote
from toolgate.packs.consensus.panels import _contradiction, _risen
from toolgate.packs.governance.stores.reviews import ReviewEvent


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    home = make_home(
        tmp_path_factory.mktemp("panels") / "home",
        packs=("governance", "library", "consensus"),
        settings=f"{CONSOLE}[packs.consensus]\nephemeral = true\n",
    )
    workflow = home.workspace / ".github" / "workflows" / "build.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(WORKFLOW)
    with home.serving() as server:
        yield home, server


@pytest.fixture(scope="module")
def admin(served: tuple[Home, Server]) -> Visitor:
    home, server = served
    return visitor(server, home.keys["admin"])


def asked(served: tuple[Home, Server], tool: str, arguments: object, role: str = "committer") -> dict[str, object]:
    home, server = served
    found = speak.HTTP_FACES["mrt"](server.port, tool, arguments, home.keys[role])
    assert found.envelope is not None
    data = found.envelope["data"]
    assert isinstance(data, dict), found
    return data


def table(page: str, title: str) -> list[list[str]]:
    """The rows of one table, as they are read."""
    found = re.search(rf">{title}</h2>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    assert found is not None, page
    rows = re.findall(r"<tr data-row>(.*?)</tr>", found[1], re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_an_analysis_is_shown_with_its_findings_by_severity_as_its_record_has_them(
    served: tuple[Home, Server], admin: Visitor
) -> None:
    analysis = asked(served, "analyze_dissonance", ANALYSED)["analysis"]
    assert isinstance(analysis, dict)
    asked_wrongly = speak.HTTP_FACES["mrt"](
        served[1].port, "analyze_dissonance", {"files": 1}, served[0].keys["builder"]
    )
    assert asked_wrongly.status == 400
    refused, record = served[0].calls()[-1], served[0].calls()[-2]
    assert sum(analysis["counts"].values()) > 0
    assert record["counts"] == analysis["counts"]
    assert "counts" not in refused
    page = admin.get("panels/governance/reviews").text
    second, first = table(page, "Analyses")
    assert first[2:] == ["ok", str(record["decision"]), *(str(count) for count in analysis["counts"].values())]
    assert (second[2], second[4:]) == ("bad_arguments", ["–"] * 5), "a call that was refused found nothing"
    for count in filter(None, analysis["counts"].values()):
        assert f'calls/{record["requestId"]}">{count}</a>' in page


def test_a_round_is_shown_with_its_evidence(served: tuple[Home, Server], admin: Visitor) -> None:
    round_id = asked(served, "consensus_propose", {"event": EVENT})["round_id"]
    proof = str(asked(served, "consensus_finality", {"round_id": round_id})["evidence"])
    page = admin.get("panels/consensus/rounds").text
    (standing,) = table(page, "Rounds")
    assert standing[:3] == [round_id, "QUORUM", "1"]
    evidence = table(page, "Evidence")
    assert [row[:2] for row in evidence] == [[round_id, "QUORUM"], [round_id, "SOFT"]]
    assert {row[2] for row in evidence} == {f"ACCEPT root {EVENT['merkle_root_hex'][:16]}…"}
    assert [row[3] for row in evidence] == ["1", "1"]
    assert evidence[0][5] == sha256(bytes.fromhex(proof)).hexdigest(), "of what the tool answers with"


def test_what_a_panel_leaves_out_is_said(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    events = [ReviewEvent(f"org-{n}", "MD-001", 1, f"{n:032x}", "repo", "pending", now) for n in range(6)]
    home = make_home(tmp_path / "home", packs=("governance",), settings=CONSOLE)
    keep_reviews(home, events)
    with home.serving() as server:
        page = visitor(server, home.keys["auditor"]).get("panels/governance/reviews").shown
    assert re.findall("Consent of (\\S+)", page) == ["local", "org-0", "org-1", "org-2", "org-3"]
    assert "The first 5 organisations are here" in page


def test_an_arbiter_that_contradicted_itself_and_evidence_that_cannot_be_read_are_named() -> None:
    votes = [Vote(b"n" * 32, 3, Statement(root * 32, b"r" * 32, 1), b"s" * 32, 1, b"x" * 64) for root in (b"a", b"b")]
    row = _contradiction(3, Equivocation(*votes))
    assert row[:3] == ["3", PanelCell("contradiction", "bad"), f"by {(b's' * 32).hex()}"]
    assert isinstance(row[3], PanelTable)
    assert [cells[1] for cells in row[3].rows] == [f"ACCEPT root {(root * 8).hex()}…" for root in (b"a", b"b")]
    assert _risen(3, "then", b"no evidence")[1] == PanelCell("cannot be read", "bad")


HEALTH = "panels/toolgate/contract-health"


def test_without_a_store_of_checks_the_page_of_the_contract_s_health_says_what_to_set(admin: Visitor) -> None:
    page = admin.get(HEALTH)
    assert (page.status, "stores.contract_checks" in page.shown, "<ol" in page.text) == (200, True, False)


def test_the_contract_s_health_is_what_checks_have_recorded(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'checks.db'}"
    home = make_home(tmp_path / "home", settings=f'{CONSOLE}[stores]\ncontract_checks = "{place}"\n')
    settings, now = load_settings(home.path, {}, {}), datetime.now(UTC)
    for hours, is_green, commit in ((72, False, "bad1"), (70, False, "bad2"), (60, True, "good")):
        checks.keep(settings, now - timedelta(hours=hours), is_green=is_green, digest="d", commit=commit)
    done = subprocess.run(home.command("contract", "check"), env=environment(), check=False, capture_output=True)
    assert done.returncode == ExitCode.DRIFT, done.stdout
    with home.serving() as server:
        page = visitor(server, home.keys["auditor"]).get(HEALTH).text
    marks = re.findall(r'<li class="(\w+)" title="([^"]*)">', page)
    assert len(marks) == 30
    red = {f"{(now - timedelta(hours=hours)).date()}: red" for hours in (72, 70, 0)}
    assert {title for tone, title in marks if tone == "bad"} == red, "the command's own check among them"
    facts = dict(table(page, "In numbers"))
    assert (facts["Now"], facts["Checks"], facts["First red commit"]) == ("red", "4", "bad1")
    assert facts["Longest red time"] == "12.0 h"
