"""Real things for policy tests: tools and packs as values, packs as installed distributions, homes, a copy of the project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from toolgate.model.tool import Pack, Result, Tool
from toolgate.policy.adr import Adr
from toolgate.policy.manifest import FILES, Manifest, ManifestRow, default_file

ROOT = Path(__file__).parents[2]
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
ALL = frozenset({"builder", "committer", "admin"})


def tool(name: str = "probe", **changes: Any) -> Tool:
    values: dict[str, Any] = {
        "name": name,
        "id": f"test.{name}",
        "summary": "Says nothing.",
        "input_schema": CLOSED,
        "output_schema": CLOSED,
        "effect": "read",
        "deadline_s": 10,
        "run": lambda _ctx, _args: Result(data={}),
    }
    return Tool(**(values | changes))


def pack(*tools: Tool, name: str = "test") -> Pack:
    return Pack(name=name, tools=tools)


def row(name: str = "probe", **changes: Any) -> ManifestRow:
    values: dict[str, Any] = {"name": name, "tier": "experimental", "adr": None, "hint": "Advice", "roles": ALL}
    return ManifestRow(**(values | changes))


def manifest(*rows: ManifestRow, **changes: Any) -> Manifest:
    return Manifest(version="1.0.0", rows={each.name: each for each in rows}, **changes)


def accepted(number: str, status: str = "accepted") -> dict[str, Adr]:
    return {number: Adr(number, status, "0" * 64)}


def python(code: str, *arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=env | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def install(site: Path, name: str, source: str, *, distribution: str | None = None) -> None:
    """A pack as pip would leave it: a module, and metadata that names its entry point."""
    module = f"stranger_{name}_{site.name}".replace("-", "_")
    (site / f"{module}.py").write_text(source)
    info = site / f"{distribution or module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution or module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[toolgate.packs]\n{name} = {module}:PACK\n")


def pack_source(pack_name: str = "stray", tool_name: str = "stray_probe", **changes: str) -> str:
    """Source of a pack with one tool; `changes` are expressions, as an author would write them."""
    closed = "{'type': 'object', 'properties': {}, 'additionalProperties': False}"
    fields = {
        "name": repr(tool_name),
        "id": repr(f"stray.{tool_name}"),
        "summary": "'A stranger.'",
        "input_schema": closed,
        "output_schema": closed,
        "effect": "'read'",
        "deadline_s": "5",
        "run": "lambda ctx, args: Result(data={})",
    } | changes
    arguments = ", ".join(f"{key}={value}" for key, value in fields.items())
    return (
        "from toolgate.model.tool import Pack, Result, Tool\n"
        f"PACK = Pack(name={pack_name!r}, tools=(Tool({arguments}),))\n"
    )


def home(place: Path, *packs: str) -> Path:
    """A deployment with its own copy of the packaged policy, and these packs enabled."""
    policy = place / "policy"
    policy.mkdir(parents=True)
    for name in FILES:
        (policy / name).write_bytes(default_file(name).read_bytes())
    enabled = ", ".join(f'"{name}"' for name in ("governance", *packs))
    (place / "toolgate.toml").write_text(f"[packs]\nenabled = [{enabled}]\n")
    return place


def edit_manifest(policy: Path, change: Any) -> None:
    """Apply a function to the manifest's content, as a person with an editor would."""
    file = policy / "mcp-tools.policy.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content, indent=2))


def json_row(name: str, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": name,
        "x-tier": "experimental",
        "x-visibilityHint": "Advice",
        "x-roles": ["builder"],
    }
    return base | changes


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


_SEVERAL = """
import contextlib, io, json, sys
from toolgate.cli.main import main
said = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""


class Project:
    """A copy of the project's own tree: its policy is the packaged one there, and may be broken."""

    def __init__(self, place: Path) -> None:
        self.root = place / "project"
        # Compiled files come along with their times, so that a command starts as fast as in the original.
        shutil.copytree(ROOT / "src", self.root / "src")
        shutil.copytree(ROOT / "docs" / "adr", self.root / "docs" / "adr")
        shutil.copy2(ROOT / "pyproject.toml", self.root)
        (self.root / "policy").symlink_to("src/toolgate/policy/default")
        self.policy = self.root / "policy"

    def run(self, *commands: str) -> list[Said]:
        """Run command lines one after the other, in one process: starting Python is the slow part."""
        lines = json.dumps([command.split() for command in commands])
        answer = python(_SEVERAL, lines, cwd=self.root, PYTHONPATH=str(self.root / "src"))
        assert answer.returncode == 0, answer.stderr
        return [Said(*each) for each in json.loads(answer.stdout)]

    def row(self, name: str, **changes: Any) -> None:
        """Change one row; None takes a key away."""

        def change(content: Any) -> None:
            found = next(item for item in content["tools"] if item["name"] == name)
            found |= changes
            for key in [key for key, value in found.items() if value is None]:
                del found[key]

        edit_manifest(self.policy, change)

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def adr(self, number: str, status: str) -> None:
        text = f"# {number}: A rule\n\n**Status:** {status}\n\n## Decision\n\nIt MUST hold.\n"
        (self.root / "docs" / "adr" / f"{number}-a-rule.md").write_text(text)
