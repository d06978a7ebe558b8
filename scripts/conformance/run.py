"""Judge a running Toolgate from outside: the official conformance suite and the MCP Inspector, with authentication on.

The suite judges three servers: `own`, ours with the names of the suite as a pack; `direct`, the fixture server of the SDK as it
is; and `governed`, the same one adopted, through the gate.

    make conformance, or: python -m scripts.conformance.run [--cache DIR] [--results DIR]

Installs both by name and pinned version (package.json beside this file) with npm into the cache, makes a fresh deployment,
serves it, and exits 0 only if every scenario that is not in a baseline passes and no baseline entry has become stale.
Both tools need Node 22, which comes as an npm package too; any Node that can run npm will do to fetch it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.conformance.fixture import NAME, add_fixture, fetch, let_it_ask, serving_fixture
from scripts.conformance.shim import shim
from toolgate.model.offers import offered
from toolgate.model.tool import Tool
from toolgate.packs.loader import load_packs
from toolgate.policy.manifest import MANIFEST_FILE
from toolgate.settings import DEFAULT_PACKS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLGATE = str(Path(sys.executable).with_name("toolgate"))
SITE = ROOT / "tests" / "site_packages"
FIXTURE = "everything"
"""The pack, and where it is as good as installed."""
REVISIONS = ("2025-11-25", "2026-07-28")
UNSCORED = (("http-header-validation", "2026-07-28"),)
"""Scenarios that the suite runs without counting them, and that we must pass all the same."""
ERAS = ("legacy", "modern")
CLIENTS = ("claude-code", "claude-desktop")
"""Clients whose files the Inspector reads as they are, HTTP and stdio. (Cursor names no type, VS Code has another shape.)"""
TOOL, PROMPT, RESOURCE = "dummy_experimental", "governance_guide", "toolgate://contract"
INSTALL_S, SUITE_S, STEP_S = 600, 300, 60
"""Seconds after which npm, one run of the suite, and anything else is given up."""

_LINE = re.compile(r"^([✓✗]) ([a-z0-9-]+): [0-9]+ passed, [0-9]+ failed", re.MULTILINE)
_PLACE_OF_KEY = re.compile(r"\$\{[^}]*\}|PASTE-A-KEY-HERE")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Summary:
    scenarios: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By revision: which scenario passed in full."""
    counts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """By revision and server: of the scenarios that count, how many passed, and how many there are."""
    inspector: dict[str, bool] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"scenarios": self.scenarios, "counts": self.counts, "inspector": self.inspector, "faults": self.faults}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=ROOT / ".cache" / "conformance")
    options.add_argument("--results", type=Path, help="keep the suite's own reports and a summary.json here")
    chosen = options.parse_args()
    sys.path.insert(0, str(SITE))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    tools = install(chosen.cache)
    with tempfile.TemporaryDirectory() as scratch:
        results = chosen.results or Path(scratch) / "results"
        results.mkdir(parents=True, exist_ok=True)
        summary = judge(tools, Path(scratch), results, chosen.cache)
        (results / "summary.json").write_text(json.dumps(summary.as_json(), indent=2) + "\n")
    for fault in summary.faults:
        print(f"FAILED {fault}", file=sys.stderr)
    for revision, counts in summary.counts.items():
        told = ", ".join(f"{server} {passed} of {wanted}" for server, (passed, wanted) in counts.items())
        print(f"{revision}: {told} scored scenarios")
    print(f"{sum(summary.inspector.values())} Inspector runs passed, {len(summary.faults)} faults")
    return 1 if summary.faults else 0


def install(cache: Path) -> dict[str, str]:
    """npm by package name; nothing runs at install time but the fetching of Node itself. Gives an environment to run in."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not on this machine. Install Node (any version with npm), then try again.")
    wanted = (HERE / "package.json").read_bytes()
    stamp = cache / "installed.json"
    environment = os.environ | {"HOME": str(cache / "home"), "NO_COLOR": "1"}
    environment["PATH"] = os.pathsep.join([str(cache / "node_modules" / ".bin"), environment.get("PATH", os.defpath)])
    if not stamp.is_file() or stamp.read_bytes() != wanted:
        print(f"installing the conformance suite and the Inspector into {cache} ...", flush=True)
        shutil.rmtree(cache / "node_modules", ignore_errors=True)
        (cache / "home").mkdir(parents=True, exist_ok=True)
        (cache / "package.json").write_bytes(wanted)
        quiet = ("--no-audit", "--no-fund", "--loglevel=error")
        # npm keeps the caller's own settings (registry, proxy): HOME changes only for the tools themselves.
        _run([npm, "install", "--ignore-scripts", "--no-package-lock", *quiet], cwd=cache, timeout=INSTALL_S)
        _run([npm, "rebuild", "node", *quiet], cwd=cache, timeout=INSTALL_S)
        stamp.write_bytes(wanted)
    return environment


def judge(tools: dict[str, str], scratch: Path, results: Path, cache: Path) -> Summary:
    summary = Summary()
    with serving_fixture(fetch(cache)) as direct:
        for revision in REVISIONS:
            run_suite(summary, tools, direct, revision, results, "direct")
    with serving_fixture(fetch(cache)) as upstream:  # anew: the suite leaves its traces in it
        judge_governed(summary, tools, scratch / "governed", results, upstream)
    fixture, key = deployment(scratch / "suite", with_fixture=True)
    with serving(fixture) as ready:
        port = int(ready["url"].rpartition(":")[2])
        with shim(port, key) as address:
            for revision in REVISIONS:
                run_suite(summary, tools, f"{address}/mcp", revision, results, "own")
            for scenario, revision in UNSCORED:
                run_scenario(summary, tools, f"{address}/mcp", scenario, revision)
    home, key = deployment(scratch / "home", with_fixture=False)
    with serving(home) as ready:
        over_http = ([ready["mcp"]], ["--header", f"Authorization: Bearer {key}"], [])
        over_stdio = ([], ["-e", f"TOOLGATE_API_KEY={key}"], ["--", TOOLGATE, "stdio", "--home", str(home)])
        for name, (target, flags, command) in {"http": over_http, "stdio": over_stdio}.items():
            for era in ERAS:
                run_inspector(summary, tools, f"{name} {era}", [*target, "--protocol-era", era, *flags], command)
        for client in CLIENTS:
            written = client_file(scratch, home, client, ready["url"], key)
            run_inspector(summary, tools, f"config {client}", ["--config", str(written), "--server", "toolgate"], [])
    return summary


def judge_governed(summary: Summary, tools: dict[str, str], home: Path, results: Path, upstream: str) -> None:
    home, key = deployment(home, with_fixture=False)
    add_fixture(home, upstream)
    _run([TOOLGATE, "upstream", "adopt", NAME, "--roles", "admin", "--yes", "--home", str(home)])
    let_it_ask(home)
    with serving(home) as ready, shim(int(ready["url"].rpartition(":")[2]), key) as address:
        for revision in REVISIONS:
            run_suite(summary, tools, f"{address}/mcp", revision, results, "governed")


def deployment(home: Path, *, with_fixture: bool) -> tuple[Path, str]:
    """A fresh home, and a key of it."""
    _run([TOOLGATE, "init", str(home)])
    if with_fixture:
        enable_fixture(home)
    _run([TOOLGATE, "contract", "build", "--home", str(home)])  # the lock of a tree under work may be behind its tools
    return home, json.loads(_run([TOOLGATE, "keys", "create", "--role", "admin", "--json", "--home", str(home)]))["key"]


def enable_fixture(home: Path) -> None:
    """What the suite asks for by names of its own: a pack of the tests has it, and comes by the door."""
    settings, manifest = home / "toolgate.toml", home / "policy" / MANIFEST_FILE
    packs = (*DEFAULT_PACKS, FIXTURE)
    settings.write_text(settings.read_text().replace("\n[packs]\n", f"\n[packs]\nenabled = {json.dumps(packs)}\n"))
    policy = json.loads(manifest.read_text())
    policy["tools"] += [_row(tool) for pack in load_packs([FIXTURE]) for tool in offered(pack)]
    manifest.write_text(json.dumps(policy))


def _row(tool: Tool) -> dict[str, Any]:
    row = {"name": tool.name, "x-tier": "experimental", "x-visibilityHint": "For the suite", "x-roles": ["admin"]}
    return row | ({"x-asks": list(tool.asks)} if tool.asks else {})


def client_file(scratch: Path, home: Path, client: str, url: str, key: str) -> Path:
    """What `toolgate mcp-config` prints, with the key in the place that the client would fill."""
    printed = _run([TOOLGATE, "mcp-config", client, "--url", url, "--home", str(home)])
    written = scratch / f"{client}.json"
    written.write_text(_PLACE_OF_KEY.sub(key, printed))
    return written


def run_suite(summary: Summary, tools: dict[str, str], url: str, revision: str, results: Path, server: str) -> None:
    """Every scenario that the revision requires; those of the baseline are expected to fail, and must."""
    baseline = HERE / "baselines" / f"{server}-{revision}.yml"
    command = ["conformance", "server", "--url", url, "--requirements", revision]
    command += ["--expected-failures", str(baseline)] if baseline.is_file() else []
    command += ["--output-dir", str(results / server / revision)]
    done = subprocess.run(command, env=tools, capture_output=True, text=True, timeout=SUITE_S, check=False)
    said = _COLOUR.sub("", done.stdout + done.stderr)
    (results / f"{server}-{revision}.txt").write_text(said)
    found = {name: mark == "✓" for mark, name in _LINE.findall(said)}
    wanted = scored(tools, revision)
    passed = sum(found.get(name, False) for name in wanted)
    summary.counts.setdefault(revision, {})[server] = passed, len(wanted)
    if server == "own":
        summary.scenarios[revision] = found
    if done.returncode != 0 or not found:
        summary.faults.append(f"conformance {server} {revision}:\n{said[-4000:]}")


def scored(tools: dict[str, str], revision: str) -> list[str]:
    """The scenarios of servers that the revision requires, as the suite's own list has them."""
    package = Path(tools["HOME"]).parent / "node_modules" / "@modelcontextprotocol" / "conformance"
    _, _, rest = (package / "requirements" / f"{revision}.yaml").read_text().partition("\nserver:\n")
    return re.findall(r"^  - ([a-z0-9-]+)$", rest.partition("\n\n")[0].partition("\nclient:")[0], re.MULTILINE)


def run_scenario(summary: Summary, tools: dict[str, str], url: str, scenario: str, revision: str) -> None:
    command = ["conformance", "server", "--url", url, "--scenario", scenario, "--spec-version", revision]
    done = subprocess.run(command, env=tools, capture_output=True, text=True, timeout=SUITE_S, check=False)
    summary.scenarios[revision][scenario] = done.returncode == 0
    if done.returncode != 0:
        summary.faults.append(f"conformance {scenario}:\n{_COLOUR.sub('', done.stdout + done.stderr)[:4000]}")


def run_inspector(
    summary: Summary, tools: dict[str, str], name: str, flags: Sequence[str], command: Sequence[str]
) -> None:
    """List (with its lint of every schema) and call, as a person with the Inspector would."""
    start = ["mcp-inspector", "--cli", *flags, "--stored-auth-only", "--format", "json"]
    questions = {
        "tools/list": ["--method", "tools/list", "--strict"],
        "tools/call": _call(TOOL, {}),
        "bad arguments": _call("library_search", {"query": ""}),
        "says no": _call("lra_validate", {"path": "nowhere"}),
        "prompts/get": ["--method", "prompts/get", "--prompt-name", PROMPT],
        "resources/read": ["--method", "resources/read", "--uri", RESOURCE],
    }
    for method, asked in questions.items():
        done = subprocess.run(
            [*start, *asked, *command], env=tools, capture_output=True, text=True, timeout=STEP_S, check=False
        )
        good = _is_good(method, done.returncode, done.stdout, done.stderr)
        summary.inspector[f"{name} {method}"] = good
        if not good:
            summary.faults.append(f"Inspector {name} {method}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")


def _call(tool: str, arguments: dict[str, Any]) -> list[str]:
    return ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)]


OFFERED = {"prompts/get": "You work behind a governance gate", "resources/read": "schemaVersion"}
"""What a person with the Inspector must find in a prompt and in a resource."""
FAULTS = {
    "bad arguments": "query is an empty string; expected a string of 1 to",
    "says no": "FILE_NOT_FOUND: Cannot read nowhere: file not found",
}
"""What a person with the Inspector must read of a call that fails. It checks the answer against the advertised schema first."""


def _is_good(method: str, code: int, said: str, complained: str) -> bool:
    """The governed tool is there; called, it claims to block and the floor has made that a warning. Faults are readable."""
    if method in FAULTS:
        return code != 0 and FAULTS[method] in said + complained
    try:
        answer = json.loads(said)["result"] if code == 0 else {}
    except (ValueError, KeyError):
        return False
    if method == "tools/list":
        return TOOL in [tool["name"] for tool in answer.get("tools", ())]
    if method in OFFERED:
        return OFFERED[method] in json.dumps(answer)
    envelope = answer.get("structuredContent", {})
    return (
        bool(envelope)
        and not answer.get("isError")
        and (envelope.get("decision"), envelope.get("data"))
        == (
            "warn",
            {"some": "payload"},
        )
    )


@contextmanager
def serving(home: Path) -> Iterator[dict[str, str]]:
    command = [TOOLGATE, "serve", "--port", "0", "--json", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise SystemExit("toolgate did not start")
            yield json.loads(line)
        finally:
            process.terminate()
            process.wait(STEP_S)


def _run(command: Sequence[str], *, cwd: Path | None = None, timeout: float = STEP_S) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
