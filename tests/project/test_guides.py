"""The guides are followed as printed: every command that a page shows runs, in order, in one shell, from an empty directory.

`sh` blocks are scripts. In `console` blocks the lines after `$` are commands and the others are what they print, where `...`
stands for anything. What is not run is in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.cli.support import clean_environment
from tests.homes import ROOT
from tests.ports import free_port
from toolgate.cli.commands import every_command
from toolgate.config import load_settings
from toolgate.enabled import enabled_packs
from toolgate.registry import SchemaRegistry

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PAGES = [ROOT / "README.md", *GUIDES]
FENCE = re.compile(
    r"^(?P<margin> *)(?P<marks>`{3,})(?P<kind>[a-z]*)\n(?P<text>.*?)^(?P=margin)(?P=marks)$", re.MULTILINE | re.DOTALL
)

NOT_RUN = {
    "make run": "starts the clone's own server: test_commands.py runs it",
    "make test": "this is it",
    "make package": "test_package.py builds the package, and installs it",
    ". .venv/bin/activate": "test_package.py activates the environment that runs it",
    "python3 -m venv toolgate-env": "what follows needs the internet; test_package.py installs the wheel from the locks",
    "toolgate-env/bin/pip install": "needs the internet for the dependencies",
    'export PATH="$PWD/toolgate-env/bin': "names the environment that was not made",
    "pip install dist/": "needs the internet for the dependencies",
    "pipx install": "needs pipx and the internet",
    "uv tool install": "needs uv and the internet",
    "npx @modelcontextprotocol": "needs Node and the internet; `make conformance` runs it",
    "claude mcp add": "needs Claude Code",
    "python -m benchmarks": "measures for minutes",
    "python benchmarks/": "measures for minutes; tests/benchmarks runs the programs in short",
}
"""How a command begins that is not followed from its page, and why."""

UNTIL_STOPPED = {"toolgate serve": 0, "lra serve": 0, "toolgate audit tail -f": 143}
"""Commands that go on until they are stopped: followed to their first line, then ended by SIGTERM; and their exit code."""

EXITS = {
    "toolgate contract diff": 3,
    "toolgate policy explain --tool lra_sign --role builder --args call.json": 5,
}
"""Commands of `console` blocks that end with another code than 0, as the page says."""

FUNCTIONS = """
start() { rm -f ready; mkfifo ready; "$@" > ready & started=$!; exec 3< ready; head -n 1 <&3; }
until_stopped() { start "$@"; kill -TERM $started; exec 3<&-; wait $started; }
"""
HOME = """
toolgate init gate
cd gate
export TOOLGATE_HOME="$PWD" TOOLGATE_SERVER_PORT=0
export TOOLGATE_API_KEY="$(toolgate keys create --role admin)"
"""
REPOSITORY = """
cd workspace
mkdir -p .github/workflows docs/adr src
cat > .github/workflows/ci.yml <<'END'
on: [pull_request]
permissions: {contents: read}
jobs: {test: {runs-on: ubuntu-latest, steps: [{uses: actions/checkout@v4}]}}
END
cat > docs/adr/0001-reporter.md <<'END'
EXAMPLE
# Programs write through the reporter
END
echo '# SPDX-License-Identifier: Apache-2.0' > src/app.py
"""
MANUSCRIPT = """
mkdir figures
echo '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path d="M0 0 Q4 0 9 9"/></svg>' > figures/fall.svg
echo '@book{galileo1638, author={Galilei, Galileo}, title={Discorsi}, publisher={Elsevier}, year={1638}}' > references.bib
echo '{"metres": 4.9}' > results.json
printf 'seconds,metres\\n1,4.9\\n2,19.6\\n' > times.csv
cat > paper.md <<'END'
EXAMPLE
END
"""
DEPLOYED = """
lra init my-research-paper
start lra serve my-research-paper --port FREE_PORT
trap "kill $started" EXIT
"""
STUB = ROOT / "tests" / "upstreams" / "stub.py"
UPSTREAM = f"""
echo '{{"mcpServers": {{"time": {{"command": "{sys.executable}", "args": ["{STUB}", "good"]}}}}}}' > mcp.json
"""
WAITING_CALL = """
cd policy
sed -i.old 's/"name": "dummy_experimental",/&"x-rules": [{"name": "ask", "require-approval": "true"}],/' mcp-tools.policy.json
cd ..
toolgate contract build
for label in ci nightly
do key="$(toolgate keys create --role builder --label $label)"
TOOLGATE_API_KEY="$key" toolgate call dummy_experimental --no-wait || test $? -eq 11
done
start toolgate serve --port FREE_PORT
trap "kill $started" EXIT
"""
OLDER_LOCK = """
sed -i.old '/"NOT_VERIFIED"/d' policy/mcp-contract.json
"""


@dataclass(frozen=True)
class Reader:
    """What a page takes for granted when its reader begins, and what the reader puts in for what is only an example."""

    prepared: str = ""
    example: str = ""
    """The kind of block that `EXAMPLE` in `prepared` stands for: the page's first."""
    filled_in: dict[str, str] = field(default_factory=dict)


LAST_REQUEST = "$(toolgate audit tail | grep -oE '[0-9a-f]{32}' | tail -n 1)"
FIRST_FINGERPRINT = "$(toolgate analyze | grep -oE '[0-9a-f]{32}' | head -n 1)"
FIRST_APPROVAL = "$(toolgate approvals list | grep -oE '^[0-9a-f]{16}' | head -n 1)"
READERS = {
    "README": Reader(),
    "quickstart": Reader("export TOOLGATE_SERVER_PORT=0"),
    "adding-a-tool": Reader(HOME),
    "audit": Reader(
        HOME
        + "export TOOLGATE_LEDGER_ANCHOR_FILE=checkpoints.txt\n"
        + "toolgate call dummy_experimental surprise=1 || test $? -eq 8",
        filled_in={
            "REQUEST_ID": LAST_REQUEST,
            "FIRST.jsonl SECOND.jsonl": "runs/*/*/*.latest.jsonl runs/*/*/*.latest.jsonl",
            "/mnt/other-host/toolgate-checkpoints.txt": "checkpoints.txt",
        },
    ),
    "clients": Reader(HOME),
    "console": Reader(HOME),
    "observing": Reader(HOME),
    "proxies": Reader(HOME),
    "consensus": Reader(HOME),
    "embedding": Reader(),
    "governance": Reader(HOME + REPOSITORY, "yaml", {"FINGERPRINT": FIRST_FINGERPRINT}),
    "papers": Reader(MANUSCRIPT, "markdown"),
    "approvals": Reader(
        HOME + WAITING_CALL, filled_in={"APPROVAL_ID": FIRST_APPROVAL, "127.0.0.1:8000": "127.0.0.1:FREE_PORT"}
    ),
    "policy": Reader(HOME + OLDER_LOCK),
    "receipts": Reader(
        DEPLOYED,
        filled_in={
            "https://example.org/papers/my-research-paper/": "http://127.0.0.1:FREE_PORT/ --allow 127.0.0.1:FREE_PORT"
        },
    ),
    "upstreams": Reader(
        HOME + UPSTREAM,
        filled_in={
            "~/.cursor/mcp.json": "mcp.json",
            "uvx mcp-server-time==2026.10.19": f"{sys.executable} {STUB} good",
            # There is no such site; tests/upstreams logs in at a real authorization server.
            "upstream login tracker": "upstream login --help",
            "upstream try tracker": "upstream list",
        },
    ),
}


@dataclass(frozen=True)
class Block:
    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text("utf-8"))
    return [Block(one["kind"], re.sub(f"^{one['margin']}", "", one["text"], flags=re.MULTILINE)) for one in found]


@dataclass(frozen=True)
class Step:
    command: str
    prints: str | None = None
    """What the page shows of it; None if nothing."""


def steps(page: Path) -> Iterator[Step]:
    """Every line that the page asks its reader to type."""
    for block in blocks(page):
        if block.kind == "sh":
            yield from (Step(line) for line in block.text.splitlines())
        elif block.kind == "console":
            before, *shown = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
            assert not before, f"{page.name}: a console block begins with `$`: {before}"
            for one in shown:
                command, _, prints = one.partition("\n")
                yield Step(command, prints.rstrip("\n") or None)


def reason_not_to_run(step: Step) -> str | None:
    return next((reason for start, reason in NOT_RUN.items() if step.command.startswith(start)), None)


def script(page: Path, port: int) -> str:
    reader = READERS[page.stem]
    lines = [FUNCTIONS, reader.prepared]
    if reader.example:
        example = next(block.text for block in blocks(page) if block.kind == reader.example)
        lines[1] = reader.prepared.replace("EXAMPLE\n", example)
    for number, step in enumerate(steps(page)):
        if reason_not_to_run(step) is None:
            lines += _lines(step, number, reader.filled_in)
    return "\n".join(lines).replace("FREE_PORT", str(port))


def _lines(step: Step, number: int, filled_in: dict[str, str]) -> list[str]:
    command = step.command
    for example, real in filled_in.items():
        command = command.replace(example, real)
    for start, code in UNTIL_STOPPED.items():
        if command.startswith(start):
            return [f"{{ until_stopped {command}", f"}} || test $? -eq {code}"]
    if step.prints is None:
        return [command]
    code = EXITS.get(step.command, 0)
    return [f"{{ {command}", f'}} > "$PRINTED/{number}" || test $? -eq {code}']


def follow(page: Path, tmp_path: Path, port: int) -> subprocess.CompletedProcess[str]:
    """Every line, in order, in one shell that stops at the first failure."""
    programs, place, printed = (tmp_path / name for name in ("bin", "place", "printed"))
    for folder in (programs, place, printed):
        folder.mkdir()
    for name, entrance in (("toolgate", "run"), ("lra", "run_script")):
        program = programs / name
        program.write_text(f"#!{sys.executable}\nfrom toolgate.cli.main import {entrance}\n{entrance}()\n")
        program.chmod(0o755)
    return subprocess.run(
        ["bash", "-eux"],
        input=script(page, port),
        cwd=place,
        env=clean_environment(PATH=f"{programs}:{os.environ['PATH']}", HOME=str(place), PRINTED=str(printed)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def pattern(prints: str, filled_in: dict[str, str]) -> str:
    """What the page shows, as a glob."""
    for varying in (*filled_in, "/home/you", "..."):
        prints = prints.replace(varying, "\0")
    return re.sub(r"[0-9a-f]{64}", "\0", prints).replace("[", "[[]").replace("\0", "*")


@pytest.mark.guard
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_p16_a_page_can_be_followed_as_printed(page: Path, tmp_path: Path) -> None:
    done = follow(page, tmp_path, free_port())
    assert done.returncode == 0, done.stderr[-4000:]
    for number, step in enumerate(steps(page)):
        if step.prints is not None:
            printed = (tmp_path / "printed" / str(number)).read_text()
            assert fnmatchcase(printed.strip(), pattern(step.prints, READERS[page.stem].filled_in)), printed


def test_every_page_has_a_reader_and_every_command_that_is_not_run_is_on_some_page() -> None:
    assert READERS.keys() == {page.stem for page in PAGES}
    commands = [step.command for page in PAGES for step in steps(page)]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in commands)] == []
    assert len(commands) > 80
    assert sum(reason_not_to_run(Step(command)) is not None for command in commands) < 20


OTHER_KINDS = {"toml", "json", "python", "yaml", "html", "markdown", "text", "nginx", "caddy"}
"""Blocks without commands. The proxies' own files are tried by tests/clients/test_proxies.py."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_command_stands_where_no_test_follows_it(page: Path) -> None:
    """Commands are in `sh` and `console` blocks; an indented block, or one of another kind, would not be run."""
    outside = FENCE.sub("", page.read_text("utf-8"))
    assert re.findall(r"^ {4,}(?:\$ )?(?:toolgate|lra|make|pip|python) .*", outside, re.MULTILINE) == []
    for block in blocks(page):
        assert block.kind in {"sh", "console", *OTHER_KINDS}, block
        if block.kind not in ("sh", "console"):
            assert not re.search(r"^\s*(?:\$ )?(?:toolgate|lra) [a-z]", block.text, re.MULTILINE), block.text


def test_every_command_of_the_pages_exists() -> None:
    named = {
        name
        for page in PAGES
        for step in steps(page)
        if reason_not_to_run(step) is None
        for name in re.findall(r"\btoolgate ([a-z][a-z-]+)", step.command)
    }
    assert len(named) >= 15
    assert named <= every_command().keys()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (page, block.text)
        for page in PAGES
        for block in blocks(page)
        if block.kind == "toml" and "[mcp_servers." not in block.text  # Codex's own settings
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_the_settings_of_a_page_are_settings(page: Path, text: str, tmp_path: Path) -> None:
    """The pack's own table included: what its schema does not know is refused by name."""
    (tmp_path / "toolgate.toml").write_text(text.replace("…", "0" * 60))
    settings = load_settings(tmp_path, {}, {})
    assert text.count("=") > 0
    enabled_packs(settings)


def test_the_calls_of_the_governance_guide_are_well_formed() -> None:
    (text,) = (block.text for block in blocks(ROOT / "docs" / "guides" / "governance.md") if block.kind == "json")
    calls = [json.loads(one) for one in re.split(r"\n(?=\{)", text)]
    assert len(calls) >= 5
    registry = SchemaRegistry()
    for call in calls:
        assert list(registry.load_tool_io(call["name"]).input.faults(call["arguments"])) == [], call
