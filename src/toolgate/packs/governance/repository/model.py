"""A repository as the rules see it: workflows, actions, branch protection, policy, contract, its own settings; with lines.

`parse` is pure and runs in a worker process; `governed` only looks which files there are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import ToolError
from toolgate.kit import yamldoc
from toolgate.kit.yamldoc import Mapping, Sequence, YamlFault
from toolgate.model import strictjson
from toolgate.packs.governance.repository.config import CONFIG, Config, Writer, read_config
from toolgate.packs.governance.repository.protection import PROTECTION_FILES, Protection, read_protection
from toolgate.packs.governance.repository.reading import SkippedFile
from toolgate.packs.governance.repository.suppressions import (
    SUPPRESSIONS,
    SuppressionEntry,
    SuppressionFile,
    read_suppressions,
)
from toolgate.packs.governance.workflows.resolve import ACTION_FILES, JobResolver, local_path
from toolgate.packs.governance.workflows.workflow import Action, Workflow, read_action, read_workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from toolgate.kit.yamldoc import Node
    from toolgate.model.powers import ReadFiles
    from toolgate.packs.governance.workflows.workflow import WorkflowStep

GITHUB_DIR: Final = ".github"
WORKFLOW_DIR: Final = f"{GITHUB_DIR}/workflows"
ACTION_DIR: Final = f"{GITHUB_DIR}/actions"
CONTRACTS: Final = ("mcp-contract.json", "policy/mcp-contract.json")
"""Where a repository commits it: beside its manifest, or at the top."""
MANIFEST: Final = "policy/mcp-tools.policy.json"
MAX_FILE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of any one file: a contract of a hundred tools has 400 KB."""
MAX_JSON_NODES: Final = 200_000
MAX_WORKFLOWS: Final = 2_000
MAX_LOOKED_AT: Final = 20_000
"""Files in `.github`: an action in JavaScript may bring its modules."""
NOT_REGULAR: Final = "is_not_a_regular_file"
"""Why a link, a folder or a device in a file's place is not read; that is not the same as absent."""
_WORKFLOW: Final = re.compile(r"(?:.*/)?\.github/workflows/[^/]+\.ya?ml")
_ACTION: Final = re.compile(r"(?:.*/)?action\.ya?ml")
_CONFIG: Final = re.compile(r".*\.(?:json|ya?ml|toml|ini|conf)|(?:.*/)?Dockerfile")

FileType = Literal[
    "workflow", "action", "protection", "contract", "manifest", "settings", "suppressions", "config", "source"
]
GATE_TYPES: Final = frozenset({"protection", "settings", "suppressions"})
"""Files that decide how the gate judges: one that cannot be read leaves the gate without a judgement."""
JUDGED_TYPES: Final = frozenset(
    {"workflow", "action", "protection", "contract", "manifest", "settings", "suppressions"}
)
_NAMED: Final[dict[str, FileType]] = {
    **dict.fromkeys(PROTECTION_FILES, "protection"),
    MANIFEST: "manifest",
    **dict.fromkeys(CONTRACTS, "contract"),
    CONFIG: "settings",
    SUPPRESSIONS: "suppressions",
    **dict.fromkeys(ACTION_FILES, "action"),
}


class ToolTable(Struct, frozen=True, tag=True):
    """A contract or a manifest: rows by tool name, each with its line."""

    rows: dict[str, dict[str, Any]]
    lines: dict[str, int]


class FileFault(Struct, frozen=True, tag=True):
    """A file that cannot be understood, and where it stops making sense."""

    line: int
    text: str


class File(Struct, frozen=True):
    path: str
    type: FileType
    sha256: str
    text: str = ""
    """Only of files that rules quote. Not cut into lines: a file of empty ones would weigh fifty times as much."""
    parsed: Workflow | Action | Protection | ToolTable | Config | SuppressionFile | FileFault | None = None

    @property
    def items(self) -> int:
        """How much of a call's room for workflows it takes."""
        return self.parsed.items if isinstance(self.parsed, Workflow | Action) else 0


class Repository(Struct, frozen=True):
    files: dict[str, File]
    skipped: tuple[SkippedFile, ...] = ()
    live_contract: dict[str, Any] | None = None
    """The contract this server runs under; None where there is no server."""
    writers: tuple[Writer, ...] = ()
    """Who may write what, by the operator's settings."""
    scopes_allowed: tuple[str, ...] = ()
    """Scopes that every job may write, by the operator's settings."""
    default_permissions: Literal["read", "write"] | None = None
    """Of a token that states none, where the caller says so; else the repository's own settings do."""

    @property
    def config(self) -> Config:
        file = self.files.get(CONFIG)
        own = file.parsed if file and isinstance(file.parsed, Config) else Config()
        return replace(own, default_permissions=self.default_permissions or own.default_permissions)

    @property
    def suppressed(self) -> tuple[SuppressionEntry, ...]:
        file = self.files.get(SUPPRESSIONS)
        return file.parsed.entries if file and isinstance(file.parsed, SuppressionFile) else ()

    @property
    def gate_faults(self) -> list[tuple[str, FileFault]]:
        """What decides how the gate judges, and cannot be read."""
        return [
            (path, file.parsed)
            for path, file in self.files.items()
            if file.type in GATE_TYPES and isinstance(file.parsed, FileFault)
        ]

    def may_write(self, path: str, job: str, scope: str) -> bool:
        if scope in self.scopes_allowed:
            return True
        return any(writer.allows(path, job, scope) for writer in (*self.writers, *self.config.write))

    def resolver(self) -> JobResolver:
        return JobResolver(self.workflows, self.actions)

    @property
    def actions(self) -> dict[str, Action]:
        return {path: file.parsed for path, file in self.files.items() if isinstance(file.parsed, Action)}

    @property
    def workflows(self) -> dict[str, Workflow]:
        return {path: file.parsed for path, file in self.files.items() if isinstance(file.parsed, Workflow)}

    @property
    def protections(self) -> list[tuple[str, Protection]]:
        return [(path, file.parsed) for path, file in self.files.items() if isinstance(file.parsed, Protection)]

    def table(self, path: str) -> ToolTable | None:
        file = self.files.get(path)
        return file.parsed if file and isinstance(file.parsed, ToolTable) else None

    def line(self, path: str, number: int) -> str:
        lines = _lines(self.files[path].text)
        return lines[number - 1] if 0 < number <= len(lines) else ""


def file_type(path: str) -> FileType:
    if _WORKFLOW.fullmatch(path):
        return "workflow"
    if _ACTION.fullmatch(path):
        return "action"
    return _NAMED.get(path) or ("config" if _CONFIG.fullmatch(path) else "source")


def governed(files: ReadFiles) -> tuple[set[str], list[SkippedFile]]:
    """What the rules always see. A place that cannot be looked at (a link, too many files) is skipped, and told."""
    found: set[str] = set()
    skipped: list[SkippedFile] = []
    for path in _NAMED:
        try:
            if files.is_file(path):
                found.add(path)
            elif files.is_there(path):
                skipped.append(SkippedFile(path, NOT_REGULAR))
        except ToolError as fault:
            skipped.append(SkippedFile(path, fault.code.lower()))
    try:
        # Everything: GitHub runs `.release.yml` like any other, and what a link leads to would not be judged.
        walked = list(files.walk(GITHUB_DIR, max_files=MAX_LOOKED_AT, everything=True))
    except ToolError as fault:
        closed = [] if fault.missing else _closed(files) if fault.code == "IO_ERROR" else [GITHUB_DIR]
        return found, [*skipped, *(SkippedFile(place, fault.code.lower()) for place in closed)]
    entries = [entry for entry in walked if entry.is_link or file_type(entry.path) in ("workflow", "action")]
    judged = {entry.path for entry in entries if not entry.is_link}
    links = [entry.path for entry in entries if entry.is_link and entry.path.startswith((WORKFLOW_DIR, ACTION_DIR))]
    skipped += [SkippedFile(path, "is_a_link") for path in links]
    if len(judged) > MAX_WORKFLOWS:
        return found, [*skipped, SkippedFile(GITHUB_DIR, "file_too_large")]
    named = (*judged, *links)
    if files.is_dir(WORKFLOW_DIR) and not any(path.startswith(f"{WORKFLOW_DIR}/") for path in named):
        # Who keeps the folder expects to be judged by it: perhaps a name is misspelt, or a checkout is not whole.
        skipped.append(SkippedFile(WORKFLOW_DIR, "no_workflow_in_it"))
    return found | judged, skipped


def _closed(files: ReadFiles) -> list[str]:
    """Which of the folders cannot be listed; all of `.github` where it is neither of those that matter most."""

    def is_closed(place: str) -> bool:
        try:
            list(files.walk(place, max_files=MAX_LOOKED_AT, everything=True))
        except ToolError as fault:
            return not fault.missing
        return False

    return [place for place in (WORKFLOW_DIR, ACTION_DIR) if is_closed(place)] or [GITHUB_DIR]


def local_actions(files: ReadFiles, parsed: Iterable[File]) -> tuple[set[str], list[SkippedFile]]:
    """The files of the repository's own actions, outside `.github/actions`, that these workflows and actions use.

    Beside them, those that are links or folders: they run, and are not judged.
    """
    folders = {
        path
        for file in parsed
        for step in _steps_of(file.parsed)
        if (path := local_path(step.uses)) is not None and not path.startswith("..")
    }
    found: set[str] = set()
    skipped: list[SkippedFile] = []
    for folder in sorted(folders):
        named = [f"{folder}/{name}" if folder != "." else name for name in ACTION_FILES]
        try:
            there = [path for path in named if files.is_there(path)]
            regular = {path for path in there if files.is_file(path)}
        except ToolError as fault:  # its folder is a link, or cannot be looked into
            skipped.append(SkippedFile(folder, fault.code.lower()))
            continue
        found |= regular
        skipped += [SkippedFile(path, NOT_REGULAR) for path in there if path not in regular]
    return found, skipped


def _steps_of(parsed: object) -> Iterator[WorkflowStep]:
    if isinstance(parsed, Action):
        yield from parsed.steps
    elif isinstance(parsed, Workflow):
        for job in parsed.jobs:
            yield from job.steps


def parse(files: list[tuple[str, bytes]]) -> list[File]:
    """Pure: bytes of strangers in, values out. Runs where it can be killed."""
    return [parse_as(file_type(path), path, data) for path, data in files]


def parse_as(kind: FileType, path: str, data: bytes) -> File:
    digest = sha256(data).hexdigest()
    reader = _READERS.get(kind)
    if reader is None:
        return File(path, kind, digest)
    parsed: Workflow | Action | Protection | ToolTable | Config | SuppressionFile | FileFault
    try:
        parsed = reader(path, data)
    except YamlFault as fault:
        parsed = FileFault(fault.line, fault.text)
    return File(path, kind, digest, data.decode(errors="replace"), parsed)


@lru_cache(maxsize=4)
def _lines(text: str) -> list[str]:
    """A rule goes through a repository file by file: the last few are enough."""
    return text.splitlines()


def _json(data: bytes) -> tuple[Any, Node | None]:
    """The strict value, and the same document as nodes that know their lines."""
    try:
        value = strictjson.loads(data, max_bytes=MAX_FILE_BYTES, max_values=None)
    except strictjson.JsonFault as fault:
        raise YamlFault(1, str(fault)) from None
    return value, yamldoc.read(data, max_bytes=MAX_FILE_BYTES, max_nodes=MAX_JSON_NODES)


def _protection(_path: str, data: bytes) -> Protection:
    return read_protection(*_json(data))


def _tool_table(_path: str, data: bytes) -> ToolTable:
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


_READERS: Final[dict[FileType, Callable[[str, bytes], Any]]] = {
    "workflow": read_workflow,
    "action": read_action,
    "protection": _protection,
    "contract": _tool_table,
    "manifest": _tool_table,
    "settings": lambda _path, data: read_config(data),
    "suppressions": lambda _path, data: read_suppressions(data),
}
