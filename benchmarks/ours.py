"""Our own server as a target: a deployment like any other, and the check that its audit log holds every answer.

python -m benchmarks.ours HOME [SETTINGS]      make a deployment; prints its keys (the number of tools: BENCH_TOOLS)
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import wire
from benchmarks.servers import Target

ROOT = Path(__file__).parents[1]
SITE = Path(__file__).parent / "site"
TOOLGATE = str(Path(sys.executable).parent / "toolgate")
CALLERS = 16
"""Keys that the connections take in turn."""


@dataclass(frozen=True, slots=True)
class Deployment:
    home: Path
    keys: tuple[str, ...]
    tools: int = 0
    program: str = TOOLGATE
    path: tuple[Path, ...] = (SITE, ROOT)
    """Where the program finds what is not installed: the bench pack first of all."""

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": os.pathsep.join(map(str, self.path)), "BENCH_TOOLS": str(self.tools)}

    def over_http(self, name: str = "Toolgate") -> Target:
        command = (self.program, "serve", "--port", "0", "--json", "--home", str(self.home))
        return Target(name, command, wire.Exchange("modern"), self.environment, self.keys)

    def unwritten(self, name: str) -> Target:
        """The same over HTTP, but the audit log goes to /dev/null."""
        served = self.over_http(name)
        return replace(served, command=(sys.executable, "-m", "benchmarks.unwritten", *served.command[1:]))

    def over_stdio(self, name: str = "Toolgate") -> Target:
        environment = {**self.environment, "TOOLGATE_API_KEY": self.keys[0]}
        return Target(name, (self.program, "stdio", "--home", str(self.home)), wire.Exchange("stdio"), environment)

    def lines(self) -> Iterator[bytes]:
        """Every line of every run."""
        folder = self.home / "runs" / "mcp_server" / "envelope_validation"
        for path in sorted(folder.glob("*.jsonl")):
            if not path.is_symlink():
                with path.open("rb") as file:
                    yield from file

    def recorded(self) -> tuple[int, int]:
        """(answers written down, answers only counted: refusals of a caller that made too many, in a record or checkpoint)."""
        written = suppressed = 0
        for line in self.lines():
            written += b'"event":"outcome"' in line
            if b'"suppressed":' in line:
                suppressed += int(json.loads(line)["suppressed"])
        return written, suppressed

    def verify(self) -> None:
        """Raises: AuditFault: `toolgate audit verify` does not pass."""
        done = self.run("audit", "verify", "--home", str(self.home))
        if done.returncode != 0:
            raise AuditFault(f"audit verify: {done.stdout.strip()} {done.stderr.strip()}")

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command of the program to its end."""
        return subprocess.run(
            [self.program, *arguments],
            cwd=cwd,
            env=os.environ | dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, answers: int, *, flood: bool = False) -> None:
        """The log holds a line for each of `answers`, no more, and verifies; in a flood of refusals, a line or a count.

        Raises: AuditFault.
        """
        written, suppressed = self.recorded()
        if written + suppressed != answers or (suppressed and not flood):
            raise AuditFault(f"{answers} answers and {written} lines in the audit log, {suppressed} counted")
        self.verify()

    def check_at_least(self, answers: int) -> None:
        """As `check`, where what a server does by itself is recorded too. Raises: AuditFault."""
        written, _ = self.recorded()
        if written < answers:
            raise AuditFault(f"{answers} answers and {written} lines in the audit log")
        self.verify()


class AuditFault(Exception):
    """The audit log does not say what happened: then no speed counts."""


LIMITED = "[limits]\nrate_per_minute = 1000000"
"""By default there is no rate limit. What is measured has one, too high to be reached: its arithmetic is part of a call."""


def make(home: Path, *, settings: str = LIMITED, tools: int = 0, keys: int = CALLERS) -> Deployment:
    """A new deployment with this many keys of the role builder, of which at most CALLERS are used, and more tools."""
    # An installed package has bytecode. Ours runs from the sources, and where PYTHONDONTWRITEBYTECODE is set each start
    # would compile them anew: that time is not the server's.
    for sources in (ROOT / "src" / "toolgate", SITE):
        compileall.compile_dir(sources, quiet=1)
    made = Deployment(home, (), tools)
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.ours", str(home), settings],
        env=os.environ | dict(made.environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    first = json.loads(found.stdout)["builder"]
    added = add_keys(home / "keys" / "callers.json", keys - 1)
    return Deployment(home, (first, *added)[:CALLERS], tools)


def add_keys(file: Path, count: int) -> list[str]:
    """As the key ring writes them, but all at once: it would sync the file for each of ten thousand."""
    document = json.loads(file.read_bytes())
    document["keys"] = [row for row in document["keys"] if row["role"] == "builder"]
    pattern = document["keys"][0]
    added: list[str] = []
    for _ in range(count):
        key_id = secrets.token_hex(6)
        added.append(f"tg_{key_id}_{secrets.token_hex(32)}")
        digest = hashlib.sha256(added[-1].encode()).hexdigest()
        document["keys"].append(pattern | {"id": key_id, "digest": digest})
    file.write_text(json.dumps(document))
    return added


def give_to_administrators_only(deployment: Deployment, tool: str) -> None:
    """Change the policy of this deployment and lock it again."""
    path = deployment.home / "policy" / "mcp-tools.policy.json"
    manifest = json.loads(path.read_bytes())
    for row in manifest["tools"]:
        if row["name"] == tool:
            row["x-roles"] = ["admin"]
    path.write_text(json.dumps(manifest))
    deployment.run("contract", "build", "--home", str(deployment.home)).check_returncode()


def main() -> None:
    from benchmarks.deployment import bench_home

    made = bench_home(Path(sys.argv[1]), *sys.argv[2:])
    print(json.dumps(dict(made.keys)))


if __name__ == "__main__":
    main()
