"""`serve`, `stdio` and `call`, against real processes."""

from __future__ import annotations

import http.client
import json
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import PROGRAM, Commands, clean_environment, process, serving
from tests.homes import PATIENCE_S
from toolgate.cli.calls import calling as call_module
from toolgate.errors import VERDICTS, Ending, ExitCode


@pytest.fixture
def keys(toolgate: Commands, served_home: Path) -> dict[str, str]:
    return {
        role: toolgate("keys", "create", "--role", role, "--home", str(served_home), "--json").json["key"]
        for role in ("builder", "admin")
    }


def dispatch(url: str, key: str | None, body: object) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json"} | ({"X-MCP-API-Key": key} if key else {})
    connection.request("POST", "/mrt_dispatch", json.dumps(body), headers)
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    connection.close()
    return reply.status, answer


def test_serve_tells_its_addresses_first_serves_and_ends_with_zero_on_sigterm(
    served_home: Path, keys: dict[str, str], tmp_path: Path
) -> None:
    with serving("--home", str(served_home), cwd=tmp_path) as (server, told):
        url = told["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", url)
        assert told == {
            "ready": True,
            "url": url,
            "mcp": f"{url}/mcp",
            "dispatch": f"{url}/mrt_dispatch",
            "rpc": f"{url}/rpc",
            "environment": "local",
            "notes": [],
            "tools": told["tools"],
        }
        assert told["tools"]["experimental"] >= 1
        status, answer = dispatch(url, keys["builder"], {"tool": "dummy_experimental", "args": {}})
        assert (status, answer["exitCode"]) == (200, 0)
        assert dispatch(url, None, {"tool": "dummy_experimental"})[0] == 401
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE_S) == 0


@pytest.mark.parametrize(
    "flags", [("--log-format", "text"), ("--log-format", "json"), ("--workers", "2")], ids=lambda flags: flags[-1]
)
def test_p19_a_variable_that_is_no_setting_is_named_on_standard_error_and_does_not_stop_a_server(
    served_home: Path, keys: dict[str, str], tmp_path: Path, flags: tuple[str, str]
) -> None:
    environment = {"TOOLGATE_REVISION": "edge", "TOOLGATE_MCP_SERVICE_HOST": "10.0.0.1"}
    with serving("--home", str(served_home), *flags, cwd=tmp_path, **environment) as (server, told):
        assert told["ready"]
        server.terminate()
        _, said = server.communicate(timeout=PATIENCE_S)
    assert said.count("TOOLGATE_REVISION is not a setting, and is ignored") == 1
    assert "TOOLGATE_MCP_SERVICE_HOST" not in said, "Kubernetes sets such variables in every container"


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("stdio",), ("doctor",)])
def test_p19_a_variable_that_is_a_misspelt_setting_is_refused_by_name(
    served_home: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = process(*command, "--home", str(served_home), cwd=tmp_path, TOOLGATE_SERVR_PORT="8000")
    assert done.code == ExitCode.FAILED
    said = done.out + done.err
    assert "there is no setting TOOLGATE_SERVR_PORT" in said
    assert "Did you mean TOOLGATE_SERVER_PORT?" in said


def test_a_key_revoked_on_the_command_line_is_dead_in_the_running_server(
    toolgate: Commands, served_home: Path, keys: dict[str, str], tmp_path: Path
) -> None:
    with serving("--home", str(served_home), cwd=tmp_path) as (_, told):
        assert dispatch(told["url"], keys["builder"], {"tool": "dummy_experimental"})[0] == 200
        assert toolgate("keys", "revoke", keys["builder"].split("_")[1], "--home", str(served_home)).code == 0
        assert dispatch(told["url"], keys["builder"], {"tool": "dummy_experimental"})[0] == 403
        fresh = toolgate("keys", "create", "--role", "builder", "--home", str(served_home), "--json").json["key"]
        assert dispatch(told["url"], fresh, {"tool": "dummy_experimental"})[0] == 200


def test_a_server_without_keys_does_not_start(toolgate: Commands, served_home: Path) -> None:
    (served_home / "keys" / "callers.json").unlink()
    done = toolgate("serve", "--home", str(served_home), "--port", "0")
    assert done.code == ExitCode.FAILED
    assert "toolgate keys create" in done.err
    assert not done.out
    assert not (served_home / "runs").exists(), "refused before the log is opened"


def test_a_directory_that_is_no_home_is_told_how_to_become_one(toolgate: Commands, tmp_path: Path) -> None:
    toolgate("keys", "create", "--role", "admin")
    for command in (["serve", "--port", "0"], ["call", "dummy_experimental"]):
        done = toolgate(*command)
        assert done.code == ExitCode.FAILED
        assert "toolgate init" in done.err
    assert not (tmp_path / "runs").exists()


def test_the_development_server_prepares_everything_and_shows_its_keys_once(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [*PROGRAM, "serve", "--dev", "--port", "0"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdout
    told = ""
    for line in first.stdout:
        told += line
        if "Ctrl+C" in line:
            break
    try:
        file = tmp_path / ".toolgate" / "keys.env"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        shown = dict(line.split("_KEY=") for line in file.read_text().split())
        assert list(shown) == ["BUILDER", "COMMITTER", "ADMIN", "AUDITOR"]
        for key in shown.values():
            assert key in told
        curl = re.search(r"^  (\. .*\n  curl .*)$", told, re.MULTILINE)
        assert curl
        pasted = subprocess.run(
            ["sh", "-c", curl[1]], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert json.loads(pasted.stdout)["envelope"]["decision"] == "warn"
        client = json.loads(told[told.index("{\n") : told.rindex("}\n") + 1])
        assert client["mcpServers"]["toolgate"]["headers"] == {"Authorization": f"Bearer {shown['BUILDER']}"}
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=PATIENCE_S) == 0
    finally:
        first.kill()
        first.communicate()
    second = tmp_path / ".toolgate"
    with serving("--dev", cwd=tmp_path) as (_, again):
        assert dispatch(again["url"], shown["ADMIN"], {"tool": "dummy_experimental"})[0] == 200
    assert dict(line.split("_KEY=") for line in (second / "keys.env").read_text().split()) == shown


def test_later_development_runs_name_the_file_and_show_no_key(toolgate: Commands, tmp_path: Path, capfd) -> None:
    from toolgate.cli.dev import prepare

    prepare(Path(".toolgate"))
    again = prepare(Path(".toolgate"))
    assert not again.fresh
    again.announce("http://127.0.0.1:1", lambda: None)
    told = capfd.readouterr().out
    assert ".toolgate/keys.env" in told
    assert "tg_" not in told


def test_development_keys_that_no_longer_work_are_made_anew(toolgate: Commands, tmp_path: Path) -> None:
    from toolgate.cli.dev import prepare

    before = prepare(Path(".toolgate"))
    toolgate("keys", "revoke", before.by_role["admin"].split("_")[1], "--home", ".toolgate")
    after = prepare(Path(".toolgate"))
    assert after.fresh
    assert after.by_role["builder"] == before.by_role["builder"]
    assert after.by_role["admin"] != before.by_role["admin"]


NO_STDIO = {
    "no key": ({}, "TOOLGATE_API_KEY is not set"),
    "a wrong key": ({"TOOLGATE_API_KEY": "tg_wrong"}, "API key is invalid"),
    "an empty key": ({"TOOLGATE_API_KEY": ""}, "API key is invalid"),
    "an unexpanded variable": ({"TOOLGATE_API_KEY": "${MY_KEY}"}, "not expanded"),
}


@pytest.mark.parametrize(("environ", "text"), NO_STDIO.values(), ids=NO_STDIO)
def test_stdio_without_a_good_key_does_not_start(
    environ: dict[str, str], text: str, toolgate: Commands, served_home: Path, monkeypatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    done = toolgate("stdio", "--home", str(served_home))
    assert done.code == ExitCode.DENIED
    assert text in done.err
    assert not done.out
    assert not (served_home / "runs").exists()


@pytest.mark.req("002-deterministic-ids-flag")
def test_stdio_serves_the_key_of_its_environment_and_ends_with_its_input(
    served_home: Path, keys: dict[str, str], tmp_path: Path
) -> None:
    line = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "mcp.tool.invoke",
            "params": {"tool": "mcp.tool:governance.dummy_experimental", "input": {}},
        }
    )
    file = tmp_path / "key"
    file.write_text(keys["builder"] + "\n")

    def ask() -> dict[str, object]:
        done = subprocess.run(
            [*PROGRAM, "stdio", "--home", str(served_home), "--deterministic-ids"],
            cwd=tmp_path,
            env=clean_environment(TOOLGATE_API_KEY_FILE=str(file)),
            input=line + "\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return json.loads(done.stdout)

    one, two = ask(), ask()
    assert one["result"]["decision"] == "warn"
    assert one["result"]["requestId"] == two["result"]["requestId"], "the same call has the same id in every run"


@pytest.mark.req("000-C-default-deny-cli")
def test_a_call_has_the_same_answer_and_exit_code_in_process_and_over_http(
    toolgate: Commands, served_home: Path, keys: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {
        "good": (keys["builder"], ["dummy_experimental"], 0),
        "no key": (None, ["dummy_experimental"], ExitCode.DENIED),
        "bad key": ("tg_wrong", ["dummy_experimental"], ExitCode.DENIED),
        "unknown tool": (keys["admin"], ["nothing_here"], ExitCode.UNKNOWN_TOOL),
        "unknown argument": (keys["admin"], ["dummy_experimental", "x=1"], ExitCode.BAD_ARGUMENTS),
        "all arguments at once": (keys["admin"], ["dummy_experimental", "--args", '{"x": 1}'], ExitCode.BAD_ARGUMENTS),
    }
    volatile = {"request_id", "timestamp", "audit", "envelope"}
    with serving("--home", str(served_home), cwd=tmp_path) as (_, told):
        for name, (key, arguments, code) in cases.items():
            if key is None:
                monkeypatch.delenv("TOOLGATE_API_KEY", raising=False)
            else:
                monkeypatch.setenv("TOOLGATE_API_KEY", key)
            here = toolgate("call", *arguments, "--json", "--home", str(served_home))
            there = toolgate("call", *arguments, "--json", "--url", told["url"])
            assert (here.code, there.code) == (code, code), name
            assert {k: v for k, v in here.json.items() if k not in volatile} == {
                k: v for k, v in there.json.items() if k not in volatile
            }, name
            plain = toolgate("call", *arguments, "--url", told["url"])
            assert plain.code == code
            if code:
                assert plain.out == ""
                assert plain.err.startswith("error: ")
            else:
                assert json.loads(plain.out) == {"some": "payload"}


def test_every_verdict_has_one_exit_code_over_http_too() -> None:
    for ending, verdict in VERDICTS.items():
        assert call_module.EXIT_CODES[(verdict.mrt_status, verdict.mrt_code)] == verdict.exit_code, ending


WRONG_ARGUMENTS = {
    "not JSON": ["--args", "{"],
    "not an object": ["--args", "[]"],
    "duplicate keys": ["--args", '{"a": 1, "a": 2}'],
    "NaN": ["--args", '{"a": NaN}'],
    "beyond 2^53": ["a:=9007199254740993"],
    "given twice": ["a=1", "a=2"],
    "given both ways": ["--args", '{"a": 1}', "a=2"],
    "no name": ["=x"],
    "no value": ["x"],
    "bytes that are not text": ["a=\udcff"],
    "JSON that is none": ["a:=x"],
}


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_arguments_that_are_no_strict_json_are_refused_before_anything_else(
    arguments: list[str], toolgate: Commands, served_home: Path
) -> None:
    done = toolgate("call", "dummy_experimental", *arguments, "--home", str(served_home))
    assert done.code == ExitCode.BAD_ARGUMENTS
    assert len(done.err.splitlines()) == 2
    assert not (served_home / "runs").exists()


def test_arguments_by_name_are_text_unless_they_say_json() -> None:
    assert call_module._arguments('{"a": 1}', ["b=1", "c:=1", "d:=[true]", "e=x=y", "f="]) == {
        "a": 1,
        "b": "1",
        "c": 1,
        "d": [True],
        "e": "x=y",
        "f": "",
    }


def test_a_key_that_no_header_can_carry_is_an_invalid_key(toolgate: Commands) -> None:
    done = toolgate("call", "x", "--url", "http://127.0.0.1:1", "--key", "tg_a\r\nX-Other: 1")
    assert done.code == ExitCode.DENIED


def test_the_printed_client_configuration_starts_a_server_that_greets(
    toolgate: Commands, served_home: Path, keys: dict[str, str], tmp_path: Path
) -> None:
    """With the one thing a client does to it: expanding the variable."""
    entry = toolgate("mcp-config", "claude-code", "--stdio", "--home", str(served_home)).json["mcpServers"]["toolgate"]
    greeting = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    }
    environment = {name: value.replace("${TOOLGATE_API_KEY}", keys["builder"]) for name, value in entry["env"].items()}
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        cwd=tmp_path,
        env=clean_environment(**environment),
        input=json.dumps(greeting) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "toolgate"


def test_a_server_that_is_not_there_is_unavailable(toolgate: Commands) -> None:
    done = toolgate("call", "x", "--url", "http://127.0.0.1:1")
    assert done.code == ExitCode.UNAVAILABLE
    assert "Is the server running there?" in done.err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:p@h/", "http://h/?q=1", "x"])
def test_an_address_of_another_kind_is_a_usage_error(url: str, toolgate: Commands) -> None:
    assert toolgate("call", "x", "--url", url).code == ExitCode.USAGE


@pytest.mark.parametrize(
    "answer", [b"hello", b"[]", b"{}", b'{"error_code": "strange"}', b'{"stdout": 1, "exitCode": 0}']
)
def test_something_else_than_a_toolgate_server_is_recognised(
    answer: bytes, monkeypatch: pytest.MonkeyPatch, toolgate: Commands
) -> None:
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def reply() -> None:
        peer, _ = listener.accept()
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(answer) + answer)
        peer.close()

    thread = threading.Thread(target=reply)
    thread.start()
    done = toolgate("call", "x", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
    thread.join(PATIENCE_S)
    listener.close()
    assert done.code == ExitCode.UNAVAILABLE
    assert "does not answer like" in done.err


def test_help_of_serve_is_quick_to_read_and_real(tmp_path: Path) -> None:
    done = process("serve", "--help", cwd=tmp_path)
    assert done.code == 0
    for word in ("--port", "--host", "--home", "--dev", "--json", "--deterministic-ids", "Settings: limits"):
        assert word in done.out


def test_a_refusal_of_the_road_is_recorded_for_the_command_line_too(toolgate: Commands, served_home: Path) -> None:
    assert (
        toolgate("call", "dummy_experimental", "--home", str(served_home)).code
        == VERDICTS[Ending.MISSING_KEY].exit_code
    )
    records = [
        json.loads(line)
        for file in (served_home / "runs").rglob("*.jsonl")
        if not file.is_symlink()
        for line in file.read_text().splitlines()
    ]
    assert any((record.get("error") or {}).get("happening") == "missing_key" for record in records)


def test_a_development_home_hides_its_own_parts_and_nothing_that_a_repository_keeps_beside_them(
    toolgate: Commands, tmp_path: Path
) -> None:
    from toolgate.cli.dev import prepare

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    kept = tmp_path / ".toolgate" / "suppressions.toml"
    kept.parent.mkdir()
    kept.write_text("# reviewed\n")
    prepare(Path(".toolgate"))
    (tmp_path / ".toolgate" / "runs").mkdir(exist_ok=True)
    (tmp_path / ".toolgate" / "runs" / "log").write_text("private")
    (tmp_path / ".toolgate" / "workspace" / "file").write_text("private")
    shown = git("status", "--porcelain", "--untracked-files=all").split("\n")
    assert sorted(line[3:] for line in shown if line) == [".toolgate/.gitignore", ".toolgate/suppressions.toml"]
