"""An environment elsewhere, into which Toolgate and the stranger's pack are installed as wheels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.homes import PATIENCE_S, first_line
from tests.powers.sql.postgres import Postgres, shared_postgres
from tests.project.test_package import ROOT, build
from tests.stranger.corporate import CREDENTIALS, Company

PACK = Path(__file__).parent / "pack"
TOKEN = "tok-4711-canary"


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its `bin`. What both depend on is borrowed from the environment that runs the tests; neither package is."""
    place = tmp_path_factory.mktemp("elsewhere")
    environment = place / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], timeout=PATIENCE_S, check=True)
    wheels = [build("wheel", ROOT, place / "toolgate"), build("wheel", PACK, place / "tickets")]
    python = environment / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", *wheels],
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        timeout=2 * PATIENCE_S,
        check=True,
    )
    (site,) = (environment / "lib").glob("python3.*/site-packages")
    # A path in a .pth is searched, and .pth files in it are not read: the clone's own package stays out.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    made = Company(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    return shared_postgres()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Deployment:
    """A home that enables the pack, with its rows, its lock, its secret and its way through the proxy."""

    def __init__(self, programs: Path, place: Path, company: Company, database: str | None = None) -> None:
        self.home = place / "home"
        self._program = programs / "toolgate"
        self._environment = {
            "PATH": os.defpath,
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "SSL_CERT_FILE": str(company.certificates),
            "TRACKER_TOKEN": TOKEN,
            "PROXY": CREDENTIALS,
        }
        self._environment["TOOLGATE_API_KEY"] = self.run("init", str(self.home), "--json", at_home=False).json["key"]
        self.configure(
            f'[egress]\nproxy = "http://127.0.0.1:{company.proxy_port}"\nproxy_credentials = "env:PROXY"\n', database
        )
        policy = self.home / "policy" / "mcp-tools.policy.json"
        document = json.loads(policy.read_text())
        document["tools"] = json.loads((PACK / "policy-rows.json").read_text())
        policy.write_text(json.dumps(document))
        assert self.run("contract", "build").code == 0

    def configure(self, egress: str, database: str | None = None, tickets: str = "") -> None:
        stores = f'[stores]\ntickets = "{database}"\n' if database else ""
        table = f'[packs.tickets]\ntoken = "env:TRACKER_TOKEN"\n{tickets}\n'
        (self.home / "toolgate.toml").write_text(f'[packs]\nenabled = ["tickets"]\n{table}{stores}{egress}')

    def run(self, *arguments: str, at_home: bool = True, standard_input: str = "", **environment: str) -> Done:
        done = subprocess.run(
            [self._program, *arguments, *(("--home", str(self.home)) if at_home else ())],
            cwd=self.home if self.home.exists() else self.home.parent,
            env=self._environment | environment,
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        assert TOKEN not in done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def call(self, tool: str, *arguments: str) -> Done:
        """In a process of its own."""
        return self.run("call", tool, "--json", *arguments)

    def over_stdio(self, tool: str, arguments: dict[str, Any]) -> Any:
        asked = {"jsonrpc": "2.0", "id": "1", "method": "mcp.tool.invoke", "params": {"tool": tool, "input": arguments}}
        return json.loads(self.run("stdio", standard_input=json.dumps(asked) + "\n").out.splitlines()[-1])

    def asked(self, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
        """The answers to requests of an MCP client on a pipe, in their order."""
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            for number, (method, params) in enumerate(requests)
        ]
        said = [json.loads(line) for line in self.run("stdio", standard_input="\n".join(lines) + "\n").out.splitlines()]
        return sorted(said, key=lambda answer: answer["id"])

    def over_http(self, *calls: tuple[str, dict[str, str]]) -> list[Any]:
        """Through one server that is started for them and stopped after them."""
        server = subprocess.Popen(
            [self._program, "serve", "--port", "0", "--json", "--home", str(self.home)],
            cwd=self.home,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            url = str(first_line(server)["url"])
            return [
                self.run(
                    "call",
                    tool,
                    "--json",
                    "--url",
                    url,
                    *(f"{name}={text}" for name, text in arguments.items()),
                    at_home=False,
                ).json
                for tool, arguments in calls
            ]
        finally:
            server.terminate()
            _, told = server.communicate(timeout=PATIENCE_S)
            assert b"Traceback" not in told, told.decode()
