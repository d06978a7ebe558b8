"""`toolgate keys`."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from tests.cli.support import Commands
from toolgate.errors import ExitCode, Refusal
from toolgate.gate.keys import KeyRing
from toolgate.model.call import CallerBounds
from toolgate.model.clock import from_rfc3339


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
        ["--role", "admin", "--owner", "x" * 101],
        ["--role", "admin", "--owner", " ann"],
        ["--role", "admin", "--scope", "two words"],
        ["--role", "auditor", "--scope", "*"],
        ["--role", "admin", "--address", "10.0.0.1/8"],
        ["--role", "admin", "--address", "example.com"],
        ["--role", "admin", "--rate", "0"],
        ["--role", "admin", "--concurrency", "-1"],
        ["--role", "admin", "--concurrency", "11"],
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


def test_bounds_are_kept_shown_and_recorded(toolgate: Commands, tmp_path: Path) -> None:
    bounds = ("--scope", "query_*", "--scope", "git_*", "--address", "10.0.0.0/8")
    made = toolgate("keys", "create", "--role", "admin", "--label", "ci", *bounds, "--json").json
    assert made["unmatchedScopes"] == ["git_*"]
    shown = toolgate("keys", "show", made["id"], "--json").json
    assert (shown["scopes"], shown["ranges"]) == (["query_*", "git_*"], ["10.0.0.0/8"])
    assert shown["lastUse"] is None
    assert "tools query_*, git_*; from 10.0.0.0/8" in toolgate("keys", "list").out
    told = toolgate("keys", "show", made["id"]).out
    assert "10.0.0.0/8" in told
    assert made["key"] not in told
    assert '"scopes":["query_*","git_*"]' in _log(tmp_path)


def test_a_scope_that_matches_nothing_is_said(toolgate: Commands) -> None:
    done = toolgate("keys", "create", "--role", "builder", "--scope", "query_*", "--scope", "nothing_*")
    assert done.code == 0
    assert "scope nothing_* matches nothing that builder holds" in done.err
    assert "query_*" not in done.err


def test_a_key_gets_limits_above_those_of_all_only_where_a_setting_says_so(toolgate: Commands, tmp_path: Path) -> None:
    limits = ("--rate", "600", "--concurrency", "20")
    (tmp_path / "toolgate.toml").write_text("[limits]\nrate_per_minute = 60\n")
    refused = toolgate("keys", "create", "--role", "builder", *limits)
    assert refused.code == ExitCode.USAGE
    assert "limits.keys_may_exceed" in refused.err
    (tmp_path / "toolgate.toml").write_text("[limits]\nrate_per_minute = 60\nkeys_may_exceed = true\n")
    made = toolgate("keys", "create", "--role", "builder", *limits, "--json").json
    shown = toolgate("keys", "show", made["id"], "--json").json
    assert (shown["perMinute"], shown["concurrency"]) == (600, 20)
    assert "600 a minute; 20 at once" in toolgate("keys", "list").out
    assert '"perMinute":600' in _log(tmp_path)
    turned = toolgate("keys", "rotate", made["id"], "--json").json
    assert KeyRing(tmp_path / "keys" / "callers.json").authenticate(turned["key"].encode()).bounds == CallerBounds(
        per_minute=600, concurrency=20
    )


def test_a_key_is_rotated_with_an_overlap(toolgate: Commands, tmp_path: Path) -> None:
    made = toolgate("keys", "create", "--role", "committer", "--label", "ci", "--json").json
    turned = toolgate("keys", "rotate", made["id"], "--overlap", "90m", "--json").json
    assert turned["id"] == made["id"]
    assert turned["key"] != made["key"]
    ring = KeyRing(tmp_path / "keys" / "callers.json")
    assert ring.authenticate(made["key"].encode()) == ring.authenticate(turned["key"].encode())
    assert 0 < from_rfc3339(turned["oldUntil"]) - time.time() <= 5400
    again = toolgate("keys", "rotate", made["id"], "--overlap", "0")
    assert again.out.startswith(f"tg_{made['id']}_")
    assert turned["key"] not in again.out
    with pytest.raises(Refusal, match="expired"):
        ring.authenticate(turned["key"].encode())
    log = _log(tmp_path)
    assert log.count('"act":"keys.rotate"') == 4, "an intent and an outcome each"
    for text in (made["key"], turned["key"], again.out.strip()):
        assert text not in log
    assert len(toolgate("keys", "show", made["id"], "--json").json["older"]) == 2


@pytest.mark.parametrize("overlap", ["", "1", "-1h", "0h", "soon"])
def test_a_wrong_overlap_rotates_nothing(toolgate: Commands, tmp_path: Path, overlap: str) -> None:
    made = toolgate("keys", "create", "--role", "admin", "--json").json
    before = (tmp_path / "keys" / "callers.json").read_bytes()
    assert toolgate("keys", "rotate", made["id"], "--overlap", overlap).code == ExitCode.USAGE
    assert (tmp_path / "keys" / "callers.json").read_bytes() == before


def test_a_key_that_is_not_live_or_not_there_is_not_rotated(toolgate: Commands) -> None:
    made = toolgate("keys", "create", "--role", "admin", "--json").json
    toolgate("keys", "revoke", made["id"])
    done = toolgate("keys", "rotate", made["id"])
    assert done.code == ExitCode.FAILED
    assert "revoked" in done.err
    for command in ("rotate", "show"):
        done = toolgate("keys", command, made["key"])
        assert done.code == ExitCode.FAILED
        assert made["key"] not in done.err + done.out


def _log(home: Path) -> str:
    folder = home / "runs" / "mcp_server" / "envelope_validation"
    return "".join(path.read_text() for path in folder.glob("*.jsonl") if not path.is_symlink())


def test_the_owner_of_a_key_is_kept_shown_and_outlives_a_rotation(toolgate: Commands) -> None:
    made = toolgate("keys", "create", "--role", "admin", "--label", "laptop", "--owner", "Ann Ng", "--json").json
    plain = toolgate("keys", "create", "--role", "admin", "--json").json
    assert toolgate("keys", "rotate", made["id"], "--json").code == 0
    assert [row["owner"] for row in toolgate("keys", "list", "--json").json] == ["Ann Ng", ""]
    assert "Ann Ng" in toolgate("keys", "list").out
    assert "Ann Ng" in toolgate("keys", "show", made["id"]).out
    assert toolgate("keys", "show", plain["id"], "--json").json["owner"] == ""


@pytest.mark.parametrize("owner", [7, None, "a\nb", "x" * 101])
def test_a_key_file_with_an_owner_that_is_none_is_damaged(toolgate: Commands, tmp_path: Path, owner: object) -> None:
    toolgate("keys", "create", "--role", "admin", "--owner", "Ann Ng")
    file = tmp_path / "keys" / "callers.json"
    document = json.loads(file.read_text())
    document["keys"][0]["owner"] = owner
    file.write_text(json.dumps(document))
    assert "damaged" in toolgate("keys", "list").err
