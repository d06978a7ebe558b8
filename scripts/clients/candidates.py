"""Who `make clients` tries: how each client is installed, and how it is pointed at a server."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scripts.clients import install, model
from scripts.clients.drivers.steps import BURST, SINGLE, judged_burst
from scripts.clients.judge import judged, short
from scripts.clients.limited import Done, run
from tests.homes import Home, Server, environment

RUN_S = 300.0
"""Seconds for all steps of one client over one transport: each step has a bound of its own."""
CALL_S = 60.0
"""Seconds for a program that makes one call and ends."""
NOT_TRIED = "-"


@dataclass(frozen=True)
class Place:
    """A server to point one client at, over both transports, with a key of the client's own."""

    home: Home
    server: Server
    key: str
    scratch: Path
    tools: int
    """How many tools the key is shown."""

    def where(self, transport: str) -> dict[str, Any]:
        if transport == "http":
            return {"url": self.server.ready["mcp"], "key": self.key}
        return {"command": self.home.command("stdio"), "env": environment(TOOLGATE_API_KEY=self.key)}


class Client(Protocol):
    name: str

    def install(self) -> tuple[str, str]:
        """What it is called in the table, and its version. Raises: CannotInstall."""
        ...

    def tried(self, place: Place, transport: str) -> str:
        """A cell of the table."""
        ...


def drive(
    command: Sequence[str], where: Mapping[str, Any], tools: int, variables: Mapping[str, str] | None = None
) -> str:
    done = run(command, RUN_S, told=json.dumps({"it": where}), env=variables)
    if done.code is None:
        return f"no answer within {RUN_S:.0f} s"
    try:
        return judged(json.loads(done.out.strip().splitlines()[-1])["it"], tools)
    except (IndexError, ValueError):
        return f"no answer: {short(done.err[-300:])}"


@dataclass(frozen=True)
class PythonLibrary:
    name: str

    def install(self) -> tuple[str, str]:
        interpreter = install.python(self.name, install.AGENTS[self.name])
        package = re.split(r"[\[=]", install.AGENTS[self.name][0])[0]
        asked = f"import importlib.metadata as m; print(m.version({package!r}))"
        return f"{package} (Python)", run([str(interpreter), "-c", asked], CALL_S).out.strip()

    def tried(self, place: Place, transport: str) -> str:
        interpreter = install.python(self.name, install.AGENTS[self.name])
        command = [str(interpreter), str(install.DRIVERS / "libraries.py"), self.name]
        return drive(command, place.where(transport), place.tools)


@dataclass(frozen=True)
class OnNpm:
    """What clients on npm have in common."""

    name: str

    def folder(self) -> Path:
        return install.npm(self.name, install.NPM[self.name])

    def package(self) -> str:
        return next(iter(install.NPM[self.name]))

    def variables(self, **more: str) -> dict[str, str]:
        return install.programs(self.folder(), install.guard_packages(), **more)

    def version(self) -> str:
        return install.npm_version(self.folder(), self.package())


class JavaScriptLibrary(OnNpm):
    def install(self) -> tuple[str, str]:
        return f"{self.package()} (JavaScript)", self.version()

    def tried(self, place: Place, transport: str) -> str:
        command = ["node", str(self.folder() / "drivers" / "libraries.mjs"), self.name]
        return drive(command, place.where(transport), place.tools, self.variables())


class McpRemote(OnNpm):
    """Makes a program of an address: the SDK over a pipe, our server behind it over HTTP."""

    def install(self) -> tuple[str, str]:
        return "mcp-remote (bridge)", self.version()

    def tried(self, place: Place, transport: str) -> str:
        if transport == "stdio":
            return NOT_TRIED
        where = place.where("http")
        command = [str(self.folder() / "node_modules" / ".bin" / "mcp-remote"), where["url"]]
        command += ["--header", f"Authorization:Bearer {where['key']}"]
        return bridged(command, place.tools, self.variables(HOME=str(place.scratch)))


@dataclass(frozen=True)
class FastMcpProxy:
    """Another server that passes everything on."""

    name: str = "fastmcp-proxy"

    def install(self) -> tuple[str, str]:
        interpreter = install.python("fastmcp4", install.PYTHON["fastmcp4"])
        asked = "import importlib.metadata as m; print(m.version('fastmcp'))"
        return "FastMCP's proxy (bridge)", run([str(interpreter), "-c", asked], CALL_S).out.strip()

    def tried(self, place: Place, transport: str) -> str:
        interpreter = install.python("fastmcp4", install.PYTHON["fastmcp4"])
        told = json.dumps(place.where(transport))
        return bridged([str(interpreter), str(install.DRIVERS / "fast_proxy.py"), told], place.tools, environment())


def bridged(command: Sequence[str], tools: int, variables: Mapping[str, str]) -> str:
    driver = [sys.executable, str(install.DRIVERS / "mcp2.py"), "legacy"]
    return drive(driver, {"command": list(command), "env": dict(variables)}, tools)


class McPorter(OnNpm):
    """A command line: every call is a process of its own."""

    def install(self) -> tuple[str, str]:
        return "mcporter (program)", self.version()

    def tried(self, place: Place, transport: str) -> str:
        where, file = place.where(transport), place.scratch / f"mcporter-{transport}.json"
        entry = (
            {"baseUrl": where["url"], "headers": {"Authorization": f"Bearer {where['key']}"}} if "url" in where else {}
        )
        if not entry:
            command, *arguments = where["command"]
            entry = {"command": command, "args": arguments, "env": where["env"]}
        file.write_text(json.dumps({"mcpServers": {"toolgate": entry}}))
        start = ["mcporter", "--config", str(file), "call"]
        variables = self.variables(HOME=str(place.scratch))

        def call(step: tuple[str, dict[str, Any]]) -> dict[str, Any]:
            tool, arguments = step
            asked = [*start, f"toolgate.{tool}", "--args", json.dumps(arguments)]
            done = run(asked, CALL_S, env=variables)
            return {"ok": done.code == 0, "text": done.said if done.code is not None else "hangs"}

        told = {step: call(asked) for step, asked in SINGLE.items()}
        with ThreadPoolExecutor(BURST) as pool:
            work = [("wire_progress", {"text": f"hello {number}"}) for number in range(BURST)]
            told["burst"] = judged_burst(list(pool.map(call, work)), call(("wire_echo", {"text": "hello"})))
        return judged(told)


@dataclass(frozen=True)
class Program:
    """Reads what `toolgate mcp-config` prints, with its own parser, and says what it made of it."""

    name: str
    file: str
    """Where it reads its file from, in its home."""
    asked: tuple[str, ...]
    expected: str

    def install(self) -> tuple[str, str]:
        return f"{self.name} (program)", OnNpm(self.name).version()

    def tried(self, place: Place, transport: str) -> str:
        folder = place.scratch / transport
        file = folder / self.file
        file.parent.mkdir(parents=True)
        file.write_text(printed(place, self.name, transport))
        done = self._ask(place, folder)
        if self.expected not in done.said:
            return f"does not read its file: {short(done.said)}"
        return "reads its file, connects" if re.search(r"(?i)\bconnected", done.said) else "reads its file"

    def _ask(self, place: Place, folder: Path) -> Done:
        variables = environment(TOOLGATE_API_KEY=place.key, HOME=str(folder), NO_COLOR="1")
        variables |= {"PATH": OnNpm(self.name).variables()["PATH"], "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        return run(self.asked, CALL_S, env=variables, cwd=folder)


@dataclass(frozen=True)
class Scripted(OnNpm):
    """A program with a scripted model in the place of its own; its file is what `toolgate mcp-config` prints."""

    shown: str
    protocol: model.Protocol
    prepared: Callable[[Path, str, str], list[str]]
    """(folder, what was printed, the model's address) -> the command; writes the program's files."""

    def install(self) -> tuple[str, str]:
        return f"{self.shown} (program)", self.version()

    def tried(self, place: Place, transport: str) -> str:
        folder = place.scratch / transport
        folder.mkdir()
        with model.serving(self.protocol) as (address, script):
            asked = self.prepared(folder, printed(place, self.name, transport), address)
            variables = environment(TOOLGATE_API_KEY=place.key, HOME=str(folder), CODEX_HOME=str(folder), NO_COLOR="1")
            variables |= {"PATH": self.variables()["PATH"], "ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "none"}
            # Nobody is asked, nothing is sent home, and no tool is kept back until the model searches for it.
            variables |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false"}
            variables["PWD"] = str(folder)  # opencode believes it rather than the directory that it is in
            done = run(asked, RUN_S, env=variables, cwd=folder)
        return judged(script.told(), place.tools) if script.heard else f"no answer: {short(done.said[-600:])}"


def claude_code(folder: Path, file: str, _address: str) -> list[str]:
    (folder / "mcp.json").write_text(file)
    asked = ["claude", "--print", "Use the tools.", "--mcp-config", "mcp.json", "--strict-mcp-config"]
    return [*asked, "--allowedTools", "mcp__toolgate", "--model", "none"]


def codex(folder: Path, file: str, address: str) -> list[str]:
    provider = f'name = "script"\nbase_url = "{address}/v1"\nwire_api = "responses"\n'
    head = f'model = "none"\nmodel_provider = "script"\n[model_providers.script]\n{provider}'
    # It starts servers without our variables; the pack of these trials is found by one of them.
    (folder / "config.toml").write_text(head + file.replace("env_vars = [", 'env_vars = ["PYTHONPATH", '))
    return ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Use the tools."]


def opencode(folder: Path, file: str, address: str) -> list[str]:
    options = {"baseURL": f"{address}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"none": {"tool_call": True}}}
    (folder / "opencode.json").write_text(json.dumps(json.loads(file) | {"provider": {"script": provider}}))
    return ["opencode", "run", "--model", "script/none", "Use the tools."]


def printed(place: Place, client: str, transport: str) -> str:
    command = place.home.command("mcp-config", client, f"--{transport}")
    if transport == "http":
        command += ["--url", place.server.ready["url"]]
    return run(command, CALL_S, env=environment()).out


def everyone() -> dict[str, Client]:
    """By the name that `make clients ARGS=NAME` takes."""
    found: list[Client] = [
        *map(PythonLibrary, install.AGENTS),
        *map(JavaScriptLibrary, ("ai-sdk", "langchain-js", "mastra", "openai-agents-js")),
        McpRemote("mcp-remote"),
        FastMcpProxy(),
        McPorter("mcporter"),
        Scripted("claude-code", "Claude Code", model.Anthropic(), claude_code),
        Scripted("codex", "Codex", model.Responses(), codex),
        Scripted("opencode", "opencode", model.Completions(), opencode),
        Program("gemini", ".gemini/settings.json", ("gemini", "mcp", "list"), "toolgate: "),
    ]
    return {client.name: client for client in found}
