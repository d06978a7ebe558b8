"""Write the generated pages of docs/reference from the code. Run it after changing any of them.

A test fails when what is committed differs from what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from toolgate import errors
from toolgate.cli.calls.arguments import arguments, example
from toolgate.cli.commands import OWN, load, shipped
from toolgate.cli.config.settings import toml_value
from toolgate.config import FILE_NAME, OTHER_VARIABLES
from toolgate.gate.redact import MAX_FIELDS, MAX_TEXT
from toolgate.model import strictjson
from toolgate.model.tool import Tool
from toolgate.packs.discovery import store_settings
from toolgate.packs.loader import built_in, load_packs
from toolgate.policy.manifest import ManifestRow, load_manifest
from toolgate.settings import SPECS, TABLES
from toolgate.settings.spec import Spec
from toolgate.telemetry.families import FAMILIES

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
_NOTE: Final = "<!-- Written by scripts/reference.py from the code; edit there. -->"


def pages() -> dict[str, str]:
    """File name -> text, for every page."""
    return {name: "\n".join([_NOTE, *lines]) + "\n" for name, lines in _lines().items()}


def _lines() -> dict[str, list[str]]:
    return {
        "settings.md": list(_settings()),
        "limits.md": list(_limits()),
        "cli.md": list(_cli()),
        "exit-codes.md": list(_exit_codes()),
        "errors.md": list(_errors()),
        "tools.md": list(_tools()),
        "prompts-and-resources.md": list(_offers()),
        "metrics.md": list(_metrics()),
    }


def _errors() -> Iterator[str]:
    yield from (
        "# Errors: one call, one verdict",
        "",
        "What happened to a call, and how each face spells it. `isError` means: 200 and a result with `isError: true`.",
        "On stdio the JSON-RPC error object is the same as over HTTP.",
        "",
        "| what happened | `/mrt_dispatch` | `/rpc` | MCP | `toolgate call` |",
        "|---|---|---|---|---|",
    )
    for ending, verdict in errors.VERDICTS.items():
        mcp = "`isError`" if verdict.mcp_code is None else f"{verdict.mcp_status}, code {verdict.mcp_code}"
        yield (
            f"| {ending.value.replace('_', ' ')} | {verdict.mrt_status} `{verdict.mrt_code}` | {verdict.rpc_status}, "
            f"code {verdict.rpc_code}, `{verdict.canonical}` | {mcp} | {verdict.exit_code} |"
        )
    yield from (
        "",
        "The handshake revisions of MCP answer 200 to an unknown tool, with the same code. `details.reason` on `/mrt_dispatch`",
        "and `error.data.reason` on `/rpc` hold a stable word: `missing_X`, `X_too_long`, `invalid_X`, `unknown_argument` for",
        "arguments; a tool's own code in lower case for what it says; `crashed`, `deadline_exceeded`, `cancelled` for a tool",
        "that failed; `store_unavailable`, `no_thread`, `no_worker`, `workers_busy`, `worker_ended`, `out_of_memory`,",
        "`disk_low`, `write_share_used`, `too_much_written` for work that could not be done now, whatever its arguments.",
    )


def _tools() -> Iterator[str]:
    manifest = load_manifest(None)
    yield from (
        "# Tools",
        "",
        "Every tool of the packs that ship with Toolgate. Tier and roles are the packaged policy's.",
    )
    for pack in load_packs(built_in()):
        yield from ("", f"## {pack.name}")
        for tool in pack.tools:
            yield from _tool(tool, manifest.rows[tool.name])


def _offers() -> Iterator[str]:
    packs, manifest = load_packs(built_in()), load_manifest(None)
    yield from (
        "# Prompts and resources",
        "",
        "What the packs that ship with Toolgate offer MCP clients beside tools. Getting a prompt and reading a resource are",
        "calls: roles are the packaged policy's, and each is in the audit log under its id.",
        "",
        "| prompt | what | arguments | id | roles |",
        "|---|---|---|---|---|",
    )
    for prompt in (each for pack in packs for each in pack.prompts):
        taken = ", ".join(
            f"`{one.path}`{'' if one.required else ' (optional)'}" for one in arguments(prompt.input_schema)
        )
        roles = ", ".join(sorted(manifest.rows[f"prompt:{prompt.name}"].roles))
        yield f"| `{prompt.name}` | {_cell(prompt.summary)} | {taken or 'none'} | `mcp.prompt:{prompt.id}` | {roles} |"
    yield from (
        "",
        "| address | what | media type | completed | changes are told | id | roles |",
        "|---|---|---|---|---|---|---|",
    )
    for resource in (each for pack in packs for each in pack.resources):
        roles = ", ".join(sorted(manifest.rows[f"resource:{resource.name}"].roles))
        completed, told = ", ".join(resource.completes) or "no", "yes" if resource.stamp is not None else "no"
        yield (
            f"| `{resource.uri}` | {_cell(resource.summary)} | {resource.mime_type} | {completed} | {told} | "
            f"`mcp.resource:{resource.id}` | {roles} |"
        )


def _tool(tool: Tool, row: ManifestRow) -> Iterator[str]:
    yield from ("", f"### `{tool.name}`", "", tool.summary, "")
    record = f", {row.adr}" if row.adr else ""
    yield f"`{tool.canonical_id}` · {row.tier}{record} · {', '.join(sorted(row.roles))} · {tool.effect} · {tool.deadline_s:g} s"
    fields = list(arguments(tool.input_schema))
    if fields:
        yield from ("", "| argument | what | |", "|---|---|---|")
        for each in fields:
            yield f"| `{each.path}` | {_cell(each.what)} | {_cell(each.kind)}{', required' if each.required else ''} |"
        yield from ("", f"Example: `{strictjson.dumps(example(tool.input_schema)).decode()}`")
    if tool.error_codes:
        yield from ("", "Codes: " + ", ".join(f"`{code}`" for code in sorted(tool.error_codes)) + ".")


def _settings() -> Iterator[str]:
    yield from (
        "# Settings",
        "",
        f"A value comes from the first of: flag, variable, `{FILE_NAME}` in the home directory, default. An unknown name refuses",
        "to start and names the nearest; only a `TOOLGATE_*` variable that looks like none of these is ignored, with a warning.",
        "`toolgate config print --resolved` shows every value and where it comes from.",
        "Relative paths are relative to the home directory: `--home`, else `TOOLGATE_HOME`, else the current directory.",
        "A home that is only the current directory may not run a program (`ledger.anchor_command`), name a database, an `env:`",
        "secret of a pack, or a path outside itself: for such settings name the home, or give them as flags or variables.",
        "Lists in flags and variables are separated by commas, or written as a TOML array.",
        "A setting marked *secret* can also be read from a file: the variable `..._FILE` names it. Its value is never shown, and",
        "it is not a flag: every user of a machine can read the flags of its programs.",
        "A reload (SIGHUP, `toolgate reload`) takes over what is marked *reloads*, `[ledger.keep]` and `[upstreams]`; it names",
        "changes of any other setting, which need a restart.",
    )
    for table, kind in {"": None, **TABLES}.items():
        rows = [spec for spec in [*SPECS, *store_settings(built_in())] if spec.key.rpartition(".")[0] == table]
        yield from ("", f"## [{table}]" if table else "## Without a table", "")
        if kind is not None:
            yield from (inspect.getdoc(kind) or "", "")
        yield from (
            "| setting | default | what it does | unit, range | variable | flag |",
            "|---|---|---|---|---|---|",
        )
        yield from (_setting(spec) for spec in rows)
        if table == "ledger":
            yield from _kept_arguments()
    yield from _pack_settings()
    yield from ("", "## Variables that are not settings", "", "| variable | what it is for |", "|---|---|")
    yield from (f"| `{name}` | {about} |" for name, about in OTHER_VARIABLES.items())


def _kept_arguments() -> Iterator[str]:
    yield from (
        "",
        "## [ledger.keep]",
        "",
        "Arguments that the audit log keeps, by tool; none unless named. One line for each tool, such as",
        '`notes_add = ["ticket"]`; as a variable `TOOLGATE_LEDGER_KEEP_NOTES_ADD=ticket`, as a flag',
        "`--set ledger.keep.notes_add=ticket`.",
        f"At most {MAX_FIELDS} arguments of a tool, the first {MAX_TEXT} characters of each. A tool or an argument that does not",
        "exist, and an argument that its schema marks as secret, refuse to start.",
    )


def _setting(spec: Spec) -> str:
    marks = ("*secret*" if spec.secret else "", "*reloads*" if spec.live else "")
    unit = ", ".join(part for part in (spec.measure, *marks) if part)
    name = spec.key.rpartition(".")[2]
    flags = "none" if spec.secret else ", ".join(f"`{flag}`" for flag in (spec.short, spec.flag) if flag)
    return f"| `{name}` | `{toml_value(spec.default)}` | {spec.about} | {unit} | `{spec.variable}` | {flags} |"


FIXED: Final[Mapping[str, Mapping[str, str]]] = {
    "toolgate.servers.framing": {
        "BLANK_BYTES": "400, then closed",
        "FRAME_BYTES": "counts towards `server.header_bytes`",
        "FRAMES_A_STEP": "the rest waits for the next turn",
        "LENGTH_DIGITS": "400 `bad_length`, then closed",
        "KNOWN_HEADS": "nothing: all are forgotten, and read anew",
        "KNOWN_HEAD_BYTES": "nothing: it is read anew each time",
    },
    "toolgate.servers.connection": {
        "STRANGER_ANSWERS": "`connection: close` with the last of them",
        "AHEAD_BYTES": "it is read on when its answers are out",
        "UNSENT_BYTES": "`server.write_seconds` begin to run",
        "SEND_BUFFER_BYTES": "nothing",
        "LINGER_S": "the connection ends",
        "LINGER_BYTES": "the connection ends",
    },
    "toolgate.servers.door": {
        "TURN_S": "its next message waits for the next turn",
        "STRANGERS_TURN_S": "their next messages wait for the next turn",
        "READ_BYTES": "nothing",
        "SMALL_READ_BYTES": "nothing",
        "LARGE_BODY_BYTES": "its answer waits for a turn of its own",
    },
    "toolgate.servers.server": {
        "BACKLOG": "connecting takes longer: its system tries again",
        "ACCEPTS_A_TURN": "its first answer comes some turns later",
    },
    "toolgate.model.strictjson": {"MAX_DEPTH": "400 `malformed_json`", "MAX_VALUES": "400 `too_many_values`"},
    "toolgate.faces.mcp": {"MAX_ID": "-32600 for an id, -32602 for a progress token"},
    "toolgate.ledger.flood": {"PER_SECOND": "the same refusal, without a place in the log"},
    "toolgate.gate.shared": {"WAIT_S": "503 `limits_unreachable`, or the share"},
    "toolgate.powers.worker": {
        "MEMORY_BYTES": "the call fails: `out_of_memory`",
        "FILE_BYTES": "the call fails: `crashed`",
    },
    "toolgate.powers.net": {
        "MAX_REDIRECTS": "the fetch fails, and the answer says so",
        "MAX_BODY_BYTES": "the fetch fails, and the answer says so",
        "TIMEOUT_S": "the fetch fails, and the answer says so",
    },
    "toolgate.powers.jobs": {"MAX_JOBS": "the call fails", "IDLE_TIMEOUT_S": "the job is stopped"},
}
"""Limits that are not settings, and what a client meets at each. Value and reason are the code's own."""


_DISK: Final = (
    "## Disk",
    "",
    "A tool reaches a disk only by what it is handed, and each of these has a bound:",
    "",
    "| what is written | what bounds it |",
    "|---|---|",
    "| files of the workspace | `limits.write_bytes_per_caller`, and `limits.free_bytes`, which is left to others |",
    "| stores in SQLite | `limits.store_bytes`, each; a database server has bounds of its own |",
    "| answers kept for idempotency keys | `idempotency.keys_per_caller` and `idempotency.bytes_per_caller` |",
    "| what a worker process makes of a document | nothing is written: `powers.worker.FILE_BYTES` |",
    "| records of calls | one or two a call: `limits.rate_per_minute`; of refusals `ledger.flood.PER_SECOND` |",
    "| the audit log | `ledger.retention_days`; `ledger.low_space_bytes` warns, and on a full disk every call is refused |",
    "| what an adopted server writes | it is another program: bound it where it runs |",
)


def _limits() -> Iterator[str]:
    yield from (
        "# Limits",
        "",
        "Everything that can wait, be held or be repeated has a bound. Each of these is a [setting](settings.md); statuses are",
        "those of HTTP, and `toolgate.servers` answers what never becomes a call with `{ok: false, error: {message}}`.",
        "",
        "| limit | default | what it bounds | what a client sees at it |",
        "|---|---|---|---|",
    )
    for spec in SPECS:
        if spec.sees is not None:
            yield f"| `{spec.key}` | {toml_value(spec.default)} {spec.unit} | {spec.about} | {spec.sees} |"
    yield from (
        "",
        "A tool's own deadline stands with it in [tools](tools.md): when it is over, the call fails with `deadline_exceeded`.",
        "Its arguments are bounded by its schema.",
        "",
        *_DISK,
        "",
        "## Fixed",
        "",
        "| limit | value | why | what a client sees at it |",
        "|---|---|---|---|",
    )
    for module, names in FIXED.items():
        code = import_module(module)
        reasons = dict(_documented(code))
        for name, sees in names.items():
            yield f"| `{module.removeprefix('toolgate.')}.{name}` | {getattr(code, name)} | {_cell(reasons[name])} | {sees} |"
    for pack in load_packs(built_in()):
        for limit in pack.limits:
            yield f"| `packs.{pack.name}.{limit.name}` | {limit.value} | {_cell(limit.why)} | {limit.sees} |"


def _pack_settings() -> Iterator[str]:
    """Each pack's own table, out of the schema that checks it."""
    for pack in load_packs(built_in()):
        properties: Mapping[str, Any] = pack.settings_schema.get("properties", {})
        if not properties:
            continue
        yield from ("", f"## [packs.{pack.name}]", "", "| setting | default | what it is for |", "|---|---|---|")
        for name, about in properties.items():
            default = f"`{toml_value(about['default'])}`" if "default" in about else ""
            yield f"| `{name}` | {default} | {_cell(about.get('description', ''))} |"


def _cli() -> Iterator[str]:
    yield from (
        "# Commands",
        "",
        "Answers go to standard output, everything else to standard error. `--json` is for programs. `NO_COLOR` is honoured.",
        "Commands marked *settings flags* take `--home`, `--set KEY=VALUE` and a flag for [every setting](settings.md).",
        "What the exit codes mean: [exit codes](exit-codes.md). `toolgate --install-completion` installs shell completion.",
    )
    for name, command in {**OWN, **shipped()}.items():
        yield from _command(f"toolgate {name}", load(command))


def _command(path: str, command: Any) -> Iterator[str]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else None
    yield from ("", f"{'##' if path.count(' ') == 1 else '###'} {path}", "")
    yield _help(command.help or "")
    yield from _parameters(command) if names is None else ()
    for name in names or ():
        yield from _command(f"{path} {name}", command.resolve_command(None, [name])[1])


def _help(text: str) -> str:
    """Paragraphs as paragraphs; a command's help is wrapped for the source file, not for the page."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", inspect.cleandoc(text)))


def _parameters(command: Any) -> Iterator[str]:
    own = [each for each in command.params if not _is_setting(each) and each.name != "help"]
    if len(own) < len([each for each in command.params if each.name != "help"]):
        own = [each for each in own if each.name not in ("home", "set_")]
        yield from ("", "Takes the *settings flags*.")
    if own:
        yield from ("", "| argument | |", "|---|---|")
    for each in own:
        required = " Required." if each.required else ""
        yield f"| {_spelling(each)} | {_cell(getattr(each, 'help', None) or '')}{required} |"


def _is_setting(parameter: Any) -> bool:
    return str(getattr(parameter, "rich_help_panel", None) or "").startswith("Settings")


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_cell(parameter.metavar or parameter.name.upper())}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _exit_codes() -> Iterator[str]:
    yield from ("# Exit codes", "", "| code | name | meaning |", "|---|---|---|")
    for name, meaning in _documented(errors.ExitCode):
        yield f"| {getattr(errors.ExitCode, name)} | `{name}` | {meaning} |"
    yield from (
        "",
        "Ctrl+C ends a command with 130. A server that is told to stop (SIGTERM, SIGINT) drains and ends with 0.",
        "A fault that nobody reads (standard error is closed) keeps its code.",
        "",
        "## What `toolgate call` ends with",
        "",
        "A call that went through ends with the tool's own exit code: 0, or 1 where the finding is bad.",
        "",
        "| what happened | exit code | over HTTP |",
        "|---|---|---|",
    )
    for ending, verdict in errors.VERDICTS.items():
        yield f"| {ending.value.replace('_', ' ')} | {verdict.exit_code} | {verdict.mrt_status} `{verdict.mrt_code}` |"


def _metrics() -> Iterator[str]:
    yield from (
        "# Metrics",
        "",
        "What `/metrics` shows ([observing](../guides/observing.md)). Of several processes behind one port the",
        "numbers are joined as the last column says. A number whose part is not configured is not there.",
        "",
        "| name | kind | labels | meaning | joined by |",
        "|---|---|---|---|---|",
    )
    for family in FAMILIES:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{name}` | {family.kind} | {labels} | {family.about} | {family.joins} |"


def _documented(owner: type | ModuleType) -> Iterator[tuple[str, str]]:
    """Names of a class or module and the texts below them, which only the source has."""
    statements = ast.parse(inspect.getsource(owner)).body
    if isinstance(owner, type):
        statements = cast(ast.ClassDef, statements[0]).body
    for one, two in pairwise(statements):
        if isinstance(two, ast.Expr) and isinstance(two.value, ast.Constant):
            if isinstance(one, ast.Assign):
                yield ast.unparse(one.targets[0]), str(two.value.value)
            elif isinstance(one, ast.AnnAssign):
                yield ast.unparse(one.target), str(two.value.value)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
