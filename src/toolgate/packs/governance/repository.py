"""A repository as the rules see it: its workflows, branch protection, policy and contract, parsed, with lines.

`parse` is pure and runs in a worker process; `collect` is the only part that touches files.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit import yamldoc
from toolgate.kit.yamldoc import Mapping, Scalar, Sequence, YamlFault
from toolgate.model import strictjson
from toolgate.packs.governance.workflow import Workflow, read_workflow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.kit.yamldoc import Node
    from toolgate.model.powers import ReadFiles

WORKFLOW_DIR: Final = ".github/workflows"
PROTECTION: Final = ".github/branch-protection.json"
CONTRACTS: Final = ("mcp-contract.json", "policy/mcp-contract.json")
"""Where a repository commits it: beside its manifest, or at the top."""
MANIFEST: Final = "policy/mcp-tools.policy.json"
MAX_FILE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of any one file: a contract of a hundred tools has 400 KB."""
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all files of one call: they are held in memory at once."""
MAX_JSON_NODES: Final = 200_000
MAX_WORKFLOWS: Final = 2_000
ACTIONS_APP: Final = frozenset({None, -1, 15368})
"""Who reports a required check: any app, or GitHub Actions. Another app's check is not a job's to report."""

_WORKFLOW: Final = re.compile(r"(?:.*/)?\.github/workflows/[^/]+\.ya?ml")
_CONFIG: Final = re.compile(r".*\.(?:json|ya?ml|toml|ini|conf)|(?:.*/)?Dockerfile")

FileType = Literal["workflow", "protection", "contract", "manifest", "config", "source"]
_NAMED: Final[dict[str, FileType]] = {
    PROTECTION: "protection",
    MANIFEST: "manifest",
    **dict.fromkeys(CONTRACTS, "contract"),
}


class RequiredCheck(Struct, frozen=True):
    context: str
    line: int


class Protection(Struct, frozen=True):
    checks: tuple[RequiredCheck, ...]


class ToolTable(Struct, frozen=True):
    """A contract or a manifest: rows by tool name, each with its line."""

    rows: dict[str, dict[str, Any]]
    lines: dict[str, int]


class Fault(Struct, frozen=True):
    """A file that cannot be understood, and where it stops making sense."""

    line: int
    text: str


class File(Struct, frozen=True):
    path: str
    type: FileType
    sha256: str
    lines: tuple[str, ...] = ()
    """Only of files that rules quote."""
    parsed: Workflow | Protection | ToolTable | Fault | None = None


class Skipped(Struct, frozen=True):
    path: str
    reason: str


class Repository(Struct, frozen=True):
    files: dict[str, File]
    skipped: tuple[Skipped, ...] = ()
    live_contract: dict[str, Any] | None = None
    """The contract this server runs under; None where there is no server."""

    @property
    def workflows(self) -> dict[str, Workflow]:
        return {path: file.parsed for path, file in self.files.items() if isinstance(file.parsed, Workflow)}

    @property
    def protection(self) -> Protection | None:
        file = self.files.get(PROTECTION)
        return file.parsed if file and isinstance(file.parsed, Protection) else None

    def table(self, path: str) -> ToolTable | None:
        file = self.files.get(path)
        return file.parsed if file and isinstance(file.parsed, ToolTable) else None

    def line(self, path: str, number: int) -> str:
        lines = self.files[path].lines
        return lines[number - 1] if 0 < number <= len(lines) else ""


def file_type(path: str) -> FileType:
    if _WORKFLOW.fullmatch(path):
        return "workflow"
    return _NAMED.get(path) or ("config" if _CONFIG.fullmatch(path) else "source")


def collect(files: ReadFiles, paths: Iterable[str]) -> tuple[list[tuple[str, bytes]], list[Skipped]]:
    """The named files and the repository's own governed ones, sorted by path; what cannot be read is listed, with why.

    Raises: ToolError INVALID_PATH: a named path that leaves the workspace is the caller's fault, not a missing file.
    """
    named = set(paths)
    governed, skipped = _governed(files)
    found: list[tuple[str, bytes]] = []
    left = MAX_TOTAL_BYTES
    for path in sorted(named | governed):
        try:
            data = files.read_bytes(path, max_bytes=min(left, MAX_FILE_BYTES))
        except ToolError as fault:
            if fault.code == "INVALID_PATH" and path in named:
                raise
            skipped.append(Skipped(path, fault.code.lower()))
        else:
            found.append((path, data))
            left -= len(data)
    return found, skipped


def _governed(files: ReadFiles) -> tuple[set[str], list[Skipped]]:
    """What the rules always see. A place that cannot be looked at (a link, too many files) is skipped, and told."""
    found: set[str] = set()
    skipped: list[Skipped] = []
    for path in (*_NAMED, WORKFLOW_DIR):
        try:
            if path == WORKFLOW_DIR and files.is_dir(path):
                walked = files.walk(path, max_files=MAX_WORKFLOWS)
                found |= {entry.path for entry in walked if _WORKFLOW.fullmatch(entry.path)}
            elif files.is_file(path):
                found.add(path)
        except ToolError as fault:
            skipped.append(Skipped(path, fault.code.lower()))
    return found, skipped


def parse(files: list[tuple[str, bytes]]) -> list[File]:
    """Pure: bytes of strangers in, values out. Runs where it can be killed."""
    return [_parsed(path, data) for path, data in files]


def _parsed(path: str, data: bytes) -> File:
    kind = file_type(path)
    digest = sha256(data).hexdigest()
    if kind in ("config", "source"):
        return File(path, kind, digest)
    parsed: Workflow | Protection | ToolTable | Fault
    try:
        if kind == "workflow":
            parsed = read_workflow(path, data)
        elif kind == "protection":
            parsed = _protection(data)
        else:
            parsed = _tool_table(data)
    except YamlFault as fault:
        parsed = Fault(fault.line, fault.text)
    return File(path, kind, digest, tuple(data.decode(errors="replace").splitlines()), parsed)


def _json(data: bytes) -> tuple[Any, Node | None]:
    """The strict value, and the same document as nodes that know their lines."""
    try:
        value = strictjson.loads(data, max_bytes=MAX_FILE_BYTES)
    except strictjson.JsonFault as fault:
        raise YamlFault(1, str(fault)) from None
    return value, yamldoc.read(data, max_bytes=MAX_FILE_BYTES, max_nodes=MAX_JSON_NODES)


def _protection(data: bytes) -> Protection:
    """The shape of the code host's branch-protection answer: `required_status_checks.{contexts, checks}`."""
    _, root = _json(data)
    required = root.get("required_status_checks") if isinstance(root, Mapping) else None
    if yamldoc.is_null(required):
        return Protection(())
    if not isinstance(required, Mapping):
        raise YamlFault(1, "`required_status_checks` must be an object or null")
    lines: dict[str, int] = {}
    contexts, checks = required.get("contexts"), required.get("checks")
    others = set()
    for item in checks.items if isinstance(checks, Sequence) else []:
        context = item.get("context") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(context, Scalar):
            raise YamlFault(item.line, "a required check must be an object with `context`")
        if _app(item.get("app_id")) in ACTIONS_APP:
            lines.setdefault(context.text, context.line)
        else:
            others.add(context.text)
    for item in contexts.items if isinstance(contexts, Sequence) else []:
        if not isinstance(item, Scalar):
            raise YamlFault(item.line, "`contexts` must be a list of texts")
        if item.text not in others:
            lines.setdefault(item.text, item.line)
    return Protection(tuple(RequiredCheck(context, line) for context, line in sorted(lines.items())))


def _app(node: Node | None) -> int | None:
    text = node.text if isinstance(node, Scalar) else "null"
    return None if text == "null" else int(text) if text.lstrip("-").isdecimal() else 0


def _tool_table(data: bytes) -> ToolTable:
    value, root = _json(data)
    rows = value.get("tools") if isinstance(value, dict) else None
    nodes = root.get("tools") if isinstance(root, Mapping) else None
    if not isinstance(rows, list) or not isinstance(nodes, Sequence):
        raise YamlFault(1, "`tools` must be a list")
    table = ToolTable({}, {})
    for row, node in zip(rows, nodes.items, strict=True):
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or name in table.rows:
            raise YamlFault(node.line, "each tool must be an object with a `name` of its own")
        table.rows[name] = row
        table.lines[name] = node.line
    return table
