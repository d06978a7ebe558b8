"""Settings of upstreams, and where they come from: clients' own files. No secret stands in either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolgate.config import load_settings
from toolgate.errors import SettingsError
from toolgate.kit.secretlike import looks_secret
from toolgate.packs.upstream.importing import ImportFault, read_configuration, upstream_name
from toolgate.powers.mcp.failures import NotSent
from toolgate.powers.mcp.program import peer_of_command
from toolgate.powers.mcp.table import UpstreamTable, read_table

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
COMMAND = {"command": ["npx", "-y", "server@1.0.0"]}


def test_a_table_with_nothing_but_a_command_has_the_defaults() -> None:
    assert read_table("git", COMMAND) == UpstreamTable("git", command=("npx", "-y", "server@1.0.0"), prefix="git_")


def test_references_are_replaced_where_they_stand() -> None:
    given = {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer file:tok", "X-Plain": "a b"}}
    table = read_table("web", given)
    assert table.secrets() == ["file:tok"]
    headers, _ = table.resolved({"file:tok": "s3cret"}.__getitem__)
    assert headers == {"Authorization": "Bearer s3cret", "X-Plain": "a b"}


def test_upstreams_of_a_home_that_nobody_chose_are_refused(tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").write_text('[upstreams.x]\ncommand = ["x"]\n')
    with pytest.raises(SettingsError, match=r"upstreams\.x reaches beyond"):
        load_settings(tmp_path, {}, {}, chosen=False)
    assert "x" in load_settings(tmp_path, {}, {}, chosen=True).upstreams


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("Upper", COMMAND, "cannot be the name"),
    ("x", {}, "either url or command"),
    ("x", {**COMMAND, "url": "https://example.org"}, "either url or command"),
    ("x", {**COMMAND, "comand": 1}, "is not a setting of an upstream"),
    ("x", {"command": "npx server"}, "Write a list"),
    ("x", {"command": []}, "Write a list"),
    ("x", {"command": ["server", f"--token={TOKEN}"]}, "secret"),
    ("x", {"command": ["server", TOKEN]}, "secret"),
    ("x", {**COMMAND, "env": {"TOKEN": TOKEN}}, "file:NAME"),
    ("x", {**COMMAND, "env": {"A B": "x"}}, "cannot be set"),
    ("x", {**COMMAND, "env": ["A"]}, "table of texts"),
    ("x", {**COMMAND, "headers": {"A": "b"}}, "not for an upstream with a command"),
    ("x", {"url": "ftp://example.org"}, "http"),
    ("x", {"url": f"https://example.org/mcp?key={TOKEN}"}, "query"),
    ("x", {"url": "https://example.org", "headers": {"Cookie": "a"}}, "cannot be set"),
    ("x", {"url": "https://example.org", "headers": {"mcp-session-id": "a"}}, "cannot be set"),
    ("x", {"url": "https://example.org", "headers": {"A": "x\ny"}}, "printable"),
    ("x", {**COMMAND, "deadline_s": 0}, "0.1 to 600"),
    ("x", {**COMMAND, "deadline_s": True}, "0.1 to 600"),
    ("x", {**COMMAND, "concurrency": 1.5}, "whole number"),
    ("x", {**COMMAND, "prefix": "a b"}, "letters"),
    ("x", {**COMMAND, "directory": "here"}, "absolute"),
    ("x", {**COMMAND, "identity": "caller"}, "one of"),
    ("x", {**COMMAND, "sandbox": "docker"}, "one of"),
    ("x", {"url": "https://example.org", "sandbox": "bubblewrap"}, "not for an upstream with a url"),
]


@pytest.mark.parametrize(("name", "given", "fix"), BAD)
def test_a_wrong_table_names_the_key_and_the_fix_and_never_the_secret(name: str, given: Any, fix: str) -> None:
    with pytest.raises(SettingsError, match=fix) as failed:
        read_table(name, given)
    assert TOKEN not in str(failed.value)


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        (TOKEN, True),
        (f"Bearer {TOKEN}", True),
        ("sk-proj-abcdefghijklmnop", True),
        ("8f14e45fceea167a5a36dedd4bea2543", True),
        ("file:upstream-git-token", False),
        ("Bearer env:TOKEN", False),
        ("@modelcontextprotocol/server-everything", False),
        ("/home/someone/projects/2026/repository", False),
        ("production", False),
        ("a-long-but-readable-name-of-a-thing", False),
        ("", False),
    ],
)
def test_secrets_are_told_from_words(value: str, secret: bool) -> None:
    assert looks_secret(value) is secret


CLAUDE = {
    "mcpServers": {
        "GitHub": {"command": "npx", "args": ["-y", "gh@1.0.0"], "env": {"GITHUB_TOKEN": TOKEN, "LOG": "debug"}},
        "Web Search": {"url": "https://example.org/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}},
        "old": {"type": "sse", "url": "https://example.org/sse"},
        "off": {"command": "x", "disabled": True},
        "argv": {"command": "x", "args": ["--api-key", "abc"]},
        "odd": 7,
    }
}


def test_servers_of_claude_and_cursor_are_taken_over_and_their_secrets_moved() -> None:
    imported, skipped = read_configuration(json.dumps(CLAUDE).encode())
    github, web = imported
    assert github.name == "github"
    assert github.table == {
        "command": ["npx", "-y", "gh@1.0.0"],
        "env": {"GITHUB_TOKEN": "file:upstream-github-github-token", "LOG": "debug"},
    }
    assert github.secrets == {"upstream-github-github-token": TOKEN}
    assert web.table["headers"] == {"Authorization": "Bearer file:upstream-web-search-authorization"}
    assert web.secrets == {"upstream-web-search-authorization": TOKEN}
    assert {one.name for one in skipped} == {"old", "off", "argv", "odd"}
    for one in imported:
        assert TOKEN not in json.dumps(one.table)
        read_table(one.name, one.table)  # what comes out is a table that the settings take


def test_servers_of_vs_code_are_taken_over_with_comments_inputs_and_variables() -> None:
    text = """{
      // my servers
      "servers": {
        "a": {"type": "stdio", "command": "a", "env": {"KEY": "${input:key}", "HOST": "${env:HOST_NAME}"},},
        "b": {"type": "http", "url": "http://localhost:3000/mcp"}, /* "c": {} */
        "d": {"command": "d", "args": ["${workspaceFolder}"]},
      },
      "note": "// no comment, /* nor this */",
    }"""
    imported, skipped = read_configuration(text.encode())
    assert [one.name for one in imported] == ["a", "b"]
    assert imported[0].table["env"] == {"KEY": "file:upstream-a-key", "HOST": "env:HOST_NAME"}
    assert "secrets/upstream-a-key" in imported[0].notes[0]
    assert [one.name for one in skipped] == ["d"]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"mcpServers": 7}', b"\xff", b'{"servers": {}, "servers": {}}'])
def test_what_is_no_configuration_is_refused(data: bytes) -> None:
    with pytest.raises(ImportFault):
        read_configuration(data)


def test_names_of_upstreams_are_made_of_labels() -> None:
    assert upstream_name("Brave Search (beta)", set()) == "brave-search-beta"
    assert upstream_name("1st", set()) == "st"
    assert upstream_name("Ü", set()) == "server"
    assert upstream_name("git", {"git", "git-2"}) == "git-3"


def test_another_program_under_the_same_name_is_another_peer(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    before = peer_of_command(["server", "--flag"], str(tmp_path))
    assert before == peer_of_command(["server", "--flag"], str(tmp_path))
    assert before != peer_of_command(["server", "--other"], str(tmp_path))
    program.write_text("#!/bin/sh\nrm -rf /\n")
    assert before != peer_of_command(["server", "--flag"], str(tmp_path))
    with pytest.raises(NotSent, match="full path"):
        peer_of_command(["nowhere"], str(tmp_path))


def test_the_script_of_an_interpreter_belongs_to_the_peer(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("a = 1")
    command = ["sh", "-e", "server.py"]
    before = peer_of_command(command, None, str(tmp_path))
    script.write_text("a = 2")
    assert peer_of_command(command, None, str(tmp_path)) != before
