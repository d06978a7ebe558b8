"""What leaves a page: the line that proves a call, pasted and run; and files, which say what the log says."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.visiting import Visitor, call, console, visitor
from tests.homes import PATIENCE_S, TOOLGATE, Home, Server, environment
from tests.waiting import until
from toolgate.ledger.reading.export import _COLUMNS, FORMS

FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://evil.example")', 'a"b,c', "two words")
"""Names of tools that callers made up: what a spreadsheet would run, and what CSV has to quote."""
RUN = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    with console(tmp_path_factory.mktemp("taken away") / "home") as (home, server):
        for name in FORMULAS:
            call(server.port, home.keys["builder"], name, X_Request_ID="=2+2")
        for role in ("builder", "committer", "admin"):
            assert call(server.port, home.keys[role], "dummy_experimental") == 200
        call(server.port, "nobody", "dummy_experimental")
        yield home, server


@pytest.fixture
def auditor(served: tuple[Home, Server]) -> Visitor:
    return visitor(served[1], served[0].keys["auditor"])


def outcomes(home: Home) -> list[dict[str, Any]]:
    return [each for each in home.calls() if each["event"] == "outcome"]


def test_the_line_of_a_call_is_pasted_run_and_verifies(
    served: tuple[Home, Server], auditor: Visitor, tmp_path: Path
) -> None:
    home, _ = served
    request = outcomes(home)[-2]["requestId"]
    page = auditor.get(f"calls/{request}")
    found = re.search(r'<code class="wrap">(toolgate audit prove [^<]*)</code>', page.text)
    assert found is not None
    line = html.unescape(found[1])
    until(lambda: pasted(line, tmp_path).returncode == 0, "a checkpoint covers the call")
    proved = pasted(line, tmp_path)
    proof = json.loads(proved.stdout)
    assert json.loads(proof["record"])["requestId"] == request
    (tmp_path / "proof.json").write_text(proved.stdout)
    key = re.search(r'Log key: <code class="wrap">([^<]*)</code>', page.text)
    assert key is not None
    check = f"toolgate audit check-proof proof.json --key {shlex.quote(html.unescape(key[1]))}"
    assert pasted(check, tmp_path).returncode == 0
    forged = proof | {"record": proof["record"].replace(request, "0" * len(request))}
    (tmp_path / "proof.json").write_text(json.dumps(forged))
    assert pasted(check, tmp_path).returncode != 0


def pasted(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """By a shell, as a person does it."""
    path = str(Path(TOOLGATE).parent)
    return subprocess.run(
        ["sh", "-c", f'PATH="{path}:$PATH"; {line}'],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_json_lines_are_the_records_of_the_log_oldest_first(served: tuple[Home, Server], auditor: Visitor) -> None:
    home, _ = served
    seen = auditor.get("calls.jsonl")
    assert seen.headers["Content-Disposition"] == 'attachment; filename="calls.jsonl"'
    assert "X-Toolgate-Cut" not in seen.headers
    assert [json.loads(line) for line in seen.text.splitlines()] == outcomes(home)


def test_a_table_has_a_row_for_each_record_and_says_what_it_says(served: tuple[Home, Server], auditor: Visitor) -> None:
    home, _ = served
    rows = list(csv.DictReader(io.StringIO(auditor.get("calls.csv").raw.decode(), newline="")))
    records = outcomes(home)
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert {name: meant(cell) for name, cell in row.items()} == {
            name: told(record, path) for name, path in _COLUMNS.items()
        }


def told(record: dict[str, Any], path: tuple[str, ...]) -> str:
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def meant(cell: str) -> str:
    """Without the mark that keeps a spreadsheet from running it."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in RUN else cell


def test_no_cell_of_a_table_is_a_formula(served: tuple[Home, Server], auditor: Visitor) -> None:
    """The log spells tabs and returns out; where a record has others, the same mark stands before them."""
    text = auditor.get("calls.csv").raw.decode()
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert [cell for cell in cells if cell.startswith(RUN)] == []
    assert {f"'{name}" for name in FORMULAS if name.startswith(RUN[:4])} <= {*cells}
    assert {"'=2+2", 'a"b,c', "two words"} <= {*cells}
    for start in RUN:
        made = "".join(FORMS["csv"]([{"askedTool": f"{start}1+1"}]))
        assert f"'{start}1+1" in [*csv.reader(io.StringIO(made, newline=""))][1]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"], ids=repr)
def test_an_end_of_line_within_a_cell_begins_no_row(end: str) -> None:
    text = "".join(FORMS["csv"]([{"askedTool": f"a{end}=1+1,b"}]))
    assert f'"a{end}=1+1,b"' in text
    assert len(list(csv.reader(io.StringIO(text, newline="")))) == 2


def test_a_file_holds_what_the_filters_of_its_page_select(served: tuple[Home, Server], auditor: Visitor) -> None:
    home, _ = served
    refused = [each for each in outcomes(home) if (each.get("error") or {}).get("happening") == "unknown_tool"]
    assert len(refused) == len(FORMULAS)
    query = "verdict=unknown_tool"
    assert [json.loads(line) for line in auditor.get(f"calls.jsonl?{query}").text.splitlines()] == refused
    assert len(list(csv.reader(io.StringIO(auditor.get(f"calls.csv?{query}").text)))) == len(refused) + 1
    own = visitor(served[1], home.keys["committer"]).get("calls.jsonl").text.splitlines()
    assert [json.loads(line)["caller"]["role"] for line in own] == ["committer"]
