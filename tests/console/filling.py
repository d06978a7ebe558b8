"""What the pages of packs have to show: a month of checks, analyses, rounds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.console.visiting import call
from tests.homes import Home, Server
from toolgate.cli.policy import checks
from toolgate.config import load_settings

WORKFLOW = """\
on: pull_request_target
permissions: write-all
jobs:
  build:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
"""
EVENT = {"merkle_root_hex": f"{7:064x}", "rule_version_hash_hex": f"{0xABC:064x}"}
ANALYSED = {"files": [".github/workflows/build.yml"]}


def full_panels(folder: Path) -> str:
    """Settings: a store of checks, and an arbiter that needs no keys."""
    return f'[packs.consensus]\nephemeral = true\n[stores]\ncontract_checks = "sqlite:///{folder / "checks.db"}"\n'


def write_workflow(home: Home) -> None:
    workflow = home.workspace / ".github" / "workflows" / "build.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(WORKFLOW)


def fill_panels(home: Home) -> None:
    write_workflow(home)
    with ThreadPoolExecutor(1) as thread:  # where a browser is driven, this one has a loop already
        thread.submit(_keep_checks, home).result()


def _keep_checks(home: Home) -> None:
    settings, now = load_settings(home.path, {}, {}), datetime.now(UTC)
    for day in (1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 20, 27):
        commit = f"{day:040x}"
        checks.keep(settings, now - timedelta(days=day), is_green=day not in (8, 9), digest="d", commit=commit)


def call_for_panels(home: Home, server: Server) -> None:
    for number in range(3):
        event = EVENT | {"merkle_root_hex": f"{number:064x}"}
        assert call(server.port, home.keys["committer"], "consensus_propose", {"event": event}) == 200
        assert call(server.port, home.keys["committer"], "analyze_dissonance", ANALYSED) == 200
