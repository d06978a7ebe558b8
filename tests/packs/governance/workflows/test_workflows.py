"""Workflow files of many shapes: names, permissions, triggers and lines come out right, comments are not findings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.repository.model import Repository, parse
from toolgate.packs.governance.repository.redact import redacted
from toolgate.packs.governance.rules.catalogue import judge
from toolgate.packs.governance.workflows.checknames import MAX_NAMES, _fits, reporters
from toolgate.packs.governance.workflows.scripts import unpinned
from toolgate.packs.governance.workflows.workflow import Permissions, Workflow, read_workflow

FIXTURES = Path(__file__).parents[3] / "fixtures" / "workflows"
FILES = sorted(FIXTURES.glob("*.yml"))


def workflow(name: str) -> Workflow:
    return read_workflow(f".github/workflows/{name}.yml", (FIXTURES / f"{name}.yml").read_bytes())


def repository(*names: str) -> Repository:
    files = parse([(f".github/workflows/{name}.yml", (FIXTURES / f"{name}.yml").read_bytes()) for name in names])
    return Repository({file.path: file for file in files})


def names(*files: str) -> set[str]:
    every = {f".github/workflows/{name}.yml": workflow(name) for name in files}
    return {"".join("*" if piece is None else piece for piece in one.name) for one in reporters(every)}


def findings(*files: str) -> list[tuple[str, str, int | None]]:
    found = [one for verdict in judge(repository(*files)) for one in verdict.findings]
    return sorted((one.rule, one.severity, one.line) for one in found)


def level_of(permissions: Permissions, scope: str) -> str:
    return next((grant.level for grant in permissions.grants if grant.scope in (scope, "*")), permissions.default)


def test_every_fixture_is_understood() -> None:
    assert len(FILES) >= 12
    for path in FILES:
        assert read_workflow(path.name, path.read_bytes()).jobs


def test_matrix_names_have_their_values_in_brackets() -> None:
    assert names("matrix") == {
        "unit (ubuntu-latest, 3.9)",
        "unit (ubuntu-latest, 3.1)",
        "unit (ubuntu-latest, 3.10)",
        "unit (macos-latest, 3.1)",
        "unit (macos-latest, 3.10)",
        "Lint (ruff)",
        "Lint (mypy)",
        "Smoke (wheel)",
        "Smoke (sdist, true)",
        "dynamic (*)",
    }


def test_a_called_workflow_reports_behind_its_caller() -> None:
    assert names("caller", "reusable") == {"Gate / build", "Gate / Sign artifacts", "remote / *"}


def test_a_workflow_that_is_only_called_reports_nothing_itself() -> None:
    assert names("reusable") == set()


def test_aliases_are_the_same_steps() -> None:
    linux, mac = workflow("anchors").jobs
    assert linux.steps == mac.steps
    assert len(mac.steps) == 2


@pytest.mark.parametrize(
    ("job", "scope", "level"),
    [
        ("narrowed", "contents", "read"),
        ("narrowed", "issues", "none"),
        ("emptied", "contents", "none"),
        ("inherits", "anything", "write"),
        ("publishes", "packages", "write"),
        ("publishes", "actions", "none"),
    ],
)
def test_effective_permissions(job: str, scope: str, level: str) -> None:
    read = workflow("permissions")
    assert level_of(read.effective(next(one for one in read.jobs if one.id == job)), scope) == level


def test_no_permissions_anywhere_is_unknown() -> None:
    read = workflow("drift-check")
    permissions = read.effective(read.jobs[0])
    assert (permissions.stated, level_of(permissions, "contents")) == (False, "unknown")


@pytest.mark.parametrize(
    "name", ["matrix", "caller", "anchors", "comments", "merge-queue", "flow-style", "path-filtered"]
)
def test_sound_workflows_and_comments_raise_no_alarm(name: str) -> None:
    assert findings(name, "reusable") == []


def test_unpinned_actions_images_and_installers_each_have_their_line() -> None:
    lines = (FIXTURES / "unpinned.yml").read_text().splitlines()
    shown = [
        (severity, lines[line - 1].strip())
        for rule, severity, line in findings("unpinned")
        if rule == "MD-002" and line
    ]
    assert sorted(shown) == sorted(
        [
            ("medium", "- uses: actions/checkout@v4"),
            ("low", "container: python:3.12"),
            ("low", "- uses: docker://alpine:3.20"),
            ("high", "curl -sSf https://example.org/install.sh \\"),
            ("high", "bash <(curl -s https://example.org/other.sh)"),
            ("high", 'sh -c "$(wget -qO- https://example.org/third.sh)"'),
            ("medium", "pip install --upgrade requests"),
            ("medium", "pip install -e . && npm install -g yarn"),
            ("medium", "go install example.org/tool@latest"),
            ("medium", "cargo install ripgrep"),
            ("medium", "gem install bundler"),
        ]
    )


def test_unattended_workflows_that_can_write_are_found_at_the_grant() -> None:
    assert findings("scheduled") == [("MD-004", "high", 14)], "writing issues changes nothing that is built"
    assert findings("drift-check") == [("MD-004", "medium", 4)]


def test_write_all_is_found_once_at_its_line() -> None:
    assert [one for one in findings("permissions") if one[0] == "L0-002"] == [("L0-002", "critical", 4)]


# Hostile input


def bomb(levels: int = 30) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


SHARED = (
    "on: push\njobs:\n  a0: &j\n    steps: ["
    + "{run: x}, " * 400
    + "]\n"
    + "".join(f"  a{i}: *j\n" for i in range(1, 400))
)

HOSTILE = {
    "anchor bomb": bomb(),
    "steps bomb": SHARED,
    "alias in itself": "on: push\njobs: &a\n  b: *a\n",
    "ten megabytes": "on: push\n#" + "x" * 10_000_000,
    "brackets": "[" * 100_000,
    "braces": "{a: " * 100_000,
    "dashes": "- " * 100_000,
    "half a million commas": "[" + "a," * 250_000,
    "tabs": "on: push\njobs:\n\ta: 1\n",
    "duplicate key": "on: push\njobs: {a: {steps: []}, a: {steps: []}}\n",
    "duplicate permissions": "on: push\npermissions: {}\npermissions: write-all\njobs: {a: {steps: []}}\n",
    "python tag": "on: push\njobs: !!python/object/apply:os.system ['true']\n",
    "binary tag": "on: push\njobs: {a: {steps: !!binary aGk=}}\n",
    "two documents": "on: push\n---\njobs: {}\n",
    "not utf-8": "on: push\njobs: \udcff\n",
    "nul": "on: push\0\n",
    "scalar": "hello",
    "empty": "",
    "no jobs": "on: push\n",
    "no triggers": "jobs: {a: {steps: []}}\n",
    "map as key": "on: push\n? {a: b}\n: c\n",
    "wrong level": "on: push\npermissions: {contents: admin}\njobs: {a: {steps: []}}\n",
    "steps of text": "on: push\njobs: {a: {steps: [hello]}}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(30)
def test_hostile_yaml_is_a_finding_with_a_line_and_never_a_crash(name: str) -> None:
    data = HOSTILE[name].encode(errors="surrogateescape")
    files = parse([(".github/workflows/x.yml", data)])
    verdicts = judge(Repository({file.path: file for file in files}))
    found = [one for verdict in verdicts for one in verdict.findings]
    assert [one.rule for one in found] == ["MD-000"]
    assert found[0].line is not None
    assert found[0].line >= 1


def test_calls_that_multiply_without_end_are_a_failed_rule_and_not_a_hang() -> None:
    text = "on: pull_request\njobs:\n" + "".join(f"  j{i}:\n    uses: ./.github/workflows/a.yml\n" for i in range(20))
    read = read_workflow(".github/workflows/a.yml", text.encode())
    with pytest.raises(YamlFault, match=f"more than {MAX_NAMES}"):
        reporters({read.path: read})


@given(
    st.lists(st.one_of(st.none(), st.text(alphabet="ab ", max_size=4)), max_size=6),
    st.text(alphabet="ab ", max_size=12),
)
def test_names_with_unknown_parts_match_as_a_pattern_would(pieces: list[str | None], text: str) -> None:
    pattern = "".join(".*" if piece is None else re.escape(piece) for piece in pieces)
    assert _fits(tuple(pieces), text) is (re.fullmatch(pattern, text) is not None)


# Scripts and snippets


@pytest.mark.parametrize(
    "line",
    [
        "curl https://x | sh",
        "curl -s https://x|sudo -E bash -",
        "wget -qO- https://x | env A=b sh",
        "source <(curl -s https://x)",
        'eval "$(curl -s https://x)"',
        "true && curl https://x | /bin/bash",
        "curl https://x 2>&1 | tee log | sudo -u root bash",
        "if curl https://x | sh; then true; fi",
        "(cd /tmp; curl https://x | sh)",
        "irm https://x | iex",
        "Invoke-WebRequest https://x | Invoke-Expression",
    ],
)
def test_a_download_into_a_shell_is_seen(line: str) -> None:
    assert [one.to_shell for one in unpinned(line)] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "curl https://x -o y && sha256sum -c y.sum",
        "curl https://x | tar xz",
        "curl https://x | sha256sum",
        "cat curl | sh",
        "echo 'curl https://x | sh'",
        "# curl https://x | sh",
        "true # curl https://x | sh",
        "curl https://x | jq .shell",
        "pip install -r requirements.txt",
        "pip install .",
        "pip install ./dist/x.whl",
        "pip install 'x==1'",
        "pip install x==1 y==2",
        "pip install $PACKAGE",
        "npm install",
        "cargo install --path .",
        "gem install bundler -v 2.5.0",
    ],
)
def test_what_is_pinned_or_only_mentioned_is_not(line: str) -> None:
    assert list(unpinned(line)) == []


@pytest.mark.timeout(60)  # quadratic time would be hours
def test_a_script_of_a_megabyte_is_read_in_linear_time() -> None:
    assert list(unpinned("curl " * 100_000)) == []
    assert list(unpinned("sh -c " * 100_000)) == []
    assert list(unpinned("pip install " + "-r x " * 100_000)) == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("token: ghp_" + "a" * 36, "token: [github-token]"),
        ("  key: AKIAABCDEFGHIJKLMNOP  ", "key: [aws-key]"),
        ("-----BEGIN RSA PRIVATE KEY-----MIIE", "[pem]"),
        ("auth: eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "auth: [jwt]"),
        ("url: https://user:hunter22@example.org", "url: https://[credentials]@example.org"),
        ("DB_PASSWORD: correct-horse", "DB_PASSWORD: [secret]"),
        ('"api_key": "abcdef123456"', '"api_key": "[secret]"'),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [bearer]"),
        ("password: ${{ secrets.DB }}", "password: ${{ secrets.DB }}"),
        ("id-token: write", "id-token: write"),
        (
            "uses: actions/checkout@8f4b7f84864484a7bf31766abe9204da3cbe65b3",
            "uses: actions/checkout@8f4b7f84864484a7bf31766abe9204da3cbe65b3",
        ),
        ("x: q9Zr2Lw8XvB4nT6yK1mJ5pHdG3sAfC7e", "x: [key]"),
        ("x" * 500, "x" * 199 + "…"),
    ],
)
def test_w25_snippets_say_the_kind_of_a_secret_and_nothing_of_it(line: str, shown: str) -> None:
    assert redacted(line) == shown
