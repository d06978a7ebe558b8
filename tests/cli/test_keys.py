"""`toolgate keys`."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from tests.cli.support import Commands
from toolgate.errors import ExitCode
from toolgate.gate.keys import KeyRing


@pytest.fixture(autouse=True)
def _home(tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").touch()


def test_json_of_a_new_key_has_exactly_id_role_and_key(toolgate: Commands, tmp_path: Path) -> None:
    made = toolgate("keys", "create", "--role", "committer", "--json").json
    assert set(made) == {"id", "role", "key"}
    caller = KeyRing(tmp_path / "keys" / "callers.json").authenticate(made["key"].encode())
    assert (caller.key_id, caller.role) == (made["id"], "committer")


def test_for_people_standard_output_is_the_key_alone(toolgate: Commands, tmp_path: Path) -> None:
    done = toolgate("keys", "create", "--role", "admin", "--label", "me [red]")
    assert done.out.count("\n") == 1
    assert done.out.startswith("tg_")
    assert done.out.strip() not in done.err
    assert "shown" in done.err or "Copy" in done.err
    assert stat.S_IMODE((tmp_path / "keys" / "callers.json").stat().st_mode) == 0o600


def test_the_list_shows_no_secret_and_every_state(toolgate: Commands) -> None:
    secrets = [
        toolgate("keys", "create", "--role", "admin", "--label", f"[b]{n}", "--json").json["key"] for n in range(2)
    ]
    gone = toolgate("keys", "list", "--json").json[0]["id"]
    assert toolgate("keys", "revoke", gone).code == 0
    listed = toolgate("keys", "list", "--json")
    assert [row["state"] for row in listed.json] == ["revoked", "live"]
    shown = toolgate("keys", "list")
    assert "[b]1" in shown.out
    for secret in secrets:
        assert secret not in listed.out + shown.out
        assert secret.rsplit("_", 1)[1] not in listed.out + shown.out


@pytest.mark.parametrize(("life", "seconds"), [("90m", 5400), ("12h", 43200), ("30d", 2592000), ("8w", 4838400)])
def test_a_life_of_any_unit_ends_when_it_says(toolgate: Commands, tmp_path: Path, life: str, seconds: int) -> None:
    before = time.time()
    assert toolgate("keys", "create", "--role", "builder", "--expires", life).code == 0
    expires = KeyRing(tmp_path / "keys" / "callers.json").all()[0].expires
    assert expires is not None
    assert before + seconds - 1 <= expires <= time.time() + seconds


@pytest.mark.parametrize(
    "arguments",
    [
        ["--role", "root"],
        [],
        ["--role", "admin", "--expires", "30"],
        ["--role", "admin", "--expires", "0d"],
        ["--role", "admin", "--expires", "-1d"],
        ["--role", "admin", "--expires", "１d"],
        ["--role", "admin", "--expires", "9999999w"],
        ["--role", "admin", "--label", "a\nb"],
        ["--role", "admin", "--label", "x" * 101],
    ],
    ids=str,
)
def test_a_wrong_key_request_is_a_usage_error_and_makes_nothing(
    arguments: list[str], toolgate: Commands, tmp_path: Path
) -> None:
    done = toolgate("keys", "create", *arguments)
    assert done.code == ExitCode.USAGE
    assert not done.out
    assert not (tmp_path / "keys" / "callers.json").exists()


def test_revoking_an_unknown_key_fails_without_repeating_what_was_typed(toolgate: Commands) -> None:
    pasted = toolgate("keys", "create", "--role", "admin", "--json").json["key"]
    done = toolgate("keys", "revoke", pasted)
    assert done.code == ExitCode.FAILED
    assert pasted not in done.err + done.out


def test_keys_live_where_the_settings_say(toolgate: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_PATHS_KEYS", str(tmp_path / "elsewhere" / "k.json"))
    toolgate("keys", "create", "--role", "admin")
    assert json.loads((tmp_path / "elsewhere" / "k.json").read_text())["version"] == 1


def test_an_exposed_key_file_is_a_fault_with_its_fix(toolgate: Commands, tmp_path: Path) -> None:
    toolgate("keys", "create", "--role", "admin")
    (tmp_path / "keys" / "callers.json").chmod(0o644)
    done = toolgate("keys", "list")
    assert done.code == ExitCode.FAILED
    assert "chmod 600" in done.err
