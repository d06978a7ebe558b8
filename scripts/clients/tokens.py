"""What a model pays for our list of tools and for an answer, beside two well-known servers: `make tokens`.

Counted with the o200k encoding of npm's gpt-tokenizer. A model is shown name, description and input schema of every tool;
a few clients add the output schemas. Exits 1 if a goal is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.clients import install

TOOLGATE = str(Path(sys.executable).with_name("toolgate"))
MAX_INPUT, MAX_OUTPUT, MAX_OVER = 3000, 3000, 40
"""Tokens: names, descriptions and input schemas; output schemas; an answer's text over its data."""
STEP_S = 60
_COUNT = """
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
const pieces = []
for await (const piece of process.stdin) pieces.push(piece)
console.log(JSON.stringify(JSON.parse(Buffer.concat(pieces)).map((text) => encode(text).length)))
"""


def count(texts: Sequence[str], packages: Path) -> list[int]:
    """Tokens of each text."""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", _COUNT],
        input=json.dumps(list(texts)),
        cwd=packages,
        env=install.programs(packages),
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=True,
    )
    return list(json.loads(done.stdout))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shown(tool: Mapping[str, Any]) -> str:
    """What a model sees of a tool."""
    return compact({key: tool[key] for key in ("name", "description", "inputSchema") if key in tool})


def cost(tools: Sequence[Mapping[str, Any]], packages: Path) -> tuple[int, int]:
    """Tokens of what a model is shown, and of the output schemas."""
    outputs = [compact(tool["outputSchema"]) for tool in tools if "outputSchema" in tool]
    counts = count([*map(shown, tools), *outputs], packages)
    return sum(counts[: len(tools)]), sum(counts[len(tools) :])


def listed(command: Sequence[str], variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tools of a server that is started for it, over standard input and output."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tokens", "version": "1"}}
    questions = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with subprocess.Popen(
        command,
        env=dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            for question in questions:
                process.stdin.write(compact(question) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if answer.get("id") == 2:
                    return list(answer["result"]["tools"])
        finally:
            process.kill()
    raise SystemExit(f"{command[0]} gave no list")


def our_lists(scratch: Path) -> dict[str, list[dict[str, Any]]]:
    """By role, of a fresh home."""
    home = scratch / "home"
    _toolgate("init", str(home))
    found = {}
    for role in ("builder", "admin"):
        key = json.loads(_toolgate("keys", "create", "--role", role, "--json", "--home", str(home)))["key"]
        variables = install.programs(scratch, TOOLGATE_API_KEY=key)
        found[f"toolgate, {role}"] = listed([TOOLGATE, "stdio", "--home", str(home)], variables)
    return found


def peers(scratch: Path, packages: Path) -> dict[str, list[dict[str, Any]]]:
    git = install.python("git", install.PEERS["git"])
    files = packages / "node_modules" / ".bin" / "mcp-server-filesystem"
    variables = install.programs(packages)
    return {
        "mcp-server-git": listed([str(git), "-m", "mcp_server_git"], variables),
        "server-filesystem": listed([str(files), str(scratch)], variables),
    }


def _toolgate(*arguments: str) -> str:
    done = subprocess.run([TOOLGATE, *arguments], capture_output=True, text=True, timeout=STEP_S, check=True)
    return done.stdout


def main() -> int:
    packages = install.guard_packages()
    with tempfile.TemporaryDirectory() as scratch:
        ours = our_lists(Path(scratch))
        lists = ours | peers(Path(scratch), packages)
    costs = {name: cost(tools, packages) for name, tools in lists.items()}
    print(f"{'':24}{'tools':>6}{'model sees':>12}{'a tool':>8}{'output schemas':>16}")
    for name, (inputs, outputs) in costs.items():
        tools = len(lists[name])
        print(f"{name:24}{tools:>6}{inputs:>12}{round(inputs / tools):>8}{outputs or '-':>16}")
    inputs, outputs = costs["toolgate, admin"]
    missed = [
        text
        for text, is_missed in (
            (f"names, descriptions and input schemas: {inputs} of at most {MAX_INPUT}", inputs > MAX_INPUT),
            (f"output schemas: {outputs} of at most {MAX_OUTPUT}", outputs > MAX_OUTPUT),
        )
        if is_missed
    ]
    for text in missed:
        print(f"MISSED {text}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
