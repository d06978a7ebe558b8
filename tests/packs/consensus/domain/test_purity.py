"""The domain reads no clock, draws nothing, and gives the same bytes everywhere; secrets stay where they are."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packs.consensus.nodes import Office, ballot, event

ROOT = Path(__file__).parents[4]
DOMAIN = ROOT / "src" / "toolgate" / "packs" / "consensus" / "domain"
ALLOWED_IMPORTS = {
    "__future__", "collections.abc", "enum", "functools", "hashlib", "hmac", "itertools", "msgspec", "struct", "typing",
    "nacl", "nacl.exceptions", "toolgate.kit", "toolgate.kit.ed25519",
}  # fmt: skip


def faults_of(source: str) -> list[str]:
    """Everything that could make two runs differ."""
    found = []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [f"import {each.name}" for each in node.names if each.name not in ALLOWED_IMPORTS]
        own = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolgate.packs.consensus.domain")
        if isinstance(node, ast.ImportFrom) and node.module not in ALLOWED_IMPORTS and not own:
            found.append(f"from {node.module}")
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            found.append(f"float {node.value}")
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            found.append("true division")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"hash", "float", "id", "open", "input"}
        ):
            found.append(f"{node.func.id}()")
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            found.append("async")
        if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
            found.append("iteration over a set")
    return found


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"set", "frozenset"}
    return isinstance(node, ast.Set | ast.SetComp)


@pytest.mark.req("004-D1")
@pytest.mark.parametrize("module", sorted(DOMAIN.glob("*.py")), ids=lambda path: path.name)
def test_domain_module_cannot_tell_two_runs_apart(module: Path) -> None:
    assert faults_of(module.read_text()) == []


@pytest.mark.parametrize(
    "source",
    ["import time", "import random", "from datetime import datetime", "import os", "x = 0.5", "x = 1 / 2", "hash('a')",
     "for x in {1, 2}: pass", "[x for x in set(y)]", "async def f(): pass", "import socket", "float('1')", "import asyncio"],
)  # fmt: skip
def test_scan_sees_what_it_looks_for(source: str) -> None:
    assert faults_of(source)


@pytest.mark.req("004-D2")
def test_nothing_in_the_pack_branches_on_one_arbiter() -> None:
    """No comparison of a size, a count of arbiters or n with the number one."""
    for module in DOMAIN.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                sides = [node.left, *node.comparators]
                ones = any(isinstance(side, ast.Constant) and side.value == 1 for side in sides)
                names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
                assert not (ones and names & {"n", "size", "arbiters", "quorum"}), f"{module.name}:{node.lineno}"


GOLDEN = """
import sys
sys.path.insert(0, {root!r})
from tests.packs.consensus.domain.people import *
from toolgate.packs.consensus.domain.replica import state_hash
network = network_of(7)
machine = replica(network)
for round_id in range(1, 9):
    for index in range(7):
        machine.see(vote(network, index, round_id, statement(round_id * (index > 0) + (index == 6))))
    machine.see(vote(network, 0, round_id, statement(50 + round_id)))
made = checkpoint(network, 1, 9, 0, [machine.shelf.get(number) for number in range(1, 9)])
machine.see(made)
for index in range(7):
    machine.see(vote(network, index, 9, made.statement()))
print(state_hash(network, [(number, one.digest()) for number, one in machine.shelf.rounds.items()]).hex())
print(machine.shelf.get(1).accepted().to_bytes().hex()[:64], machine.epoch)
"""
GOLDEN_ANSWER = "3bae435b5cb283013075e8e041b00918c8ae1e818c9287732bc78cfb02821861"


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_transcript_gives_the_same_hash_whatever_the_hash_seed(seed: str) -> None:
    """I10: a golden transcript. If this changes, arbiters of two versions no longer agree: bump the tags in the messages."""
    done = subprocess.run(
        [sys.executable, "-c", GOLDEN.format(root=str(ROOT))],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.split()[0] == GOLDEN_ANSWER


def test_private_keys_reach_no_answer_no_error_and_no_log(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    canary = "c0ffee" * 10 + "abcd"
    secrets = [
        canary,
        office.keys.seed("arbiter.key", use="voting").hex(),
        office.keys.seed("vrf.key", use="vrf").hex(),
    ]
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        said.append(repr(office.call("consensus_propose", event=event())))
        said.append(repr(office.call("consensus_vote", round_id="1", vote=ballot(), privKey=canary)))
        said.append(repr(office.call("vrf_eval", seed_hex="", input_hex="00", priv_key_hex=canary)))
        said.append(repr(office.call("vrf_eval", seed_hex="", input_hex="00")))
        for arguments in ({"priv_key_hex": canary[:62]}, {"priv_key_hex": secrets[1]}):
            try:
                office.call("vrf_eval", seed_hex="", input_hex="", **arguments)
            except Exception as fault:  # noqa: BLE001 (whatever it is, it must not tell)
                said.append(repr(fault) + str(fault) + repr(getattr(fault, "data", "")))
        said.append(repr(office.node()))
    office.close()
    stored = b"".join(path.read_bytes() for path in (office.home / "state").rglob("*") if path.is_file())
    everything = "".join(said) + caplog.text
    for secret in secrets:
        assert secret not in everything
        assert secret[:32] not in everything
        assert secret.encode() not in stored
        assert bytes.fromhex(secret) not in stored


def test_secret_arguments_are_marked_so_that_the_log_never_holds_them() -> None:
    from tests.packs.consensus.nodes import TOOLS

    assert TOOLS["consensus_vote"].input_schema["properties"]["privKey"]["x-secret"] is True
    assert TOOLS["vrf_eval"].input_schema["properties"]["priv_key_hex"]["x-secret"] is True
