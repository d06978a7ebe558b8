"""A server that shows nothing of itself loads nothing for it: what a real process has imported, by its own account."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faces import speak
from tests.homes import make_home
from tests.servers.observed.test_metrics import fetched

LOADED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)
WATCHING = {
    "console": ("toolgate.console", "jinja2", "markupsafe"),
    "metrics": ("prometheus_client", "toolgate.telemetry.exposition"),
    "traces": ("opentelemetry", "google.protobuf", "toolgate.telemetry.tracing", "toolgate.telemetry.exporting"),
}
"""What each kind of watching is made of."""
SETTINGS = {
    "off": "",
    "console": "[console]\nenabled = true\n",
    "metrics": "[metrics]\nenabled = true\n",
    "traces": '[traces]\nendpoint = "http://127.0.0.1:9/v1/traces"\nsample = 1.0\n',
}


def loaded(folder: Path, settings: str) -> set[str]:
    """The modules that a server imported from its start to its end, a call and a scrape between."""
    said = folder / "said"
    home = make_home(folder / "home", settings=settings)
    within = ("sh", "-c", f'exec "{sys.executable}" -X importtime "$@" 2>"{said}"', "sh")
    with home.serving(within=within) as server:
        assert speak.mrt(server.port, "dummy_experimental", {}, home.keys["builder"]).status == 200
        assert fetched(server.port, "/console/")[0] == (303 if "console" in settings else 404)
        key = speak.key_header(home.keys["admin"])
        assert fetched(server.port, **key)[0] == (200 if "metrics" in settings else 404)
    return set(LOADED.findall(said.read_text()))


def of(parts: Sequence[str], modules: set[str]) -> set[str]:
    return {name for name in parts if any(each == name or each.startswith(f"{name}.") for each in modules)}


@pytest.mark.parametrize("on", SETTINGS)
def test_only_what_is_turned_on_is_loaded(tmp_path: Path, on: str) -> None:
    found = loaded(tmp_path, SETTINGS[on])
    assert "toolgate.gate.road" in found, "the account is whole"
    for kind, parts in WATCHING.items():
        assert of(parts, found) == (set(parts) if kind == on else set()), kind
