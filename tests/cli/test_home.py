"""Homes: `init`, `config print`, `mcp-config`, `doctor`, `tools list`."""

from __future__ import annotations

import json
import socket
import stat
import tomllib
from pathlib import Path

import pytest

from tests.cli.support import Commands
from toolgate.cli.calls.mcp_config import McpClient
from toolgate.cli.commands import OWN, load
from toolgate.cli.init import home as init_module
from toolgate.config import load_settings
from toolgate.errors import ExitCode
from toolgate.gate.keys import KeyRing
from toolgate.policy.manifest import FILES, default_file
from toolgate.settings import SPECS


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_init_makes_a_whole_home_and_shows_one_admin_key(toolgate: Commands, tmp_path: Path) -> None:
    done = toolgate("init", "gate", "--json")
    assert done.code == 0
    home = tmp_path / "gate"
    assert done.json["home"] == str(home)
    settings = load_settings(home, {}, {})
    assert KeyRing(settings.paths.keys).authenticate(done.json["key"].encode()).role == "admin"
    assert [mode(place) for place in (home / "keys", home / "secrets", home / "state")] == [0o700] * 3
    assert mode(settings.paths.keys) == 0o600
    assert settings.paths.workspace.is_dir()
    assert settings.paths.policy == home / "policy"
    for name in FILES:
        assert (home / "policy" / name).read_bytes() == default_file(name).read_bytes()
    ignored = (home / ".gitignore").read_text().split()
    assert {"keys/", "secrets/", "state/", "runs/"} <= set(ignored)


def test_the_written_settings_file_names_every_setting_at_its_default(home: Path) -> None:
    text = (home / "toolgate.toml").read_text()
    assert set(tomllib.loads(text)["paths"]) == {"policy"}
    spoken = tomllib.loads(
        "\n".join(
            line.removeprefix("# ") if " = " in line and line.startswith("# ") else line for line in text.splitlines()
        )
    )
    for spec in SPECS:
        table, _, name = spec.key.rpartition(".")
        value = (spoken[table] if table else spoken)[name]
        assert (tuple(value) if isinstance(value, list) else value) == spec.default


@pytest.mark.parametrize("name", ["toolgate.toml", "policy", "keys"])
def test_init_touches_no_home_that_is_already_one(toolgate: Commands, tmp_path: Path, name: str) -> None:
    place = tmp_path / "taken"
    place.mkdir()
    (place / name).mkdir()
    done = toolgate("init", "taken")
    assert done.code == ExitCode.FAILED
    assert name in done.err
    assert [each.name for each in place.iterdir()] == [name]


def test_a_failed_init_leaves_nothing_of_its_own_behind(
    toolgate: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "there"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")

    def failing(target: Path) -> None:
        target.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(init_module, "_copy_policy", failing)
    done = toolgate("init", "there")
    assert done.code == ExitCode.FAILED
    assert done.err.startswith("error: No space left on device")
    assert toolgate("init", "new").code == ExitCode.FAILED
    assert [each.name for each in mine.iterdir()] == ["notes.txt"]
    assert not (tmp_path / "new").exists()


def test_init_keeps_an_owners_gitignore_and_works_in_the_current_directory(toolgate: Commands, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n")
    assert toolgate("init").code == 0
    assert (tmp_path / ".gitignore").read_text() == "mine\n"
    assert (tmp_path / "toolgate.toml").exists()


def test_config_print_gives_a_file_that_gives_the_same_settings(toolgate: Commands, home: Path, tmp_path: Path) -> None:
    done = toolgate("config", "print", "--home", str(home), "--port", "0", "--server-allowed-hosts", 'a.example,"b')
    again = tmp_path / "again"
    again.mkdir()
    (again / "toolgate.toml").write_text(done.out)
    before = load_settings(home, {"server.port": 0, "server.allowed_hosts": 'a.example,"b'}, {})
    after = load_settings(again, {}, {})
    assert [row.value for row in before.resolved()] == [row.value for row in after.resolved()]


def test_config_print_resolved_names_the_source_of_each_value(
    toolgate: Commands, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_LIMITS_RATE_PER_MINUTE", "60")
    done = toolgate(
        "config", "print", "--resolved", "--json", "--home", str(home), "--port", "1", "--set", "packs.governance.x=[1]"
    )
    found = {key: (row["value"], row["source"]) for key, row in done.json.items()}
    assert found["server.port"] == (1, "flag")
    assert found["limits.rate_per_minute"] == (60, "environment")
    assert found["paths.policy"] == (str(home / "policy"), "file")
    assert found["server.host"] == ("127.0.0.1", "default")
    assert found["packs.governance.x"] == ([1], "flag")
    variables = {row["variable"] for row in done.json.values()}
    for line in toolgate("config", "print", "--resolved", "--home", str(home)).out.splitlines()[1:]:
        assert line.split()[-1] in variables


def test_config_print_hides_secrets(toolgate: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_STORES_CONSENT", "postgresql://u:geheim@h/d")
    for more in ([], ["--json"], ["--resolved"], ["--resolved", "--json"]):
        done = toolgate("config", "print", *more)
        assert done.code == 0
        assert "geheim" not in done.out + done.err


@pytest.mark.parametrize("command", ["serve", "stdio", "call", "doctor"])
def test_a_command_with_settings_takes_a_flag_for_every_one(command: str) -> None:
    from toolgate.cli.commands import OWN, load

    flags = {name for parameter in load(OWN[command]).params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {spec.flag for spec in SPECS} <= flags
    assert {"--host", "--port", "--home", "--set", "--no-deterministic-ids"} <= flags


TABLES = {
    McpClient.codex: "mcp_servers",
    McpClient.copilot: "servers",
    McpClient.opencode: "mcp",
    McpClient.vscode: "servers",
    McpClient.zed: "context_servers",
}
"""Where a client's file has its servers; all others call it `mcpServers`."""


@pytest.mark.parametrize("client", list(McpClient))
def test_client_configurations_are_what_the_client_reads_with_the_key_left_to_it(
    client: McpClient, toolgate: Commands, home: Path
) -> None:
    """`make clients` has each file read by its client, where the client can be had."""
    for way in ["--http", "--stdio"]:
        done = toolgate("mcp-config", client, way, "--home", str(home))
        if client is McpClient.claude_desktop and way == "--http":
            assert done.code == ExitCode.USAGE
            continue
        written = tomllib.loads(done.out) if client is McpClient.codex else done.json
        server = written[TABLES.get(client, "mcpServers")]["toolgate"]
        if way == "--http":
            assert server["httpUrl" if client is McpClient.gemini else "url"] == "http://127.0.0.1:8000/mcp"
            assert server.get("bearer_token_env_var") or server["headers"]["Authorization"].startswith("Bearer ")
        else:
            command = server["command"] if client is McpClient.opencode else [server["command"], *server["args"]]
            assert command[1:] == ["stdio", "--home", str(home)]
            assert Path(command[0]).name == "toolgate"
            handed = server.get("env") or server.get("environment") or server["env_vars"]
            assert list(handed) == ["TOOLGATE_API_KEY"]
        assert "tg_" not in done.out


def test_a_client_configuration_can_point_elsewhere(toolgate: Commands) -> None:
    done = toolgate("mcp-config", "cursor", "--url", "https://gate.example/")
    assert done.json["mcpServers"]["toolgate"]["url"] == "https://gate.example/mcp"


def checks(toolgate: Commands, *arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = toolgate("doctor", "--json", *arguments)
    assert done.json["ok"] is (done.code == 0)
    return done.code, {row["check"]: row for row in done.json["checks"]}


def test_doctor_finds_a_fresh_home_healthy(toolgate: Commands, home: Path) -> None:
    code, found = checks(toolgate, "--home", str(home), "--port", "0")
    assert code == 0, found
    assert list(found) == [
        "python",
        "packages",
        "settings",
        "home",
        "keys",
        "stops",
        "secrets",
        "approvals",
        "packs",
        "policy",
        "answers",
        "upstreams",
        "workspace",
        "log",
        "stores",
        "limits",
        "metrics",
        "traces",
        "environment",
        "tls",
        "port",
    ]
    shown = toolgate("doctor", "--home", str(home), "--port", "0")
    assert shown.code == 0
    assert shown.out.count("ok  ") == len(found)


def test_p13_doctor_names_the_environment_and_why(
    toolgate: Commands, served_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = checks(toolgate, "--home", str(served_home), "--port", "0")
    assert found["environment"]["ok"]
    assert found["environment"]["text"] == (
        "local, where nothing blocks: stores.false_positives and stores.consent are not set"
    )
    monkeypatch.setenv("TOOLGATE_STORES_CONSENT", "postgresql://u@127.0.0.1:1/d")
    _, found = checks(toolgate, "--home", str(served_home), "--port", "0")
    assert found["environment"]["text"] == (
        "local, where nothing blocks: store false_positives is not on a shared engine; store consent does not answer"
    )


def test_p13_doctor_says_that_a_directory_is_no_home(toolgate: Commands) -> None:
    code, found = checks(toolgate, "--port", "0")
    assert code == ExitCode.FAILED
    assert not found["home"]["ok"]
    assert "toolgate init DIR" in str(found["home"]["fix"])


@pytest.mark.parametrize("command", [["serve"], ["stdio"], ["call", "dummy_experimental"], ["config", "print"]])
def test_a_password_on_the_command_line_is_refused_with_the_way_to_give_it(
    toolgate: Commands, served_home: Path, command: list[str]
) -> None:
    secret = "stores.consent=postgresql://u:geheim@h/d"
    done = toolgate(*command, "--home", str(served_home), "--set", secret)
    assert done.code == ExitCode.FAILED
    assert "TOOLGATE_STORES_CONSENT_FILE" in done.err
    assert "geheim" not in done.err + done.out


@pytest.mark.parametrize("command", ["serve", "call", "doctor"])
def test_p_every_settings_flag_says_what_it_does_its_unit_and_its_default(command: str) -> None:
    helps = {each.opts[0]: each.help for each in load(OWN[command]).params}
    for spec in SPECS:
        if not spec.secret:
            assert helps[spec.flag].startswith(spec.what[0].upper() + spec.what[1:]), "not only the reason"
            assert spec.measure in helps[spec.flag]
            assert "default " in helps[spec.flag]
    assert helps["--server-port"] == "The port to listen on; 0 picks a free one (TCP port, 0 to 65535; default 8000)."
    assert helps["--server-allowed-hosts"].endswith("(host[:port]; default none).")


def test_flags_of_secrets_are_not_offered(toolgate: Commands) -> None:
    assert "--stores-" not in toolgate("serve", "--help").out


def test_doctor_finds_a_port_in_use_and_a_store_that_does_not_answer(
    toolgate: Commands, served_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_STORES_CONSENT", "postgresql://u:geheim@127.0.0.1:1/d")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, found = checks(
            toolgate,
            "--home",
            str(served_home),
            "--port",
            str(taken.getsockname()[1]),
        )
    assert code == ExitCode.FAILED
    assert {name for name, row in found.items() if not row["ok"]} == {"port", "stores"}
    assert "geheim" not in json.dumps(found)


def test_doctor_wants_a_password_kept_from_others(toolgate: Commands, home: Path) -> None:
    file = home / "toolgate.toml"
    file.write_text(file.read_text().replace('# consensus = ""', 'consensus = "postgresql://u:geheim@127.0.0.1:1/d"'))
    file.chmod(0o644)
    _, found = checks(toolgate, "--home", str(home), "--port", "0")
    assert not found["home"]["ok"]
    assert "chmod 600" in str(found["home"]["fix"])


def test_tools_list_shows_all_to_the_owner_and_to_a_key_what_it_holds(toolgate: Commands, served_home: Path) -> None:
    file = served_home / "policy" / "mcp-tools.policy.json"
    document = json.loads(file.read_text())
    next(row for row in document["tools"] if row["name"] == "dummy_experimental")["x-roles"] = ["admin"]
    file.write_text(json.dumps(document))
    assert toolgate("contract", "build", "--home", str(served_home)).code == 0

    def names(*more: str) -> set[str]:
        return {row["name"] for row in toolgate("tools", "list", "--home", str(served_home), "--json", *more).json}

    keys = {
        role: toolgate("keys", "create", "--role", role, "--home", str(served_home), "--json").json["key"]
        for role in ("builder", "admin")
    }
    assert "dummy_experimental" in names()
    assert "dummy_experimental" in names("--key", keys["admin"])
    assert "dummy_experimental" not in names("--key", keys["builder"])
    done = toolgate("tools", "list", "--home", str(served_home), "--key", "tg_wrong")
    assert done.code == ExitCode.DENIED
    assert "dummy" not in done.out + done.err
