"""Every code that a shipped tool can say is declared, and every declared code can be said."""

from __future__ import annotations

import pytest

from tests.packs.codes import sayable
from toolgate.model.tool import COMMON_CODES, Tool
from toolgate.packs.loader import built_in, load_packs

TOOLS = {tool.name: tool for pack in load_packs(built_in()) for tool in pack.tools}
_CAUGHT = {"FILE_NOT_FOUND", "FILE_TOO_LARGE", "IO_ERROR"}
_LISTED = "what cannot be read is listed in the answer; a path that leaves the workspace is INVALID_INPUT"
_KEY_NAMES = "names of keys come from settings, whose schema lets no path through"
_DRAFT = ({"KEY_EXISTS"}, "no tool makes a key; a note beside one is drafted under a random name")

NEVER_SAID: dict[str, list[tuple[set[str], str]]] = {
    "analyze_dissonance": [(_CAUGHT | {"INVALID_PATH"}, _LISTED)],
    "check_adr_compliance": [({"INVALID_PATH"}, "a path that leaves the workspace is INVALID_INPUT")],
    "consensus_gossip": [
        ({"INVALID_PATH"}, _KEY_NAMES),
        _DRAFT,
        ({"BAD_SIGNATURE", "NOT_ARBITER", "WRONG_NETWORK"}, "said of one event, in the answer's list of rejected ones"),
    ],
    "consensus_propose": [({"INVALID_PATH"}, _KEY_NAMES), _DRAFT],
    "consensus_vote": [({"INVALID_PATH"}, _KEY_NAMES), _DRAFT],
    "dummy_experimental": [
        ({"INVARIANT_VIOLATION"}, "it may not declare it, and the floor takes it away: what it is for")
    ],
    "lra_init": [({"INVALID_METADATA"}, "licence, title and date are not the caller's")],
    "lra_sign": [
        ({"DIRECTORY_EXISTS", "FILE_EXISTS"}, "caught: somebody else claimed the number, and the next is tried"),
        _DRAFT,
    ],
    "lra_verify": [({"FILE_EXISTS"}, "only an exclusive write says it")],
    "validate_l0_invariants": [(_CAUGHT | {"INVALID_PATH"}, _LISTED)],
    "vrf_eval": [({"INVALID_PATH"}, _KEY_NAMES), _DRAFT],
}
"""What the source reader takes for sayable and is not, with the reason."""


def never_said(tool: Tool) -> set[str]:
    return {code for codes, _ in NEVER_SAID.get(tool.name, ()) for code in codes}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS.keys())
def test_f15_every_code_a_tool_can_say_is_declared(tool: Tool) -> None:
    found = sayable(tool)
    assert found - COMMON_CODES - set(tool.error_codes) == never_said(tool)
    assert not [code for code in found if code.startswith("?")], "a code is not written where it is raised"


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS.keys())
def test_f15_no_tool_declares_a_code_that_it_cannot_say(tool: Tool) -> None:
    assert set(tool.error_codes) <= sayable(tool)
    assert not COMMON_CODES & set(tool.error_codes)
