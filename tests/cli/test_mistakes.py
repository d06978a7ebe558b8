"""Mistakes of a first week, as strangers made them, and the sentence that each must be answered with.

A row is a command (or a change to a home, then a command) and what a person must read: the thing that is wrong by its name,
and what to do. `HOME`, `KEY` and `BUILDER` stand for a home and two keys of it, `TAKEN` for a port that somebody else listens on.
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.support import Commands, process, serving


class Mistake(NamedTuple):
    command: str
    sentences: tuple[str, ...]
    before: Callable[[Path], object] = lambda home: None
    variables: tuple[tuple[str, str], ...] = ()


def _write(place: str, text: str, mode: int = 0o600) -> Callable[[Path], object]:
    def write(home: Path) -> None:
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text(text)
        (home / place).chmod(mode)

    return write


def _append(place: str, text: str) -> Callable[[Path], object]:
    return lambda home: (home / place).write_text((home / place).read_text() + text)


def _gold(home: Path) -> None:
    manifest = home / "policy" / "mcp-tools.policy.json"
    rows = json.loads(manifest.read_text())
    next(row for row in rows["tools"] if row["name"] == "dummy_experimental")["x-tier"] = "gold"
    manifest.write_text(json.dumps(rows))


def _keys_readable(home: Path) -> None:
    for file in (home / "keys").rglob("*"):
        file.chmod(0o644)


def _called(home: Path) -> None:
    process("call", "lra_init", "--key", "nonsense", "--home", str(home), cwd=home)


CALL = "call {} --key KEY --home HOME"
TABLE = [
    # Settings, flags and variables
    Mistake("serve --home HOME --set server.prot=1", ("there is no setting server.prot", "Did you mean server.port?")),
    Mistake("serve --home HOME --prot 1", ("No such option: --prot", "--port")),
    Mistake("serve --home HOME --port 99999", ("server.port is out of range", "from 0 to 65535")),
    Mistake("serve --home HOME --set limits.concurrency_per_caller=many", ("is not a whole number", "from 1 to 10000")),
    Mistake("serve --home HOME --host 0.0.0.0", ("server.allowed_hosts is empty", "Name the Host headers")),
    Mistake("serve --home HOME --port TAKEN", ("Cannot listen on 127.0.0.1 port", "in use", "--port 0")),
    Mistake("serve --home nowhere", ("does not exist", "toolgate init")),
    Mistake(
        "serve --home HOME --packs-enabled governanc", ("pack governanc is not installed", "Did you mean governance?")
    ),
    Mistake(
        "config print --home HOME",
        ("there is no setting TOOLGATE_SERVER_PROT", "Did you mean TOOLGATE_SERVER_PORT?"),
        variables=(("TOOLGATE_SERVER_PROT", "1"),),
    ),
    Mistake(
        "config print --home HOME",
        ("server.pots", "Did you mean server.port?"),
        _write("toolgate.toml", "[server]\npots = 1\n"),
    ),
    Mistake("config print --home HOME", ("toolgate.toml", "line"), _append("toolgate.toml", "\n[server\n")),
    Mistake(
        "doctor --home HOME",
        ("write_scope_allowed", "Did you mean write_scopes_allowed?"),
        _append("toolgate.toml", "\n[packs.governance]\nwrite_scope_allowed = []\n"),
    ),
    # Homes, keys and roles
    Mistake("keys create --role admin", ("is not a home of Toolgate", "--home DIR")),
    Mistake("init HOME", ("already has toolgate.toml", "name another place")),
    Mistake("keys create --role support --home HOME", ("'support' is not one of 'builder', 'committer', 'admin'",)),
    Mistake("keys create --role admin --expires soon --home HOME", ("give a number and a unit: 90m, 12h, 30d or 8w",)),
    Mistake("keys revoke nosuch --home HOME", ("There is no key with this id", "toolgate keys list")),
    Mistake("call dummy_experimental --home HOME", ("API key is required", "Set TOOLGATE_API_KEY")),
    Mistake("call dummy_experimental --key= --home HOME", ("API key is required", "Set TOOLGATE_API_KEY")),
    Mistake("call dummy_experimental --key ${KEY} --home HOME", ("a variable that was not expanded",)),
    Mistake("call dummy_experimental --key tg_nope --home HOME", ("API key is invalid",)),
    Mistake(
        "call dummy_experimental --home HOME",
        ("TOOLGATE_API_KEY_FILE names a file that cannot be read", "Check its path"),
        variables=(("TOOLGATE_API_KEY_FILE", "nosuch"),),
    ),
    Mistake("serve --home HOME --port 0", ("The key file can be used by others", "chmod 600"), _keys_readable),
    Mistake("call lra_init project_name=x --key BUILDER --home HOME", ("builder may not call lra_init",)),
    Mistake(
        'call analyze_dissonance mode=calibration files:=["a"] --key BUILDER --home HOME',
        ("builder may not call analyze_dissonance with mode=calibration",),
    ),
    # Calls and their arguments
    Mistake(CALL.format("lra_validat path=a"), ("Unknown tool: lra_validat. Did you mean lra_validate?",)),
    Mistake(CALL.format("zzzzzz"), ("Unknown tool: zzzzzz", "toolgate tools list")),
    Mistake("tools show lra_int --home HOME", ("There is no tool lra_int", "Did you mean lra_init?")),
    Mistake(CALL.format("lra_init"), ("project_name is missing; expected a project name of 1 to 255 bytes",)),
    Mistake(CALL.format("lra_init name=x"), ("name is not an argument of this tool; it takes project_name",)),
    Mistake(
        CALL.format("lra_init project_nam=x"),
        ("project_nam is not an argument of this tool. Did you mean project_name?",),
    ),
    Mistake(CALL.format("lra_serve port:=80"), ("port is an integer; expected an integer from 1024 to 65535",)),
    Mistake(
        CALL.format("consensus_vote round_id=1 vote:={}"),
        ("vote.merkle_root_hex is missing", "vote.vote_type is missing; expected one of ACCEPT, REJECT or ABSTAIN"),
    ),
    Mistake(CALL.format("consensus_vote round_id=1 vote=ACCEPT"), ("vote is a string; expected an object with",)),
    Mistake(CALL.format("analyze_dissonance files=a.yml"), ("files is a string; expected a list",)),
    Mistake(CALL.format("lra_sign receipt=a.json key=/etc/passwd"), ("key is a string; expected",)),
    Mistake(CALL.format("lra_validate path=../x"), ("path is a string; expected", "relative to the workspace")),
    Mistake(CALL.format("lra_validate path=nosuch"), ("Cannot read nosuch: file not found",)),
    Mistake(CALL.format("lra_verify"), ("target",)),
    Mistake(CALL.format("lra_init justtext"), ("Write NAME=TEXT, or NAME:=JSON",)),
    Mistake(CALL.format("lra_init project_name:={"), ("not strict JSON at line 1 column 1",)),
    Mistake(CALL.format("lra_init --args [1]"), ("--args is not a JSON object", "Write --args")),
    Mistake(
        "call dummy_experimental --key KEY --url http://127.0.0.1:9",
        ("no answer from 127.0.0.1:9: Connection refused",),
    ),
    Mistake("call dummy_experimental --key KEY --url 127.0.0.1:8000", ("give http://HOST:PORT",)),
    # The other commands
    Mistake("-h", ("Usage: toolgate", "First steps: toolgate init")),
    Mistake(
        "audit check-proof PROOF --key nosuch.pub",
        ("There is no key file nosuch.pub", "audit-log.pub"),
        _write("proof.json", "{}"),
    ),
    Mistake("audit tail --tool lra_int --home HOME", ("no record matches", "Did you mean lra_init?"), _called),
    Mistake("l0 --workflow nosuch.yml", ("nosuch.yml is not there",)),
    Mistake("analyze nosuch", ("nosuch is not there",)),
    Mistake("analyze HOME", ("is not a repository", ".git")),
    Mistake("adr check", ("There is no decision record", "ADR-0001-title.md")),
    Mistake("adr check nosuch.py", ("nosuch.py is not there",)),
    Mistake("serv", ("No such command 'serv'. Did you mean 'serve'?",)),
    Mistake("contract diff a.json --home HOME", ("There is no file a.json", "toolgate contract build")),
    Mistake(
        "contract check --home HOME", ("mcp-tools.policy.json", "line 1"), _write("policy/mcp-tools.policy.json", "{")
    ),
    Mistake(
        "policy lint --home HOME",
        ("row dummy_experimental", 'x-tier: "gold" is not one of "authoritative" or "experimental"'),
        _gold,
    ),
    Mistake("audit tail --since soon --home HOME", ("soon is not a time", "90s, 90m, 2d")),
    Mistake("mcp-config cursr --home HOME", ("'cursr' is not one of", "'cursor'")),
    Mistake(
        "lra verify http://127.0.0.1:9/x", ("127.0.0.1:9 is this machine", "nothing answers at the target's address")
    ),
]


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A home and its keys; every row works on a copy."""
    home = tmp_path_factory.mktemp("mistakes") / "home"
    assert process("init", str(home), cwd=home.parent).code == 0
    keys = {}
    for word, role in (("KEY", "admin"), ("BUILDER", "builder")):
        made = process("keys", "create", "--role", role, "--json", "--home", str(home), cwd=home.parent)
        keys[word] = str(made.json["key"])
    return home, keys


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        yield str(somebody.getsockname()[1])


@pytest.mark.parametrize("row", TABLE, ids=[row.command for row in TABLE])
def test_d_a_mistake_is_answered_with_its_name_and_a_way_out(
    row: Mistake,
    furnished: tuple[Path, dict[str, str]],
    taken: str,
    toolgate: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, keys = furnished
    home = Path(shutil.copytree(original, tmp_path / "home", symlinks=True))
    row.before(home)
    for name, value in row.variables:
        monkeypatch.setenv(name, value)
    words = {"HOME": str(home), "PROOF": str(home / "proof.json"), "TAKEN": taken, **keys}
    done = toolgate(*(words.get(word, word) for word in row.command.split()))
    said = done.out + done.err
    for sentence in row.sentences:
        assert sentence in said
    assert "MRT" not in said
    assert "Traceback" not in said


ASKED_ELSEWHERE = {
    "lra_validat path=a": "Unknown tool: lra_validat. Did you mean lra_validate?",
    "lra_init name=x": "name is not an argument of this tool; it takes project_name.",
    'consensus_vote round_id=1 vote:={"vote_type":"MAYBE"}': "vote.vote_type is a string; expected one of ACCEPT, REJECT",
}


def test_d_a_mistake_is_told_as_well_by_a_server_elsewhere(
    furnished: tuple[Path, dict[str, str]], toolgate: Commands
) -> None:
    home, keys = furnished
    with serving("--home", str(home), cwd=home.parent) as (_, ready):
        for asked, sentence in ASKED_ELSEWHERE.items():
            done = toolgate("call", *asked.split(), "--key", keys["KEY"], "--url", ready["url"])
            assert sentence in done.err
            assert "MRT" not in done.err


def test_the_table_has_no_fewer_rows_than_were_graded() -> None:
    assert len({(row.command, row.sentences) for row in TABLE}) == len(TABLE) >= 54
