"""What a model pays: for the list of every tool, and for the text of an answer beyond its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.clients import tokens
from tests.clients.conftest import Place
from tests.homes import speaking

pytestmark = pytest.mark.guard

ANSWERS: dict[str, dict[str, Any]] = {
    "dummy_experimental": {},
    "lra_init": {"project_name": "my-paper"},
    "lra_validate": {"path": "my-paper"},
    "library_search": {"query": "paper", "topK": 1},
    "validate_l0_invariants": {"workflowFiles": ["ci.yml"]},
    "analyze_dissonance": {"files": ["ci.yml"]},
    "vrf_eval": {"seed_hex": "", "input_hex": "00", "priv_key_hex": "01" * 32},
}
"""Good calls, in this order: the paper is made before it is judged."""


def test_the_list_of_every_tool_is_affordable(whole: Place, packages: Path) -> None:
    with speaking(whole.home, "admin") as ask:
        listed = ask("tools/list", {})["tools"]
    inputs, outputs = tokens.cost(listed, packages)
    assert len(listed) >= 20
    assert inputs <= tokens.MAX_INPUT
    assert outputs <= tokens.MAX_OUTPUT


def test_the_text_of_an_answer_costs_little_over_its_data(whole: Place, packages: Path) -> None:
    (whole.home.workspace / "ci.yml").write_text("on: push\npermissions: {}\njobs: {}\n")
    texts, data = {}, {}
    with speaking(whole.home, "admin") as ask:
        for tool, arguments in ANSWERS.items():
            result = ask("tools/call", {"name": tool, "arguments": arguments})
            assert not result["isError"], result
            texts[tool] = result["content"][0]["text"]
            data[tool] = tokens.compact(result["structuredContent"]["data"])
    counts = tokens.count([*texts.values(), *data.values()], packages)
    over = {tool: counts[at] - counts[len(texts) + at] for at, tool in enumerate(texts)}
    assert {tool: more for tool, more in over.items() if more > tokens.MAX_OVER} == {}
    assert json.loads(texts["dummy_experimental"].split("\n")[0]) == {"some": "payload"}
